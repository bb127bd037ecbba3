"""Tables of an evaluation for the terminal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED
from predictor.cli.output import shown_notes
from predictor.errors import shown_date
from predictor.skill import Verdict
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.comparison import LossComparison
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores, ScoreRole
from trainers.stock.evaluation.summary import (
    SCALE,
    describe_findings,
    format_band,
    format_gain,
    format_loss,
    format_share,
    format_span,
    select_metrics,
)

VERDICT_COLOURS: Final = {Verdict.BETTER: "green", Verdict.UNDECIDED: "yellow", Verdict.WORSE: "red"}
_MOST_SYMBOLS: Final = 20
_MOST_SCORES: Final = 7
"""Columns per table, which leaves room for names."""


def render_summary(evaluation: ModelEvaluation) -> Iterator[RenderableType]:
    """A few sentences on an evaluation, and one table of the model and the baselines."""
    yield _describe_days(evaluation)
    yield Text()
    colour = VERDICT_COLOURS[evaluation.skill.verdict]
    for place, sentence in enumerate(describe_findings(evaluation)):
        yield Text(sentence, style="" if place else colour)
    if evaluation.confidence_set is not None:
        yield Text(f"{evaluation.confidence_set.sentence}.")
    found = evaluation.confidence_set
    column = ("equal to the best",) if found is not None else ()
    table = plain_table(f"pinball loss of {evaluation.unit}, x {SCALE}, mean", "loss", "interval", *column)
    for row in evaluation.rows:
        equal = ("yes" if row.name in found.members else "no",) if found is not None else ()
        cells = (format_loss(row.mean.value), format_span(row.mean, format_loss), *equal)
        table.add_row(Text(row.name), *cells, style=_choose_style(row))
    table.caption = MEAN_EXPLAINED
    yield table
    yield Text("--all prints all tables, --report FILE.html draws them", style="dim")
    yield from shown_notes(evaluation.notes)


def render_tables(evaluation: ModelEvaluation) -> Iterator[RenderableType]:
    """All tables of an evaluation, the verdict first."""
    yield _describe_days(evaluation)
    colour = VERDICT_COLOURS[evaluation.skill.verdict]
    yield Panel(Text(evaluation.skill.sentence), title="skill", title_align="left", border_style=colour)
    if evaluation.confidence_set is not None:
        yield Text(evaluation.confidence_set.sentence)
    yield _build_loss_table(evaluation)
    yield _build_comparison_table(evaluation)
    yield from _build_model_tables(evaluation)
    yield _build_horizon_table(evaluation)
    yield _build_calibration_table(evaluation)
    yield _build_pit_table(evaluation)
    yield _build_symbol_table(evaluation)
    share = f"{100 * evaluation.level:.0f} %"
    yield Text(
        f"Intervals: the middle {share} of a {evaluation.method}. IC: {evaluation.correlated}.",
        style="dim",
    )
    yield from shown_notes(evaluation.notes)


def _describe_days(evaluation: ModelEvaluation) -> str:
    days = evaluation.days
    symbols = "1 symbol" if days.symbols == 1 else f"{days.symbols} symbols"
    return (
        f"{days.windows} forecasts of {symbols} on {days.days} days, {shown_date(days.first)} to "
        f"{shown_date(days.last)}; the artifact has seen labels up to {shown_date(days.seen_until)}"
    )


def _build_loss_table(evaluation: ModelEvaluation) -> Table:
    """Pinball loss by horizon and over all horizons with its interval; the lowest of each column is bold."""
    title = f"pinball loss of {evaluation.unit}, x {SCALE}; lower is better"
    table = plain_table(title, *_name_horizons(evaluation), "mean", "interval")
    losses = [[h.pinball.value for h in row.horizons] + [row.mean.value] for row in evaluation.rows]
    best = np.min(losses, axis=0)
    for row, values in zip(evaluation.rows, losses, strict=True):
        cells = [Text(format_loss(v), style="bold" if v == b else "") for v, b in zip(values, best, strict=True)]
        table.add_row(Text(row.name), *cells, format_span(row.mean, format_loss), style=_choose_style(row))
    if evaluation.seeds is not None:
        spreads = (*evaluation.seeds.pinball, evaluation.seeds.mean)
        cells = [f"{format_loss(spread.mean)}\n± {format_loss(spread.sd)}" for spread in spreads]
        table.add_row(f"{len(evaluation.seeds.seeds)} seeds\n± sd", *cells, style="blue")
    table.caption = f"{MEAN_EXPLAINED}\n{FITS_EXPLAINED}"
    return table


def _build_comparison_table(evaluation: ModelEvaluation) -> Table:
    """Improvement of the model's loss over that of the best baseline, paired by day."""
    title = "improvement of the model's loss over that of the best baseline, paired by day"
    table = plain_table(title, *_name_horizons(evaluation), "all", "interval", "t")
    _add_comparison(table, evaluation.comparison, evaluation.comparison.baseline, "")
    if evaluation.seeds is not None:
        mean = evaluation.seeds.comparison
        _add_comparison(table, mean, f"{mean.baseline}, by {len(evaluation.seeds.seeds)} seeds", "blue")
    table.caption = "t: Diebold-Mariano statistic, with Newey-West errors; beyond ±1.64 it is unlikely to be luck"
    return table


def _add_comparison(table: Table, row: LossComparison, name: str, style: str) -> None:
    gains = [format_gain(value.value) for value in (*row.by_horizon, row.improvement)]
    t = "" if row.t is None else f"{row.t:+.1f}"
    table.add_row(Text(name), *gains, format_span(row.improvement, format_gain), t, style=style)


def _build_model_tables(evaluation: ModelEvaluation) -> Iterator[Table]:
    """All other scores, mean over horizons; losses are divided by their spread first."""
    metrics = select_metrics(evaluation, evaluation.rows)
    for first in range(0, len(metrics), _MOST_SCORES):
        few = metrics[first : first + _MOST_SCORES]
        table = plain_table("other scores, mean over horizons", *(metric.name.replace(" ", "\n", 1) for metric in few))
        for row in evaluation.rows:
            cells = [metric.shown(metric.mean(evaluation, row)) for metric in few]
            table.add_row(Text(row.name), *cells, style=_choose_style(row))
        yield table


def _build_horizon_table(evaluation: ModelEvaluation) -> Table:
    """The model's scores at each horizon, and the error of the naive forecast."""
    ours = next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    naive = next(row for row in evaluation.rows if row.name == NAIVE[evaluation.target.kind])
    metrics = select_metrics(evaluation, (ours,))
    table = plain_table("this model by horizon", *_name_horizons(evaluation))
    for metric in metrics:
        table.add_row(metric.name, *(metric.shown(metric.of(own)) for own in ours.horizons))
        spans = [metric.span(own) for own in ours.horizons]
        if any(spans) and not metric.grows:  # intervals of losses are too wide for a terminal; the page has them
            table.add_row("", *spans, style="dim")
    table.add_row(f"MAE {naive.name}", *(format_loss(other.mae.value) for other in naive.horizons))
    return table


def _build_calibration_table(evaluation: ModelEvaluation) -> Table:
    """Coverage of the band and Winkler scores before and after calibration."""
    made = evaluation.calibration
    table = plain_table(
        f"conformal calibration: outcomes {format_band(evaluation)} and Winkler score, before and after",
        *("blocks", "before", "after", "interval", "Winkler", "after", "gain"),
    )
    for h, before in enumerate(made.before.horizons):
        name = f"{before.horizon} d"
        _add_calibration(table, name, f"{made.effective_blocks[h]:.0f}", before, made.after.horizons[h], made.gain[h])
        if made.adaptive is not None and made.adaptive_gain is not None:
            _add_calibration(table, "adaptive", "", before, made.adaptive.horizons[h], made.adaptive_gain[h])
    table.caption = "blocks: how many outcomes of the calibration days do not overlap"
    return table


def _add_calibration(
    table: Table, name: str, blocks: str, before: HorizonScores, after: HorizonScores, gain: Interval
) -> None:
    table.add_row(
        name,
        blocks,
        format_share(before.band.value),
        format_share(after.band.value),
        format_span(after.band, format_share),
        format_loss(before.winkler.value),
        format_loss(after.winkler.value),
        format_span(gain, format_gain),
    )


def _build_pit_table(evaluation: ModelEvaluation) -> Table:
    """Share of outcomes in each bin, and the expected share."""
    first = evaluation.pit[0]
    edges = [f"{100 * edge:g}" for edge in first.edges]
    bins = [f"{a}–{b} %" for a, b in pairwise(edges)]  # noqa: RUF001 - a range
    table = plain_table("where outcomes fell (PIT); a calibrated model has the expected shares", *bins)
    table.add_row("expected", *(format_share(share) for share in first.expected), style="dim")
    for row in evaluation.pit:
        table.add_row(f"{row.horizon} d", *(format_share(share.value) for share in row.shares))
        table.add_row("", *(format_span(share, format_share) for share in row.shares), style="dim")
    return table


def _build_symbol_table(evaluation: ModelEvaluation) -> Table:
    """The model's scores by symbol."""
    baseline = evaluation.skill.baseline
    table = plain_table("by symbol", "forecasts", "pinball", format_band(evaluation), "gain", "interval")
    table.caption = f"gain: how much smaller the loss is than that of {baseline}"
    for row in evaluation.by_symbol[:_MOST_SYMBOLS]:
        table.add_row(
            Text(row.symbol),
            str(row.windows),
            format_loss(row.mean.value),
            format_share(row.band.value),
            format_gain(row.improvement.value),
            format_span(row.improvement, format_gain),
        )
    if len(evaluation.by_symbol) > _MOST_SYMBOLS:
        table.caption = f"and {len(evaluation.by_symbol) - _MOST_SYMBOLS} more; --json has them all"
    return table


def plain_table(title: str, *columns: str) -> Table:
    """A table without lines: names left-aligned, numbers right-aligned."""
    table = Table(
        title=Text(f"\n{title}"),
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=None,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _name_horizons(evaluation: ModelEvaluation) -> Sequence[str]:
    return [f"{horizon} d" for horizon in evaluation.target.horizons]


def _choose_style(row: ModelScores) -> str:
    return "blue" if row.role is ScoreRole.MODEL else ""
