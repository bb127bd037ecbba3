"""Records the forecasts of clients in a ledger."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import Any, Final, final

from predictor.errors import LedgerError, QuantraError, counted
from predictor.forecast import Forecast, Outcome
from predictor.ledger import ClientRequest, ForecastRecord, ForecastRole, Ledger, LedgerEvent, are_scorable
from predictor.memory import error_of
from predictor.service.request_queue import LazyThread, QueuedRequest

DELAY_S: Final = 0.1
"""Seconds between two writes, which record all forecasts of that time as one batch."""
RETRY_S: Final = 1.0
MOST_WAITING: Final = 20_000
"""Forecasts that may wait to be recorded; each takes about 3 kB."""
GAP: Final = "gap"
"""Kind of the event that counts forecasts of clients that were not recorded."""
_WARN_S: Final = 60.0
_MOST_WRITTEN: Final = 1_000
"""Requests of one batch."""
_MOST_REMEMBERED: Final = 20_000
"""Recorded calls whose ids and rows are remembered, because many clients ask for the same forecasts."""

_log = logging.getLogger(__name__)

QueuedPrediction = QueuedRequest[Any, tuple[Outcome, ...]]


@final
@dataclass(frozen=True, slots=True)
class _AnsweredRequest:
    """A request and its outcomes."""

    item: QueuedPrediction
    outcomes: tuple[Outcome, ...]
    rows: int
    batch_rows: int
    made_at: int


@final
class ForecastRecorder:
    """Answers requests and records their forecasts in a ledger, in the role CLIENT. Thread-safe.

    One thread writes. By default a request is answered first. Its forecasts wait to be recorded until the ledger can be
    written; if too many wait, further ones are counted and left out.

    Args:
        ledger: The open ledger.
        engine: Description of the engine; see `predictor.inference.describe_engine`.
        is_strict: Record forecasts before the request is answered; if that fails, the request fails.
        most_waiting: Forecasts that may wait.
    """

    def __init__(
        self, ledger: Ledger, *, engine: str, is_strict: bool = False, most_waiting: int = MOST_WAITING
    ) -> None:
        self._ledger, self._engine, self._is_strict = ledger, engine, is_strict
        self._most_waiting = most_waiting
        self._queue: SimpleQueue[_AnsweredRequest | None] = SimpleQueue()
        self._thread = LazyThread(self._run, "record")
        self._is_closing = threading.Event()
        self._lock = threading.Lock()
        self._waiting = self._unreported = 0
        self._remembered: dict[str, int] = {}
        self._warned_s = -_WARN_S
        self.recorded = 0
        """Forecasts recorded so far."""
        self.lost = 0
        """Forecasts that were not recorded."""

    def answer(self, item: QueuedPrediction, outcomes: tuple[Outcome, ...], batch_rows: int) -> None:
        """Set the outcomes of a request, and record its forecasts."""
        answered = _AnsweredRequest(item, outcomes, item.request.rows, batch_rows, time.time_ns())
        if not self._is_strict:
            item.answer.set_result(outcomes)
            if not self._has_room(answered.rows):
                return
        self._queue.put(answered)
        self._thread.begin()

    def close(self) -> None:
        """Record what waits; forecasts that cannot be recorded now are lost."""
        self._is_closing.set()
        self._queue.put(None)
        self._thread.join()

    def _has_room(self, rows: int) -> bool:
        with self._lock:
            if self._waiting + rows > self._most_waiting:
                self.lost += rows
                self._unreported += rows
                return False
            self._waiting += rows
            return True

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            if not self._is_strict:
                self._is_closing.wait(DELAY_S)
            answered = [first, *self._take_waiting()]
            if self._is_strict:
                self._record_then_answer(answered)
            else:
                self._record(answered)

    def _take_waiting(self) -> Iterator[_AnsweredRequest]:
        for _ in range(_MOST_WRITTEN):
            try:
                answered = self._queue.get_nowait()
            except Empty:
                return
            if answered is None:
                self._queue.put(None)  # the end, after this batch
                return
            yield answered

    def _record_then_answer(self, answered: Sequence[_AnsweredRequest]) -> None:
        try:
            self._write(answered)
        except Exception as error:  # noqa: BLE001 - thread boundary: the callers get the error
            known = self._without_path(error)
            self._warn(known)
            for one in answered:
                one.item.fail(known)
        else:
            for one in answered:
                one.item.answer.set_result(one.outcomes)

    def _record(self, answered: Sequence[_AnsweredRequest]) -> None:
        """Record forecasts, and try again until it works or the recorder is closed."""
        while True:
            is_last = self._is_closing.is_set()
            try:
                self._write(answered)
            except Exception as error:  # noqa: BLE001 - thread boundary: the server continues
                self._warn(self._without_path(error))
                if isinstance(error, LedgerError | OSError) and not is_last:
                    self._is_closing.wait(RETRY_S)
                    continue
                self._lose(sum(one.rows for one in answered))
            with self._lock:
                self._waiting -= sum(one.rows for one in answered)
            return

    def _write(self, answered: Sequence[_AnsweredRequest]) -> None:
        """Record one row per request, and the forecasts that were not recorded before."""
        new: dict[str, int] = {}
        repeated = 0
        forecasts: list[ForecastRecord] = []
        requests: list[ClientRequest] = []
        for one in answered:
            caller = one.item.deadline.caller
            for forecast in one.outcomes:
                if isinstance(forecast, Forecast):
                    forecast_id = forecast.forecast_id
                    requests.append(ClientRequest(forecast_id=forecast_id, asked_at=one.made_at, caller=caller))
                    if forecast_id in self._remembered:
                        repeated += self._remembered[forecast_id]
                    else:
                        records = list(self._records(forecast, one))
                        forecasts += records
                        new[forecast_id] = len(records)
        sound = forecasts if are_scorable(forecasts) else [forecast for forecast in forecasts if not forecast.problem]
        self._lose(len(forecasts) - len(sound))
        self._ledger.append(chain(sound, requests, gaps := self._gaps()))
        self.recorded += len(sound) + repeated
        if len(sound) == len(forecasts):
            self._remember(new)
        if gaps:
            self._unreported = 0

    def _remember(self, new: Mapping[str, int]) -> None:
        self._remembered.update(new)
        for oldest in list(islice(self._remembered, max(0, len(self._remembered) - _MOST_REMEMBERED))):
            del self._remembered[oldest]

    def _records(self, forecast: Forecast, one: _AnsweredRequest) -> Iterator[ForecastRecord]:
        return ForecastRecord.of(
            forecast,
            role=ForecastRole.CLIENT,
            engine=self._engine,
            batch_rows=one.batch_rows,
            bars_batch=0,
            made_at=one.made_at,
        )

    def _gaps(self) -> list[LedgerEvent]:
        if not self._unreported:
            return []
        return [LedgerEvent(kind=GAP, reason=f"{counted(self._unreported, 'forecast')} of clients not recorded")]

    def _lose(self, rows: int) -> None:
        with self._lock:
            self.lost += rows
            self._unreported += rows

    @staticmethod
    def _without_path(error: Exception) -> QuantraError:
        """The error for clients and the log, which must not contain paths."""
        if isinstance(error, LedgerError):
            return error.without_address()
        if isinstance(error, OSError):
            return LedgerError(f"the ledger cannot be written: {error.strerror}")
        return error_of("recording forecasts", error, _log)

    def _warn(self, error: QuantraError) -> None:
        """Log why forecasts are not recorded, at most once a minute."""
        if (now_s := time.monotonic()) >= self._warned_s + _WARN_S:
            self._warned_s = now_s
            _log.warning("forecasts are not recorded: %s", " ".join(error.message.split()))
