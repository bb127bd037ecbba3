"""`quantra adopt`."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags
from predictor.cli.output import print_next_commands, quantra
from trainers.options import Threads
from trainers.progress import no_progress, progress_on
from trainers.stock.adoption.adoption import AdoptionSettings, adopt
from trainers.stock.command import print_result
from trainers.stock.flags import OutFolder, choose_version_folder, print_artifact_commands
from trainers.stock.progress_output import announcer, warner


class ModelFamily(StrEnum):
    """Families of models that can be adopted."""

    CHRONOS = "chronos"


@with_flags
def adopt_command(
    *,
    family: Annotated[ModelFamily, typer.Argument(help="Family of the model: Chronos-Bolt and Chronos-2.")],  # noqa: ARG001
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with config.json and model.safetensors.")],
    out: OutFolder,
    settings: AdoptionSettings,
    bars: BarsFlags,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Make an artifact of a model that others trained, from local files; calibrate and score it on later days.

    Later days are those of --bars after --trained-until; without --bars, the model is neither calibrated nor scored.
    Nothing in the folder is executed, and nothing is downloaded. It needs the extra `adopt`.
    """
    torch.set_num_threads(threads)
    out = choose_version_folder(out)
    panel = bars.read() if bars.bars or bars.bars_env else None
    made = adopt(
        folder,
        out,
        settings,
        bars=panel,
        today=datetime.now(UTC).date(),
        announce=announcer(as_json=as_json),
        warn=warner(as_json=as_json),
        stepwise=no_progress if as_json else progress_on(sys.stdout),
    )
    print_result(made, as_json=as_json)
    if as_json:
        return
    if panel is None:
        print_next_commands(quantra("inspect", out))
    else:
        print_artifact_commands(out, bars, CovariateFlags())
