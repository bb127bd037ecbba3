"""A folder of made-up recordings: tones whose pitch follows the letters of the text."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from trainers.vits.corpus import SpeechCorpus
from trainers.vits.preparation import CorpusSettings, prepare_corpus

RATE: Final = 16_000
PER_LETTER: Final = 2_048
"""Samples of a letter: eight frames."""

TEXTS: Final = {
    "t00": "deh dest kevn",
    "t01": "dixwîne kesk",
    "t02": "reş çar bo",
    "t03": "mezin baş şev",
    "t04": "ez diçim malê",
    "t05": "pirtûk nû ye",
    "t06": "heft û heşt",
    "t07": "nan û av",
    "t08": "zer û sor",
    "t09": "tu dibêje li",
}
"""Ids and texts; enough for three parts."""

few = partial(CorpusSettings, selection=1, held_out=1)
"""Settings for so few clips: one text to choose by, one to judge by."""


def tones(text: str, rate: int = RATE) -> NDArray[np.float64]:
    """One tone per letter, higher with its code point, and near silence for a space."""
    times = np.arange(PER_LETTER * rate // RATE) / rate
    loudness = [0.01 if letter == " " else 0.5 for letter in text]
    pitches = [200 + 23 * (ord(letter) % 64) for letter in text]
    return np.concatenate(
        [much * np.sin(2 * np.pi * pitch * times) for much, pitch in zip(loudness, pitches, strict=True)]
    )


def write_clip_of(path: Path, text: str, rate: int = RATE) -> None:
    """Write a 16-bit recording in the format of the file's extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tones(text, rate), rate)


def write_lines(folder: Path, lines: Sequence[str]) -> None:
    """Write metadata.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_recordings(folder: Path, texts: Mapping[str, str] = TEXTS, rate: int = RATE) -> Path:
    """Write metadata.csv and wavs/*.wav, and return the folder."""
    write_lines(folder, [f"{name}|{text}" for name, text in texts.items()])
    for name, text in texts.items():
        write_clip_of(folder / "wavs" / f"{name}.wav", text, rate)
    return folder


def prepared(folder: Path, texts: Mapping[str, str] = TEXTS) -> SpeechCorpus:
    """Write recordings below a folder and prepare a corpus from them."""
    return prepare_corpus(write_recordings(folder / "source", texts), folder / "prepared", few())
