"""A tiny voice trained on a few Kurdish clips, and corrections from clips that it has not seen."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from tiny_voice import tiny_config
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.preparation import CorpusSettings, RecordingEntry, prepare_clips
from trainers.vits.speech_recogniser import FOLDER, train_recogniser
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

KURDISH: Final = Path(__file__).parent / "fixtures" / "kurdish"
TEXTS: Final[Mapping[str, str]] = dict(
    line.split("|") for line in (KURDISH / "metadata.csv").read_text(encoding="utf-8").splitlines()
)
BASE: Final = list(TEXTS)[:30]
"""Clips of the base corpus."""
LATER: Final = list(TEXTS)[30:]
"""Clips used as corrections."""
RUNNER: Final = CliRunner()


def base_corpus(folder: Path) -> Path:
    """The prepared base corpus, with a barely trained speech recogniser."""
    entries = [RecordingEntry(name, TEXTS[name], recording(name)) for name in BASE]
    vocabulary_of_all = {sign for text in TEXTS.values() for sign in text}
    numbers = {sign: number for number, sign in enumerate(("<pad>", *sorted(vocabulary_of_all), "<unk>"))}
    corpus = prepare_clips(entries, folder, CorpusSettings(selection=3, held_out=4, vocabulary=numbers))
    train_recogniser(corpus, steps=1).save(folder / FOLDER)
    return folder


def new_voice(folder: Path, corpus: Path) -> Path:
    """An untrained voice as version 1."""
    torch.manual_seed(1)
    vocabulary = SpeechCorpus.open(corpus).vocabulary
    config = tiny_config(vocabulary=len(vocabulary))
    config.upsample_rates, config.upsample_kernel_sizes = [16, 16], [32, 32]
    VoiceVersions(folder).add(Voice.fresh(config, vocabulary), {"steps": 0})
    return folder


def recording(name: str) -> Path:
    return KURDISH / "wavs" / f"{name}.flac"


def correction(name: str, rating: int = 5) -> dict[str, Any]:
    """A manifest line."""
    return {"audio": str(recording(name)), "text": TEXTS[name], "rating": rating}


def manifest(folder: Path, lines: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write a manifest of these lines."""
    path = folder / "feedback.jsonl"
    told = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("".join(f"{line}\n" for line in told), encoding="utf-8")
    return path


def feedback(voice: Path, corpus: Path, told: Path, *more: str) -> Any:
    """Exit code of `quantra train vits feedback`."""
    words = ["feedback", str(voice), "--corpus", str(corpus), "--manifest", str(told), "--json", *more]
    return RUNNER.invoke(app, ["train", "vits", *words])


def copy_voice(voice: Path, folder: Path) -> Path:
    """A private copy of a voice."""
    shutil.copytree(voice, folder)
    return folder
