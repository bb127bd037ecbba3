"""Folders of new artifacts and of their features: flags, and commands to suggest."""

from pathlib import Path
from typing import Annotated, Final

from predictor import artifact
from predictor.cli.options import BarsFlags, CovariateFlags
from predictor.cli.output import list_given_flags, print_next_commands, quantra
from predictor.cli.program import say
from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.registry import CHAMPION, read_aliases

OutFolder = Annotated[
    Path,
    Flag("Folder of the artifact, such as models/NAME/1; without a number, the next version in it.", metavar="DIR"),
]

CacheFolder = Annotated[
    Path | None,
    Flag("Keep computed features in this folder, and read them memory-mapped; remove it at any time.", metavar="DIR"),
]

RUN: Final = ".run"
"""Ending of the folder next to an artifact with the log and the checkpoints of its training."""


def choose_version_folder(out: Path, *, resume: bool = False, tells: bool = True) -> Path:
    """The artifact's folder: `out`, or the next version in it if its name is not a version number.

    Args:
        out: from the command line.
        resume: whether to continue a training run, which is that of the newest version unless a later one was stopped.
        tells: whether to print the folder to standard error if it is another one.

    Raises:
        ConfigurationError: `out` holds models, not versions.
    """
    if out.name.isdecimal() or artifact.is_artifact(out):
        return out
    if any(out.glob(f"*/*/{artifact.MANIFEST}")):
        raise ConfigurationError(f"{out} holds several models; name one of them, such as --out {out / 'mine'}")
    folder = artifact.find_next_version(out)
    newest = folder.with_name(str(int(folder.name) - 1))
    if resume and newest.exists() and not folder.with_name(folder.name + RUN).exists():
        folder = newest
    if tells:
        say(f"{out} has no version number, so the artifact is {folder}", style="dim")
    return folder


def print_artifact_commands(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Print the next commands for a new artifact, on the bars that it was trained on."""
    commands = [
        quantra("inspect", out),
        quantra("evaluate", out, *list_given_flags(bars, files)),
        quantra("predict", "--artifact", out, *list_given_flags(bars, files)),
    ]
    model_folder, version = out.parent.absolute(), out.name
    if version.isdecimal() and read_aliases(model_folder).get(CHAMPION, int(version)) != int(version):
        commands.append(quantra("alias", model_folder.name, CHAMPION, version, "--models", out.parent.parent))
    print_next_commands(*commands)
