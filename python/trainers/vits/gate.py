"""Whether a corrected voice takes the place of the one before: a decision from paired figures of held-out clips alone.

A voice is accepted only if every line of its decision holds:

- held-out corrections are nearer to their recordings than before: the whole paired interval of the change lies below 0;
- on held-out clips of the base corpus, the distance grows by no more than a twentieth, the error rate by a twentieth or
  0.02, and the error of lengths by 0.02; corrections of earlier versions are no farther than a twentieth either;
- no text that the voice before could say has become one that cannot be said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from scipy.special import ndtr, stdtrit

from trainers.vits.scoring import SpeechEvaluation

LEVEL: Final = 0.95
"""Of the interval. If nothing changed, a difference is as likely below 0 as above, and the whole interval lies below 0
in about one case of forty; with as few pairs as `FEWEST`, in one of twenty-eight."""

ACCEPTED_BY_CHANCE: Final = 0.05
"""The share of voices like the one before that are accepted at most."""

FEWEST: Final = 6
"""Corrections to judge by: with fewer, luck alone gives a lower distance in all of them too often."""

DRAWS: Final = 10_000
"""Of the bootstrap."""

WORSE: Final = 0.05
"""How much worse the base may get, as a share of what it was."""

MISHEARD: Final = 0.02
"""Characters that may be misheard more, as a share of all: of a voice that is understood well, a twentieth more is a
letter or none."""

LONGER: Final = 0.02
"""How much more lengths may err: the mean of |log of the length over the recording's|."""

RELIABLE: Final = 0.2
"""A judge that hears more than this share of the characters of held-out recordings wrongly decides nothing."""

SATURATED: Final = 0.8
"""An error rate from here on is babble, in which a few letters more or less are luck: it decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechScores:
    """How a voice said some texts.

    Attributes:
        names: of the clips.
        distances: from the recording, clip by clip; None where it could not say the text.
        error_rate: of characters that the judge hears, texts that were not said included.
        length_error: mean of |log of the length over the recording's|; None where nothing was said.
    """

    names: tuple[str, ...]
    distances: tuple[float | None, ...]
    error_rate: float
    length_error: float | None

    @classmethod
    def of(cls, scores: SpeechEvaluation) -> "SpeechScores":
        """The figures of scores."""
        return cls(
            names=tuple(one.clip.name for one in scores.clips),
            distances=tuple(one.distance for one in scores.clips),
            error_rate=scores.error_rate,
            length_error=scores.length_error,
        )


@dataclass(frozen=True, slots=True)
class VoiceComparison:
    """The same clips by two voices.

    Attributes:
        before: by the voice that is spoken with now.
        after: by the one that would take its place; the same clips in the same order.
    """

    before: SpeechScores
    after: SpeechScores

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Distances before and after, of the clips that both voices said.

        A text that only the new voice says is no pair: how much is gained cannot be told. One that only the voice
        before says is counted by `silenced`.
        """
        both = zip(self.before.distances, self.after.distances, strict=True)
        return tuple((old, new) for old, new in both if old is not None and new is not None)

    @property
    def farther(self) -> tuple[str, ...]:
        """Names of the clips whose distance has grown by more than `WORSE`, those that have grown most first.

        None where they are more than half of the clips: then it is the voice that is worse, and no clip of it.
        """
        both = zip(self.before.names, self.before.distances, self.after.distances, strict=True)
        grown = {name: new / old for name, old, new in both if old and new is not None and new > old * (1 + WORSE)}
        few = 2 * len(grown) <= len(self.before.names)
        return tuple(sorted(grown, key=lambda name: (-grown[name], name))) if few else ()

    @property
    def silenced(self) -> int:
        """Texts that the voice before said, and the new one cannot say."""
        both = zip(self.before.distances, self.after.distances, strict=True)
        return sum(old is not None and new is None for old, new in both)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure, and what it says of the new voice.

    Attributes:
        what: is measured, of which clips.
        before: of the voice before; None where there is no such figure.
        after: of the new voice.
        rule: what must hold, or why the figure decides nothing.
        holds: None where it decides nothing.
        interval: of the change, as shares of what was before; None where none is asked for.
    """

    what: str
    before: float | None
    after: float | None
    rule: str
    holds: bool | None
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> float | None:
        """As a share of what was before; below 0 is less."""
        if self.before is None or self.after is None or not self.before:
            return None
        return self.after / self.before - 1

    def as_json(self) -> dict[str, object]:
        """All of it, in what JSON knows."""
        return {
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "change": self.change,
            "interval": None if self.interval is None else list(self.interval),
            "rule": self.rule,
            "holds": self.holds,
        }

    def __str__(self) -> str:
        """For a person."""
        verdict = {True: "holds", False: "FAILS", None: "does not count"}[self.holds]
        change = "" if self.change is None else f", {self.change:+.1%}"
        between = "" if self.interval is None else f" ({self.interval[0]:+.1%} to {self.interval[1]:+.1%})"
        return f"{self.what}: {_shown(self.before)} → {_shown(self.after)}{change}{between}: {verdict}, {self.rule}"


@dataclass(frozen=True, slots=True)
class VoiceDecision:
    """What became of a voice.

    Attributes:
        lines: every figure; the first is the distance of the corrections.
        farther: held-out clips of the base corpus that are farther from their recordings than before, the worst first.
    """

    lines: tuple[ComparedFigure, ...]
    farther: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether no line fails."""
        return all(line.holds is not False for line in self.lines)

    @property
    def nearer(self) -> bool:
        """Whether the corrections have been learnt, be the rest as it may."""
        return self.lines[0].holds is True

    def as_json(self) -> dict[str, object]:
        """All of it, in what JSON knows."""
        lines = [line.as_json() for line in self.lines]
        return {"accepted": self.accepted, "level": LEVEL, "lines": lines, "farther": list(self.farther)}


def decide(
    corrections: VoiceComparison,
    base: VoiceComparison,
    *,
    judge_error_rate: float,
    earlier: VoiceComparison | None = None,
) -> VoiceDecision:
    """Judge a new voice beside the one before.

    Args:
        corrections: held-out corrections, which neither voice has learnt from.
        base: held-out clips of the base corpus.
        judge_error_rate: the judge's own, in held-out recordings.
        earlier: held-out corrections of earlier versions; None where there are none.
    """
    lines = [
        _nearer("corrections, distance", corrections),
        _no_farther("base, distance", base),
        _heard_as_well("base, error rate", base, judge_error_rate),
        _as_long("base, length error", base),
    ]
    if earlier is not None:
        lines.append(_no_farther("earlier corrections, distance", earlier))
    sets = [("corrections", corrections), ("base", base), ("earlier corrections", earlier)]
    lines += (line for name, clips in sets if clips is not None for line in _silenced(name, clips))
    return VoiceDecision(tuple(lines), base.farther)


def interval_of_change(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A bootstrap interval of how much the mean of the second numbers lies above that of the first, as a share of it.

    Pairs are drawn with replacement; the percentiles are those that make an interval of few pairs as wide as Student's
    (Hesterberg, "What teachers should know about the bootstrap", 2015: the expanded percentile interval).

    Args:
        pairs: two or more, of numbers above 0.

    Returns:
        Its ends, at `LEVEL`; the same for the same pairs.
    """
    values, count = np.array(pairs), len(pairs)
    picks = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    sums = values[picks].sum(axis=1)
    tail = float(ndtr(-sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + LEVEL) / 2)))
    low, high = np.quantile(sums[:, 1] / sums[:, 0] - 1, (tail, 1 - tail))
    return float(low), float(high)


def _nearer(what: str, clips: VoiceComparison) -> ComparedFigure:
    """Whether corrections have been learnt."""
    pairs = clips.pairs
    before, after = _means(pairs)
    if len(pairs) < FEWEST:
        rule = f"{len(pairs)} clips are said by both voices, and {FEWEST} are needed to tell"
        return ComparedFigure(what=what, before=before, after=after, rule=rule, holds=False)
    interval = interval_of_change(pairs)
    rule = f"the {LEVEL:.0%} interval must lie below 0"
    return ComparedFigure(what=what, before=before, after=after, rule=rule, holds=interval[1] < 0, interval=interval)


def _no_farther(what: str, clips: VoiceComparison) -> ComparedFigure:
    before, after = _means(clips.pairs)
    if before is None or after is None:
        return ComparedFigure(what=what, before=before, after=after, rule="no clip is said by both voices", holds=False)
    return ComparedFigure(what=what, before=before, after=after, rule=_at_most(), holds=after <= before * (1 + WORSE))


def _heard_as_well(what: str, clips: VoiceComparison, judge_error_rate: float) -> ComparedFigure:
    before, after = clips.before.error_rate, clips.after.error_rate
    rule = f"{_at_most()}, or {MISHEARD:g} more"
    holds: bool | None = after <= before + max(before * WORSE, MISHEARD)
    if judge_error_rate > RELIABLE:
        rule, holds = f"the judge itself hears {judge_error_rate:.0%} of recordings wrongly, above {RELIABLE:.0%}", None
    elif before >= SATURATED:
        rule, holds = f"it was {SATURATED:.0%} or more before, of which luck alone decides", None
    return ComparedFigure(what=what, before=before, after=after, rule=rule, holds=holds)


def _as_long(what: str, clips: VoiceComparison) -> ComparedFigure:
    before, after = clips.before.length_error, clips.after.length_error
    holds = before is not None and after is not None and after <= before + LONGER
    return ComparedFigure(what=what, before=before, after=after, rule=f"at most {LONGER} more", holds=holds)


def _silenced(name: str, clips: VoiceComparison) -> Iterator[ComparedFigure]:
    """A line for texts that cannot be said any more, if there are any."""
    before, after = (sum(one is None for one in told.distances) for told in (clips.before, clips.after))
    if clips.silenced or before or after:
        yield ComparedFigure(
            what=f"{name}, texts not said",
            before=before,
            after=after,
            rule=f"{clips.silenced} were said before, and none may be lost",
            holds=not clips.silenced,
        )


def _at_most() -> str:
    return f"at most {WORSE:.0%} more"


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not pairs:
        return None, None
    return sum(old for old, _ in pairs) / len(pairs), sum(new for _, new in pairs) / len(pairs)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
