"""Values to replies: JSON text, and the float64 arrays that it names."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import cast, final

import numpy as np

from predictor.embed.fields import AnyArray, Json
from predictor.errors import QuantraError, answer_of
from predictor.forecast import Attribution, Explanation, Forecast, Outcome
from predictor.internals import Internal
from predictor.skill import Skill

Reply = tuple[str, list[AnyArray]]
"""JSON text and the arrays that it names."""


def results(ids: Sequence[str], outcomes: Sequence[Outcome]) -> Reply:
    """Every instance's own outcome, in the order of the request."""
    arrays = Arrays()
    listed = [_result(request_id, outcome, arrays) for request_id, outcome in zip(ids, outcomes, strict=True)]
    return json.dumps({"results": listed}), arrays.buffers


def _result(request_id: str, outcome: Outcome, arrays: "Arrays") -> Json:
    if isinstance(outcome, Forecast):
        return {"request_id": request_id, "forecast": _described(outcome, arrays)}
    return {"request_id": request_id, "error": error(outcome)}


def explained(explanation: Explanation) -> Reply:
    """Every target's attribution."""
    arrays = Arrays()
    attributions = [_described(attribution, arrays) for attribution in explanation.attributions]
    times = {"queue_ms": explanation.queue_ms, "compute_ms": explanation.compute_ms}
    return json.dumps({"attributions": attributions, **times}), arrays.buffers


def error(problem: QuantraError) -> Json:
    """The four facts of an error."""
    answer = answer_of(problem)
    return {
        "status": answer.status,
        "reason": answer.reason,
        "message": problem.message,
        "metadata": problem.metadata,
    }


def error_text(problem: QuantraError) -> str:
    """A reply that is an error."""
    return json.dumps({"error": error(problem)})


@final
@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of one reply."""

    buffers: list[AnyArray] = field(default_factory=list[AnyArray])

    def put(self, values: AnyArray) -> Mapping[str, object]:
        """Add an array of any shape; gives what the JSON holds for it."""
        self.buffers.append(np.ascontiguousarray(values))
        return {"buffer": len(self.buffers) - 1, "shape": list(values.shape)}


def _described(value: Forecast | Attribution | Internal, arrays: Arrays) -> Json:
    """A value's fields by name."""
    return {one.name: _plain(getattr(value, one.name), arrays) for one in fields(value)}


def _refusals(refusals: Mapping[str, QuantraError]) -> list[Json]:
    """One object per symbol that has no forecast."""
    return [{"symbol": symbol, "error": error(problem)} for symbol, problem in refusals.items()]


def _plain(value: object, arrays: Arrays) -> object:
    """Float64 arrays go beside the JSON; whole numbers and truth values are exact in it."""
    match value:
        case Internal():
            return _described(value, arrays)
        case Skill():
            return {**asdict(value), "verdict": value.verdict, "line": value.line}
        case dict():
            return _refusals(cast("Mapping[str, QuantraError]", value))
        case tuple():
            return [_plain(item, arrays) for item in value]
        case np.ndarray():
            return arrays.put(value) if value.dtype == np.float64 else value.tolist()
        case _:
            return value
