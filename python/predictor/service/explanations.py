"""The work of the explanation worker: explanations and simulations of price paths, which predictions preempt.

It pauses between steps while predictions arrive: threads of one interpreter slow each other down, however many cores
there are.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final, final

from predictor.call_context import NEVER, Deadline
from predictor.errors import DeadlineExceededError
from predictor.forecast import Explanation, Forecast, require_forecast
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import ExplanationQuery, PathQuery, require_bars
from predictor.model import Predictor, explain_each
from predictor.price_paths import PricePaths, simulate_paths
from predictor.service.request_queue import RequestQueue

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


MAX_CELLS: Final = 2_000_000
"""Largest number of paths x symbols x days of one request: 16 MB."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """Price paths, and what they were made from."""

    query: PathQuery
    forecast: Forecast
    paths: PricePaths


def simulate_query(model: Predictor, decode: Callable[[], PathQuery], now: datetime, deadline: Deadline) -> Simulation:
    """Forecast and simulate."""
    query = decode()
    past = require_bars(query.instance, "paths")
    forecast = require_forecast(model.predict([query.instance], now, deadline)[0])
    paths = simulate_paths(
        forecast, past, paths=query.paths, seed=query.seed, max_cells=MAX_CELLS, check=deadline.check
    )
    return Simulation(query=query, forecast=forecast, paths=paths)


QUIET_S: Final = 0.01
"""Predictions closer together than this count as continuous activity."""
MAX_PAUSE_S: Final = 0.2
"""Longest pause of an explanation between two steps."""


@final
class PredictionActivity:
    """Whether predictions are in progress, or ended a moment ago.

    Args:
        predictions: Their queue.
        clock: As for the queue.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        predictions: RequestQueue,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._predictions = predictions
        self._clock, self._sleep = clock, sleep

    def wait_until_quiet(self) -> None:
        """Block until no prediction ran for QUIET_S, at most MAX_PAUSE_S."""
        ends_at_s = self._clock() + MAX_PAUSE_S
        while self._is_busy() and self._clock() < ends_at_s:
            self._sleep(QUIET_S / 4)

    def _is_busy(self) -> bool:
        return self._predictions.load.calls > 0 or self._clock() < self._predictions.last_release_at_s + QUIET_S


@final
class ExplanationDeadline:
    """The deadline of a step of an explanation, shortened to a time limit of the server that starts now.

    Its check lets predictions run first.
    """

    def __init__(self, deadline: Deadline, activity: PredictionActivity, max_s: float) -> None:
        self._deadline, self._activity = deadline, activity
        self._max_s = max_s
        self._ends_at_s = time.monotonic() + max_s

    def check(self) -> None:
        """Pause while predictions run; raises as `CallContext`, and at the limit of the server."""
        self._activity.wait_until_quiet()
        self._deadline.check()
        if time.monotonic() >= self._ends_at_s:
            raise DeadlineExceededError(
                f"the explanation took longer than this server's limit of {self._max_s:g} seconds; "
                "request fewer symbols or targets",
                metadata={"most_s": f"{self._max_s:g}"},
            )
