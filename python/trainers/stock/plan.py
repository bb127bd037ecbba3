"""What a training from Python is asked for: settings by name, over those that suit the kind of network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.flags import ParsedFlags
from predictor.networks import KINDS, Edges, NetworkConfig, PanelConfig, Target, kind_named
from trainers.options import RunOptions
from trainers.stock.arguments import Bars, CovariateFiles, bars_of, covariates_of
from trainers.stock.contradictions import continued, contradictions, needless_learning, other_features
from trainers.stock.edges import read_edges
from trainers.stock.reads import FeatureSelection, check_features
from trainers.stock.recipe import Optimisation, RecipeChanges, StockRecipe, recipe_of
from trainers.stock.settings import asked_for, settings_of
from trainers.stock.training_data import ParentArtifact, TrainingMaterial

KEPT_WITH_WEIGHTS: Final = "come with the weights that it starts from; leave them out, or train from scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """A recipe, and what the material is to be made of; see `of`."""

    recipe: StockRecipe
    reads: ParsedFlags[FeatureSelection]
    run: RunOptions
    parent: ParentArtifact | None
    edges: Path | None

    @classmethod
    def of(
        cls, values: Mapping[str, Any], *, recipe: StockRecipe | None, start: Path | None, edges: Path | None
    ) -> Self:
        """What these settings mean together.

        Args:
            values: by the names of their flags; None was not given.
            recipe: settings to begin with; None for those that suit the kind.
            start: the artifact to start from.
            edges: the file of a graph's edges.

        Raises:
            ConfigurationError: a value cannot be, the kind has no such setting, or some contradict each other.
            ArtifactError: the artifact to start from is damaged.
        """
        changes = _changes(values, recipe)
        if start is None:
            _check_learning(changes)
        parent = None if start is None else _parent(start, changes, recipe)
        own = continued(parent) if parent is not None else recipe or recipe_of(changes.kind)
        whole = changes.over(own)
        _check_edges(edges, whole)
        reads = asked_for(FeatureSelection, values)
        check_features(reads.over(FeatureSelection()).features)
        run = asked_for(RunOptions, values).over(RunOptions())
        return cls(recipe=whole, reads=reads, run=run, parent=parent, edges=edges)

    def material(self, bars: Bars, covariates: CovariateFiles) -> TrainingMaterial:
        """Bars, features and covariates, and the edges of a graph.

        Raises:
            ConfigurationError: features or edges do not fit the files, or the weights that it starts from.
            QuantraError: a file is not what it must be.
        """
        panel, beside = bars_of(bars), covariates_of(covariates)
        wanted, calendar = self.reads.over(FeatureSelection()), self.recipe.calendar
        features = wanted.beside(beside, calendar) if self.parent is None else self.parent.features
        self._check_inherited(beside)
        return TrainingMaterial(panel, features, beside, self._edges(panel.symbols), self.parent)

    def _check_inherited(self, covariates: CovariateSource) -> None:
        if self.parent is not None:
            _refuse(list(other_features(self.parent, self.reads, lambda: covariates)))

    def _edges(self, symbols: tuple[str, ...]) -> Edges | None:
        config = self.recipe.config
        if self.edges is None or not isinstance(config, PanelConfig):
            return None
        return read_edges(self.edges, symbols, neighbours=config.neighbours)


def _changes(values: Mapping[str, Any], recipe: StockRecipe | None) -> RecipeChanges:
    """The settings of the recipe that were asked for; without a kind among them, that of the recipe to begin with."""
    asked = asked_for(StockRecipe, values)
    if recipe is not None:
        if (kind := asked.value("kind", recipe.kind)) != recipe.kind:
            raise ConfigurationError(f"model is {kind}, but the recipe's is {recipe.kind}; leave one of them out")
        asked = ParsedFlags({"kind": recipe.kind, **asked.values}, asked.flags)
    kind_named(asked.value("kind", StockRecipe().kind))
    return RecipeChanges(
        recipe=asked,
        target=asked_for(Target, values),
        optimisation=asked_for(Optimisation, values),
        network=_network(values),
    )


def _network(values: Mapping[str, Any]) -> ParsedFlags[NetworkConfig]:
    """Sizes of the network that were asked for; whether its kind has them is said where they become a recipe."""
    sizes = {one.name: one for kind in KINDS.values() for one in settings_of(kind.config)}
    given = {name: one.value(values[name]) for name, one in sizes.items() if values.get(name) is not None}
    return ParsedFlags(given, {name: name for name in given})


def _check_learning(changes: RecipeChanges) -> None:
    needless = needless_learning(changes)
    if needless:
        raise ConfigurationError(
            f"{', '.join(needless)} say how weights are learnt, but model {changes.kind} has none; leave them out"
        )


def _parent(start: Path, changes: RecipeChanges, recipe: StockRecipe | None) -> ParentArtifact:
    if recipe is not None:
        raise ConfigurationError("a recipe is given and an artifact to start from, which has its own; leave one out")
    parent = ParentArtifact.load(start)
    _refuse(list(contradictions(parent, changes)))
    return parent


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise ConfigurationError(f"{'; '.join(wrong)}: these {KEPT_WITH_WEIGHTS}")


def _check_edges(edges: Path | None, recipe: StockRecipe) -> None:
    if edges is not None and not isinstance(recipe.config, PanelConfig):
        raise ConfigurationError(f"edges is given, but a network of kind {recipe.kind!r} has no graph; use graph")
