"""Sentences, tables and page of an evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, nan
from typing import Final

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED
from predictor.errors import format_count
from predictor.report import PageBuilder, ReportTable, TableCell, TableRow, make_number_cell
from predictor.report.templates import capitalize_first, format_horizon, format_level
from predictor.skill import Verdict
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.comparison import SeedSpread
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
    """A share in percent with its sign."""
    return f"{100 * value:+.1f} %"


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
    is_growing: bool = False
    """Whether it grows with the horizon as outcomes do."""

    def of(self, horizon: HorizonScores) -> float | None:
        """The value at one horizon; None if undefined."""
        score = self.score(horizon)
        return score.value if isinstance(score, Interval) else score

    def span(self, horizon: HorizonScores) -> str:
        """The interval at one horizon as text; empty if unavailable."""
        score = self.score(horizon)
        return format_span(score, self.show) if isinstance(score, Interval) else ""

    def mean(self, evaluation: ModelEvaluation, row: ModelScores) -> float | None:
        """Mean over horizons, divided by their spread first if it grows with them; None if undefined at all."""
        spread = evaluation.target.spread if self.is_growing else np.ones(len(row.horizons))
        means = [self.of(h) for h in row.horizons]
        values = [value / by for value, by in zip(means, spread, strict=True) if value is not None]
        return float(np.mean(values)) if values else None


def select_metrics(evaluation: ModelEvaluation, rows: tuple[ModelScores, ...]) -> tuple[Metric, ...]:
    """The metrics that at least one row has."""
    risks = [(index, level) for index, level in enumerate(evaluation.levels) if level in _RISKS]
    metrics = (
        Metric(name="CRPS", score=lambda h: h.crps, show=format_loss, is_growing=True),
        *(
            Metric(name=f"P{100 * level:.0f} risk", score=lambda h, index=index: h.risk[index], show=format_plain)
            for index, level in risks
        ),
        Metric(name=format_band(evaluation), score=lambda h: h.band, show=format_share),
        Metric(name="Winkler", score=lambda h: h.winkler, show=format_loss, is_growing=True),
        Metric(name="MAE", score=lambda h: h.mae, show=format_loss, is_growing=True),
        Metric(name="QLIKE", score=lambda h: h.qlike, show=format_plain),
        Metric(name="IC", score=lambda h: h.correlation.ic, show=format_plain),
        Metric(name="RankIC", score=lambda h: h.correlation.rank_ic, show=format_plain),
        Metric(name="ICIR", score=lambda h: h.correlation.icir, show=format_plain),
    )
    return tuple(metric for metric in metrics if any(metric.of(h) is not None for row in rows for h in row.horizons))


def describe_findings(evaluation: ModelEvaluation) -> tuple[str, ...]:
    """Sentences on accuracy, coverage and the role of luck, and a note if training kept the initial weights."""
    start_note = (f"{capitalize_first(evaluation.start_note)}.",) if evaluation.start_note else ()
    return (_describe_accuracy(evaluation), _describe_coverage(evaluation), _describe_spread(evaluation), *start_note)


def _describe_accuracy(evaluation: ModelEvaluation) -> str:
    skill = evaluation.skill
    rival = skill.baseline if len(skill.rivals) == 1 else f"the best of {len(skill.rivals)} {skill.among}"
    smaller, interval = _format_smaller(skill.improvement.value), _describe_interval(evaluation)
    error = f"its error was {smaller} than that of {skill.baseline}{interval}"
    if skill.days_short:
        missing_days = format_count(skill.days_short, "more day")
        verb = "is" if skill.days_short == 1 else "are"
        return f"{missing_days} {verb} needed to tell skill from luck; so far {error}."
    sentences = {
        Verdict.BETTER: f"The model forecast better than {rival}: {error}, all of it on the better side.",
        Verdict.UNDECIDED: f"The model is not distinguishable from {rival}: {error}, so the difference may be luck.",
        Verdict.WORSE: f"The model forecast worse than {rival}: {error}, all of it on the worse side.",
    }
    return sentences[skill.verdict]


def _describe_interval(evaluation: ModelEvaluation) -> str:
    """The interval of the improvement as text; empty if unknown."""
    i = evaluation.skill.improvement
    if not (isfinite(i.lower) and isfinite(i.upper)):
        return ""
    lower, upper = _format_smaller(i.lower), _format_smaller(i.upper)
    return f", by a {100 * evaluation.confidence:.0f} % interval between {lower} and {upper}"


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
    location = (
        f"between the quantiles {format_level(lowest)} and {format_level(highest)}"
        if is_band
        else f"below the {format_level(lowest)}"
    )
    inside = sum(share.value for share in shares) / len(shares)
    fell = f"{100 * inside:.1f} % of the outcomes fell {location}, where {100 * nominal:g} % should"
    return f"{fell}; {_describe_misses(shares, nominal)}."


def _describe_misses(shares: list[Interval], nominal: float) -> str:
    """Number of horizons at which the nominal share is outside the interval."""
    intervals = [share for share in shares if isfinite(share.lower) and isfinite(share.upper)]
    too_few, too_many = (
        sum(share.upper < nominal for share in intervals),
        sum(share.lower > nominal for share in intervals),
    )
    if not intervals:
        return "it is unknown how much of the difference is luck"
    if not too_few and not too_many:
        return "luck explains the difference at every horizon"
    parts = [f"too few at {too_few}" if too_few else "", f"too many at {too_many}" if too_many else ""]
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
    better, symbols = sum(gain > 0 for gain in gains), len(gains)
    return (
        f"The error was smaller than that of {evaluation.skill.baseline} for {better} of "
        f"{format_count(symbols, 'symbol')}; only one training was evaluated, so the effect of its seed is unknown."
    )


# --- tables


def build_loss_table(evaluation: ModelEvaluation) -> ReportTable:
    """Losses of all rows, best first: one column per horizon, then the mean; the last line is the spread over seeds."""
    losses = [[*(h.pinball for h in row.horizons), row.mean] for row in evaluation.rows]
    best = [min(loss.value for loss in column) for column in zip(*losses, strict=True)]
    lines = [
        TableRow(
            name=row.name,
            cells=tuple(
                _build_cell(loss, format_loss, best=minimum) for loss, minimum in zip(row_losses, best, strict=True)
            ),
            is_model=row.role is ScoreRole.MODEL,
        )
        for row, row_losses in zip(evaluation.rows, losses, strict=True)
    ]
    if (seeds := evaluation.seeds) is not None:
        name = f"{len(seeds.seeds)} seeds, ± sd"
        lines.append(_build_row(name, (*seeds.pinball, seeds.mean), format_loss, is_model=True))
    return ReportTable(columns=(*name_horizons(evaluation), "mean"), lines=tuple(lines))


def build_gain_table(evaluation: ModelEvaluation) -> ReportTable:
    """Improvement of the model, and of the mean over seeds, over the best baseline."""
    compared = [(evaluation.comparison.baseline, evaluation.comparison)]
    if (seeds := evaluation.seeds) is not None:
        compared.append((f"{seeds.comparison.baseline}, by {len(seeds.seeds)} seeds", seeds.comparison))
    lines = (
        TableRow(
            name=name,
            cells=(
                *(_build_cell(gain, format_gain) for gain in (*row.by_horizon, row.improvement)),
                make_number_cell(row.t, "{:+.1f}".format),
            ),
            is_model=row is not evaluation.comparison,
        )
        for name, row in compared
    )
    return ReportTable(columns=(*name_horizons(evaluation), "all", "t"), lines=tuple(lines))


def build_confidence_table(evaluation: ModelEvaluation) -> ReportTable | None:
    """The p value of each row in the model confidence set; None if unknown."""
    confidence_set = evaluation.confidence_set
    if confidence_set is None:
        return None
    models = {row.name for row in evaluation.rows if row.role is ScoreRole.MODEL}
    lines = (
        TableRow(
            name=name,
            cells=(make_number_cell(p, "{:.3f}".format, is_best=p > confidence_set.size),),
            is_model=name in models,
        )
        for name, p in confidence_set.p_values.items()
    )
    return ReportTable(columns=("p",), lines=tuple(lines))


def build_coverage_table(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage as numbers: one line per calibration variant and horizon."""
    after = evaluation.calibration.after
    return ReportTable(
        columns=tuple(f"below {format_level(quantile)}" for quantile in evaluation.levels),
        lines=tuple(
            _build_row(f"{format_horizon(h.horizon)}, {row.name}", h.below, format_share, is_model=row is after)
            for row in list_variants(evaluation)
            for h in row.horizons
        ),
    )


def build_winkler_table(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage of the band and Winkler score before and after, one line per horizon and variant."""
    calibration = evaluation.calibration
    lines: list[TableRow] = []
    for h, before in enumerate(calibration.before.horizons):
        name = format_horizon(before.horizon)
        lines.append(
            _build_winkler_row(
                name, calibration.effective_blocks[h], before, calibration.after.horizons[h], calibration.gain[h]
            )
        )
        if calibration.adaptive is not None and calibration.adaptive_gain is not None:
            name = f"{name}, adaptive"
            lines.append(
                _build_winkler_row(name, None, before, calibration.adaptive.horizons[h], calibration.adaptive_gain[h])
            )
    columns = ("blocks", f"{format_band(evaluation)}, before", "after", "Winkler, before", "after", "gain")
    return ReportTable(columns=columns, lines=tuple(lines))


def _build_winkler_row(
    name: str, blocks: float | None, before: HorizonScores, after: HorizonScores, gain: Interval
) -> TableRow:
    cells = (
        make_number_cell(blocks, "{:.0f}".format),
        *(_build_cell(scores.band, format_share) for scores in (before, after)),
        *(_build_cell(scores.winkler, format_loss) for scores in (before, after)),
        _build_cell(gain, format_gain),
    )
    return TableRow(name=name, cells=cells)


def build_pit_table(evaluation: ModelEvaluation) -> ReportTable:
    """PIT histograms as numbers, and the expected shares."""
    first = evaluation.pit[0]
    calibrated = TableRow(
        name="calibrated", cells=tuple(make_number_cell(share, format_share) for share in first.expected)
    )
    edges = [f"{100 * edge:g}" for edge in first.edges]
    return ReportTable(
        columns=tuple(f"{a}–{b} %" for a, b in pairwise(edges)),  # noqa: RUF001 - a range
        lines=(
            calibrated,
            *(
                _build_row(format_horizon(histogram.horizon), histogram.shares, format_share)
                for histogram in evaluation.pit
            ),
        ),
    )


def build_score_table(evaluation: ModelEvaluation) -> ReportTable:
    """One line per row of scores: means over horizons."""
    metrics = select_metrics(evaluation, evaluation.rows)
    lines = (
        TableRow(
            name=row.name,
            cells=tuple(make_number_cell(metric.mean(evaluation, row), metric.show) for metric in metrics),
            is_model=row.role is ScoreRole.MODEL,
        )
        for row in evaluation.rows
    )
    return ReportTable(columns=tuple(metric.name for metric in metrics), lines=tuple(lines))


def build_horizon_table(evaluation: ModelEvaluation) -> ReportTable:
    """The model: one line per score, one column per horizon; the last line is the naive forecast's error."""
    ours = next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    naive = next(row for row in evaluation.rows if row.name == NAIVE[evaluation.target.kind])
    lines = (
        TableRow(
            name=metric.name,
            cells=tuple(
                make_number_cell(metric.of(scores), metric.show, note=metric.span(scores)) for scores in ours.horizons
            ),
        )
        for metric in select_metrics(evaluation, (ours,))
    )
    error = _build_row(f"MAE {naive.name}", [h.mae for h in naive.horizons], format_loss)
    return ReportTable(columns=name_horizons(evaluation), lines=(*lines, error))


def build_seed_table(evaluation: ModelEvaluation) -> ReportTable | None:
    """Mean and standard deviation over trainings, one column per horizon; None if only one seed was trained."""
    if (seeds := evaluation.seeds) is None:
        return None
    lines = (
        _build_row("pinball loss", seeds.pinball, format_loss),
        _build_row(format_band(evaluation), seeds.band, format_share),
        _build_row("Winkler", seeds.winkler, format_loss),
    )
    return ReportTable(columns=name_horizons(evaluation), lines=lines)


def build_symbol_table(evaluation: ModelEvaluation) -> ReportTable:
    """The model's scores by symbol; the gain is how much smaller its loss is than the best baseline's."""
    lines = (
        TableRow(
            name=row.symbol,
            cells=(
                make_number_cell(row.windows, "{:,.0f}".format),
                _build_cell(row.mean, format_loss),
                _build_cell(row.band, format_share),
                _build_cell(row.improvement, format_gain),
            ),
        )
        for row in evaluation.by_symbol
    )
    return ReportTable(columns=("forecasts", "pinball loss", format_band(evaluation), "gain"), lines=tuple(lines))


def name_horizons(evaluation: ModelEvaluation) -> tuple[str, ...]:
    """The horizons as headers of columns."""
    return tuple(map(format_horizon, evaluation.target.horizons))


def list_variants(evaluation: ModelEvaluation) -> tuple[ModelScores, ...]:
    """The model without offsets, with its offsets and, if requested, with adaptive ones."""
    calibration = evaluation.calibration
    variants = (calibration.before, calibration.after)
    return variants if calibration.adaptive is None else (*variants, calibration.adaptive)


def _build_row(
    name: str, estimates: Sequence[Interval | SeedSpread], show: Callable[[float], str], *, is_model: bool = False
) -> TableRow:
    return TableRow(name=name, cells=tuple(_build_cell(estimate, show) for estimate in estimates), is_model=is_model)


def _build_cell(estimate: Interval | SeedSpread, show: Callable[[float], str], *, best: float = nan) -> TableCell:
    """A number with its interval, or its standard deviation over seeds, below."""
    if isinstance(estimate, SeedSpread):
        return make_number_cell(estimate.mean, show, note=f"± {show(estimate.sd)}")
    return make_number_cell(estimate.value, show, note=format_span(estimate, show), is_best=estimate.value == best)


def render_evaluation(name: str, evaluation: ModelEvaluation) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    page = PageBuilder("trainers.stock.evaluation")
    return page.render(
        {
            "name": name,
            "evaluation": evaluation,
            "findings": describe_findings(evaluation),
            "losses": build_loss_table(evaluation),
            "loss_chart": draw_losses(evaluation, page),
            "gains": build_gain_table(evaluation),
            "confidence_set": build_confidence_table(evaluation),
            "scores": build_score_table(evaluation),
            "by_horizon": build_horizon_table(evaluation),
            "coverage_charts": list(draw_coverage(evaluation, page)),
            "coverage": build_coverage_table(evaluation),
            "winkler": build_winkler_table(evaluation),
            "pit_charts": list(draw_pit(evaluation, page)),
            "pit": build_pit_table(evaluation),
            "seeds": build_seed_table(evaluation),
            "symbols": build_symbol_table(evaluation),
            "band": format_band(evaluation),
            "scale": SCALE,
            "mean_explained": MEAN_EXPLAINED,
            "fits_explained": FITS_EXPLAINED,
        }
    )


def draw_losses(evaluation: ModelEvaluation, page: PageBuilder) -> str:
    """Losses with intervals, each divided by the spread of outcomes at its horizon."""
    # The large loss of the single-value forecast would dominate the chart.
    rows = [row for row in evaluation.rows if row.name != NAIVE[evaluation.target.kind]]
    scale = SCALE / np.asarray(evaluation.target.spread)
    losses = np.moveaxis(scale * _split_intervals([[h.pinball for h in row.horizons] for row in rows]), 1, 2)
    names = [row.name for row in rows]
    figure = charts.draw_interval_rows(names, name_horizons(evaluation), *losses, axis=f"loss / spread, x {SCALE:,}")
    return page.chart(
        figure, "Losses with their intervals, the model and the baselines, by horizon; numbers in the table"
    )


def draw_coverage(evaluation: ModelEvaluation, page: PageBuilder) -> Iterator[tuple[str, str]]:
    """Coverage errors of the quantiles: the name and the chart of each calibration variant, on a common axis."""
    rows, levels = list_variants(evaluation), evaluation.levels
    shares = [_split_intervals([h.below for h in row.horizons]) for row in rows]
    reach = 1.05 * max(float(np.nanmax(np.abs(coverage[1:] - levels))) for coverage in shares)
    for row, coverage in zip(rows, shares, strict=True):
        label = f"{row.name}: observed minus nominal share of outcomes below each quantile; numbers in the table"
        yield (
            row.name,
            page.chart(charts.draw_calibration(levels, name_horizons(evaluation), *coverage, reach=reach), label),
        )


def draw_pit(evaluation: ModelEvaluation, page: PageBuilder) -> Iterator[tuple[str, str]]:
    """PIT histograms: the name and the chart of each horizon."""
    for histogram in evaluation.pit:
        name = format_horizon(histogram.horizon)
        label = f"Where outcomes fell between the quantiles, {name} ahead; numbers in the table"
        yield (
            name,
            page.chart(
                charts.draw_pit_histogram(name, histogram.edges, *_split_intervals([histogram.shares])[:, 0]), label
            ),
        )


def _split_intervals(rows: Sequence[Sequence[Interval]]) -> FloatArray:
    """[3, rows, columns] values, lower and upper ends."""
    return np.moveaxis(np.array([[(i.value, i.lower, i.upper) for i in row] for row in rows]), -1, 0)
