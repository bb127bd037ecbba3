"""What doors ask of a model, whatever it is made of, and the values that they get."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.catalog import ModelInfo
from predictor.dates import as_date, optional_date
from predictor.errors import CalendarEndedError, QuantraError
from predictor.explain import Contributions
from predictor.features import FittedFeatures
from predictor.forecast import Attribution, Detail, Forecast, Outcome, RowKind, TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, Cancellation, Instance, Query, ReadInstance
from predictor.internals import Internal
from predictor.model.prepared_instance import PreparedInstance
from predictor.model.runner import NetworkForecast
from predictor.networks import Target, TargetKind, anchor_index
from predictor.skill import Skill

ScalarT = TypeVar("ScalarT", bound=np.generic)

UNITS = {TargetKind.LOG_RETURN: "log return", TargetKind.LOG_VOLATILITY: "log daily volatility"}

ALONE = (RowKind.LOCATION, RowKind.SCALE, RowKind.CONFORMAL)
"""Rows of every attribution that hold one number per window."""

PreparedT = TypeVar("PreparedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """Under which name and version a model is served, and which weights it has."""

    name: str
    version: int
    weights_hash: str

    def naming(self, error: QuantraError) -> QuantraError:
        """The error, which says whose calendar has ended, if that is what it tells: it is this model's to renew."""
        if not isinstance(error, CalendarEndedError):
            return error
        return CalendarEndedError(f"{self.name}@{self.version}: {error.message}", metadata=error.metadata)


class PreparedBatch(Protocol):
    """Instances that were prepared together and wait for the network."""

    def outcomes(self, places: Sequence[int], deadline: Cancellation) -> tuple[Outcome, ...]:
        """The outcomes of those instances, by place in the order they were given; one forward for all of them.

        Raises:
            DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
        """
        ...


class Predictor(Protocol):
    """A model that can be asked: one network, or an ensemble. Nothing on it changes, so any thread may use it."""

    @property
    def identity(self) -> ModelIdentity:
        """Its name, version and weights."""
        ...

    def prepare_batch(self, instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation) -> PreparedBatch:
        """Check and encode each instance; the errors of bad ones, or of those not read, are kept as their outcomes.

        Raises:
            DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
        """
        ...

    def predict(self, instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation) -> tuple[Outcome, ...]:
        """One outcome per instance, in order: a bad one, or one that could not be read, is answered with its error.

        Raises:
            DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
        """
        ...

    def explain(self, query: Query, now: datetime, deadline: Cancellation) -> tuple[Attribution, ...]:
        """Attributions of one query, one per target.

        Raises:
            QuantraError: the instance cannot be forecast, or the query asks for what the model does not have.
        """
        ...

    def explain_cost(self, query: Query) -> int:
        """Rows of a network's forward and backward that `explain` may take at most; nothing is prepared for it.

        Raises:
            UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
        """
        ...

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """Every horizon at the quantile nearest to the median."""
        ...

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the model is, for people and programs."""
        ...


class TwoStagePredictor(Protocol[PreparedT]):
    """A model that answers in two steps: it checks and encodes each instance, then forecasts all that passed."""

    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Cancellation
    ) -> list[PreparedT | QuantraError]:
        """Check instances and compute their inputs, those of bars together; raises when nobody waits any more.

        What an instance gets, inputs or the error that belongs to it, is the same to the last bit as alone.
        """
        ...

    def forecast(self, prepared: Sequence[PreparedT], deadline: Cancellation) -> list[Forecast]:
        """Forecasts of several instances; raises when nobody waits for them any more."""
        ...


@final
class WaitingBatch(Generic[PreparedT]):
    """As `PreparedBatch`, of a model that answers in two steps."""

    def __init__(self, model: TwoStagePredictor[PreparedT], prepared: Sequence[PreparedT | QuantraError]) -> None:
        """Receive what the model made of each instance, in order."""
        self._model = model
        self._prepared = prepared

    def outcomes(self, places: Sequence[int], deadline: Cancellation) -> tuple[Outcome, ...]:
        """As `PreparedBatch.outcomes`."""
        chosen = [self._prepared[place] for place in places]
        good = [p for p in chosen if not isinstance(p, QuantraError)]
        forecasts = iter(self._model.forecast(good, deadline) if good else ())
        return tuple(p if isinstance(p, QuantraError) else next(forecasts) for p in chosen)


def batch_of(
    model: TwoStagePredictor[PreparedT], instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation
) -> WaitingBatch[PreparedT]:
    """The instances, prepared; see `Predictor.prepare_batch`."""
    read = [instance for instance in instances if not isinstance(instance, QuantraError)]
    prepared = iter(model.prepare_each(read, now, deadline))
    return WaitingBatch(model, [one if isinstance(one, QuantraError) else next(prepared) for one in instances])


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSource:
    """Where an answer comes from."""

    identity: ModelIdentity
    target: Target
    levels: tuple[float, ...]
    features: FittedFeatures
    baseline: str
    skill: Skill | None
    """As the card records it."""
    fingerprint: str
    """SHA-256 of everything that forecasts depend on."""


def default_targets(target: Target, levels: tuple[float, ...]) -> tuple[TargetPoint, ...]:
    """Every horizon at the quantile nearest to the median."""
    level = levels[anchor_index(levels)]
    return tuple(TargetPoint(h, level) for h in target.horizons)


def _dates(sessions: NDArray[np.int32]) -> tuple[date, ...]:
    return tuple(as_date(day) for day in sessions.tolist())


def forecast_of(source: ForecastSource, prepared: PreparedInstance, answer: NetworkForecast) -> Forecast:
    """The answer to one instance.

    Args:
        source: the model.
        prepared: the instance.
        answer: for its N usable symbols.
    """
    values = _on_symbols(answer.values, prepared.usable)
    returns = values if source.target.kind is TargetKind.LOG_RETURN else None
    anchor = prepared.anchor
    # With a lag the returns count from a close that is not known yet: no price today can anchor them.
    prices = None if returns is None or anchor is None or source.target.lag else prices_of(anchor, returns)
    return Forecast(
        symbols=prepared.symbols,
        as_of_session=optional_date(prepared.as_of),
        target_sessions=_dates(prepared.target_sessions),
        lag=source.target.lag,
        base_session=optional_date(prepared.base_session),
        horizons=source.target.horizons,
        quantiles=source.levels,
        target_kind=source.target.kind.value,
        values=values,
        returns=returns,
        prices=prices,
        anchor_price=anchor,
        model=source.identity.name,
        version=source.identity.version,
        weights_hash=source.identity.weights_hash,
        warnings=prepared.warnings,
        refusals=prepared.refusals,
        skill=source.skill,
        forecast_id=_forecast_id(source, prepared),
        scores=None if answer.scores is None else _on_symbols(answer.scores, prepared.usable),
        ranks=None if answer.scores is None else _placed(ranks_of(answer.scores), prepared.usable, fill=0),
        universe_hash="" if answer.scores is None else universe_hash(prepared.symbols, prepared.usable),
    )


def prices_of(anchor: FloatArray, returns: FloatArray) -> FloatArray:
    """[S, H, Q] from the last closes [S] and log returns; infinite where a caller's own windows exceed a double."""
    with np.errstate(over="ignore"):
        return anchor[:, None, None] * np.exp(returns)


def ranks_of(scores: FloatArray) -> NDArray[np.int32]:
    """[N, H] places by score, 1 = best; equal scores share the best of their places."""
    better = [np.searchsorted(np.sort(-column), -column) for column in scores.T]
    return np.stack(better, axis=1).astype(np.int32) + np.int32(1)


def universe_hash(symbols: Sequence[str], usable: BoolArray) -> str:
    """Sixteen hex digits of a SHA-256 over the ranked symbols, those usable [S], in alphabetical order."""
    ranked = sorted(symbol for symbol, known in zip(symbols, usable, strict=True) if known)
    return hashlib.sha256("\0".join(ranked).encode()).hexdigest()[:16]


def attribution_of(
    source: ForecastSource,
    prepared: PreparedInstance,
    point: TargetPoint,
    contributions: Contributions,
    detail: Detail,
    internals: tuple[Internal, ...] = (),
) -> Attribution:
    """The answer to one point of a query; the internals are of the N usable symbols."""
    usable = prepared.usable
    names, kinds = _rows(source.features, _alone(contributions))
    return Attribution(
        symbols=prepared.symbols,
        as_of_session=optional_date(prepared.as_of),
        horizon=point.horizon,
        quantile=point.quantile,
        method=INTEGRATED_GRADIENTS,
        baseline=source.baseline,
        unit=UNITS[source.target.kind],
        row_names=names,
        row_kinds=kinds,
        per_row=_on_symbols(_per_row(source.features, contributions), usable),
        sessions=_dates(prepared.sessions),
        per_time=None if detail is Detail.FEATURES else _on_symbols(_per_time(contributions), usable),
        cells=_on_symbols(contributions.observed, usable) if detail is Detail.CELLS else None,
        prediction=_on_symbols(contributions.prediction, usable),
        baseline_prediction=_on_symbols(contributions.baseline_prediction, usable),
        relative_gap=_on_symbols(contributions.relative_gap, usable),
        converged=_placed(contributions.converged, usable, fill=False),
        nodes=_placed(contributions.nodes.astype(np.int32), usable, fill=0),
        model=source.identity.name,
        version=source.identity.version,
        weights_hash=source.identity.weights_hash,
        warnings=prepared.warnings,
        internals=tuple(replace(one, values=_on_symbols(one.values, usable)) for one in internals),
        skill=source.skill,
        refusals=prepared.refusals,
    )


def _rows(features: FittedFeatures, alone: tuple[RowKind, ...]) -> tuple[tuple[str, ...], tuple[RowKind, ...]]:
    """Names and kinds of an attribution's rows."""
    groups = {
        RowKind.OBSERVED: features.features.names,
        RowKind.KNOWN: features.features.known_names,
        RowKind.STATIC: features.statics.names,
    }
    names = (*(name for group in groups.values() for name in group), *(kind.value for kind in alone))
    kinds = (*(kind for kind, group in groups.items() for _ in group), *alone)
    return names, kinds


def _alone(contributions: Contributions) -> tuple[RowKind, ...]:
    """The rows that hold one number per window in this explanation."""
    return (*ALONE, RowKind.NEIGHBOURS) if contributions.neighbours.shape[1] else ALONE


def _per_row(features: FittedFeatures, contributions: Contributions) -> FloatArray:
    """[N, R] every row of each symbol; what has several columns, such as a category, is one row."""
    numbers = {
        RowKind.LOCATION: contributions.location,
        RowKind.SCALE: contributions.scale,
        RowKind.CONFORMAL: contributions.conformal,
        RowKind.NEIGHBOURS: contributions.neighbours.sum(axis=1),
    }
    alone = np.stack([numbers[kind] for kind in _alone(contributions)], axis=-1)
    known = summed(contributions.known.sum(axis=1), features.known_groups, len(features.features.known))
    static = summed(contributions.static, features.static_groups, len(features.statics.names))
    return np.concatenate([contributions.observed.sum(axis=1), known, static, alone], axis=-1)


def summed(columns: FloatArray, groups: Sequence[int], count: int) -> FloatArray:
    """[N, count] sums of the columns of each group."""
    sums = np.zeros((len(columns), count))
    for column, group in enumerate(groups):
        sums[:, group] += columns[:, column]
    return sums


def _per_time(contributions: Contributions) -> FloatArray:
    """[N, T] of the encoder; contributions of known features of later sessions are in the rows alone."""
    length = contributions.observed.shape[1]
    return contributions.observed.sum(axis=2) + contributions.known[:, :length].sum(axis=2)


def _forecast_id(source: ForecastSource, prepared: PreparedInstance) -> str:
    """Sixteen hex digits of a SHA-256 over everything that the forecast follows from.

    A price that is missing counts as one NaN, whichever of them the caller's language writes.
    """
    anchor = prepared.anchor
    parts = [
        f"{source.fingerprint}|{prepared.as_of}|".encode(),
        *(symbol.encode() + b"\0" for symbol in prepared.symbols),
        prepared.usable.tobytes(),
        *(group.numpy().tobytes() for group in prepared.inputs),
        b"" if anchor is None else np.where(np.isnan(anchor), np.nan, anchor).tobytes(),
    ]
    # In one piece: to hash some lets other threads have the interpreter, and each time it has to be got back.
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _on_symbols(rows: FloatArray, usable: BoolArray) -> FloatArray:
    return _placed(rows, usable, fill=np.nan)


def _placed(rows: NDArray[ScalarT], usable: BoolArray, *, fill: float) -> NDArray[ScalarT]:
    """[S, …] with the usable symbols' rows in their places."""
    if len(rows) == len(usable):
        return rows
    placed = np.full((len(usable), *rows.shape[1:]), fill, dtype=rows.dtype)
    placed[usable] = rows
    return placed
