"""The command `quantra ensemble`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor.card import Card
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags
from predictor.cli.output import judgement, write_json
from trainers.options import Threads
from trainers.progress import progress_on
from trainers.stock.ensembles.ensemble import join
from trainers.stock.flags import OutFolder, choose_version_folder, print_artifact_commands
from trainers.stock.progress_output import announce_on_stderr, warn_on_stderr


@with_flags
def ensemble(
    *,
    artifacts: Annotated[list[Path], typer.Argument(metavar="ARTIFACT ARTIFACT …", help="The members.")],
    out: OutFolder,
    bars: BarsFlags,
    files: CovariateFlags,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Combine trained artifacts into one model.

    The ensemble's quantiles are means of its members'. They are calibrated on the days of all members' calibration
    parts, and scored against the members on days that no member has seen.
    """
    torch.set_num_threads(threads)
    covariates, out = files.read(), choose_version_folder(out)
    joined = join(
        bars.read(),
        name_members(artifacts),
        out,
        covariates=covariates,
        announce=announce_on_stderr,
        warn=warn_on_stderr,
        stepwise=progress_on(sys.stderr),
    )
    if as_json:
        write_json({"kind": "joined", "artifact": str(joined.folder), "members": joined.members, "card": joined.card})
        return
    console = Console(highlight=False)
    console.print(judgement(joined.summary))
    console.print(_describe_improvement(joined.summary), markup=False)
    console.print(f"Saved {joined.folder} of {', '.join(joined.members)}.", soft_wrap=True, markup=False)
    print_artifact_commands(out, bars, files)


def name_members(folders: Sequence[Path]) -> dict[str, Path]:
    """The folders by member name, such as `tft-1` for `models/tft/1`; duplicate names are numbered."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        place = folder.resolve()
        base = f"{place.parent.name}-{place.name}" if place.name.isdecimal() else place.name
        candidates = (base, *(f"{base}-{k}" for k in range(2, len(folders) + 2)))
        by_name[next(name for name in candidates if name not in by_name)] = folder
    return by_name


def _describe_improvement(card: Card) -> str:
    best = card.best_member
    if best is None:
        return ""
    figures = f"{100 * best.improvement:+.1f} % ({100 * best.lower:+.1f} % to {100 * best.upper:+.1f} %)"
    return f"Improvement over its best member, {best.rival}: {figures}."
