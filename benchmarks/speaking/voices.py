"""Voices that the user's commands train and score, saved in a folder.

An interrupted run continues: finished voices and scores are read, an unfinished training is resumed.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, Final, final

from benchmarks.environments import ROOT, run_trainer
from trainers.loop import seed_everything
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice, build_config

RECORDER: Final = ROOT / "examples" / "make_kurdish_corpus.py"
FIXTURE: Final = ROOT / "tests" / "fixtures" / "kurdish"
RATE: Final = 16_000
CLIPS, PART = 288, 24
"""Total number of clips, and size of the selection and of the held-out part; the others are for training."""


@final
@dataclass(frozen=True, slots=True)
class VoiceScores:
    """Scores of a voice on held-out clips.

    Attributes:
        error_rate: character error of the voice.
        distance: mean absolute difference of log mel along the best warping path.
        reconstruction: the same without warping, for recordings through encoder and decoder.
        length_error: mean |log length ratio|.
        recogniser_error_rate: character error of the recogniser on held-out recordings.
    """

    error_rate: float
    distance: float
    reconstruction: float
    length_error: float
    recogniser_error_rate: float

    @classmethod
    def of(cls, scores: Mapping[str, Any]) -> "VoiceScores":
        """Read the output of `evaluate --json`."""
        return cls(*(scores[name] for name in cls.__slots__))


@final
class Workplace:
    """A folder with a corpus and the voices trained on it.

    Args:
        folder: its existing content is reused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = folder / "corpus"

    def prepare(self, recordings: Path, *words: str) -> None:
        """Make a corpus from a folder of recordings if it does not exist."""
        if not self.corpus.is_dir():
            run_trainer("trainers.vits", "prepare", recordings, "--out", self.corpus, *words)

    def record(self, name: str, *words: str) -> Path:
        """Record sentences with espeak-ng if their folder does not exist."""
        folder = self.folder / name
        if not folder.is_dir():
            subprocess.run([sys.executable, RECORDER, folder, *words], check=True)
        return folder

    def untrained(self, seed: int) -> Path:
        """The starting voice of a seed, with its speaking rate searched, too."""
        place = self.folder / f"untrained-{seed}"
        if not (place / "voice.json").is_file():
            corpus = SpeechCorpus.open(self.corpus)
            voice = first_voice(corpus, seed)
            voice.fit_speaking_rate([(clip.text, clip.frames) for clip in corpus.list_clips("selection")])
            VoiceVersions(place).add(voice, {"seed": seed})
        return place

    def trained(self, name: str, *words: str) -> Path:
        """Train a voice with these flags if it does not exist."""
        place = self.folder / name
        if not (place / "voice.json").is_file():
            run_trainer("trainers.vits", "train", self.corpus, "--out", place, "--resume", "--json", *words)
        return place

    def judged(self, voice: Path) -> VoiceScores:
        """Scores of a voice by `evaluate`, from an earlier run if they exist."""
        kept = self.folder / f"{voice.name}.json"
        if not kept.is_file():
            kept.write_text(run_trainer("trainers.vits", "evaluate", voice, "--corpus", self.corpus, "--json"), "utf-8")
        return VoiceScores.of(json.loads(kept.read_text("utf-8")))


def first_voice(corpus: SpeechCorpus, seed: int) -> Voice:
    """A new voice of size `fast`, as a training run with this seed initializes it."""
    seed_everything(seed)
    return Voice.fresh(build_config("fast", "deterministic", corpus.framing, corpus.vocabulary), corpus.vocabulary)


def workplace(folder: Path, *, quick: bool) -> Workplace:
    """A workplace with the full corpus, or for a quick run with that of the tests, which needs no espeak-ng."""
    place = Workplace(folder / ("quick" if quick else "whole"))
    place.folder.mkdir(parents=True, exist_ok=True)
    if quick:
        place.prepare(FIXTURE, "--selection", "6", "--held-out", "6")
        return place
    if which("espeak-ng") is None:
        raise SystemExit("espeak-ng is not installed, or not in PATH; on Debian and Ubuntu: apt install espeak-ng")
    recordings = place.record("recordings", "--clips", str(CLIPS))
    place.prepare(recordings, "--selection", str(PART), "--held-out", str(PART))
    return place
