"""Flags, besides those of a recipe, that the command of stock models has, and what is bad usage among them.

Among them is `--from ARTIFACT`: what comes from the artifact, and which flags therefore contradict it.
"""

from pathlib import Path
from typing import Annotated

import typer

from predictor.cli.options import BarsFlags, CovariateFlags
from predictor.cli.output import given, quantra, tell_next
from predictor.flags import ParsedFlags
from trainers.stock.contradictions import contradictions, needless_learning, other_features
from trainers.stock.reads import FeatureSelection
from trainers.stock.recipe import RecipeChanges
from trainers.stock.training_data import ParentArtifact

StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ARTIFACT",
        help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
    ),
]


def refuse_learning(asked: RecipeChanges) -> None:
    """Refuse flags that say how weights are learnt, given to a model that has none.

    Raises:
        typer.BadParameter: naming the flags.
    """
    flags = needless_learning(asked)
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {asked.kind} has none; leave them out"
        )


def chosen_parent(
    folder: Path, asked: RecipeChanges, reads: ParsedFlags[FeatureSelection], files: CovariateFlags
) -> ParentArtifact:
    """The artifact to start from.

    Args:
        folder: the artifact's.
        asked: the settings given on the command line.
        reads: the features given there.
        files: covariates that features may read.

    Raises:
        typer.BadParameter: flags contradict it; the message names all of them.
        ConfigurationError: no training can start from it.
        ArtifactError: it is damaged.
    """
    parent = ParentArtifact.load(folder)
    wrong = [*contradictions(parent, asked), *other_features(parent, reads, files.read)]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def tell_use_of(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Tells a person what to do with a new artifact, on the bars that it was made of."""
    tell_next(
        quantra("inspect", out),
        quantra("evaluate", out, *given(bars, files)),
        quantra("predict", "--artifact", out, *given(bars, files)),
    )
