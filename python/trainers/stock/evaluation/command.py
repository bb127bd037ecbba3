"""`quantra evaluate`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor.artifact import name_folder_in_errors
from predictor.card import adoption_of
from predictor.cli.flags import with_flags
from predictor.cli.options import ArtifactArgument, AsJson, BarsFlags, CovariateFlags, Report, WorkerFlags
from predictor.cli.output import given, print_next_commands, quantra, write_json
from predictor.errors import ConfigurationError, InSampleError, shown_date
from predictor.inference import choose_device
from predictor.registry import Runtime, load_model
from predictor.replacement import replace_file
from predictor.report.templates import artifact_name
from trainers.loop import LoopError
from trainers.options import Threads
from trainers.progress import progress_for, progress_on
from trainers.stock.data import ROWS
from trainers.stock.evaluation.evaluation import EvaluationSettings, ModelEvaluation, evaluate
from trainers.stock.evaluation.page import render_evaluation
from trainers.stock.evaluation.tables import render_summary, render_tables
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.flags import CacheFolder
from trainers.stock.progress_output import announce_on_stderr, warn_on_stderr


@with_flags
def evaluate_command(
    *,
    artifact: ArtifactArgument,
    bars: BarsFlags,
    files: CovariateFlags,
    wanted: EvaluationSettings,
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
        runtime = Runtime(device=choose_device(wanted.device), max_rows=ROWS)
        model = load_model(artifact, (artifact.name, 0), runtime)
    cache = open_cache(feature_cache, warn_on_stderr)
    try:
        evaluation = evaluate(
            model,
            map_bars(bars.read(), cache),
            wanted,
            consume=progress_for(sys.stderr),
            announce=announce_on_stderr,
            warn=warn_on_stderr,
            stepwise=progress_on(sys.stderr),
            covariates=files.read(),
            cache=cache,
            runner=machines.runner(),
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    if report is not None:
        replace_file(report, render_evaluation(artifact_name(artifact), evaluation).encode())
    if as_json:
        write_json(evaluation.to_json())
    else:
        console = Console(highlight=False)
        for part in (render_tables if everything else render_summary)(evaluation):
            console.print(part)
        print_next_commands(
            *_suggest_commands(
                artifact, bars, files, evaluation, is_adopted=adoption_of(model.manifest.card) is not None
            )
        )


def _suggest_commands(
    artifact: Path, bars: BarsFlags, files: CovariateFlags, evaluation: ModelEvaluation, *, is_adopted: bool
) -> Iterator[str]:
    days = ("--start", shown_date(evaluation.days.first), "--end", shown_date(evaluation.days.last))
    yield quantra("backtest", artifact, *given(bars, files), *days)
    if not is_adopted:  # an audit trains the model again
        yield quantra("audit", artifact, *given(bars, files))
