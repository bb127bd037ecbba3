"""Metrics and the summary of an evaluation in three sentences."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from predictor.report import NOTHING
from predictor.report.templates import capital, level
from predictor.skill import Verdict
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores, ScoreRole

SCALE: Final = 10_000
"""Losses are multiplied by this for display."""

_LARGE: Final = 1000


_RISKS: Final = (0.5, 0.9)
"""Levels of the TFT paper's P50 and P90 risk."""


def format_loss(value: float) -> str:
    """A loss times `SCALE`, with three or four digits."""
    scaled = SCALE * value
    return f"{scaled:,.2f}" if scaled < _LARGE else f"{scaled:,.0f}"


def format_share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def format_gain(value: float) -> str:
    """A share in percent with its sign; empty if not finite."""
    return f"{100 * value:+.1f} %" if isfinite(value) else ""


def format_plain(value: float) -> str:
    """A number without a unit."""
    return f"{value:.3f}"


def format_span(interval: Interval, show: Callable[[float], str]) -> str:
    """Lower and upper end, with the unit once; empty if unknown."""
    return f"{show(interval.lower).removesuffix(' %')} to {show(interval.upper)}" if isfinite(interval.lower) else ""


def format_band(evaluation: ModelEvaluation) -> str:
    """The band from the lowest to the highest quantile, as text."""
    return f"in {100 * evaluation.levels[0]:g}–{100 * evaluation.levels[-1]:g} %"  # noqa: RUF001 - a range


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column of scores."""

    name: str
    score: Callable[[HorizonScores], Interval | float | None]
    """The score of one horizon, with an interval if available."""
    show: Callable[[float], str]
    grows: bool = False
    """Whether it grows with the horizon as outcomes do."""

    def of(self, horizon: HorizonScores) -> float | None:
        """The value at one horizon; None if undefined."""
        score = self.score(horizon)
        return score.value if isinstance(score, Interval) else score

    def span(self, horizon: HorizonScores) -> str:
        """The interval at one horizon as text; empty if unavailable."""
        score = self.score(horizon)
        return format_span(score, self.show) if isinstance(score, Interval) else ""

    def shown(self, value: float | None) -> str:
        """The value as text; a dash if undefined."""
        return NOTHING if value is None or not isfinite(value) else self.show(value)

    def mean(self, evaluation: ModelEvaluation, row: ModelScores) -> float | None:
        """Mean over horizons, divided by their spread first if it grows with them; None if undefined at all."""
        spread = evaluation.target.spread if self.grows else np.ones(len(row.horizons))
        values = [self.of(h) for h in row.horizons]
        known = [value / by for value, by in zip(values, spread, strict=True) if value is not None]
        return float(np.mean(known)) if known else None


def select_metrics(evaluation: ModelEvaluation, rows: tuple[ModelScores, ...]) -> tuple[Metric, ...]:
    """The metrics that at least one row has."""
    return tuple(
        one for one in _list_metrics(evaluation) if any(one.of(h) is not None for row in rows for h in row.horizons)
    )


def _list_metrics(evaluation: ModelEvaluation) -> tuple[Metric, ...]:
    return (
        Metric(name="CRPS", score=lambda h: h.crps, show=format_loss, grows=True),
        *(_risk(evaluation, place) for place, level in enumerate(evaluation.levels) if level in _RISKS),
        Metric(name=format_band(evaluation), score=lambda h: h.band, show=format_share),
        Metric(name="Winkler", score=lambda h: h.winkler, show=format_loss, grows=True),
        Metric(name="MAE", score=lambda h: h.mae, show=format_loss, grows=True),
        Metric(name="QLIKE", score=lambda h: h.qlike, show=format_plain),
        Metric(name="IC", score=lambda h: h.correlation.ic, show=format_plain),
        Metric(name="RankIC", score=lambda h: h.correlation.rank_ic, show=format_plain),
        Metric(name="ICIR", score=lambda h: h.correlation.icir, show=format_plain),
    )


def _risk(evaluation: ModelEvaluation, place: int) -> Metric:
    return Metric(name=f"P{100 * evaluation.levels[place]:.0f} risk", score=lambda h: h.risk[place], show=format_plain)


def describe_findings(evaluation: ModelEvaluation) -> tuple[str, ...]:
    """Sentences on accuracy, on coverage of the bands, on the role of luck, and on a network that kept its start."""
    kept = (f"{capital(evaluation.start_note)}.",) if evaluation.start_note else ()
    return (_describe_accuracy(evaluation), _describe_coverage(evaluation), _describe_spread(evaluation), *kept)


def _describe_accuracy(evaluation: ModelEvaluation) -> str:
    skill = evaluation.skill
    rival = skill.baseline if len(skill.rivals) == 1 else f"the best of {len(skill.rivals)} {skill.among}"
    smaller, interval = _format_smaller(skill.improvement.value), _describe_interval(evaluation)
    error = f"its error was {smaller} than that of {skill.baseline}{interval}"
    if skill.days_short:
        days = "1 day" if skill.days_short == 1 else f"{skill.days_short} days"
        return f"These days are {days} too few to tell skill from luck; on them {error}."
    said = {
        Verdict.BETTER: f"The model forecast better than {rival}: {error}, all of it on the better side.",
        Verdict.UNDECIDED: f"The model is not distinguishable from {rival}: {error}, so the difference may be luck.",
        Verdict.WORSE: f"The model forecast worse than {rival}: {error}, all of it on the worse side.",
    }
    return said[skill.verdict]


def _describe_interval(evaluation: ModelEvaluation) -> str:
    """The interval of the improvement as text; empty if unknown."""
    i = evaluation.skill.improvement
    if not (isfinite(i.lower) and isfinite(i.upper)):
        return ""
    lower, upper = _format_smaller(i.lower), _format_smaller(i.upper)
    return f", by a {100 * evaluation.level:.0f} % interval between {lower} and {upper}"


def _format_smaller(share: float) -> str:
    """A loss that is `share` of the other's below it: `1.2 % smaller`, `0.3 % larger`, `0.0 % smaller`."""
    rounded = round(100 * share, 1)
    return f"{abs(rounded):.1f} % {'larger' if rounded < 0 else 'smaller'}"


def _describe_coverage(evaluation: ModelEvaluation) -> str:
    """Share of outcomes between the outermost quantiles, or below a single one, against its nominal value."""
    lowest, highest = evaluation.levels[0], evaluation.levels[-1]
    is_band = lowest < highest
    nominal = highest - lowest if is_band else lowest
    model = next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    shares = [h.band if is_band else h.below[0] for h in model.horizons]
    where = f"between the quantiles {level(lowest)} and {level(highest)}" if is_band else f"below the {level(lowest)}"
    held = sum(share.value for share in shares) / len(shares)
    fell = f"{100 * held:.1f} % of the outcomes fell {where}, where {100 * nominal:g} % should"
    return f"{fell}; {_describe_misses(shares, nominal)}."


def _describe_misses(shares: list[Interval], nominal: float) -> str:
    """Number of horizons at which the nominal share is outside the interval."""
    known = [share for share in shares if isfinite(share.lower) and isfinite(share.upper)]
    few, many = sum(share.upper < nominal for share in known), sum(share.lower > nominal for share in known)
    if not known:
        return "it is unknown how much of the difference is luck"
    if not few and not many:
        return "luck explains the difference at every horizon"
    parts = [f"too few at {few}" if few else "", f"too many at {many}" if many else ""]
    return f"more than luck explains: {' and '.join(filter(None, parts))} of {len(shares)} horizons"


def _describe_spread(evaluation: ModelEvaluation) -> str:
    """The spread over seeds if several were trained, else the number of symbols with a smaller error."""
    seeds = evaluation.seeds
    if seeds is not None and len(seeds.seeds) > 1 and seeds.mean.mean:
        spread = 100 * seeds.mean.sd / seeds.mean.mean
        return (
            f"Over {len(seeds.seeds)} seeds the error varied by {spread:.1f} % (standard deviation): a difference "
            "of that size does not distinguish two models."
        )
    gains = [row.improvement.value for row in evaluation.by_symbol if isfinite(row.improvement.value)]
    better, known = sum(gain > 0 for gain in gains), len(gains)
    return (
        f"The error was smaller than that of {evaluation.skill.baseline} for {better} of {known} "
        f"symbol{'' if known == 1 else 's'}; only one training was evaluated, so the effect of its seed is unknown."
    )
