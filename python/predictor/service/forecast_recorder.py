"""Records the forecasts of clients in a ledger."""

import logging
import threading
import time
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, final

from predictor.errors import LedgerError, QuantraError, QueueFullError, UnavailableError, format_count
from predictor.forecast import Forecast, Outcome
from predictor.ledger import ClientRequest, ForecastRecord, ForecastRole, Ledger, LedgerEvent, are_scorable
from predictor.memory import make_caller_error
from predictor.service.request_queue import AnyRequest, LazyThread

DELAY_S: Final = 0.1
"""Seconds between two writes, which record all forecasts of that time as one batch."""
RETRY_S: Final = 1.0
MAX_WAITING: Final = 20_000
"""Forecasts that may wait to be recorded; each takes about 3 kB."""
GAP: Final = "gap"
"""Kind of the event that counts forecasts of clients that were not recorded."""
_WARN_S: Final = 60.0
_MAX_REMEMBERED: Final = 20_000
"""Recorded forecasts whose ids are remembered, because many clients ask for the same ones."""

_log = logging.getLogger(__name__)


@final
@dataclass(slots=True)
class _RequestedForecast:
    """A forecast that a caller asked for, once or several times."""

    forecast: Forecast
    caller: str
    batch_rows: int
    made_at: int
    asked_at: int
    calls: int = 1

    def records(self, engine: str) -> list[ForecastRecord]:
        """A record per symbol that has a forecast."""
        return list(
            ForecastRecord.of(
                self.forecast,
                role=ForecastRole.CLIENT,
                engine=engine,
                batch_rows=self.batch_rows,
                bars_batch=0,
                made_at=self.made_at,
            )
        )

    def request(self) -> ClientRequest:
        """The record of the calls."""
        return ClientRequest(
            forecast_id=self.forecast.forecast_id, asked_at=self.asked_at, caller=self.caller, calls=self.calls
        )


@final
@dataclass(frozen=True, slots=True)
class _Batch:
    """Forecasts that one write records, and in strict mode the requests that wait for it."""

    requested: dict[tuple[str, str], _RequestedForecast] = field(
        default_factory=dict[tuple[str, str], _RequestedForecast]
    )
    """By forecast id and caller."""
    waiting_requests: list[tuple[AnyRequest, tuple[Outcome, ...]]] = field(
        default_factory=list[tuple[AnyRequest, tuple[Outcome, ...]]]
    )
    """Requests that get their response after the write, with their outcomes."""

    @property
    def rows(self) -> int:
        """Forecasts that wait to be recorded."""
        return sum(len(requested.forecast.symbols) for requested in self.requested.values())

    @property
    def served_rows(self) -> int:
        """Forecasts that clients got: one for each call and symbol."""
        return sum(len(requested.forecast.symbols) * requested.calls for requested in self.requested.values())


@final
class ForecastRecorder:
    """Responds to requests and records their forecasts in a ledger, in the role CLIENT. Thread-safe.

    One thread writes. By default a request gets its response first. Its forecasts wait to be recorded until the ledger
    can be written; if too many wait, further ones are counted and left out.

    Args:
        ledger: The open ledger.
        engine: Description of the engine; see `predictor.inference.describe_engine`.
        is_strict: Record forecasts before the response; if that fails, the request fails.
        max_waiting: Forecasts that may wait.
    """

    def __init__(self, ledger: Ledger, *, engine: str, is_strict: bool = False, max_waiting: int = MAX_WAITING) -> None:
        self._ledger, self._engine, self._is_strict = ledger, engine, is_strict
        self._max_waiting = max_waiting
        self._next_batch = _Batch()
        self._has_work, self._is_closing = threading.Event(), threading.Event()
        self._thread = LazyThread(self._run, "record")
        self._lock = threading.Lock()
        self._waiting_rows = self._unreported_rows = 0
        self._has_ended = False
        """Whether the thread has taken its last batch."""
        self._recorded_rows: dict[str, int] = {}
        self._warned_at_s = -_WARN_S
        self.recorded = 0
        """Forecasts recorded so far."""
        self.lost = 0
        """Forecasts that were not recorded."""

    def respond_and_record(self, queued: AnyRequest, outcomes: tuple[Outcome, ...], batch_rows: int) -> None:
        """Set the response and record its forecasts; in strict mode, record them first."""
        if not self._is_strict:
            queued.respond(outcomes)
        made_at, caller = time.time_ns(), queued.context.caller
        forecasts = [outcome for outcome in outcomes if isinstance(outcome, Forecast)]
        with self._lock:
            refusal = self._make_refusal()
            if refusal is None:
                for forecast in forecasts:
                    self._add(forecast, caller, batch_rows, made_at)
                if self._is_strict:
                    self._next_batch.waiting_requests.append((queued, outcomes))
            elif not self._is_strict:
                self.lost += sum(len(forecast.symbols) for forecast in forecasts)
        if refusal is not None:
            if self._is_strict:
                queued.fail(refusal)
            return
        if not self._has_work.is_set():
            self._has_work.set()
            self._thread.start()

    def close(self) -> None:
        """Record what waits; forecasts that cannot be recorded now are lost."""
        self._is_closing.set()
        self._has_work.set()
        self._thread.join()

    def _make_refusal(self) -> QuantraError | None:
        """The error of a request whose forecasts can no longer be recorded."""
        if self._has_ended:
            return UnavailableError("the service is stopping; retry when it is back")
        if self._is_strict and self._waiting_rows >= self._max_waiting:
            return QueueFullError.of("forecasts wait to be recorded", self._waiting_rows, self._max_waiting)
        return None

    def _add(self, forecast: Forecast, caller: str, batch_rows: int, made_at: int) -> None:
        """Count a call for a forecast that waits, or let it wait if there is room."""
        key = forecast.forecast_id, caller
        requested = self._next_batch.requested.get(key)
        if requested is not None:
            requested.calls += 1
            requested.asked_at = made_at
            return
        rows = len(forecast.symbols)
        if not self._is_strict and self._waiting_rows + rows > self._max_waiting:
            self.lost += rows
            self._unreported_rows += rows
            return
        self._waiting_rows += rows
        self._next_batch.requested[key] = _RequestedForecast(forecast, caller, batch_rows, made_at, made_at)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._has_work.wait()
            if not self._is_strict:
                self._is_closing.wait(DELAY_S)
            is_last = self._is_closing.is_set()
            self._has_work.clear()
            with self._lock:
                batch, self._next_batch = self._next_batch, _Batch()
                self._has_ended = is_last
            if self._is_strict:
                try:
                    self._write(batch)
                except Exception as error:  # noqa: BLE001 - thread boundary: the callers get the error
                    failure = self._make_caller_error(error)
                    self._warn(failure)
                    for queued, _ in batch.waiting_requests:
                        queued.fail(failure)
                else:
                    for queued, outcomes in batch.waiting_requests:
                        queued.respond(outcomes)
            else:
                self._record(batch)
            with self._lock:
                self._waiting_rows -= batch.rows

    def _record(self, batch: _Batch) -> None:
        """Record forecasts, and try again until it works or the recorder is closed."""
        while True:
            is_last = self._is_closing.is_set()
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - thread boundary: the server continues
                self._warn(self._make_caller_error(error))
                if isinstance(error, LedgerError | OSError) and not is_last:
                    self._is_closing.wait(RETRY_S)
                    continue
                self._count_lost(batch.served_rows)
            return

    def _write(self, batch: _Batch) -> None:
        """Record who asked for which forecast how often, and the forecasts that were not recorded before."""
        rows = dict[str, int]()
        forecasts: list[ForecastRecord] = []
        for (forecast_id, _), requested in batch.requested.items():
            if forecast_id in self._recorded_rows:
                rows[forecast_id] = self._recorded_rows[forecast_id]
            elif forecast_id not in rows:
                records = requested.records(self._engine)
                forecasts += records
                rows[forecast_id] = len(records)
        valid_records = forecasts if are_scorable(forecasts) else [f for f in forecasts if not f.problem]
        invalid_rows = len(forecasts) - len(valid_records)
        with self._lock:
            unreported_rows = self._unreported_rows
        requests = [requested.request() for requested in batch.requested.values()]
        gaps: list[LedgerEvent] = []
        if unreported_rows + invalid_rows:
            reason = f"{format_count(unreported_rows + invalid_rows, 'forecast')} of clients not recorded"
            gaps.append(LedgerEvent(kind=GAP, reason=reason))
        self._ledger.append(chain(valid_records, requests, gaps))
        served = sum(rows[request.forecast_id] * request.calls for request in requests)
        with self._lock:  # a failed write is repeated, so nothing counts before it succeeds
            self.recorded += served - invalid_rows
            self.lost += invalid_rows
            self._unreported_rows -= unreported_rows
        if not invalid_rows:
            self._recorded_rows.update(rows)
            for oldest in list(islice(self._recorded_rows, max(0, len(self._recorded_rows) - _MAX_REMEMBERED))):
                del self._recorded_rows[oldest]

    def _count_lost(self, rows: int) -> None:
        with self._lock:
            self.lost += rows
            self._unreported_rows += rows

    @staticmethod
    def _make_caller_error(error: Exception) -> QuantraError:
        """The error for clients and the log, which must not contain paths."""
        if isinstance(error, LedgerError):
            return error.without_address()
        if isinstance(error, OSError):
            return LedgerError(f"the ledger cannot be written: {error.strerror}")
        return make_caller_error("recording forecasts", error, _log)

    def _warn(self, error: QuantraError) -> None:
        """Log why forecasts are not recorded, at most once a minute."""
        if (now_s := time.monotonic()) >= self._warned_at_s + _WARN_S:
            self._warned_at_s = now_s
            _log.warning("forecasts are not recorded: %s", " ".join(error.message.split()))
