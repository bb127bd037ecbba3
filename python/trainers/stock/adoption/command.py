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
from predictor.errors import ConfigurationError
from trainers.options import Threads
from trainers.progress import no_progress, progress_on
from trainers.stock.adoption.adoption import AdoptionSettings, adopt
from trainers.stock.adoption.published_model import USUAL_PATHS, SourceFolder, read_chronos, read_kronos
from trainers.stock.command import print_result
from trainers.stock.flags import OutFolder, choose_version_folder, print_artifact_commands
from trainers.stock.progress_output import make_announcer, make_warner


class ModelFamily(StrEnum):
    """Families of models that can be adopted."""

    CHRONOS = "chronos"
    KRONOS = "kronos"


@with_flags
def adopt_command(  # noqa: PLR0913 - the flags of a command
    *,
    family: Annotated[ModelFamily, typer.Argument(help="Family of the model; Chronos-Bolt and Chronos-2 are chronos.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with config.json and model.safetensors.")],
    out: OutFolder,
    settings: AdoptionSettings,
    sha256: Annotated[
        str, typer.Option(metavar="HEX", help="SHA-256 of model.safetensors that the publisher states.")
    ] = "",
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the tokenizer of a kronos model.")
    ] = None,
    tokenizer_sha256: Annotated[
        str, typer.Option(metavar="HEX", help="SHA-256 of the tokenizer's model.safetensors.")
    ] = "",
    paths: Annotated[
        int | None, typer.Option(metavar="N", help=f"Paths that a kronos model samples; {USUAL_PATHS} if left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of these paths; 0 if left out.")] = None,
    bars: BarsFlags,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Make an artifact of a model that others trained, from local files; calibrate and score it on later days.

    Later days are those of --bars after --trained-until; without --bars, the model is neither calibrated nor scored.
    Nothing in the folder is executed, and nothing is downloaded. Chronos models need the extra `adopt`.
    """
    torch.set_num_threads(threads)
    out = choose_version_folder(out)
    panel = bars.read() if bars.bars or bars.bars_env else None
    source = SourceFolder.read(folder, sha256)
    if family is ModelFamily.KRONOS:
        if tokenizer is None:
            raise ConfigurationError(
                "a kronos model needs the folder of its tokenizer (--tokenizer), such as Kronos-Tokenizer-base"
            )
        model = read_kronos(
            source,
            SourceFolder.read(tokenizer, tokenizer_sha256),
            paths=USUAL_PATHS if paths is None else paths,
            seed=seed or 0,
            reach=settings.horizons[-1],
        )
    else:
        if tokenizer is not None or tokenizer_sha256 or paths is not None or seed is not None:
            raise ConfigurationError(
                "--tokenizer, --tokenizer-sha256, --paths and --seed are for kronos models; leave them out"
            )
        model = read_chronos(source)
    result = adopt(
        model,
        out,
        settings,
        bars=panel,
        today=datetime.now(UTC).date(),
        announce=make_announcer(as_json=as_json),
        warn=make_warner(as_json=as_json),
        track_steps=no_progress if as_json else progress_on(sys.stdout),
    )
    print_result(result, as_json=as_json)
    if as_json:
        return
    if panel is None:
        print_next_commands(quantra("inspect", out))
    else:
        print_artifact_commands(out, bars, CovariateFlags())
