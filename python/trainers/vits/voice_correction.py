"""Correction of a voice: train, compare with the previous version, then accept or reject.

A voice is accepted if all of these hold:

- held-out corrections are nearer to their recordings: the paired interval of the change lies below 0;
- on held-out base clips, the distance grows by at most 5 %, the error rate by 5 % or 0.02, and the length error by
  0.02; the distance of corrections of earlier versions grows by at most 5 %;
- every text that the previous voice could say can still be said.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from math import sqrt
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from scipy.special import ndtr, stdtrit

from trainers.loop import Checkpoints
from trainers.media.run_directory import encode_settings, locate_run
from trainers.progress import ReportConsumer
from trainers.vits.corrections import (
    MIN_HELD_OUT,
    CorrectionMaterial,
    HeldOutClips,
    find_used_digests,
    list_lengths,
    set_speaking_rate,
)
from trainers.vits.objective import Discriminators
from trainers.vits.recipe import FeedbackRecipe, VoiceSizes
from trainers.vits.speech_evaluation import SpeechEvaluation, score
from trainers.vits.speech_recogniser import SpeechRecogniser
from trainers.vits.training import CORRECTIONS, REFUSED, VoiceTrainingResult, clear_rejection, fit, hash_voice
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice, list_discriminator_channels

LEVEL: Final = 0.95
"""Confidence level of the interval. Without a true change, the whole interval lies below 0 in about 1 of 40 cases; with
`MIN_HELD_OUT` pairs, in 1 of 28."""

ACCEPTED_BY_CHANCE: Final = 0.05
"""Maximum share of unchanged voices that are accepted."""

DRAWS: Final = 10_000
"""Bootstrap samples."""

WORSE: Final = 0.05
"""Allowed relative increase on the base corpus."""

LIMIT_RULE: Final = f"at most {WORSE:.0%} more"

ERROR_RATE_MARGIN: Final = 0.02
"""Allowed absolute increase of the error rate: 5 % of a low error rate is less than one letter."""

LENGTH_MARGIN: Final = 0.02
"""Allowed increase of the length error, the mean of |log(length / recorded length)|."""

RELIABLE: Final = 0.2
"""A recogniser with a higher error rate on held-out recordings decides nothing."""

SATURATED: Final = 0.8
"""Error rates from here on are babble, where differences are chance: they decide nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechScores:
    """Figures of a voice on some clips.

    Attributes:
        names: Names of the clips.
        distances: Distance from the recording of each clip; None if the text could not be said.
        error_rate: Character error rate of the recogniser, including texts that were not said.
        length_error: Mean of |log(length / recorded length)|; None if nothing was said.
    """

    names: tuple[str, ...]
    distances: tuple[float | None, ...]
    error_rate: float
    length_error: float | None

    @classmethod
    def of(cls, scores: SpeechEvaluation) -> "SpeechScores":
        """Figures of an evaluation."""
        return cls(
            names=tuple(score.clip.name for score in scores.clips),
            distances=tuple(score.distance for score in scores.clips),
            error_rate=scores.error_rate,
            length_error=scores.length_error,
        )


@dataclass(frozen=True, slots=True)
class VoiceComparison:
    """Scores of two voices on the same clips in the same order.

    Attributes:
        before: Scores of the current voice.
        after: Scores of the new voice.
    """

    before: SpeechScores
    after: SpeechScores

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Distances before and after, of the clips that both voices said; `lost_texts` counts lost ones."""
        both = zip(self.before.distances, self.after.distances, strict=True)
        return tuple((old, new) for old, new in both if old is not None and new is not None)

    @property
    def worse_clips(self) -> tuple[str, ...]:
        """Names of the clips whose distance grew by more than `WORSE`, largest growth first.

        Empty if they are more than half of the clips: then the voice as a whole is worse.
        """
        both = zip(self.before.names, self.before.distances, self.after.distances, strict=True)
        grown = {name: new / old for name, old, new in both if old and new is not None and new > old * (1 + WORSE)}
        is_minority = 2 * len(grown) <= len(self.before.names)
        return tuple(sorted(grown, key=lambda name: (-grown[name], name))) if is_minority else ()

    @property
    def lost_texts(self) -> int:
        """Number of texts that only the previous voice can say."""
        both = zip(self.before.distances, self.after.distances, strict=True)
        return sum(old is not None and new is None for old, new in both)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of two voices with its acceptance rule.

    Attributes:
        what: Name of the figure and of the clips.
        before: Value of the previous voice, if known.
        after: Value of the new voice, if known.
        rule: The rule, or why the figure decides nothing.
        holds: Whether the rule holds; None if it decides nothing.
        interval: Interval of the relative change, if computed.
    """

    name: str
    before: float | None
    after: float | None
    rule: str
    holds: bool | None
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> float | None:
        """Relative change."""
        if self.before is None or self.after is None or not self.before:
            return None
        return self.after / self.before - 1

    def as_json(self) -> dict[str, object]:
        """The figure as JSON."""
        return {
            "what": self.name,
            "before": self.before,
            "after": self.after,
            "change": self.change,
            "interval": None if self.interval is None else list(self.interval),
            "rule": self.rule,
            "holds": self.holds,
        }

    def __str__(self) -> str:
        """The figure as a line of text."""
        verdict = {True: "holds", False: "FAILS", None: "does not count"}[self.holds]
        change = "" if self.change is None else f", {self.change:+.1%}"
        between = "" if self.interval is None else f" ({self.interval[0]:+.1%} to {self.interval[1]:+.1%})"
        return f"{self.name}: {_format(self.before)} → {_format(self.after)}{change}{between}: {verdict}, {self.rule}"


@dataclass(frozen=True, slots=True)
class VoiceDecision:
    """The decision on a new voice.

    Attributes:
        lines: Compared figures; the first is the distance of the corrections.
        worse_clips: Held-out base clips whose distance grew, worst first.
    """

    lines: tuple[ComparedFigure, ...]
    worse_clips: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether no line fails."""
        return all(line.holds is not False for line in self.lines)

    @property
    def has_learnt_corrections(self) -> bool:
        """Whether the corrections were learnt, regardless of the other figures."""
        return self.lines[0].holds is True

    def as_json(self) -> dict[str, object]:
        """The decision as JSON."""
        lines = [line.as_json() for line in self.lines]
        return {"accepted": self.accepted, "level": LEVEL, "lines": lines, "farther": list(self.worse_clips)}


def decide(
    corrections: VoiceComparison,
    base: VoiceComparison,
    *,
    recogniser_error_rate: float,
    earlier: VoiceComparison | None = None,
) -> VoiceDecision:
    """Decide whether a new voice replaces the previous one.

    Args:
        corrections: Held-out corrections, which trained neither voice.
        base: Held-out clips of the base corpus.
        recogniser_error_rate: Error rate of the recogniser on held-out recordings.
        earlier: Held-out corrections of earlier versions, if any.
    """
    lines = [
        _compare_corrections(corrections),
        _compare_distances("base, distance", base),
        _compare_error_rates(base, recogniser_error_rate),
        _compare_lengths(base),
    ]
    if earlier is not None:
        lines.append(_compare_distances("earlier corrections, distance", earlier))
    sets = [("corrections", corrections), ("base", base), ("earlier corrections", earlier)]
    lines += (line for name, clips in sets if clips is not None for line in _compare_lost_texts(name, clips))
    return VoiceDecision(tuple(lines), base.worse_clips)


def bootstrap_change(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bootstrap interval of the relative change of the mean from first to second numbers.

    Uses the expanded percentile interval, which for few pairs is as wide as Student's (Hesterberg, "What teachers
    should know about the bootstrap", 2015).

    Args:
        pairs: Two or more pairs of positive numbers.

    Returns:
        Lower and upper end at `LEVEL`; deterministic.
    """
    values, count = np.array(pairs), len(pairs)
    picks = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    sums = values[picks].sum(axis=1)
    tail = float(ndtr(-sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + LEVEL) / 2)))
    low, high = np.quantile(sums[:, 1] / sums[:, 0] - 1, (tail, 1 - tail))
    return float(low), float(high)


def _compare_corrections(clips: VoiceComparison) -> ComparedFigure:
    name, pairs = "corrections, distance", clips.pairs
    before, after = _average_pairs(pairs)
    if len(pairs) < MIN_HELD_OUT:
        rule = f"both voices say only {len(pairs)} of the clips, at least {MIN_HELD_OUT} are needed"
        return ComparedFigure(name=name, before=before, after=after, rule=rule, holds=False)
    interval = bootstrap_change(pairs)
    rule = f"the {LEVEL:.0%} interval must lie below 0"
    return ComparedFigure(name=name, before=before, after=after, rule=rule, holds=interval[1] < 0, interval=interval)


def _compare_distances(name: str, clips: VoiceComparison) -> ComparedFigure:
    before, after = _average_pairs(clips.pairs)
    if before is None or after is None:
        return ComparedFigure(
            name=name, before=before, after=after, rule="no clip is spoken by both voices", holds=False
        )
    return ComparedFigure(name=name, before=before, after=after, rule=LIMIT_RULE, holds=after <= before * (1 + WORSE))


def _compare_error_rates(clips: VoiceComparison, recogniser_error_rate: float) -> ComparedFigure:
    before, after = clips.before.error_rate, clips.after.error_rate
    rule = f"{LIMIT_RULE}, or {ERROR_RATE_MARGIN:g} more"
    holds: bool | None = after <= before + max(before * WORSE, ERROR_RATE_MARGIN)
    if recogniser_error_rate > RELIABLE:
        rule, holds = (
            f"recogniser errs on {recogniser_error_rate:.0%} of recorded characters, above {RELIABLE:.0%}",
            None,
        )
    elif before >= SATURATED:
        rule, holds = f"it was {SATURATED:.0%} or more before, where changes are chance", None
    return ComparedFigure(name="base, error rate", before=before, after=after, rule=rule, holds=holds)


def _compare_lengths(clips: VoiceComparison) -> ComparedFigure:
    before, after = clips.before.length_error, clips.after.length_error
    holds = before is not None and after is not None and after <= before + LENGTH_MARGIN
    rule = f"at most {LENGTH_MARGIN} more"
    return ComparedFigure(name="base, length error", before=before, after=after, rule=rule, holds=holds)


def _compare_lost_texts(name: str, clips: VoiceComparison) -> Iterator[ComparedFigure]:
    """The line on texts that could not be said, if any."""
    before, after = (sum(distance is None for distance in scores.distances) for scores in (clips.before, clips.after))
    if clips.lost_texts or before or after:
        yield ComparedFigure(
            name=f"{name}, texts not said",
            before=before,
            after=after,
            rule=f"{clips.lost_texts} could be said before, and none may be lost",
            holds=not clips.lost_texts,
        )


def _average_pairs(pairs: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not pairs:
        return None, None
    return sum(old for old, _ in pairs) / len(pairs), sum(new for _, new in pairs) / len(pairs)


def _format(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionResult:
    """Result of a correction.

    Attributes:
        decision: Decision with all figures.
        speaking_rate: Speaking rate of the corrected voice.
        path: Folder of the new version, or the file of figures if rejected.
    """

    decision: VoiceDecision
    speaking_rate: float
    path: Path


@final
class VoiceCorrection:
    """One correction of a voice.

    Args:
        versions: Versions of the voice; the current one is corrected.
        material: Training and evaluation data.
        recipe: Training settings.
        sizes: Size of the discriminators, if the recipe uses them.
    """

    def __init__(
        self, versions: VoiceVersions, material: CorrectionMaterial, recipe: FeedbackRecipe, sizes: VoiceSizes
    ) -> None:
        self._versions = versions
        self._material = material
        self._recipe = recipe
        self._sizes = sizes

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON."""
        return {
            "corpus": self._material.base.digest,
            "lesson": self._material.digest,
            "recipe": encode_settings(asdict(self._recipe)),
            "build": asdict(self._sizes),
            "parent": hash_voice(Voice.load(self._versions.current)),
        }

    def run(
        self,
        recogniser: SpeechRecogniser,
        checkpoints: Checkpoints,
        consume: ReportConsumer,
        on_progress: Callable[[int, int], None],
    ) -> CorrectionResult:
        """Train from the current version, evaluate, and accept or reject; the voice changes only at the end.

        Args:
            recogniser: Recogniser of the base corpus.
            checkpoints: Checkpoints for resuming.
            consume: Receives training reports.
            on_progress: Called after each evaluated clip with the number done and the total.

        Raises:
            StoppedError: A signal ended the training, after a checkpoint.
            LoopError: The training failed.
            SpeechError: A voice or a clip cannot be used.
        """
        with checkpoints.open():
            self._versions.check_unchanged()
            clear_rejection(self._versions.following)
            before, voice = Voice.load(self._versions.current), Voice.load(self._versions.current)
            curves = self._train(voice, checkpoints, consume)
            base, new = self._material.list_base_clips("selection"), self._material.rated.corpus.list_clips("selection")
            rate = set_speaking_rate(voice, base, new, before.length_error(list_lengths(base)))
            decision = compare_voices(before, voice, self._material, recogniser, on_progress)
            facts = {
                **self.settings,
                "weights": hash_voice(voice),
                "curves": asdict(curves),
                "speaking_rate": rate,
                "corrects": self._versions.index.current,
                "decision": decision.as_json(),
            }
            folder = locate_run(self._versions.following)
            path = self._accept(voice, facts) if decision.accepted else self._refuse(folder, facts)
            checkpoints.clear()
            shutil.rmtree(folder / CORRECTIONS)
        return CorrectionResult(decision=decision, speaking_rate=rate, path=path)

    def _train(self, voice: Voice, checkpoints: Checkpoints, consume: ReportConsumer) -> VoiceTrainingResult:
        """Train a voice in place, then move it to the CPU."""
        channels = list_discriminator_channels(self._sizes.size)
        discriminators = None if self._recipe.adversarial_from is None else Discriminators(channels)
        setup = self._material.training_setup(voice.tokens)
        result = fit(voice, setup, self._recipe, checkpoints, consume, discriminators=discriminators)
        voice.model.cpu()
        return result

    def _accept(self, voice: Voice, facts: Mapping[str, Any]) -> Path:
        """Add a version that includes its corrections."""
        new_items, rated = self._material.new_items, self._material.rated

        return self._versions.add(
            voice,
            facts,
            consumed=find_used_digests(new_items, rated),
            write_extra=lambda folder: rated.write(folder, new_items.base),
        )

    def _refuse(self, folder: Path, facts: Mapping[str, Any]) -> Path:
        """Write only the figures; the voice is unchanged."""
        path = folder / REFUSED
        path.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        return path


def compare_voices(
    before: Voice,
    after: Voice,
    material: CorrectionMaterial,
    recogniser: SpeechRecogniser,
    on_progress: Callable[[int, int], None],
) -> VoiceDecision:
    """Score both voices on held-out clips, and decide.

    Args:
        before: Current voice.
        after: Corrected voice.
        material: Evaluation data.
        recogniser: Recogniser of the base corpus.
        on_progress: Called after each clip with the number done and the total.
    """
    new, earlier = material.held_out(), material.earlier_held_out()
    base = (material.base, material.list_base_clips("held_out"))
    total, counter = 2 * sum(len(clips) for _, clips in (new, base, *earlier)), count(1)

    def report(_done: int, _total: int) -> None:
        on_progress(next(counter), total)

    def score_voice(voice: Voice, sets: Sequence[HeldOutClips]) -> SpeechScores:
        clip_scores = (score(voice, corpus, clips, recogniser, on_progress=report).clips for corpus, clips in sets)
        return SpeechScores.of(SpeechEvaluation(tuple(chain.from_iterable(clip_scores))))

    def comparison(sets: Sequence[HeldOutClips]) -> VoiceComparison:
        return VoiceComparison(score_voice(before, sets), score_voice(after, sets))

    return decide(
        comparison([new]),
        comparison([base]),
        recogniser_error_rate=recogniser.error_rate,
        earlier=comparison(earlier) if earlier else None,
    )
