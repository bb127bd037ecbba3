"""The work of the explanation worker: one query, or many instances in sequence."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from math import ceil
from typing import Final, final

from predictor.call_context import NEVER, Deadline
from predictor.forecast import Explanation
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import ExplanationQuery
from predictor.model import Predictor, explain_each

MAX_REPORTS: Final = 100
"""Approximate number of reports of one global explanation; each repeats all rows."""

Report = Callable[[GlobalImportance], object]
"""Receives intermediate results, on the explanation thread."""


def explain_query(
    model: Predictor, decode: Callable[[], ExplanationQuery], arrived_at_s: float, now: datetime, deadline: Deadline
) -> Explanation:
    """Explain a query that arrived at `arrived_at_s` of `perf_counter`."""
    begun_at_s = time.perf_counter()
    attributions = model.explain(decode(), now, deadline)
    return Explanation(
        attributions=attributions,
        queue_ms=1e3 * (begun_at_s - arrived_at_s),
        compute_ms=1e3 * (time.perf_counter() - begun_at_s),
    )


@final
class GlobalExplanation:
    """Explanation of many instances by one model, one instance per step.

    Args:
        model: The model to explain.
        decode: Decodes the instances and targets.
        report: Receives the result so far after one or several instances; the final one is returned.
    """

    def __init__(self, model: Predictor, decode: Callable[[], GlobalExplanationQuery], report: Report) -> None:
        self._model, self._decode, self._report = model, decode, report
        self._deadline: Deadline = NEVER
        """The deadline of the current step."""
        self._steps: Iterator[GlobalImportance] | None = None

    def step(self, now: datetime, deadline: Deadline) -> GlobalImportance | None:
        """Explain the next instance; return the result after the last one, else None."""
        self._deadline = deadline
        if self._steps is None:
            self._steps = explain_each(self._model, self._decode(), now, self)
        progress = next(self._steps)
        if progress.done == progress.total:
            return progress
        if progress.done % ceil(progress.total / MAX_REPORTS) == 0:
            self._report(progress)
        return None

    def check(self) -> None:
        """See `Deadline`."""
        self._deadline.check()
