"""The interface of models to servers and clients, and the construction of their results."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.call_context import NEVER, Deadline
from predictor.catalog import ModelInfo
from predictor.dates import to_dates, to_optional_date
from predictor.errors import CalendarEndedError, QuantraError
from predictor.explain import Contributions, group_bars
from predictor.features import FittedFeatures
from predictor.forecast import Attribution, Detail, Forecast, Outcome, RowKind, TargetPoint
from predictor.instance import OCCLUSION, ExplanationQuery, Instance, InstanceOrError
from predictor.internals import LAST_CLOSE, Internal
from predictor.model.prepared_instance import PreparedInstance
from predictor.model.runner import NetworkForecast
from predictor.networks import Inputs, Target, TargetKind, find_anchor_index
from predictor.skill import Skill

ScalarT = TypeVar("ScalarT", bound=np.generic)

UNITS = {TargetKind.LOG_RETURN: "log return", TargetKind.LOG_VOLATILITY: "log daily volatility"}

WINDOW_ROWS = (RowKind.LOCATION, RowKind.SCALE, RowKind.CONFORMAL)
"""Rows of every attribution that hold one number per window."""

NOT_ADDITIVE: Final = (
    "occlusion is not additive: each contribution is the forecast minus the forecast without this input, and their sum "
    "is not the difference from the baseline"
)
"""Warning of explanations by occlusion."""

PreparedT = TypeVar("PreparedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """The name, version and weights hash of a served model."""

    name: str
    version: int
    weights_hash: str

    def name_in_error(self, error: QuantraError) -> QuantraError:
        """Add the model's name to a CalendarEndedError, because this model's calendar needs an update."""
        if not isinstance(error, CalendarEndedError):
            return error
        return CalendarEndedError(f"{self.name}@{self.version}: {error.message}", metadata=error.metadata)


class PreparedBatch(Generic[PreparedT]):
    """Prepared instances that wait for the network."""

    def __init__(self, model: "TwoStagePredictor[PreparedT]", prepared: Sequence[PreparedT | QuantraError]) -> None:
        """Store the prepared instances or their errors, in order."""
        self._model = model
        self._prepared = prepared

    def outcomes(self, indices: Sequence[int], deadline: Deadline) -> tuple[Outcome, ...]:
        """Return the outcomes of the instances with these indices; computes them in one forward pass.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        items = [self._prepared[index] for index in indices]
        usable_items = [item for item in items if not isinstance(item, QuantraError)]
        forecasts = iter(self._model.forecast(usable_items, deadline) if usable_items else ())
        return tuple(item if isinstance(item, QuantraError) else next(forecasts) for item in items)


class TwoStagePredictor(ABC, Generic[PreparedT]):
    """A model that first checks and encodes each instance, then forecasts all valid ones. Immutable and thread-safe."""

    @abstractmethod
    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Deadline
    ) -> list[PreparedT | QuantraError]:
        """Check instances and compute their inputs together.

        Each result is bit-identical to that of a separate call.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """

    @abstractmethod
    def forecast(self, prepared: Sequence[PreparedT], deadline: Deadline = NEVER) -> list[Forecast]:
        """Forecast several instances together.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """

    def prepare(self, instance: Instance, now: datetime) -> PreparedT:
        """Check an instance and compute its inputs.

        Args:
            instance: bars or windows.
            now: the present, with a time zone; decides whether the last bar's session has closed.

        Raises:
            QuantraError: the instance cannot be forecast; see predictor.errors.
        """
        (prepared,) = self.prepare_each([instance], now, NEVER)
        if isinstance(prepared, QuantraError):
            raise prepared
        return prepared

    def prepare_batch(
        self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline
    ) -> PreparedBatch[PreparedT]:
        """See `Predictor.prepare_batch`."""
        valid_instances = [instance for instance in instances if not isinstance(instance, QuantraError)]
        prepared = iter(self.prepare_each(valid_instances, now, deadline))
        return PreparedBatch(
            self, [instance if isinstance(instance, QuantraError) else next(prepared) for instance in instances]
        )

    def predict(self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline) -> tuple[Outcome, ...]:
        """See `Predictor.predict`."""
        return self.prepare_batch(instances, now, deadline).outcomes(range(len(instances)), deadline)


class Predictor(Protocol):
    """A model, with one network or an ensemble. Immutable and thread-safe."""

    @property
    def identity(self) -> ModelIdentity:
        """The model's name, version and weights hash."""
        ...

    def prepare_batch(
        self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline
    ) -> PreparedBatch[Any]:
        """Check and encode each instance; the error of an invalid or unreadable one becomes its outcome.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        ...

    def predict(self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline) -> tuple[Outcome, ...]:
        """Return one outcome per instance, in order; an invalid or unreadable instance gets its error.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        ...

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """Explain one query; returns one attribution per target.

        Raises:
            QuantraError: the instance cannot be forecast, or the model does not support the query.
        """
        ...

    def explain_cost(self, query: ExplanationQuery) -> int:
        """Return the most forward and backward rows that `explain` may need; prepares nothing.

        Raises:
            UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
        """
        ...

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """Return every horizon at the quantile nearest to the median."""
        ...

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """Describe the model."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSource:
    """The model that a forecast or attribution comes from."""

    identity: ModelIdentity
    target: Target
    levels: tuple[float, ...]
    features: FittedFeatures
    baseline: str
    method: str
    """Method of its explanations."""
    skill: Skill | None
    """The skill in the model's card."""
    start_note: str
    """See `Card.start_note`."""
    fingerprint: str
    """SHA-256 of everything that forecasts depend on."""


def list_default_targets(target: Target, levels: tuple[float, ...]) -> tuple[TargetPoint, ...]:
    """Return every horizon at the quantile nearest to the median."""
    level = levels[find_anchor_index(levels)]
    return tuple(TargetPoint(h, level) for h in target.horizons)


def build_forecasts(
    source: ForecastSource, prepared: Sequence[PreparedInstance], rows: Inputs, output: NetworkForecast
) -> list[Forecast]:
    """Build the forecast of each instance.

    Args:
        source: the model.
        prepared: the instances.
        rows: their rows in order, R in total.
        output: the network's output for the R rows.
    """
    arrays = [group.numpy() for group in rows]
    encoded = [(array.tobytes(), array.nbytes // len(array)) for array in arrays]
    is_return, end = source.target.kind is TargetKind.LOG_RETURN, 0
    kind = source.target.kind.value
    # With a lag, returns count from a close that is not known yet, so no price of today can anchor them.
    has_prices = is_return and not source.target.lag
    prices = compute_prices(_stack_anchors(prepared), output.values) if has_prices else None
    forecasts: list[Forecast] = []
    for instance in prepared:
        first, end = end, end + instance.rows.stop - instance.rows.start
        values = output.values[first:end]
        own_prices = None if prices is None or instance.anchor is None else prices[first:end]
        scores = None if output.scores is None else output.scores[first:end]
        if instance.refusals:
            values = _scatter_symbols(values, instance.usable)
            own_prices = None if own_prices is None else _scatter_symbols(own_prices, instance.usable)
        forecasts.append(
            Forecast(
                symbols=instance.symbols,
                as_of_session=to_optional_date(instance.as_of),
                target_sessions=instance.target_sessions,
                lag=source.target.lag,
                base_session=instance.base_session,
                horizons=source.target.horizons,
                quantiles=source.levels,
                target_kind=kind,
                values=values,
                returns=values if is_return else None,
                prices=own_prices,
                anchor_price=instance.anchor,
                model=source.identity.name,
                version=source.identity.version,
                weights_hash=source.identity.weights_hash,
                warnings=instance.warnings,
                refusals=instance.refusals,
                skill=source.skill,
                forecast_id=_hash_forecast(
                    source, instance, [data[first * size : end * size] for data, size in encoded]
                ),
                scores=None if scores is None else _scatter_symbols(scores, instance.usable),
                ranks=None if scores is None else _scatter(rank_scores(scores), instance.usable, fill=0),
                universe_hash="" if scores is None else hash_universe(instance.symbols, instance.usable),
            )
        )
    return forecasts


def _stack_anchors(prepared: Sequence[PreparedInstance]) -> FloatArray:
    """Stack the last closes [R] of all rows; NaN where unknown."""
    closes = (
        np.full(len(instance.usable), np.nan) if instance.anchor is None else instance.anchor for instance in prepared
    )
    pairs = zip(closes, prepared, strict=True)
    return np.concatenate([close[instance.usable] if instance.refusals else close for close, instance in pairs])


def compute_prices(anchor: FloatArray, returns: FloatArray) -> FloatArray:
    """Compute prices [S, H, Q] from last closes [S] and log returns; infinite if a caller's windows overflow."""
    with np.errstate(over="ignore"):
        return anchor[:, None, None] * np.exp(returns)


def rank_scores(scores: FloatArray) -> NDArray[np.int32]:
    """Rank scores [N, H], 1 = best; equal scores share the best rank."""
    better = [np.searchsorted(np.sort(-column), -column) for column in scores.T]
    return np.stack(better, axis=1).astype(np.int32) + np.int32(1)


def hash_universe(symbols: Sequence[str], usable: BoolArray) -> str:
    """Hash the usable symbols in alphabetical order: 16 hex digits of a SHA-256; `usable` is [S]."""
    names = sorted(symbol for symbol, known in zip(symbols, usable, strict=True) if known)
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def build_attribution(
    source: ForecastSource,
    prepared: PreparedInstance,
    point: TargetPoint,
    contributions: Contributions,
    detail: Detail,
    internals: tuple[Internal, ...] = (),
) -> Attribution:
    """Build the attribution of one point of a query; the internals cover the N usable symbols."""
    usable = prepared.usable
    warnings = (NOT_ADDITIVE, *prepared.warnings) if source.method == OCCLUSION else prepared.warnings
    if source.baseline == LAST_CLOSE:
        names, per_row = _sum_bars(contributions)
        kinds = (RowKind.OBSERVED,) * len(names)
    else:
        names, kinds = _list_rows(source.features, _list_window_rows(contributions))
        per_row = _sum_rows(source.features, contributions)
    length = contributions.observed.shape[1]
    per_time = contributions.observed.sum(axis=2) + contributions.known[:, :length].sum(axis=2)  # rows have the rest
    return Attribution(
        symbols=prepared.symbols,
        as_of_session=to_optional_date(prepared.as_of),
        horizon=point.horizon,
        quantile=point.quantile,
        method=source.method,
        baseline=source.baseline,
        unit=UNITS[source.target.kind],
        row_names=names,
        row_kinds=kinds,
        per_row=_scatter_symbols(per_row, usable),
        sessions=to_dates(prepared.sessions),
        per_time=None if detail is Detail.FEATURES else _scatter_symbols(per_time, usable),
        cells=_scatter_symbols(contributions.observed, usable) if detail is Detail.CELLS else None,
        prediction=_scatter_symbols(contributions.prediction, usable),
        baseline_prediction=_scatter_symbols(contributions.baseline_prediction, usable),
        relative_gap=_scatter_symbols(contributions.relative_gap, usable),
        converged=_scatter(contributions.converged, usable, fill=False),
        nodes=_scatter(contributions.nodes.astype(np.int32), usable, fill=0),
        model=source.identity.name,
        version=source.identity.version,
        weights_hash=source.identity.weights_hash,
        warnings=(source.start_note, *warnings) if source.start_note else warnings,
        internals=tuple(replace(internal, values=_scatter_symbols(internal.values, usable)) for internal in internals),
        skill=source.skill,
        refusals=prepared.refusals,
    )


def _list_rows(
    features: FittedFeatures, window_rows: tuple[RowKind, ...]
) -> tuple[tuple[str, ...], tuple[RowKind, ...]]:
    """Return the names and kinds of an attribution's rows."""
    groups = {
        RowKind.OBSERVED: features.features.names,
        RowKind.KNOWN: features.features.known_names,
        RowKind.STATIC: features.statics.names,
    }
    names = (*(name for group in groups.values() for name in group), *(kind.value for kind in window_rows))
    kinds = (*(kind for kind, group in groups.items() for _ in group), *window_rows)
    return names, kinds


def _sum_bars(contributions: Contributions) -> tuple[tuple[str, ...], FloatArray]:
    """Return the names of groups of bars, newest first, and their contributions [N, R]."""
    length = contributions.observed.shape[1]
    groups = group_bars(length)[::-1]
    names = tuple(f"bars {length - 1 - g[-1]} to {length - 1 - g[0]} before the last" for g in groups if len(g))
    sums = [contributions.observed[:, g, 0].sum(axis=1) for g in groups if len(g)]
    return names, np.stack(sums, axis=-1) if sums else np.zeros((len(contributions.prediction), 0))


def _list_window_rows(contributions: Contributions) -> tuple[RowKind, ...]:
    """Return the rows with one number per window in this explanation."""
    return (*WINDOW_ROWS, RowKind.NEIGHBOURS) if contributions.neighbours.shape[1] else WINDOW_ROWS


def _sum_rows(features: FittedFeatures, contributions: Contributions) -> FloatArray:
    """Sum contributions to rows [N, R]; a feature with several columns, such as a category, is one row."""
    numbers = {
        RowKind.LOCATION: contributions.location,
        RowKind.SCALE: contributions.scale,
        RowKind.CONFORMAL: contributions.conformal,
        RowKind.NEIGHBOURS: contributions.neighbours.sum(axis=1),
    }
    window_rows = np.stack([numbers[kind] for kind in _list_window_rows(contributions)], axis=-1)
    known = sum_groups(contributions.known.sum(axis=1), features.known_groups, len(features.features.known))
    static = sum_groups(contributions.static, features.static_groups, len(features.statics.names))
    return np.concatenate([contributions.observed.sum(axis=1), known, static, window_rows], axis=-1)


def sum_groups(columns: FloatArray, groups: Sequence[int], count: int) -> FloatArray:
    """Sum the columns by group to [N, count]."""
    sums = np.zeros((len(columns), count))
    for column, group in enumerate(groups):
        sums[:, group] += columns[:, column]
    return sums


def _hash_forecast(source: ForecastSource, prepared: PreparedInstance, inputs: Sequence[bytes]) -> str:
    """Hash everything that determines the forecast: 16 hex digits of a SHA-256; `inputs` are the bytes of its rows.

    All NaN bit patterns hash alike, because languages write different ones.
    """
    anchor = prepared.anchor
    if anchor is not None and prepared.refusals:  # otherwise no anchor is NaN
        anchor = np.where(np.isnan(anchor), np.nan, anchor)
    parts = [
        f"{source.fingerprint}|{prepared.as_of}|".encode(),
        *(symbol.encode() + b"\0" for symbol in prepared.symbols),
        prepared.usable.tobytes(),
        *inputs,
        b"" if anchor is None else anchor.tobytes(),
    ]
    # Hash in one call: each call on a large buffer releases the interpreter lock and has to reacquire it.
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _scatter_symbols(rows: FloatArray, usable: BoolArray) -> FloatArray:
    return _scatter(rows, usable, fill=np.nan)


def _scatter(rows: NDArray[ScalarT], usable: BoolArray, *, fill: float) -> NDArray[ScalarT]:
    """Scatter the usable symbols' rows to [S, …]."""
    if len(rows) == len(usable):
        return rows
    placed = np.full((len(usable), *rows.shape[1:]), fill, dtype=rows.dtype)
    placed[usable] = rows
    return placed
