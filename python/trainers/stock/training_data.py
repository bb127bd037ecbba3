"""Inputs of a training run besides its recipe: bars, features and a parent artifact to start from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from predictor import artifact
from predictor.artifact import MEMBERS, StoredArtifact
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import UNADJUSTED, DataFacts, ParentModel, read_ancestors, read_data_facts
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, InSampleError, format_date, format_names
from predictor.features import FeatureSet, StaticFeatures
from predictor.networks import Edges
from predictor.windows import Pipeline
from trainers.stock.card import hash_bars, identify_features
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.edges import RETURNS, read_user_edges
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.recipe import NETWORK, NORMALISER, StockRecipe, read_recipe
from trainers.stock.splits import DataSplits, find_last_seen_session, read_splits

FIXED_SETTINGS: Final = ("kind", "target", "horizons", "lag", "quantiles", "encoder_length", "scale")
"""Settings, besides those of the network and the normaliser, that the weights depend on."""
CHANGEABLE_NETWORK_SETTING: Final = f"{NETWORK}dropout"
"""A network setting that affects training only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParentArtifact:
    """A trained artifact whose weights a training run starts from."""

    stored: StoredArtifact
    recipe: StockRecipe
    """Its recipe; a child takes the same network, target and scale."""
    data: DataFacts
    lineage: tuple[ParentModel, ...]
    """This model, then its ancestors."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read and verify an artifact to start from.

        Raises:
            ArtifactError: the artifact is damaged, or its format is unsupported.
            ConfigurationError: the artifact is an ensemble, has no weights, or its card lacks the training's record.
        """
        if artifact.is_ensemble(folder):
            raise _make_parent_error(folder, f"it is an ensemble; name one of its members: {folder}/{MEMBERS}/NAME")
        with artifact.name_folder_in_errors(folder):
            stored = artifact.load(folder)
            stored.artifact.network()  # refuses incomplete or infinite weights
        manifest = stored.artifact.manifest
        if not manifest.kind.is_trainable:
            name = manifest.kind.name
            raise _make_parent_error(
                folder, f"model {name} has no weights of a network to start from; fit it again: --model {name}"
            )
        data, recipe, splits = _read_origin(folder, manifest.card)
        parent = ParentModel(
            weights_hash=stored.weights_hash,
            symbols=tuple(symbol for symbol in data.symbols if symbol in data.trained_symbols),
            seen_from=splits.train.first,
            seen_until=find_last_seen_session(splits),
        )
        return cls(stored=stored, recipe=recipe, data=data, lineage=(parent, *read_ancestors(manifest.card)))

    @property
    def features(self) -> FeatureSet:
        """Features of its network."""
        return self.stored.artifact.pipeline.features.features

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """Weights of its network, by name."""
        return self.stored.artifact.weights

    @property
    def weights_hash(self) -> str:
        """SHA-256 of its weights, as `quantra inspect` shows it."""
        return self.stored.weights_hash

    @property
    def symbols(self) -> frozenset[str]:
        """Symbols that it or an ancestor learnt from."""
        return frozenset(symbol for ancestor in self.lineage for symbol in ancestor.symbols)

    @property
    def seen_until(self) -> int:
        """The last session, yyyymmdd, of a label that it or an ancestor has seen."""
        return max(ancestor.seen_until for ancestor in self.lineage)

    @property
    def is_adjusted(self) -> bool:
        """Whether its bars included splits and dividends."""
        return self.data.adjustment != UNADJUSTED

    def identity(self) -> Mapping[str, Json]:
        """Hashes that a resumed training compares."""
        return {"parent_weights": self.weights_hash, "parent_manifest": self.stored.manifest_hash}

    def card(self) -> dict[str, Json]:
        """The section on ancestors in a child's card."""
        return {"ancestors": [asdict(ancestor) | {"symbols": list(ancestor.symbols)} for ancestor in self.lineage]}

    def edges(self, bars: BarPanel) -> Edges | None:
        """The edges given to its graph, limited to the bars' symbols; None without any."""
        return read_user_edges(self.stored.artifact.manifest, self.weights, bars.symbols)

    def check(self, features: FeatureSet, recipe: StockRecipe) -> None:
        """Check that a training run keeps the settings that the weights depend on.

        Raises:
            ConfigurationError: settings differ; the message names all of them.
        """
        ours, theirs = _select_kept(recipe), _select_kept(self.recipe)
        differing = [
            f"{name} is {ours.get(name)}, the artifact's is {theirs.get(name)}"
            for name in dict.fromkeys((*theirs, *ours))
            if ours.get(name) != theirs.get(name)
        ]
        if identify_features(features) != identify_features(self.features):
            differing.append(
                f"the features are {_format_names(features)}, the artifact's are {_format_names(self.features)}"
            )
        if differing:
            raise ConfigurationError(
                f"the weights {self.weights_hash[:16]} cannot be used with other settings: "
                f"{'; '.join(differing)}; keep those of the artifact, or train from scratch"
            )

    def check_unseen(self, splits: DataSplits, sessions: NDArray[np.int32]) -> None:
        """Check that selection, calibration and test hold no labels that it has seen.

        Raises:
            InSampleError: a part holds such days; the message names the part and the first allowed date.
        """
        seen_until = self.seen_until
        inside = [part for part in splits.parts[1:] if part.first <= seen_until]
        if not inside:
            return
        after = sessions[sessions > seen_until]
        parts = ", ".join(f"{part.name} ({format_date(part.first)} to {format_date(part.last)})" for part in inside)
        advice = (
            f"let selection begin on {format_date(int(after[0]))} or later (--splits), or learn its recipe "
            "again from all bars: quantra retrain NAME --bars BARS"
            if len(after)
            else f"the bars end on {format_date(int(sessions[-1]))}: give later ones"
        )
        raise InSampleError(
            f"the artifact to start from has seen labels up to {format_date(seen_until)}, which lie in {parts}; scores "
            f"there would mean nothing: {advice}"
        )

    def with_parent_columns(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with the parent's categories of text columns.

        Raises:
            ConfigurationError: the static covariates differ from the parent's.
        """
        fitted, parent_statics = pipeline.features, self.stored.artifact.pipeline.features.statics
        if _list_variables(fitted.statics) != _list_variables(parent_statics):
            raise ConfigurationError(
                f"the static covariates are {_format_variables(fitted.statics)}, but the artifact to start from reads "
                f"{_format_variables(parent_statics)}; give the same (--static)"
            )
        return replace(
            pipeline, features=replace(fitted, statics=replace(fitted.statics, categories=parent_statics.categories))
        )


def _read_origin(folder: Path, card: Mapping[str, Json]) -> tuple[DataFacts, StockRecipe, DataSplits]:
    """The bars, recipe and splits that a card records."""
    data = read_data_facts(card)
    missing = [*(["data"] if data is None else []), *(name for name in ("recipe", "splits") if name not in card)]
    if data is None or missing:
        raise _make_parent_error(
            folder, f"its card has no {', '.join(missing)}, so what it has seen is unknown; train it again"
        )
    try:
        return data, read_recipe(card["recipe"], "its recipe"), read_splits(card)
    except ConfigurationError as error:
        raise _make_parent_error(folder, error.message) from error


def _make_parent_error(folder: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"no training can start from {folder}: {reason}")


def _select_kept(recipe: StockRecipe) -> dict[str, Json]:
    return {
        name: value
        for name, value in recipe.settings().items()
        if name in FIXED_SETTINGS or (name.startswith((NETWORK, NORMALISER)) and name != CHANGEABLE_NETWORK_SETTING)
    }


def _format_names(features: FeatureSet) -> str:
    return format_names((*features.names, *features.known_names))


def _list_variables(statics: StaticFeatures) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the number columns and of the text columns."""
    return tuple(covariate.name for covariate in statics.numbers), tuple(
        covariate.name for covariate in statics.categories
    )


def _format_variables(statics: StaticFeatures) -> str:
    numbers, texts = _list_variables(statics)
    return ", ".join([*(f"{name} (a number)" for name in numbers), *(f"{name} (a text)" for name in texts)]) or "none"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingMaterial:
    """Inputs of a training run besides its recipe."""

    bars: BarPanel
    features: FeatureSet
    covariates: CovariateSource = NO_COVARIATE_FILES
    """Covariates that the features read, and static covariates."""
    edges: Edges | None = None
    """Edges between the bars' symbols, in their order; None takes those given to the parent, else computes them."""
    parent: ParentArtifact | None = None
    """The artifact whose weights the training starts from; None starts from new weights."""
    cache: FeatureCache | None = None
    """Has the observed features on disk; None computes them in memory."""

    def identity(self) -> Mapping[str, Json]:
        """Hashes that a resumed training or search compares."""
        return {
            "bars": hash_bars(self.bars),
            "covariates": self.covariates.digest(),
            "features": identify_features(self.features),
            "edges": RETURNS if self.edges is None else self.edges.digest,
            **({} if self.parent is None else self.parent.identity()),
        }
