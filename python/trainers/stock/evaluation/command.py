"""`quantra evaluate`."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Annotated, Final

import torch
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.artifact import name_folder_in_errors
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED, read_adoption
from predictor.cli.flags import with_flags
from predictor.cli.options import ArtifactArgument, AsJson, BarsFlags, CovariateFlags, Report, WorkerFlags
from predictor.cli.output import (
    VERDICT_COLOURS,
    format_notes,
    list_given_flags,
    print_next_commands,
    quantra,
    write_json,
)
from predictor.errors import ConfigurationError, InSampleError, format_count, format_date
from predictor.inference import choose_device
from predictor.registry import Runtime, load_model
from predictor.replacement import replace_file
from predictor.report import ReportTable
from predictor.report.templates import name_artifact
from trainers.loop import LoopError
from trainers.options import Threads
from trainers.progress import progress_for, progress_on
from trainers.stock.data import WINDOWS_PER_BATCH
from trainers.stock.evaluation.evaluation import EvaluationSettings, ModelEvaluation, evaluate
from trainers.stock.evaluation.report import (
    SCALE,
    build_gain_table,
    build_horizon_table,
    build_loss_table,
    build_pit_table,
    build_score_table,
    build_symbol_table,
    build_winkler_table,
    describe_findings,
    format_loss,
    format_span,
    render_evaluation,
    select_metrics,
)
from trainers.stock.evaluation.scores import ScoreRole
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.flags import CacheFolder
from trainers.stock.progress_output import announce_on_stderr, warn_on_stderr

_MAX_SYMBOLS: Final = 20
_MAX_COLUMNS: Final = 7
"""Columns per table, which leaves room for names."""


@with_flags
def evaluate_command(
    *,
    artifact: ArtifactArgument,
    bars: BarsFlags,
    files: CovariateFlags,
    settings: EvaluationSettings,
    machines: WorkerFlags,
    feature_cache: CacheFolder = None,
    threads: Threads = 1,
    report: Report = None,
    everything: Annotated[bool, typer.Option("--all", help="Print all tables: by horizon, metric and symbol.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score an artifact against baselines, on days after all data that it has seen.

    The recipe is also trained from four other seeds, because one training may be lucky; --seeds 1 turns that off.
    """
    torch.set_num_threads(threads)
    with name_folder_in_errors(artifact):
        runtime = Runtime(device=choose_device(settings.device), max_rows=WINDOWS_PER_BATCH)
        model = load_model(artifact, (artifact.name, 0), runtime)
    cache = open_cache(feature_cache, warn_on_stderr)
    try:
        evaluation = evaluate(
            model,
            map_bars(bars.read(), cache),
            settings,
            consume=progress_for(sys.stderr),
            announce=announce_on_stderr,
            warn=warn_on_stderr,
            track_steps=progress_on(sys.stderr),
            covariates=files.read(),
            cache=cache,
            runner=machines.runner(),
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    if report is not None:
        replace_file(report, render_evaluation(name_artifact(artifact), evaluation).encode())
    if as_json:
        write_json(evaluation.to_json())
        return
    console = Console(highlight=False)
    for part in render_summary(evaluation):
        console.print(part)
    if everything:
        for part in render_tables(evaluation):
            console.print(part)
    else:
        console.print(Text("--all prints all tables, --report FILE.html draws them", style="dim"))
    for note in format_notes(evaluation.notes):
        console.print(note)
    days = ("--start", format_date(evaluation.period.first), "--end", format_date(evaluation.period.last))
    next_commands = [quantra("backtest", artifact, *list_given_flags(bars, files), *days)]
    if read_adoption(model.manifest.card) is None:  # an audit trains the model again
        next_commands.append(quantra("audit", artifact, *list_given_flags(bars, files)))
    print_next_commands(*next_commands)


def render_summary(evaluation: ModelEvaluation) -> Iterator[RenderableType]:
    """A few sentences on an evaluation, and one table of the model and the baselines."""
    days, equal = evaluation.period, evaluation.confidence_set
    yield (
        f"{days.windows} forecasts of {format_count(days.symbols, 'symbol')} on {days.days} days, "
        f"{format_date(days.first)} to {format_date(days.last)}; the artifact has seen labels up to "
        f"{format_date(days.seen_until)}"
    )
    yield Text()
    verdict, *others = describe_findings(evaluation)
    yield Text(verdict, style=VERDICT_COLOURS[evaluation.skill.verdict])
    yield from map(Text, others)
    if equal is not None:
        yield Text(f"{equal.sentence}.")
    columns = ("loss", "interval") if equal is None else ("loss", "interval", "equal to the best")
    table = create_table(f"pinball loss of {evaluation.unit}, x {SCALE}, mean", *columns)
    for row in evaluation.rows:
        cells = [format_loss(row.mean.value), format_span(row.mean, format_loss)]
        if equal is not None:
            cells.append("yes" if row.name in equal.members else "no")
        table.add_row(Text(row.name), *cells, style="blue" if row.role is ScoreRole.MODEL else "")
    table.caption = MEAN_EXPLAINED
    yield table


def render_tables(evaluation: ModelEvaluation) -> Iterator[RenderableType]:
    """All other tables of an evaluation."""
    losses = f"pinball loss of {evaluation.unit}, x {SCALE}; lower is better"
    yield from convert_table(losses, build_loss_table(evaluation), FITS_EXPLAINED)
    yield from convert_table(
        "improvement of the model's loss over that of the best baseline, paired by day",
        build_gain_table(evaluation),
        "t: Diebold-Mariano statistic, with Newey-West errors; beyond ±1.64 it is unlikely to be luck",
        noted=("all",),
    )
    yield from convert_table("other scores, mean over horizons", build_score_table(evaluation))
    ours = tuple(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    narrow = [metric.name for metric in select_metrics(evaluation, ours) if not metric.is_growing]
    yield from convert_table("this model by horizon", build_horizon_table(evaluation), noted=narrow)
    yield from convert_table(
        "conformal calibration: outcomes in the band and Winkler score, before and after",
        build_winkler_table(evaluation),
        "blocks: how many outcomes of the calibration days do not overlap",
        noted=("gain",),
    )
    title = "where outcomes fell (PIT); a calibrated model has the expected shares"
    pit = build_pit_table(evaluation)
    yield from convert_table(title, pit, noted=pit.columns)
    symbols, hidden_rows = build_symbol_table(evaluation), len(evaluation.by_symbol) - _MAX_SYMBOLS
    gain = f"gain: how much smaller the loss is than that of {evaluation.skill.baseline}"
    yield from convert_table(
        "by symbol",
        replace(symbols, lines=symbols.lines[:_MAX_SYMBOLS]),
        gain if hidden_rows <= 0 else f"{gain}; and {hidden_rows} more symbols, which --json has",
        noted=("gain",),
    )
    intervals = f"the middle {100 * evaluation.confidence:.0f} % of a {evaluation.method}"
    yield Text(f"Intervals: {intervals}. IC: {evaluation.correlation_note}.", style="dim")


def convert_table(title: str, table: ReportTable, caption: str = "", noted: Collection[str] = ()) -> Iterator[Table]:
    """Tables for a terminal, of at most `_MAX_COLUMNS` columns each.

    `noted` names the columns and lines whose notes are printed below their numbers; the others are too wide.
    """
    for first in range(0, len(table.columns), _MAX_COLUMNS):
        columns = table.columns[first : first + _MAX_COLUMNS]
        part = create_table(title, *(name.replace(" ", "\n", 1) for name in columns))
        part.caption = caption
        for line in table.lines:
            cells = line.cells[first : first + _MAX_COLUMNS]
            numbers = [Text(cell.text, style="bold" if cell.is_best else "") for cell in cells]
            part.add_row(Text(line.name), *numbers, style="blue" if line.is_model else "")
            pairs = zip(columns, cells, strict=True)
            notes = [cell.note if column in noted or line.name in noted else "" for column, cell in pairs]
            if any(notes):
                part.add_row("", *notes, style="dim")
        yield part


def create_table(title: str, *columns: str) -> Table:
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
