"""A model bound to a history of bars, and its forecasts of many windows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.artifact import EnsembleManifest
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.model import Ensemble, Model, average_quantiles, build_output_map, combine_quantiles, rank_scores
from predictor.sessions import SessionCalendar
from trainers.stock.data import NO_COVARIATE_FILES, History, TrainingWindows
from trainers.stock.evaluation.evaluation_set import ModelForecasts, forecasts_of
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.splits import SplitPart, describe_origin, find_last_ever_seen

EvaluatedModel = Model | Ensemble
"""A model or an ensemble that can be evaluated."""


@final
class EnsembleMembers:
    """The members of an ensemble, each with the history that its pipeline has encoded."""

    def __init__(self, models: Mapping[str, Model], histories: Mapping[str, History]) -> None:
        self.models = models
        self.histories = histories

    @classmethod
    def over(
        cls,
        bars: BarPanel,
        models: Mapping[str, Model],
        covariates: CovariateSource,
        cache: FeatureCache | None = None,
    ) -> Self:
        """Encode the bars, once for all members that read the same features."""
        readings = [model.pipeline.recipe for model in models.values()]
        histories: dict[str, History] = {}
        for name, model in models.items():
            first = list(models)[readings.index(model.pipeline.recipe)]
            history = histories.get(first)
            histories[name] = History(bars, model.pipeline, covariates, cache) if history is None else history
        return cls(models, histories)

    def only(self, names: Sequence[str]) -> "EnsembleMembers":
        """Select members by name, in this order."""
        return EnsembleMembers(
            {name: self.models[name] for name in names}, {name: self.histories[name] for name in names}
        )

    @property
    def first(self) -> History:
        """A history for the bars, labels and outcomes, which all members share."""
        return next(iter(self.histories.values()))

    def windows(self, part: SplitPart) -> TrainingWindows:
        """The windows of a part that every member can forecast, by date, then symbol.

        Raises:
            ConfigurationError: A member has none.
        """
        stocks = len(self.first.bars.symbols)
        member_windows = [history.windows(part) for history in self.histories.values()]
        keys = reduce(np.intersect1d, [windows.positions * stocks + windows.symbols for windows in member_windows])
        return TrainingWindows(symbols=keys % stocks, positions=keys // stocks)

    def forecasts(self, windows: TrainingWindows) -> dict[str, ModelForecasts]:
        """Each member's forecasts of the windows."""
        return {
            name: forecasts_of(
                model.engine, build_output_map(model.manifest), self.histories[name], windows, model.manifest.universe
            )
            for name, model in self.models.items()
        }

    def scale(self, windows: TrainingWindows) -> FloatArray:
        """[N, H] mean of the members' window volatilities."""
        return np.mean([history.location_and_scale(windows)[1].numpy() for history in self.histories.values()], axis=0)

    def combine(
        self, manifest: EnsembleManifest, windows: TrainingWindows, forecasts: Mapping[str, ModelForecasts]
    ) -> ModelForecasts:
        """Forecasts of the ensemble, before and after its offsets; only of the members in its manifest."""
        member_forecasts = [forecasts[name] for name in manifest.members]
        quantiles = [member.calibrated for member in member_forecasts]
        return ModelForecasts(
            raw=average_quantiles(manifest, quantiles),
            calibrated=combine_quantiles(manifest, quantiles, self.only(tuple(manifest.members)).scale(windows)),
            scores=_join_scores(windows, [member.scores for member in member_forecasts]),
        )


def _join_scores(windows: TrainingWindows, members: Sequence[FloatArray | None]) -> FloatArray | None:
    """[N, H] negative mean of the members' ranks within each day; None if a member has no scores."""
    present = [scores for scores in members if scores is not None]
    if len(present) < len(members):
        return None
    _, first = np.unique(windows.positions, return_index=True)
    ranks = [np.concatenate([rank_scores(day) for day in np.split(scores, first[1:])]) for scores in present]
    return -np.mean(ranks, axis=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundNetwork:
    """A model of one network and its history."""

    model: Model
    history: History

    def windows(self, part: SplitPart) -> TrainingWindows:
        """The windows of a part that the model can forecast, by date."""
        return self.history.windows(part)

    def forecasts(self, windows: TrainingWindows) -> ModelForecasts:
        """The model's forecasts of these windows."""
        manifest = self.model.manifest
        return forecasts_of(self.model.engine, build_output_map(manifest), self.history, windows, manifest.universe)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundEnsemble:
    """An ensemble and the histories of its members."""

    manifest: EnsembleManifest
    members: EnsembleMembers

    @property
    def history(self) -> History:
        """The bars, labels and outcomes, which all members share."""
        return self.members.first

    def windows(self, part: SplitPart) -> TrainingWindows:
        """The windows of a part that every member can forecast, by date."""
        return self.members.windows(part)

    def forecasts(self, windows: TrainingWindows) -> ModelForecasts:
        """The ensemble's forecasts of these windows."""
        return self.members.combine(self.manifest, windows, self.members.forecasts(windows))


BoundModel = BoundNetwork | BoundEnsemble
"""A model with a history."""


def bind_model(
    model: EvaluatedModel,
    bars: BarPanel,
    covariates: CovariateSource = NO_COVARIATE_FILES,
    cache: FeatureCache | None = None,
) -> BoundModel:
    """Encode the bars for a model, with features in memory or in a cache.

    Raises:
        CovariateMissingError: No file has a covariate that the model reads.
    """
    if isinstance(model, Ensemble):
        members = EnsembleMembers.over(bars, model.members, covariates, cache)
        return BoundEnsemble(manifest=model.manifest, members=members)
    return BoundNetwork(model=model, history=History(bars, model.pipeline, covariates, cache))


def find_calendar(model: EvaluatedModel) -> SessionCalendar:
    """The calendar of the model, which the members of an ensemble share."""
    first = next(iter(model.members.values())) if isinstance(model, Ensemble) else model
    return first.pipeline.calendar


def find_trained_symbols(model: EvaluatedModel) -> frozenset[str]:
    """The symbols that the model, its members or its ancestors learnt from; empty if the cards lack them."""
    members = model.members.values() if isinstance(model, Ensemble) else (model,)
    return frozenset(symbol for member in members for symbol in member.training_summary.symbols or ())


def find_last_seen(model: EvaluatedModel) -> int:
    """The last session, yyyymmdd, of any label that the model, its members or its ancestors have seen.

    Raises:
        ArtifactError: A card lacks it.
    """
    return max(map(find_last_ever_seen, _list_cards(model)))


def describe_origins(model: EvaluatedModel) -> tuple[str, ...]:
    """Notes on the weights that the model or its members were fine-tuned from.

    Raises:
        ArtifactError: A card's record of them is incomplete.
    """
    return tuple(dict.fromkeys(note for card in _list_cards(model) for note in describe_origin(card)))


def _list_cards(model: EvaluatedModel) -> Iterator[Mapping[str, Json]]:
    yield model.manifest.card
    if isinstance(model, Ensemble):
        yield from (member.manifest.card for member in model.members.values())
