"""`quantra evaluate`."""

import sys
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console

from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.machine import write_json
from predictor.cli.options import AsJson, CovariateFiles, Report, StaticFile
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, InSampleError
from predictor.inference import choose_device
from predictor.registry import Runtime, load_model
from predictor.report.templates import artifact_name
from trainers.loop import LoopError
from trainers.options import AnsweringDeviceOption, ThreadsOption
from trainers.progress import progress_for
from trainers.stock.announcing import announce_beside, warn_beside
from trainers.stock.data import ROWS
from trainers.stock.evaluation.bound_model import Judgeable
from trainers.stock.evaluation.evaluate import EvaluationSettings, evaluate
from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.page import write_evaluation
from trainers.stock.evaluation.tables import evaluation_tables
from trainers.stock.flags import session_of

EXAMPLE: Final = "Example: quantra evaluate models/demo/1 --bars bars.csv --aci"
WANTED: Final = EvaluationSettings()


def evaluate_command(  # noqa: PLR0913 - one argument a flag
    *,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.")],
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    covariates: CovariateFiles = None,
    static: StaticFile = None,
    start: Annotated[
        str, typer.Option(metavar="DATE", help="First decision day; empty: the first that the artifact has not seen.")
    ] = "",
    end: Annotated[
        str, typer.Option(metavar="DATE", help="Last decision day; empty: the last whose outcome is known.")
    ] = "",
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Trainings to tell luck from skill, the artifact's own among them; 1 trains none."),
    ] = WANTED.seeds,
    adaptive: Annotated[
        bool, typer.Option("--aci", help="Also walk forward with adaptive conformal offsets.")
    ] = WANTED.adaptive,
    device: AnsweringDeviceOption = "auto",
    threads: ThreadsOption = 1,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Score an artifact beside the baselines, on days after everything that it has seen.

    One training can be lucky, so its recipe is trained with four other seeds too; --seeds 1 leaves that out.
    """
    torch.set_num_threads(threads)
    wanted = EvaluationSettings(
        start=session_of("--start", start) if start else None,
        end=session_of("--end", end) if end else None,
        seeds=seeds,
        adaptive=adaptive,
        device=device,
    )
    model = _model(artifact, device)
    try:
        found = evaluate(
            model,
            chosen_bars(bars, query, bars_env),
            wanted,
            consume=progress_for(sys.stderr),
            announce=announce_beside,
            warn=warn_beside,
            covariates=CovariateSource.read(covariates or (), static),
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    if report is not None:
        write_evaluation(report, artifact_name(artifact), found)
    if as_json:
        write_json(found.to_json())
    else:
        _show(found)


def _model(folder: Path, device: str) -> Judgeable:
    model = load_model(folder, (folder.name, 0), Runtime(device=choose_device(device), max_rows=ROWS))
    if not isinstance(model, Judgeable):
        raise ConfigurationError(f"a {type(model).__name__} cannot be evaluated")
    return model


def _show(found: Evaluation) -> None:
    console = Console(highlight=False)
    for part in evaluation_tables(found):
        console.print(part)
