"""Stage times of a batch, and the record of a request for observers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

from predictor.errors import CallCancelledError, ErrorStatus, InternalError, QuantraError, answer_of
from predictor.observation import OK, Observation, Observer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from predictor.forecast import Outcome


@final
@dataclass(slots=True)
class StageTimes:
    """End of each stage of a batch, in seconds of `perf_counter`; 0 = not yet.

    `asked_s` is the arrival of the first request.
    """

    asked_s: float
    begun_s: float
    read_s: float = 0.0
    prepared_s: float = 0.0
    forecast_s: float = 0.0
    encoded_s: float = 0.0
    rows: int = 0
    """Symbols of the batch."""

    @property
    def prepare_s(self) -> float | None:
        """Seconds from instances to network inputs; None if not finished."""
        return self.prepared_s - self.read_s if self.prepared_s else None

    @property
    def forward_s(self) -> float | None:
        """Seconds in the network; None if not finished."""
        return self.forecast_s - self.prepared_s if self.forecast_s else None

    def __str__(self) -> str:
        """List the duration of each stage."""
        ends = (self.asked_s, self.begun_s, self.read_s, self.prepared_s, self.forecast_s, self.encoded_s)
        names = ("queue", "decode", "prepare", "forward", "encode")
        spans = zip(names, pairwise(ends), strict=True)
        return ", ".join(f"{name} {1e3 * (end - begin):.2f} ms" for name, (begin, end) in spans)


@final
class RequestRecord:
    """One request in progress. Observers are notified once, at its end, if it reached a model.

    Args:
        method: Method of the request.
        rows: Number of symbols.
        observers: Observers to notify.
    """

    __slots__ = ("_asked_at_s", "_asked_s", "_method", "_model", "_observers", "_rows", "_version", "times")

    def __init__(self, method: str, rows: int, observers: Sequence[Observer]) -> None:
        self._method = method
        self._rows = rows
        self._observers = observers
        self._model, self._version = "", 0
        self._asked_at_s, self._asked_s = time.time(), time.perf_counter()
        self.times: StageTimes | None = None
        """Times of its batch or of its first step; None while queued."""

    def reached(self, model: str, version: int) -> None:
        """Note the model of the request, which is about to be queued."""
        self._model, self._version = model, version
        for observer in self._observers:
            observer.reached(model, version)

    def begin(self) -> None:
        """Note the start of the first step; later calls do nothing."""
        if self.times is None:
            self.times = StageTimes(self._asked_s, time.perf_counter())

    def finish(self, answer: "Future[Any]") -> None:
        """Notify observers: the request was answered, rejected or cancelled."""
        if not self._model:
            return
        observation = self._observation(answer)
        for observer in self._observers:
            observer.observed(observation)

    def _observation(self, answer: "Future[Any]") -> Observation:
        times, error = self.times, _error(answer)
        return Observation(
            asked_at_s=self._asked_at_s,
            method=self._method,
            model=self._model,
            version=self._version,
            rows=self._rows,
            code=OK if error is None else error.status.value,
            reason="" if error is None else error.reason,
            refused=() if error is not None else _failed_reasons(answer.result()),
            took_s=time.perf_counter() - self._asked_s,
            queue_s=None if times is None else times.begun_s - self._asked_s,
            prepare_s=None if times is None else times.prepare_s,
            forward_s=None if times is None else times.forward_s,
            batch_rows=0 if times is None else times.rows,
        )


def _error(answer: "Future[Any]") -> ErrorStatus | None:
    """Return the error that the caller gets, if any."""
    if answer.cancelled():
        return answer_of(CallCancelledError(""))
    error = answer.exception()
    if error is None:
        return None
    return answer_of(error if isinstance(error, QuantraError) else InternalError(""))


def _failed_reasons(result: object) -> tuple[str, ...]:
    """List the reasons of the instances without a forecast; empty for explanations."""
    outcomes: Sequence[Outcome] = result if isinstance(result, tuple) else ()
    return tuple(answer_of(outcome).reason for outcome in outcomes if isinstance(outcome, QuantraError))
