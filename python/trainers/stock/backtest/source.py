"""Source of forecasts for a backtest or an audit: an artifact, or an untrained recipe."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from predictor import artifact, canonical
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import read_adoption
from predictor.covariates import CovariateSource
from predictor.errors import ArtifactError, ConfigurationError, InSampleError, format_date
from predictor.features import FeatureSet, load_default_features
from predictor.inference import choose_device
from predictor.model import Model
from predictor.networks import Edges
from predictor.registry import Runtime, load_model
from trainers.stock.backtest.refits import MAX_ROWS, count_fewest_sessions
from trainers.stock.backtest.strategies import count_sessions_a_year
from trainers.stock.card import identify_features
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.data_warnings import find_model_warnings, find_recipe_warnings, list_networks
from trainers.stock.edges import read_user_edges
from trainers.stock.evaluation.bound_model import EvaluatedModel, find_calendar, find_last_seen
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.recipe import StockRecipe, read_recipe, read_recipe_file
from trainers.stock.splits import DataSplits, read_splits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained model and the data that it has seen."""

    model: EvaluatedModel
    splits: DataSplits
    """Splits in its card."""
    last_seen: int
    """Last session of any label in training, selection or calibration, including members; yyyymmdd."""

    @property
    def first_seen(self) -> int:
        """First training session, yyyymmdd."""
        return self.splits.train.first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSource:
    """An artifact or a recipe."""

    description: str
    """As text, such as "artifact 1a2b3c4d (lstm, trained with lag 0)"."""
    digest: str
    """SHA-256 of the manifest, or of a recipe's settings and features."""
    horizons: tuple[int, ...]
    """[H] forecast horizons in sessions."""
    recipe: StockRecipe | None
    """None for an ensemble."""
    features: FeatureSet
    """Features of the recipe's network; unused without a recipe."""
    covariates: CovariateSource
    """Covariate files."""
    trained_model: TrainedModel | None
    """The trained model; None for a recipe."""
    card: Mapping[str, Json]
    """The artifact's card; empty for a recipe."""
    cache: FeatureCache | None = None
    """Has the observed features of trainings on disk; None computes them in memory."""

    def known_recipe(self) -> StockRecipe:
        """The recipe.

        Raises:
            ConfigurationError: The source is an ensemble or an adopted model.
        """
        if self.recipe is None and read_adoption(self.card) is not None:
            raise ConfigurationError(
                "an adopted model has no recipe, so it cannot be trained again; adopt later weights, or backtest it "
                "with --refit never"
            )
        if self.recipe is None:
            raise ConfigurationError(
                "an ensemble has no recipe; use a member from its folder members, or backtest it with --refit never"
            )
        return self.recipe

    def require_trained_model(self) -> TrainedModel:
        """The trained model of a source that is an artifact."""
        assert self.trained_model is not None  # noqa: S101 - the caller has an artifact
        return self.trained_model

    @property
    def sessions_a_year(self) -> int:
        """Sessions per year of the calendar."""
        if self.trained_model is not None:
            return count_sessions_a_year(find_calendar(self.trained_model.model).name)
        return count_sessions_a_year(self.known_recipe().calendar)

    def find_warnings(self, bars: BarPanel) -> tuple[str, ...]:
        """Warnings about these bars and the covariate files."""
        if self.trained_model is not None:
            return find_model_warnings(list_networks(self.trained_model.model), bars, self.covariates)
        return find_recipe_warnings(bars, self.features, self.covariates, self.known_recipe())

    def user_edges(self, symbols: Sequence[str]) -> Edges | None:
        """Edges among these symbols that the user gave to the artifact's graph; None for others."""
        model = None if self.trained_model is None else self.trained_model.model
        if not isinstance(model, Model):
            return None
        return read_user_edges(model.manifest, model.engine.network.state_dict(), symbols)


def artifact_source(
    folder: Path, device: str = "auto", covariates: CovariateSource = NO_COVARIATE_FILES
) -> ModelSource:
    """Load and verify an artifact.

    Raises:
        ArtifactError: It is damaged, or its card lacks the splits or the recipe.
        ConfigurationError: This version does not know the recipe.
    """
    runtime = Runtime(choose_device(device), MAX_ROWS)
    with artifact.name_folder_in_errors(folder):
        model = load_model(folder, (folder.name, 0), runtime)
    digest = hashlib.sha256((folder / artifact.MANIFEST).read_bytes()).hexdigest()
    return use_model(model, digest, covariates)


def use_model(model: EvaluatedModel, digest: str, covariates: CovariateSource = NO_COVARIATE_FILES) -> ModelSource:
    """Use a trained model in memory; `digest` is the SHA-256 of its manifest.

    Raises:
        ArtifactError, ConfigurationError: As `artifact_source`.
    """
    manifest = model.manifest
    single = isinstance(model, Model)
    is_trained = isinstance(model, Model) and not model.manifest.kind.is_adopted
    if is_trained and "recipe" not in manifest.card:
        raise ArtifactError.of(artifact.MANIFEST, "its card has no recipe; train the model again")
    info = model.info((), is_default=False)
    return ModelSource(
        description=f"artifact {digest[:12]} ({info.kind}, trained with lag {info.lag})",
        digest=digest,
        horizons=info.horizons,
        recipe=read_recipe(manifest.card["recipe"], "recipe in the card") if is_trained else None,
        features=model.pipeline.features.features if single else load_default_features(),
        covariates=covariates,
        trained_model=TrainedModel(model=model, splits=read_splits(manifest.card), last_seen=find_last_seen(model)),
        card=manifest.card,
    )


def recipe_source(path: Path, features: FeatureSet, covariates: CovariateSource = NO_COVARIATE_FILES) -> ModelSource:
    """Use a recipe from a JSON file with these features.

    Raises:
        ConfigurationError: The file has no recipe.
    """
    recipe = read_recipe_file(path)
    identity = {"recipe": recipe.settings(), "features": identify_features(features)}
    digest = hashlib.sha256(canonical.to_bytes(identity)).hexdigest()
    return ModelSource(
        description=f"recipe {digest[:12]} ({recipe.kind})",
        digest=digest,
        horizons=recipe.target.horizons,
        recipe=recipe,
        features=features,
        covariates=covariates,
        trained_model=None,
        card={},
    )


def find_first_decision(source: ModelSource, bars: BarPanel, embargo: int) -> int:
    """First day that an artifact has not seen, or before which a recipe can be trained; yyyymmdd.

    `embargo` sessions lie between the last label and the first decision.

    Raises:
        InSampleError: The artifact has seen all days.
        ConfigurationError: The bars are too few to train the recipe.
    """
    sessions = bars.sessions
    if source.trained_model is not None:
        first = min(_find_first_unseen(source.trained_model, sessions, embargo), len(sessions) - 1)
        refuse_in_sample(source.trained_model, sessions, int(sessions[first]), embargo)
        return int(sessions[first])
    min_sessions = count_fewest_sessions(source.known_recipe(), source.features, bars) + embargo
    if min_sessions >= len(sessions):
        raise ConfigurationError(
            f"the bars have {len(sessions)} sessions, but a training run of this recipe and a decision need "
            f"{min_sessions + 1}; give more bars"
        )
    return int(sessions[min_sessions])


def _find_first_unseen(trained_model: TrainedModel, sessions: NDArray[np.int32], embargo: int) -> int:
    return int(np.searchsorted(sessions, trained_model.last_seen, side="right")) + embargo


def refuse_in_sample(trained_model: TrainedModel, sessions: NDArray[np.int32], start: int, embargo: int = 0) -> None:
    """Check that all labels of the model's training end before the first decision.

    `embargo` sessions lie between the last label and the first decision.

    Raises:
        InSampleError: They do not; the message has the first allowed session.
    """
    allowed = _find_first_unseen(trained_model, sessions, embargo)
    if allowed < len(sessions) and start >= sessions[allowed]:
        return
    last_seen = format_date(trained_model.last_seen)
    first = "after the last bar" if allowed >= len(sessions) else format_date(int(sessions[allowed]))
    raise InSampleError(
        f"{format_date(start)} is in sample: labels up to {last_seen} were used for training, selection or "
        f"calibration. The first allowed decision day is {first}"
    )
