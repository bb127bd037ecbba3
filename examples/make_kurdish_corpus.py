"""Make a Kurmanji corpus with espeak-ng: python examples/make_kurdish_corpus.py recordings --clips 60.

Writes FOLDER/metadata.csv with `id|text` lines and FOLDER/wavs/ID.flac at 16 kHz, for `quantra train vits prepare`. The
texts are random sentences of three to five words, without duplicates. With `--changed WORD=SPELLING` the recordings
pronounce a word differently, like a correction of the pronunciation.
Needs espeak-ng (on Debian: apt install espeak-ng) and the extra `tts`.
"""

import argparse
import io
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = (
    "yek du sê çar pênc şeş heft heşt neh deh bîst sed hezar roj şev av nan mal bajar gund çiya deng ziman "
    "pirtûk nav dest çav ser dil bihar havîn payîz zivistan sor kesk zer spî reş mezin biçûk nû kevn baş xweş "
    "ez tu ew em hûn dibêje diçe tê dixwîne dinivîse dibîne û li ji bo bi"
)
WORDS = VOCABULARY.split()
RATE = 16_000
VOICE, WORDS_PER_MINUTE = "ku", "165"
QUIET, MARGIN = 0.005, 400
"""Loudness (0 to 1) below which samples are silence, and samples of silence kept before and after the words."""
DRAWS = 100_000
"""Maximum number of sentences drawn."""


def sentences(seed: int, changed: Mapping[str, str]) -> Iterator[str]:
    """Unique texts; if words are changed, only texts that contain one of them."""
    draw, seen = random.Random(seed), set[str]()  # noqa: S311  nothing secret
    for _ in range(DRAWS):
        words = [draw.choice(WORDS) for _ in range(draw.randint(3, 5))]
        text = " ".join(words)
        if text not in seen and (not changed or not changed.keys().isdisjoint(words)):
            seen.add(text)
            yield text


def spelled(text: str, changed: Mapping[str, str]) -> str:
    """The text as espeak-ng reads it, with changed spellings."""
    return " ".join(changed.get(word, word) for word in text.split())


def recording(spelling: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A recording by espeak-ng: float32 [T] at 16 kHz, with short silence around it and a peak of 0.9.

    Raises:
        SystemExit: espeak-ng failed or produced silence.
    """
    import soundfile
    from scipy.signal import resample_poly

    command = ["espeak-ng", "-v", VOICE, "-s", WORDS_PER_MINUTE, "--stdout", spelling]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603  no shell reads it
    if done.returncode:
        raise SystemExit(f"espeak-ng cannot read {spelling!r}: {done.stderr.decode(errors='replace').strip()}")
    samples, rate = soundfile.read(io.BytesIO(done.stdout), dtype="float32")
    wave = resample_poly(samples, RATE, rate)
    loud = np.flatnonzero(np.abs(wave) > QUIET)
    if not len(loud):
        raise SystemExit(f"espeak-ng produces silence for {spelling!r}; choose another spelling")
    wave = wave[max(0, loud[0] - MARGIN) : loud[-1] + MARGIN]
    return (0.9 * wave / np.abs(wave).max()).astype(np.float32)


def make(folder: Path, clips: int, seed: int, changed: Mapping[str, str]) -> None:
    """Write a corpus into a new folder; the list of texts is written last.

    Raises:
        SystemExit: espeak-ng is missing, the folder is not empty, or there are too few sentences.
    """
    import soundfile

    if shutil.which("espeak-ng") is None:
        raise SystemExit("espeak-ng is not installed, or not in PATH; on Debian and Ubuntu: apt install espeak-ng")
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty; name a new folder")
    texts = [text for _, text in zip(range(clips), sentences(seed, changed), strict=False)]
    if len(texts) < clips:
        raise SystemExit(f"only {len(texts)} sentences were found, of {clips}; ask for fewer --clips")
    (folder / "wavs").mkdir(parents=True)
    for number, text in enumerate(texts):
        soundfile.write(folder / "wavs" / f"ku{number:04d}.flac", recording(spelled(text, changed)), RATE)
    lines = [f"ku{number:04d}|{text}\n" for number, text in enumerate(texts)]
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")


def change(pair: str) -> tuple[str, str]:
    """Parse a word and its new spelling, such as nav=name.

    Raises:
        ArgumentTypeError: It is not such a pair, or the word does not occur.
    """
    word, equals, spelling = pair.partition("=")
    if not equals or not spelling.strip():
        raise argparse.ArgumentTypeError(f"{pair!r} is not WORD=SPELLING, such as nav=name")
    if word not in WORDS:
        raise argparse.ArgumentTypeError(f"{word!r} is in no sentence; the words are {VOCABULARY}")
    return word, spelling


def positive(text: str) -> int:
    """Parse a whole number of 1 or more.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def main() -> None:
    """Create a corpus and print its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("folder", type=Path, help="new or empty folder")
    parser.add_argument("--clips", type=positive, default=240, help="sentences to record (default: 240)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the sentences (default: 7)")
    parser.add_argument(
        "--changed",
        type=change,
        action="append",
        default=[],
        metavar="WORD=SPELLING",
        help="record a word with another spelling, in sentences that contain it; the text stays; repeatable",
    )
    options = parser.parse_args()
    make(options.folder, options.clips, options.seed, dict(options.changed))
    print(f"{options.clips} clips in {options.folder}")


if __name__ == "__main__":
    main()
