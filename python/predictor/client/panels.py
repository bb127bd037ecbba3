"""Planning of calls for large panels, shared by both clients and free of I/O.

The planner asks the server once for the model's needs and limits, and again after a response from another version. It
then sends only the bars that the forecast depends on, in several calls if necessary. Each method returns a
`CallSequence`: the client makes the calls within one deadline and sends the responses back.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.client.calls import CallSequence, UnaryCall
from predictor.client.panel_calls import CallPlan, PanelPart, ServedModel, check_size, is_small, of_rows
from predictor.errors import NoUsableSymbolError, QuantraError, TooFewBarsError, format_names
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.global_importance import GlobalExplanationQuery
from predictor.instance import ExplanationQuery, Instance, InstanceLike, to_instance

UNUSABLE = (NoUsableSymbolError, TooFewBarsError)
"""Errors of a part without usable symbols; the other parts of its panel may still have forecasts."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartResponse:
    """The outcome of one part."""

    part: PanelPart
    symbols: tuple[str, ...]
    """Symbols of the part."""
    outcome: Outcome


def join_parts(parts: Sequence[PartResponse]) -> Outcome:
    """Join the outcomes of an instance's parts, all by one model version.

    Each symbol keeps the values or the error from its part. `forecast_id` is a hash of the ids of the parts.

    Args:
        parts: outcomes in the order of the instance. A part may lack usable symbols only if all parts do.

    Returns:
        The joined forecast, or the error of the first failed part. The error names the part's symbols, unless no part
        has a usable symbol.
    """
    if len(parts) == 1:
        return parts[0].outcome
    failures = [(part, part.outcome) for part in parts if isinstance(part.outcome, QuantraError)]
    if not failures:
        forecasts = [part.outcome for part in parts if isinstance(part.outcome, Forecast)]
        ids = "|".join(forecast.forecast_id for forecast in forecasts)
        return replace(
            forecasts[0],
            symbols=tuple(symbol for forecast in forecasts for symbol in forecast.symbols),
            values=np.concatenate([forecast.values for forecast in forecasts]),
            returns=_concatenate([forecast.returns for forecast in forecasts]),
            prices=_concatenate([forecast.prices for forecast in forecasts]),
            anchor_price=_concatenate([forecast.anchor_price for forecast in forecasts]),
            warnings=tuple(dict.fromkeys(warning for forecast in forecasts for warning in forecast.warnings)),
            refusals={symbol: error for forecast in forecasts for symbol, error in forecast.refusals.items()},
            forecast_id=hashlib.sha256(ids.encode()).hexdigest()[:16],
        )
    for part, error in failures:
        if not isinstance(error, UNUSABLE):
            return name_symbols(error, part.symbols)
    # The error that a single call would return if no symbol is usable.
    return next((error for _, error in failures if isinstance(error, NoUsableSymbolError)), failures[0][1])


def name_symbols(error: QuantraError, symbols: Sequence[str]) -> QuantraError:
    """Return a copy of the error that names the symbols of the failed call."""
    return type(error)(
        f"in the part with {format_names(symbols)}: {error.message}",
        metadata={"first_symbol": symbols[0], "last_symbol": symbols[-1], **error.metadata},
    )


def _concatenate(arrays: Sequence[FloatArray | None]) -> FloatArray | None:
    """Concatenate an array of all parts; None if a part lacks it."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def without_last(forecast: Forecast) -> Forecast:
    """Remove the last symbol, which was sent only so that each other symbol gets its own error."""
    last = forecast.symbols[-1]
    return replace(
        forecast,
        symbols=forecast.symbols[:-1],
        values=forecast.values[:-1],
        returns=None if forecast.returns is None else forecast.returns[:-1],
        prices=None if forecast.prices is None else forecast.prices[:-1],
        anchor_price=None if forecast.anchor_price is None else forecast.anchor_price[:-1],
        refusals={symbol: error for symbol, error in forecast.refusals.items() if symbol != last},
    )


_MAX_TRIES: Final = 3
"""Attempts before all bars are sent in one call; each deployment of a version in the meantime costs one."""


@final
class PanelPlanner:
    """Plans the calls of one client to its model. Thread-safe.

    Args:
        reference: reference of the model.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._model: ServedModel | None = None

    def predict(self, instances: Sequence[InstanceLike]) -> CallSequence[tuple[Outcome, ...]]:
        """Request the forecast or the error of each instance, in order."""
        instances = [to_instance(instance) for instance in instances]
        if is_small(instances):
            return (yield UnaryCall.predict(self._reference, instances))
        model = self._model or (yield from self._describe())
        for _ in range(_MAX_TRIES):
            responses = _PlannedResponses(self._reference, instances, model)
            outcomes = yield from responses.request_all()
            if responses.are_all_from(model) and not responses.may_lack_bars:
                return outcomes
            current = yield from self._describe()
            if responses.are_all_from(current) and current.accepts_cuts_for(model):
                return outcomes
            model = current
        return (yield UnaryCall.predict(self._reference, instances))

    def explain(self, query: ExplanationQuery) -> CallSequence[Explanation]:
        """Request the explanation of one forecast."""
        if is_small([query.instance]):
            return (yield UnaryCall.explain(self._reference, query))
        model = self._model or (yield from self._describe())
        for _ in range(_MAX_TRIES):
            outcome = yield from self._explain_cut(query, model)
            if isinstance(outcome, Explanation) and all(map(model.made, outcome.attributions)):
                return outcome
            current = yield from self._describe()
            if current.accepts_cuts_for(model):
                if isinstance(outcome, QuantraError):
                    raise outcome
                return outcome
            model = current
        return (yield UnaryCall.explain(self._reference, query))

    def cut_query(self, query: GlobalExplanationQuery) -> CallSequence[tuple[GlobalExplanationQuery, str]]:
        """Cut the instances of a global query to the bars they need; also return the version they were cut for."""
        if is_small(query.instances):
            return query, self._reference
        model = yield from self._describe()
        cut_instances = (
            model.cut(instance) if isinstance(instance, Instance) else instance for instance in query.instances
        )
        return replace(query, instances=tuple(cut_instances)), model.reference

    def _describe(self) -> CallSequence[ServedModel]:
        """Request and store the current description of the model."""
        model: ServedModel = yield UnaryCall.served(self._reference)
        self._model = model
        return model

    def _explain_cut(self, query: ExplanationQuery, model: ServedModel) -> CallSequence[Explanation | QuantraError]:
        """Request an explanation; return errors that a version which reads more bars may not have."""
        short_query = replace(query, instance=model.cut(query.instance))
        check_size(short_query.instance, model, "an explanation cannot be split; send fewer symbols")
        try:
            return (yield UnaryCall.explain(self._reference, short_query))
        except UNUSABLE as error:
            return error


@final
class _PlannedResponses:
    """Outcomes of instances that were cut and split for one model version."""

    def __init__(self, reference: str, instances: Sequence[Instance], model: ServedModel) -> None:
        self._reference = reference
        self._cut_instances = [model.cut(instance) for instance in instances]
        self._has_cut = any(
            cut_instance is not instance for cut_instance, instance in zip(self._cut_instances, instances, strict=True)
        )
        self._plan = CallPlan.of(self._cut_instances, model, reference)
        self._parts: list[list[PartResponse]] = [[] for _ in instances]
        """Responses of each instance."""

    def request_all(self) -> CallSequence[tuple[Outcome, ...]]:
        """Request the outcome of each instance, in order.

        Raises:
            QuantraError: a call failed. If there are several calls, the error names the symbols of the failed one.
        """
        for call in self._plan.calls:
            yield from self._request(call)
        for parts in self._parts:
            yield from self._retry_unusable(parts)
        return tuple(self._plan.refused.get(index) or join_parts(parts) for index, parts in enumerate(self._parts))

    def are_all_from(self, model: ServedModel) -> bool:
        """Whether this version made all forecasts."""
        return all(model.made(outcome) for outcome in self._list_outcomes() if isinstance(outcome, Forecast))

    @property
    def may_lack_bars(self) -> bool:
        """Whether bars were cut and an instance failed, possibly for lack of them."""
        return self._has_cut and any(isinstance(outcome, UNUSABLE) for outcome in self._list_outcomes())

    def _list_outcomes(self) -> Iterator[Outcome]:
        return (part.outcome for parts in self._parts for part in parts)

    def _request(self, call: Sequence[PanelPart]) -> CallSequence[None]:
        instances = [part.of(self._cut_instances) for part in call]
        try:
            outcomes: tuple[Outcome, ...] = yield UnaryCall.predict(self._reference, instances)
        except QuantraError as error:
            if len(self._plan.calls) == 1:
                raise
            symbols = [symbol for instance in instances for symbol in instance.input.symbols]
            raise name_symbols(error, symbols) from error
        for part, instance, outcome in zip(call, instances, outcomes, strict=True):
            response = PartResponse(part=part, symbols=instance.input.symbols, outcome=outcome)
            self._parts[part.index].append(response)

    def _retry_unusable(self, parts: list[PartResponse]) -> CallSequence[None]:
        """Request parts without usable symbols again with a usable one added, so that each symbol gets its error."""
        usable = _find_usable_row(parts)
        if usable is None:
            return
        for k, response in enumerate(parts):
            if isinstance(response.outcome, UNUSABLE):
                part = response.part
                extended = of_rows(self._cut_instances[part.index], [*range(part.first, part.end), usable])
                (outcome,) = yield UnaryCall.predict(self._reference, [extended])
                outcome = without_last(outcome) if isinstance(outcome, Forecast) else outcome
                parts[k] = replace(response, outcome=outcome)


def _find_usable_row(parts: Sequence[PartResponse]) -> int | None:
    """Return the row, in the whole instance, of the first symbol with a forecast."""
    for response in parts:
        if isinstance(response.outcome, Forecast):
            for row, symbol in enumerate(response.symbols):
                if symbol not in response.outcome.refusals:
                    return response.part.first + row
    return None
