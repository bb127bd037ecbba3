"""The command `quantra ensemble`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor.canonical import Json
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags
from predictor.cli.output import make_judgement, write_json
from predictor.errors import ConfigurationError
from trainers.options import Threads
from trainers.progress import progress_on
from trainers.stock.ensembles.ensemble import JoinedEnsemble, WeightRule, join
from trainers.stock.flags import OutFolder, choose_version_folder, print_artifact_commands
from trainers.stock.progress_output import announce_on_stderr, warn_on_stderr


@with_flags
def ensemble(
    *,
    artifacts: Annotated[list[Path], typer.Argument(metavar="ARTIFACT ARTIFACT …", help="The members.")],
    out: OutFolder,
    bars: BarsFlags,
    files: CovariateFlags,
    weights: Annotated[
        WeightRule,
        typer.Option(
            help="equal: the mean of all members; screened: the mean without members that are significantly worse than "
            "the best on the calibration days; fitted: the same with fitted weights, for long calibration parts."
        ),
    ] = "screened",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Combine trained artifacts into one model.

    The ensemble's quantiles are means of its members'. They are calibrated on the days of all members' calibration
    parts. Unless the weights are equal, members that are significantly worse there than the best are left out. The
    ensemble is scored against the members on days that no member has seen.
    """
    if len(artifacts) == 1:
        raise ConfigurationError(f"an ensemble needs 2 artifacts or more, but only {artifacts[0]} is given")
    torch.set_num_threads(threads)
    covariates, out = files.read(), choose_version_folder(out)
    joined_ensemble = join(
        bars.read(),
        name_members(artifacts),
        out,
        rule=weights,
        covariates=covariates,
        announce=announce_on_stderr,
        warn=warn_on_stderr,
        track_steps=progress_on(sys.stderr),
    )
    if as_json:
        write_json(describe_ensemble(joined_ensemble))
        return
    print_ensemble(joined_ensemble)
    print_artifact_commands(out, bars, files)


def describe_ensemble(joined_ensemble: JoinedEnsemble) -> dict[str, Json]:
    """The result for programs."""
    return {
        "kind": "joined",
        "artifact": str(joined_ensemble.folder),
        "members": list(joined_ensemble.members),
        "dropped": [{"name": member.name, "reason": member.reason} for member in joined_ensemble.refuted],
        "card": joined_ensemble.card,
    }


def print_ensemble(joined_ensemble: JoinedEnsemble) -> None:
    """Print the skill, the choice of members and the folder of a new ensemble."""
    console, summary = Console(highlight=False), joined_ensemble.summary
    console.print(make_judgement(summary))
    if summary.best_member is not None:
        best = summary.best_member
        figures = f"{100 * best.improvement:+.1f} % ({100 * best.lower:+.1f} % to {100 * best.upper:+.1f} %)"
        console.print(f"Improvement over its best member, {best.rival}: {figures}.", markup=False)
    for sentence in () if summary.weighting is None else summary.weighting.sentences:
        console.print(f"{sentence[0].upper()}{sentence[1:]}.", markup=False)
    console.print(
        f"Saved {joined_ensemble.folder} of {', '.join(joined_ensemble.members)}.", soft_wrap=True, markup=False
    )


def name_members(folders: Sequence[Path]) -> dict[str, Path]:
    """The folders by member name, such as `tft-1` for `models/tft/1`; duplicate names are numbered."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        resolved = folder.resolve()
        base = f"{resolved.parent.name}-{resolved.name}" if resolved.name.isdecimal() else resolved.name
        candidates = (base, *(f"{base}-{k}" for k in range(2, len(folders) + 2)))
        by_name[next(name for name in candidates if name not in by_name)] = folder
    return by_name
