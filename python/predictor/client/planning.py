"""What both clients do to have a large panel answered: a plan of calls that waits for nothing itself.

A client learns once what its model reads and what fits into a call, and again when an answer is another version's. Then
it sends the last bars alone, and what is still too large in several calls. Each method gives `Steps`: a client makes
the calls, within one deadline for all, and sends each answer back in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, final

from predictor.client.calls import Steps, UnaryCall
from predictor.client.joining import UNUSABLE, PartResponse, joined, named, without_last
from predictor.client.parts import CallPlan, PanelPart, check_size, is_small, of_rows
from predictor.client.served import ServedModel
from predictor.errors import QuantraError
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.global_importance import GlobalQuery
from predictor.instance import Instance, Query, Question, instance_of

_MOST_TRIES: Final = 3
"""Versions of a model that may follow each other during one question; after as many, all bars are sent at once."""


@final
class PanelPlanner:
    """The questions of one client to its model. Threads may share it.

    Args:
        reference: of the model, as its user names it.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._known: ServedModel | None = None

    def predict(self, asked: Sequence[Question]) -> Steps[tuple[Outcome, ...]]:
        """Each instance's forecast, or the error that it alone has, in order."""
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
        """The reasons behind one forecast."""
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
        """What is asked in general with the bars that it depends on alone, and the version that these are for."""
        if is_small(query.instances):
            return query, self._reference
        model = yield from self.learn()
        cut = (model.cut(one) if isinstance(one, Instance) else one for one in query.instances)
        return replace(query, instances=tuple(cut)), model.reference

    def learn(self) -> Steps[ServedModel]:
        """What the server says of the model now."""
        served: ServedModel = yield UnaryCall.served(self._reference)
        self._known = served
        return served

    def _explained(self, query: Query, model: ServedModel) -> Steps[Explanation | QuantraError]:
        """The reasons; or an error that another version, which reads more bars, may not have."""
        cut = replace(query, instance=model.cut(query.instance))
        check_size(cut.instance, model, "an explanation is one call: send fewer symbols")
        try:
            return (yield UnaryCall.explain(self._reference, cut))
        except UNUSABLE as error:
            return error


@final
class _PlannedResponses:
    """The answers to some instances, asked as one version of a model needs it."""

    def __init__(self, reference: str, instances: Sequence[Instance], model: ServedModel) -> None:
        self._reference = reference
        self._cut = [model.cut(one) for one in instances]
        self._is_cut = any(one is not whole for one, whole in zip(self._cut, instances, strict=True))
        self._plan = CallPlan.of(self._cut, model, reference)
        self._told: dict[int, list[PartResponse]] = {place: [] for place in range(len(instances))}

    def all(self) -> Steps[tuple[Outcome, ...]]:
        """Each instance's outcome, in order.

        Raises:
            QuantraError: a call failed, and with it all; where there are several, the error names the symbols.
        """
        for call in self._plan.calls:
            for told in (yield from self._call(call)):
                self._told[told.part.place].append(told)
        for parts in self._told.values():
            yield from self._judge_each(parts)
        return tuple(self._plan.refused.get(place) or joined(parts) for place, parts in self._told.items())

    def are_by(self, model: ServedModel) -> bool:
        """Whether all forecasts are this version's."""
        return all(model.has_made(one) for one in self._outcomes() if isinstance(one, Forecast))

    @property
    def are_doubtful(self) -> bool:
        """Whether bars were left out, and something has no forecast that may lack them."""
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
        """Ask once more about parts without any usable symbol, beside one that is: so each has a reason of its own."""
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
    """The row, in the whole instance, of the first symbol that has a forecast."""
    for told in parts:
        if isinstance(told.outcome, Forecast):
            for row, symbol in enumerate(told.symbols):
                if symbol not in told.outcome.refusals:
                    return told.part.first + row
    return None
