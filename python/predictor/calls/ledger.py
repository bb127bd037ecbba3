"""The calls of LedgerService, which read a ledger on a thread of their own."""

import logging
import math
import threading
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, final

from predictor._pb import ledger_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls.futures import JobThread, failed_future, map_future, set_error_if_pending, set_result_if_pending
from predictor.calls.streams import OneRequestCall, OpenCall, OpenStreams, ResponseCallback
from predictor.errors import (
    LedgerError,
    MalformedRequestError,
    NoLedgerError,
    QuantraError,
    UnavailableError,
)
from predictor.ledger import ForecastFilter, ForecastListing, ForecastRecord, Ledger, read_outcomes
from predictor.limits import QueueLimits
from predictor.model_health import ModelVersion, list_newest_evidence
from predictor.service.request_queue import LazyThread
from predictor.wire import ledger as wire
from predictor.wire.request_counts import parse_short

if TYPE_CHECKING:
    from concurrent.futures import Future

POLL_S: Final = 1.0
"""Seconds between two searches for events of other processes."""
_log = logging.getLogger(__name__)

_WAITING: Final = QueueLimits(calls=256)
_EVENTS: Final = 100
"""Most events that are read at once for one call."""


QueryRunner = Callable[[str, Callable[[], Sequence[bytes]], CallContext], "Future[Sequence[bytes]]"]
"""Runs a query of the named call on the ledger's thread."""


@final
class ForecastMessages:
    """The responses of ListForecasts, read on the ledger's thread."""

    def __init__(self, ledger: Ledger, body: bytes) -> None:
        self._listing = ForecastListing(ledger, wire.decode_filter(parse_short(body, pb.ListForecastsRequest)))

    def read(self) -> Sequence[bytes]:
        """Read the next messages; empty if there are none."""
        part = self._listing.read_part()
        return [pb.ListForecastsResponse(forecasts=map(wire.encode_forecast, part)).SerializeToString()] if part else []

    @property
    def is_done(self) -> bool:
        """Whether no message can follow."""
        return self._listing.is_done


@final
class EventMessages:
    """The responses of WatchEvents, read on the ledger's thread; they never end by themselves."""

    is_done = False

    def __init__(self, ledger: Ledger, body: bytes) -> None:
        request = parse_short(body, pb.WatchEventsRequest)
        if request.after < 0:
            raise MalformedRequestError(
                f"after: {request.after} is negative; send the number of the last event that you have, or 0",
                metadata={"field": "after"},
            )
        self._ledger = ledger
        self._model, self._version = wire.decode_reference(request.model)
        self.last_event = request.after
        """The number of the last event that it has read past."""

    def read(self) -> Sequence[bytes]:
        """Read the next messages; empty if there are none at the moment."""
        newest = find_last_event(self._ledger)
        rows = self._ledger.query(
            "select e.id, c.made_at, e.kind, e.model, e.version, e.session, e.reason, e.detail "
            "from event e join chain c on c.batch = e.batch where e.id > ? and e.id <= ? "
            "and ? in ('', e.model) and ? in (0, e.version) order by e.id limit ?",
            (self.last_event, newest, self._model, self._version, _EVENTS),
        )
        self.last_event = rows[-1]["id"] if len(rows) == _EVENTS else max(newest, self.last_event)
        return [wire.encode_event(row).SerializeToString() for row in rows]


def find_last_event(ledger: Ledger) -> int:
    """The number of a ledger's last event; 0 without events."""
    return int(ledger.query("select max(id) as last from event")[0]["last"] or 0)


@final
class LedgerStream(OneRequestCall):
    """An open ListForecasts or WatchEvents; see `OpenCall`. Further messages are read when the caller has taken all.

    Args:
        name, context, emit: As for `OpenCall`.
        create: Creates the source of the messages from the request, on the ledger's thread.
        run: Runs a query on the ledger's thread.
        poller: Reads further events; None for a call that ends after the last message.
    """

    def __init__(
        self,
        name: str,
        create: Callable[[bytes], ForecastMessages | EventMessages],
        run: QueryRunner,
        context: CallContext,
        emit: ResponseCallback,
        poller: "EventPoller | None" = None,
    ) -> None:
        super().__init__(name, context, emit)
        self._create, self._run, self._poller = create, run, poller
        self._request = b""
        self._source: ForecastMessages | EventMessages | None = None
        self._lock = threading.Lock()
        self._untaken = 0
        self._pending_read: Future[Sequence[bytes]] | None = None
        self.completion.add_done_callback(lambda _: self._stop_reading())

    def _begin(self, body: bytes) -> None:
        self._request = body
        self.read_next()

    def acknowledge(self, size: int) -> bool:  # noqa: ARG002 - messages are counted
        """See `OpenCall`."""
        with self._lock:
            self._untaken -= 1
            has_taken_all = not self._untaken
        if has_taken_all:
            self.read_next()
        return True

    def drain(self, error: QuantraError) -> None:
        """End WatchEvents, and calls that have no request yet; ListForecasts continues."""
        if not self._has_begun or self._poller is not None:
            set_error_if_pending(self._name, self.completion, error)

    def read_next(self) -> None:
        """Read further messages on the ledger's thread, unless the call has ended."""
        if self.completion.done():
            return
        self._pending_read = self._run(self._name, self._read, self._context)
        self._pending_read.add_done_callback(self._continue)

    def _read(self) -> Sequence[bytes]:
        if self._source is None:
            self._source = self._create(self._request)
        return self._source.read()

    def _stop_reading(self) -> None:
        if self._poller is not None:
            self._poller.remove(self)
        if self._pending_read is not None:
            self._pending_read.cancel()

    def _continue(self, future: "Future[Sequence[bytes]]") -> None:
        if self.completion.done():
            return
        try:
            self._emit_and_continue(future.result())
        except Exception as error:  # noqa: BLE001 - layer boundary
            set_error_if_pending(self._name, self.completion, error)

    def _emit_and_continue(self, messages: Sequence[bytes]) -> None:
        assert self._source is not None  # noqa: S101 - it was read
        with self._lock:
            self._untaken = len(messages)
        for message in messages:
            self._emit(message)
        if messages:
            return
        if self._source.is_done:
            set_result_if_pending(self.completion, None)
        elif self._poller is not None and isinstance(self._source, EventMessages):
            self._poller.add(self, self._source.last_event)
        else:
            self.read_next()


@final
class EventPoller:
    """One thread that looks for new events of the ledger while streams wait for them.

    Args:
        ledger: The ledger, in which other processes write, too.
        interval_s: Seconds between two searches.
    """

    def __init__(self, ledger: Ledger, interval_s: float) -> None:
        self._ledger, self._interval_s = ledger, interval_s
        self._last_events: dict[LedgerStream, int] = {}
        """The last event that each stream has read past."""
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread = LazyThread(self._poll, "ledger events")

    def add(self, stream: LedgerStream, last_event: int) -> None:
        """Wake a stream when there is an event after `last_event`."""
        with self._condition:
            self._last_events[stream] = last_event
            self._condition.notify()
        if stream.completion.done():  # just now
            self.remove(stream)
        self._thread.start()

    def remove(self, stream: LedgerStream) -> None:
        """Forget a stream that has ended."""
        with self._condition:
            self._last_events.pop(stream, None)

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join()

    def _poll(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._last_events or self._is_closed)
                if self._condition.wait_for(lambda: self._is_closed, self._interval_s):
                    return
            try:
                newest = find_last_event(self._ledger)
            except Exception as error:  # noqa: BLE001 - thread boundary: each stream reads, and ends with its error
                if not isinstance(error, QuantraError):
                    _log.exception("searching for events")
                newest = math.inf
            with self._condition:
                woken = [stream for stream, last in self._last_events.items() if last < newest]
                for stream in woken:
                    del self._last_events[stream]
            for stream in woken:
                stream.read_next()


@final
class LedgerCalls:
    """The calls of LedgerService. Thread-safe.

    Args:
        ledger: The ledger; None if the server has none.
        champions: Lists name and version of each served champion.
        poll_s: Seconds between two searches for events of other processes.
    """

    def __init__(
        self, ledger: Ledger | None, champions: Callable[[], Collection[tuple[str, int]]], *, poll_s: float = POLL_S
    ) -> None:
        self._ledger = ledger
        self._champions = champions
        self._jobs = JobThread("ledger", _WAITING)
        self._poller = None if ledger is None else EventPoller(ledger, poll_s)
        self._streams = OpenStreams()

    def handle(self, name: str, request: bytes, context: CallContext) -> "Future[bytes]":
        """Answer one unary call. See `PredictionCalls.handle`."""
        queries = {"GetForecast": self._get_forecast, "GetHealth": self._get_health}
        try:
            ledger, query = self._require_ledger(), queries[name]
            future = self._run(name, lambda: [query(ledger, request)], context)
            return map_future(name, future, lambda messages: messages[0])
        except Exception as error:  # noqa: BLE001 - layer boundary
            return failed_future(name, error)

    def open(self, name: str, context: CallContext, emit: ResponseCallback, max_bytes: int | None = None) -> OpenCall:  # noqa: ARG002 - the transport checks
        """Open a call with a stream of response messages. See `PredictionCalls.open`."""
        if name == "WatchEvents":
            stream = LedgerStream(
                name, lambda body: EventMessages(self._require_ledger(), body), self._run, context, emit, self._poller
            )
        else:
            stream = LedgerStream(
                name, lambda body: ForecastMessages(self._require_ledger(), body), self._run, context, emit
            )
        self._streams.add(stream)
        return stream

    def drain(self) -> None:
        """End the streams that wait for events as UNAVAILABLE; others continue."""
        self._streams.drain(UnavailableError("the server is stopping; call again in a moment, or on another server"))

    def close(self) -> None:
        """Drain, and finish the queued queries."""
        self.drain()
        if self._poller is not None:
            self._poller.close()
        self._jobs.close()

    def _require_ledger(self) -> Ledger:
        if self._ledger is None:
            raise NoLedgerError(
                "this server has no ledger; start it with --ledger LEDGER, and see its log if it cannot open it"
            )
        return self._ledger

    def _run(self, name: str, read: Callable[[], Sequence[bytes]], context: CallContext) -> "Future[Sequence[bytes]]":
        def read_or_hide_address() -> Sequence[bytes]:
            try:
                return read()
            except LedgerError as error:
                raise error.without_address() from error

        return self._jobs.run(name, read_or_hide_address, context)

    def _get_forecast(self, ledger: Ledger, body: bytes) -> bytes:
        request = parse_short(body, pb.GetForecastRequest)
        if not request.forecast_id:
            raise MalformedRequestError(
                "forecast_id is empty; send the id of a forecast", metadata={"field": "forecast_id"}
            )
        selection = ForecastFilter(forecast_id=request.forecast_id, symbol=request.symbol)
        forecasts = read_outcomes(ledger, ledger.records(ForecastRecord, *selection.condition))
        return pb.GetForecastResponse(forecasts=map(wire.encode_forecast, forecasts)).SerializeToString()

    def _get_health(self, ledger: Ledger, body: bytes) -> bytes:
        request = parse_short(body, pb.GetHealthRequest)
        evidence = list_newest_evidence(ledger, *wire.decode_reference(request.model))
        versions = groupby(
            sorted(evidence, key=lambda record: (record.model, record.version)),
            lambda record: ModelVersion(record.model, record.version),
        )
        champions = self._champions()
        return pb.GetHealthResponse(
            models=[
                wire.encode_health(version, list(records), is_champion=version in champions)
                for version, records in versions
            ],
            last_session=ledger.last_session,
        ).SerializeToString()
