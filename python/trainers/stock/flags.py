"""Flags of `quantra train stock` besides the recipe's, and checks that they agree."""

from pathlib import Path
from typing import Annotated

import typer

from predictor.cli.options import BarsFlags, CovariateFlags
from predictor.cli.output import given, print_next_commands, quantra
from predictor.flags import ParsedFlags
from trainers.stock.feature_selection import FeatureSelection
from trainers.stock.recipe import RecipeChanges
from trainers.stock.training_data import ParentArtifact
from trainers.stock.training_plan import contradictions, other_features, unused_training_flags

StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ARTIFACT",
        help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
    ),
]


def reject_training_flags(asked: RecipeChanges) -> None:
    """Refuse flags about learning for a model without learnt weights.

    Raises:
        typer.BadParameter: such flags are given; the message names them.
    """
    flags = unused_training_flags(asked)
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {asked.kind} has none; leave them out"
        )


def chosen_parent(
    folder: Path, asked: RecipeChanges, reads: ParsedFlags[FeatureSelection], files: CovariateFlags
) -> ParentArtifact:
    """Load the artifact to start from, and check it against the flags.

    Args:
        folder: of the artifact.
        asked: settings from the command line.
        reads: features from the command line.
        files: covariates that features may read.

    Raises:
        typer.BadParameter: flags contradict the artifact; the message names all of them.
        ConfigurationError: no training can start from the artifact.
        ArtifactError: the artifact is damaged.
    """
    parent = ParentArtifact.load(folder)
    wrong = [*contradictions(parent, asked), *other_features(parent, reads, files.read)]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def print_artifact_commands(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Print the next commands for a new artifact, on the bars that it was trained on."""
    print_next_commands(
        quantra("inspect", out),
        quantra("evaluate", out, *given(bars, files)),
        quantra("predict", "--artifact", out, *given(bars, files)),
    )
