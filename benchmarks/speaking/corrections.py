"""Effect of corrections on a voice: changed words, noise, and recordings with wrong texts.

Some words are recorded from another spelling while their text stays, as a listener would correct a pronunciation.
Clips of the base corpus with the old pronunciation are rated 1; the recogniser knows neither. Noise is as loud as the
recordings that it replaces, and wrong texts are those of other recordings.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.environments import run_trainer
from benchmarks.report import Row, at_least, at_most, shown
from benchmarks.speaking.voices import FIXTURE, RATE, Workplace
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.recipe import FeedbackRecipe
from trainers.vits.speech_evaluation import score
from trainers.vits.speech_recogniser import load_or_train_recogniser
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

Wave = NDArray[np.floating[Any]]

CLIPS: Final = 65
"""Number of clips: a third is held out, a twentieth is for selection, and 40 are for training."""

CHANGED: Final = {"ziman": "zuman", "biçûk": "buçok", "dibêje": "dabuje", "zivistan": "zuvastun", "yek": "yak"}
"""Spellings of words that no held-out clip of the base contains, so that those clips measure forgetting."""
SEEDS: Final = (0, 1, 2)
NEARER, WORSE = 10.0, 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of `feedback`.

    Attributes:
        accepted: whether it created a new version.
        changes: change of each score, in per cent.
        values: each score before and after.
    """

    accepted: bool
    changes: Mapping[str, float]
    values: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> "Outcome":
        """Read the output of `feedback --json`."""
        lines: Sequence[Mapping[str, Any]] = [line for line in output["lines"] if line["change"] is not None]
        return cls(
            accepted=output["accepted"],
            changes={line["what"]: 100 * line["change"] for line in lines},
            values={line["what"]: (line["before"], line["after"]) for line in lines},
        )


def rows(work: Workplace, voice: Path, *, quick: bool) -> list[Row]:
    """Rows of three manifests with three seeds each; a quick run has one seed and two steps."""
    seeds = SEEDS[:1] if quick else SEEDS
    steps = ("--steps", "2") if quick else ()
    manifests = _manifests(work, quick=quick)
    found = {
        name: [corrected(work, voice, manifest, f"{name}-{seed}", "--seed", str(seed), *steps) for seed in seeds]
        for name, manifest in manifests.items()
    }
    return [
        *(
            row
            for seed, one in zip(seeds, found["changed"], strict=True)
            for row in _of_changed(seed, one, judged=not quick)
        ),
        *_without(work, voice, [] if quick else found["changed"]),
        *(_of_refused(name, found[name], judged=not quick) for name in ("noise", "wrong texts")),
    ]


def _without(work: Workplace, voice: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Train the same number of steps at the same rate on the base only: the effect without corrections."""
    kept = work.folder / "corrected changed-0" / "2" / "feedback" / "corrections"
    if not outcomes or not kept.is_dir():
        return []
    recipe = FeedbackRecipe()
    rate = ("--learning-rate", str(recipe.learning_rate))
    place = work.trained("longer", "--from", str(voice), "--steps", str(recipe.steps), *rate)
    corrections = SpeechCorpus.open(kept)
    scores = score(
        Voice.load(VoiceVersions(place).current),
        corrections,
        corrections.list_clips("held_out"),
        load_or_train_recogniser(SpeechCorpus.open(work.corpus)),
    )
    before, after = outcomes[0].values["corrections, distance"][0], scores.distance or math.inf
    return [
        shown(
            "same number of steps without corrections: distance from them falls by, %",
            100 * (1 - after / before),
            detail=f"from {before:.3f} to {after:.3f}, seed 0",
        )
    ]


def corrected(work: Workplace, voice: Path, manifest: Path, name: str, *words: str) -> Outcome:
    """Run `feedback` on a copy of the voice, or read its earlier result."""
    kept = work.folder / f"corrected {name}.json"
    if not kept.is_file():
        copy = work.folder / f"corrected {name}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(voice, copy)
        command = ("feedback", copy, "--corpus", work.corpus, "--manifest", manifest, "--skip-bad", "--json", *words)
        kept.write_text(run_trainer("trainers.vits", *command, allowed=(0, 1)).splitlines()[-1], "utf-8")
    return Outcome.of(json.loads(kept.read_text("utf-8")))


def _of_changed(seed: int, outcome: Outcome, *, judged: bool) -> list[Row]:
    title = f"corrections, seed {seed}"
    accepted = "accepted" if outcome.accepted else "refused"
    return [
        at_least(
            f"{title}: distance from them falls by, %",
            -outcome.changes["corrections, distance"],
            NEARER,
            detail=f"{accepted}; {_from(outcome, 'corrections, distance')}",
            judged=judged,
        ),
        *(
            at_most(
                f"{title}: {what} grows by, %",
                outcome.changes[what],
                WORSE,
                detail=_from(outcome, what),
                judged=judged,
            )
            for what in ("base, distance", "base, error rate")
        ),
    ]


def _of_refused(name: str, outcomes: Sequence[Outcome], *, judged: bool) -> Row:
    refused = sum(not one.accepted for one in outcomes)
    figures = "; ".join(
        ", ".join(f"{what} {change:+.0f} %" for what, change in one.changes.items()) for one in outcomes
    )
    return at_least(
        f"{name} as corrections: refused, of {len(outcomes)}", refused, len(outcomes), detail=figures, judged=judged
    )


def _from(outcome: Outcome, what: str) -> str:
    before, after = outcome.values[what]
    return f"from {before:.3f} to {after:.3f}"


def _manifests(work: Workplace, *, quick: bool) -> dict[str, Path]:
    """Manifests of changed words, of noise, and of wrong texts."""
    texts, waves = _recorded(work, quick=quick)
    draw = np.random.default_rng(0)
    noise = [draw.normal(0, np.sqrt(np.mean(wave**2)), len(wave)) for wave in waves]
    return {
        "changed": _manifest(work, "changed", texts, waves, [] if quick else _outdated(work)),
        "noise": _manifest(work, "noise", texts, noise),
        "wrong texts": _manifest(work, "wrong texts", [*texts[1:], texts[0]], waves),
    }


def _recorded(work: Workplace, *, quick: bool) -> tuple[list[str], list[Wave]]:
    """Texts and recordings of changed words; a quick run uses those of the tests at half the volume."""
    changes = (word for old, new in CHANGED.items() for word in ("--changed", f"{old}={new}"))
    folder = FIXTURE if quick else work.record("recorded", "--clips", str(CLIPS), "--seed", "11", *changes)
    lines = [line.split("|") for line in (folder / "metadata.csv").read_text("utf-8").splitlines()]
    waves = [_wave(folder / "wavs" / f"{name}.flac") for name, _ in lines]
    return [text for _, text in lines], [wave / 2 for wave in waves] if quick else waves


def _wave(path: Path) -> Wave:
    samples: Any = soundfile.read(path, dtype="float64")[0]
    return samples


def _outdated(work: Workplace) -> list[str]:
    """Clips of the base with the old pronunciation."""
    clips = SpeechCorpus.open(work.corpus).clips
    found = [clip for clip in clips if not CHANGED.keys().isdisjoint(clip.text.split())]
    assert not any(clip.split == "held_out" for clip in found)
    return [clip.name for clip in found]


def _manifest(
    work: Workplace, name: str, texts: Sequence[str], waves: Sequence[Wave], outdated: Sequence[str] = ()
) -> Path:
    """Write recordings and their manifest, which also excludes outdated clips of the base."""
    folder = work.folder / f"manifest of {name}"
    folder.mkdir(exist_ok=True)
    lines: list[str] = []
    for number, (text, wave) in enumerate(zip(texts, waves, strict=True)):
        audio = f"{number}.flac"
        soundfile.write(folder / audio, np.clip(wave, -1, 1), RATE)
        lines.append(json.dumps({"audio": audio, "text": text, "rating": 5}, ensure_ascii=False))
    lines += [json.dumps({"clip": clip, "rating": 1}) for clip in outdated]
    place = folder / "feedback.jsonl"
    place.write_text("\n".join(lines) + "\n", "utf-8")
    return place
