"""Planning of calls for large panels, shared by both clients and free of I/O.

The planner asks the server once for the model's needs and limits, and again after a response from another version. It
then sends only the bars that the forecast depends on, in several calls if necessary. Each method returns `Steps`: the
client makes the calls within one deadline and sends the responses back.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.client.calls import Steps, UnaryCall
from predictor.client.panel_calls import CallPlan, PanelPart, ServedModel, check_size, is_small, of_rows
from predictor.errors import NoUsableSymbolError, QuantraError, TooFewBarsError, listed
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.global_importance import GlobalQuery
from predictor.instance import Instance, Query, Question, instance_of

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


def joined(parts: Sequence[PartResponse]) -> Outcome:
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
    failures = [(told, told.outcome) for told in parts if isinstance(told.outcome, QuantraError)]
    if not failures:
        return _joined([told.outcome for told in parts if isinstance(told.outcome, Forecast)])
    for told, failure in failures:
        if not isinstance(failure, UNUSABLE):
            return named(failure, told.symbols)
    return _nothing_usable([failure for _, failure in failures])


def named(error: QuantraError, symbols: Sequence[str]) -> QuantraError:
    """Return a copy of the error that names the symbols of the failed call."""
    return type(error)(
        f"in the part with {listed(symbols)}: {error.message}",
        metadata={"first_symbol": symbols[0], "last_symbol": symbols[-1], **error.metadata},
    )


def _nothing_usable(failures: Sequence[QuantraError]) -> QuantraError:
    """Return the error of a panel without usable symbols, of the type that a single call would return."""
    return next((one for one in failures if isinstance(one, NoUsableSymbolError)), failures[0])


def _joined(forecasts: Sequence[Forecast]) -> Forecast:
    first = forecasts[0]
    ids = "|".join(one.forecast_id for one in forecasts)
    return replace(
        first,
        symbols=tuple(symbol for one in forecasts for symbol in one.symbols),
        values=np.concatenate([one.values for one in forecasts]),
        returns=_stacked(forecasts, lambda one: one.returns),
        prices=_stacked(forecasts, lambda one: one.prices),
        anchor_price=_stacked(forecasts, lambda one: one.anchor_price),
        warnings=tuple(dict.fromkeys(warning for one in forecasts for warning in one.warnings)),
        refusals={symbol: why for one in forecasts for symbol, why in one.refusals.items()},
        forecast_id=hashlib.sha256(ids.encode()).hexdigest()[:16],
    )


def _stacked(forecasts: Sequence[Forecast], of: Callable[[Forecast], FloatArray | None]) -> FloatArray | None:
    """Concatenate an array of all parts; None if a part lacks it."""
    rows = [values for values in map(of, forecasts) if values is not None]
    return np.concatenate(rows) if len(rows) == len(forecasts) else None


def without_last(forecast: Forecast) -> Forecast:
    """Remove the last symbol, which was sent only so that each other symbol gets its own error."""
    last = forecast.symbols[-1]

    def cut(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[:-1]

    return replace(
        forecast,
        symbols=forecast.symbols[:-1],
        values=forecast.values[:-1],
        returns=cut(forecast.returns),
        prices=cut(forecast.prices),
        anchor_price=cut(forecast.anchor_price),
        refusals={symbol: why for symbol, why in forecast.refusals.items() if symbol != last},
    )


_MOST_TRIES: Final = 3
"""Attempts before all bars are sent in one call; each deployment of a version during a question costs one."""


@final
class PanelPlanner:
    """Plans the calls of one client to its model. Thread-safe.

    Args:
        reference: reference of the model.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._known: ServedModel | None = None

    def predict(self, asked: Sequence[Question]) -> Steps[tuple[Outcome, ...]]:
        """Request the forecast or the error of each instance, in order."""
        instances = [instance_of(question) for question in asked]
        if is_small(instances):
            return (yield UnaryCall.predict(self._reference, instances))
        model = self._known or (yield from self.learn())
        for _ in range(_MOST_TRIES):
            answers = _PlannedResponses(self._reference, instances, model)
            outcomes = yield from answers.all()
            if answers.are_by(model) and not answers.are_doubtful:
                return outcomes
            served = yield from self.learn()
            if answers.are_by(served) and served.is_content_with(model):
                return outcomes
            model = served
        return (yield UnaryCall.predict(self._reference, instances))

    def explain(self, query: Query) -> Steps[Explanation]:
        """Request the explanation of one forecast."""
        if is_small([query.instance]):
            return (yield UnaryCall.explain(self._reference, query))
        model = self._known or (yield from self.learn())
        for _ in range(_MOST_TRIES):
            answer = yield from self._explained(query, model)
            if isinstance(answer, Explanation) and all(map(model.has_made, answer.attributions)):
                return answer
            served = yield from self.learn()
            if served.is_content_with(model):
                if isinstance(answer, QuantraError):
                    raise answer
                return answer
            model = served
        return (yield UnaryCall.explain(self._reference, query))

    def cut_query(self, query: GlobalQuery) -> Steps[tuple[GlobalQuery, str]]:
        """Cut the instances of a global query to the bars they need; also return the version they were cut for."""
        if is_small(query.instances):
            return query, self._reference
        model = yield from self.learn()
        cut = (model.cut(one) if isinstance(one, Instance) else one for one in query.instances)
        return replace(query, instances=tuple(cut)), model.reference

    def learn(self) -> Steps[ServedModel]:
        """Request and store the current description of the model."""
        served: ServedModel = yield UnaryCall.served(self._reference)
        self._known = served
        return served

    def _explained(self, query: Query, model: ServedModel) -> Steps[Explanation | QuantraError]:
        """Request an explanation; return errors that a version which reads more bars may not have."""
        cut = replace(query, instance=model.cut(query.instance))
        check_size(cut.instance, model, "an explanation cannot be split; send fewer symbols")
        try:
            return (yield UnaryCall.explain(self._reference, cut))
        except UNUSABLE as error:
            return error


@final
class _PlannedResponses:
    """Outcomes of instances that were cut and split for one model version."""

    def __init__(self, reference: str, instances: Sequence[Instance], model: ServedModel) -> None:
        self._reference = reference
        self._cut = [model.cut(one) for one in instances]
        self._is_cut = any(one is not whole for one, whole in zip(self._cut, instances, strict=True))
        self._plan = CallPlan.of(self._cut, model, reference)
        self._told: dict[int, list[PartResponse]] = {place: [] for place in range(len(instances))}

    def all(self) -> Steps[tuple[Outcome, ...]]:
        """Request the outcome of each instance, in order.

        Raises:
            QuantraError: a call failed. If there are several calls, the error names the symbols of the failed one.
        """
        for call in self._plan.calls:
            for told in (yield from self._call(call)):
                self._told[told.part.place].append(told)
        for parts in self._told.values():
            yield from self._judge_each(parts)
        return tuple(self._plan.refused.get(place) or joined(parts) for place, parts in self._told.items())

    def are_by(self, model: ServedModel) -> bool:
        """Whether this version made all forecasts."""
        return all(model.has_made(one) for one in self._outcomes() if isinstance(one, Forecast))

    @property
    def are_doubtful(self) -> bool:
        """Whether bars were cut and an instance failed, possibly for lack of them."""
        return self._is_cut and any(isinstance(one, UNUSABLE) for one in self._outcomes())

    def _outcomes(self) -> Iterator[Outcome]:
        return (told.outcome for parts in self._told.values() for told in parts)

    def _call(self, call: Sequence[PanelPart]) -> Steps[list[PartResponse]]:
        asked = [part.of(self._cut) for part in call]
        try:
            outcomes: tuple[Outcome, ...] = yield UnaryCall.predict(self._reference, asked)
        except QuantraError as error:
            if len(self._plan.calls) == 1:
                raise
            raise named(error, [symbol for one in asked for symbol in one.input.symbols]) from error
        return [
            PartResponse(part=part, symbols=one.input.symbols, outcome=outcome)
            for part, one, outcome in zip(call, asked, outcomes, strict=True)
        ]

    def _judge_each(self, parts: list[PartResponse]) -> Steps[None]:
        """Request parts without usable symbols again with a usable one added, so that each symbol gets its error."""
        usable = _usable_row(parts)
        if usable is None:
            return
        for k, told in enumerate(parts):
            if isinstance(told.outcome, UNUSABLE):
                part = told.part
                beside = of_rows(self._cut[part.place], [*range(part.first, part.end), usable])
                (outcome,) = yield UnaryCall.predict(self._reference, [beside])
                parts[k] = replace(told, outcome=without_last(outcome) if isinstance(outcome, Forecast) else outcome)


def _usable_row(parts: Sequence[PartResponse]) -> int | None:
    """Return the row, in the whole instance, of the first symbol with a forecast."""
    for told in parts:
        if isinstance(told.outcome, Forecast):
            for row, symbol in enumerate(told.symbols):
                if symbol not in told.outcome.refusals:
                    return told.part.first + row
    return None
