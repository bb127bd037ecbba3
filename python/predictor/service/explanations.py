"""Jobs of the explanation worker: one query, or many instances in sequence."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final, Generic, TypeVar, final

from predictor.call_context import NEVER, Deadline
from predictor.forecast import Explanation
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Query
from predictor.model import Predictor, explain_each

QueryT = TypeVar("QueryT")
ResultT = TypeVar("ResultT")

MAX_REPORTS: Final = 100
"""Approximate number of reports of one global explanation; each repeats all rows."""

Report = Callable[[GlobalImportance], object]
"""Receives intermediate results, on the explanation thread."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class QueryRequest(Generic[QueryT]):
    """A query that is decoded only when work on it begins, because bytes take less memory than arrays."""

    decode: Callable[[], QueryT]
    """Decodes the query; raises QuantraError if it is malformed."""
    rows: int
    """Number of symbols."""
    size: int = 0
    """Number of bytes; 0 for a query of the same process, whose memory the caller holds anyway."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class OneStepJob(Generic[ResultT]):
    """Work that is done in one step."""

    step: Callable[[datetime, Deadline], ResultT]
    rows: int = 0
    """Number of symbols."""
    size: int = 0
    """Number of bytes."""


def explain_query(
    model: Predictor, decode: Callable[[], Query], arrived_s: float, now: datetime, deadline: Deadline
) -> Explanation:
    """Explain a query that arrived at `arrived_s` of `perf_counter`."""
    begun_s = time.perf_counter()
    attributions = model.explain(decode(), now, deadline)
    return Explanation(
        attributions=attributions,
        queue_ms=1e3 * (begun_s - arrived_s),
        compute_ms=1e3 * (time.perf_counter() - begun_s),
    )


@final
class GlobalExplanation:
    """Explanation of many instances by one model, one instance per step.

    Args:
        model: The model to explain.
        request: The instances and targets.
        report: Receives the result so far after one or several instances; the final one is returned.
    """

    def __init__(self, model: Predictor, request: QueryRequest[GlobalQuery], report: Report) -> None:
        self.rows, self.size = request.rows, request.size
        self._model = model
        self._request: QueryRequest[GlobalQuery] | None = request
        self._report = report
        self._deadline = _StepDeadline()
        self._steps: Iterator[GlobalImportance] = iter(())

    def step(self, now: datetime, deadline: Deadline) -> GlobalImportance | None:
        """Explain the next instance; return the result after the last one, else None."""
        self._deadline.deadline = deadline
        if self._request is not None:
            self._steps = explain_each(self._model, self._request.decode(), now, self._deadline)
            self._request = None
        progress = next(self._steps)
        if progress.done == progress.total:
            return progress
        if progress.done % ceil(progress.total / MAX_REPORTS) == 0:
            self._report(progress)
        return None


@final
class _StepDeadline:
    """The deadline of the current step."""

    def __init__(self) -> None:
        self.deadline: Deadline = NEVER

    def check(self) -> None:
        """See `Deadline`."""
        self.deadline.check()
