"""Prometheus metrics of a server.

Labels are the names of calls, errors and loaded models, never input of callers. The series of a model version are
removed when it is unloaded.
"""

import asyncio
import errno
import logging
import math
import platform
import socket
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate
from typing import Final, Protocol, TypeAlias, final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from predictor.call_context import Observation
from predictor.errors import ConfigurationError, LedgerError
from predictor.evidence import CoverageSide, Lamp
from predictor.ledger import EvidenceRecord, Ledger
from predictor.model_health import COVERAGE, list_newest_evidence
from predictor.server.observed_calls import ObservedCall

SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Bucket bounds of the duration histograms."""
ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bucket bounds of the row histogram."""
_MODEL: Final = ("model", "version")
_CALL: Final = ("method", *_MODEL)
_HISTOGRAMS: Final = (
    ("quantra_request_seconds", "Time from a call's arrival to its response.", SECONDS),
    ("quantra_queue_seconds", "Time that a request spent in the queue.", SECONDS),
    ("quantra_prepare_seconds", "Time from instances to network inputs of a request's batch.", SECONDS),
    ("quantra_forward_seconds", "Time of a request's batch in the network.", SECONDS),
    ("quantra_batch_rows", "Symbols of a request's batch.", ROWS),
)
_REQUEST_S, _QUEUE_S, _PREPARE_S, _FORWARD_S, _BATCH_ROWS = range(len(_HISTOGRAMS))

QueueContents = tuple[int, int, int]
"""Number of calls, symbols and request bytes."""
_Labels: TypeAlias = tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGauges:
    """Values that are read at each scrape."""

    versions: Callable[[], Collection[tuple[str, int]]]
    """Name and version of each served model."""
    queues: Mapping[str, Callable[[], QueueContents]]
    """Contents of each queue, by name."""
    sessions: Callable[[], int]
    """Number of open sessions."""
    ledger: Callable[[], Iterable[Metric]] = tuple
    """Gauges of the ledger; none by default."""
    recorded: Mapping[str, Callable[[], int]] = field(default_factory=dict[str, Callable[[], int]])
    """Number of clients' forecasts so far, by what became of them; empty without a ledger."""


@final
class _Distribution:
    """Counts and sum of the values of one series."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add_to(self, family: HistogramMetricFamily, labels: _Labels) -> None:
        names = [floatToGoString(bound) for bound in (*self.bounds, math.inf)]
        family.add_metric(labels, list(zip(names, accumulate(self.counts), strict=True)), self.sum)


@final
class Metrics:
    """Metrics of a server. Thread-safe.

    It implements `CallObserver` for all calls, and `Observer` for the timings within the service. The series are its
    own, because those of prometheus_client take 2.5 times as long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels: dict[tuple[str, str, int], _Labels] = {}
        """By method, model and version of the calls that have series."""
        self._gauges: ServerGauges | None = None
        self._requests, self._refusals = Counter[_Labels](), Counter[_Labels]()
        """By call, code and reason; by model and reason."""
        self._distributions: dict[tuple[int, _Labels], _Distribution] = {}
        """By position in _HISTOGRAMS and call."""
        self._process = ProcessCollector(registry=None)

    def read(self, gauges: ServerGauges) -> None:
        """Include these gauges; called once, when models are loaded."""
        self._gauges = gauges

    def on_end(self, call: ObservedCall) -> None:
        """See `CallObserver.on_end`."""
        labels = self._find_labels(call.method, call.model, call.version)
        with self._lock:
            self._requests[*labels, call.code, call.reason] += 1
            self._add(_REQUEST_S, labels, call.took_s)

    def on_queued(self, model: str, version: int) -> None:
        """See `Observer.on_queued`. Does nothing: requests are counted when they end."""

    def on_finished(self, observation: Observation) -> None:
        """See `Observer.on_finished`."""
        labels = self._find_labels(observation.method, observation.model, observation.version)
        with self._lock:
            if observation.queue_s is not None:
                self._add(_QUEUE_S, labels, observation.queue_s)
            if observation.prepare_s is not None:
                self._add(_PREPARE_S, labels, observation.prepare_s)
            if observation.forward_s is not None:
                self._add(_FORWARD_S, labels, observation.forward_s)
                self._add(_BATCH_ROWS, labels, observation.batch_rows)
            for reason in observation.refused:
                self._refusals[*labels[1:], reason] += 1

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return all metrics as text, and the content type.

        Args:
            accepted: the HTTP header Accept of the request.
        """
        self._remove_unloaded()
        encode, content_type = choose_encoder(accepted)
        return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._collect_calls()
        build = GaugeMetricFamily("quantra_build_info", "Always 1.", labels=("version", "python"))
        build.add_metric((version("quantra"), platform.python_version()), 1)
        yield build
        yield from self._process.collect()
        if self._gauges is not None:
            contents = {name: read() for name, read in self._gauges.queues.items()}
            for index, (unit, subject) in enumerate(
                (("calls", "Calls"), ("rows", "Symbols of calls"), ("bytes", "Bytes of requests"))
            ):
                family = GaugeMetricFamily(
                    f"quantra_queue_{unit}", f"{subject} without a response yet.", labels=("queue",)
                )
                for name, counts in contents.items():
                    family.add_metric((name,), counts[index])
                yield family
            yield GaugeMetricFamily("quantra_sessions", "Open sessions.", value=self._gauges.sessions())
            yield from self._gauges.ledger()
            yield from _count_recorded(self._gauges.recorded)

    def _collect_calls(self) -> list[Metric]:
        """List the metrics of calls."""
        requests = CounterMetricFamily(  # exposed as quantra_requests_total
            "quantra_requests",
            "Calls and stream requests by outcome; model is empty if no model was reached.",
            labels=(*_CALL, "code", "reason"),
        )
        refused = CounterMetricFamily(
            "quantra_refused_instances", "Rejected instances in answered requests.", labels=(*_MODEL, "reason")
        )
        histograms = [HistogramMetricFamily(name, text, labels=_CALL) for name, text, _ in _HISTOGRAMS]
        with self._lock:
            for family, counts in ((requests, self._requests), (refused, self._refusals)):
                for labels, count in counts.items():
                    family.add_metric(labels, count)
            for (position, labels), distribution in self._distributions.items():
                distribution.add_to(histograms[position], labels)
        return [requests, refused, *histograms]

    def _add(self, position: int, labels: _Labels, value: float) -> None:
        distribution = self._distributions.get((position, labels))
        if distribution is None:
            distribution = self._distributions[position, labels] = _Distribution(_HISTOGRAMS[position][2])
        distribution.counts[bisect_left(distribution.bounds, value)] += 1
        distribution.sum += value

    def _find_labels(self, method: str, model: str, version: int) -> _Labels:
        """Return the labels of a call; removes the series of unloaded versions when a new one gets some."""
        labels = self._labels.get((method, model, version))
        if labels is None:
            self._remove_unloaded()
            labels = (method, model, str(version) if version else "")
            with self._lock:
                self._labels[method, model, version] = labels
        return labels

    def _remove_unloaded(self) -> None:
        """Remove the series of unloaded versions."""
        if self._gauges is None:
            return
        served = {("", 0), *self._gauges.versions()}
        with self._lock:
            unloaded = {labels[1:] for (_, *version), labels in self._labels.items() if tuple(version) not in served}
            if unloaded:
                self._labels = {key: labels for key, labels in self._labels.items() if labels[1:] not in unloaded}
                self._requests = Counter({key: n for key, n in self._requests.items() if key[1:3] not in unloaded})
                self._refusals = Counter({key: n for key, n in self._refusals.items() if key[:2] not in unloaded})
                self._distributions = {
                    key: series for key, series in self._distributions.items() if key[1][1:] not in unloaded
                }


def _count_recorded(recorded: Mapping[str, Callable[[], int]]) -> Iterable[Metric]:
    if recorded:
        text = "Forecasts of clients: recorded in the ledger, or lost."
        family = CounterMetricFamily("quantra_ledger_forecasts", text, labels=("result",))
        for result, count in recorded.items():
            family.add_metric((result,), count())
        yield family


LAMP: Final = "quantra_model_lamp"
SHARE: Final = "quantra_band_share"
PROMISED: Final = "quantra_band_promised"
LAST_SESSION: Final = "quantra_ledger_last_session_timestamp_seconds"
LEDGER_GAUGES: Final = frozenset({LAMP, SHARE, PROMISED, LAST_SESSION})
_KEPT_S: Final = 5.0
"""Seconds for which the gauges are not read again."""
_NUMBERS: Final = {Lamp.LEARNING: 0, Lamp.GREEN: 1, Lamp.AMBER: 2, Lamp.RED: 3}
_BAND: Final = ("model", "version", "horizon")

_log = logging.getLogger(__name__)


@final
class LedgerGauges:
    """The gauges of a ledger, read at a scrape. Thread-safe."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._families: Sequence[Metric] = ()
        self._expires_at_s = clock()

    def read_families(self) -> Iterable[Metric]:
        """The gauges; none, with a warning in the log, if the ledger cannot be read."""
        with self._lock:
            if self._clock() >= self._expires_at_s:
                self._families = self._read()
                self._expires_at_s = self._clock() + _KEPT_S
            return self._families

    def _read(self) -> Sequence[Metric]:
        try:
            evidence, session = list_newest_evidence(self._ledger), self._ledger.last_session
        except LedgerError as error:
            _log.warning("no metrics: %s", error.without_address().message)
            return ()
        newest = GaugeMetricFamily(LAST_SESSION, "Day of the newest bar of the ledger, at 0:00 UTC.")
        if session:
            day = datetime(session // 10000, session // 100 % 100, session % 100, tzinfo=UTC)
            newest.add_metric((), day.timestamp())
        return [_encode_lamps(evidence), *_encode_bands(evidence), newest]


def _encode_lamps(evidence: Sequence[EvidenceRecord]) -> Metric:
    text = "Lamp of a test of a model: 0 learning, 1 green, 2 amber, 3 red."
    family = GaugeMetricFamily(LAMP, text, labels=("model", "version", "monitor", "horizon"))
    for record in evidence:
        family.add_metric(
            (record.model, str(record.version), record.monitor, str(record.horizon)), _NUMBERS[record.lamp]
        )
    return family


def _encode_bands(evidence: Sequence[EvidenceRecord]) -> tuple[Metric, Metric]:
    """The share inside the band and the promised one, by the tests of too few outcomes inside."""
    share = GaugeMetricFamily(SHARE, "Share of outcomes in the band of a model.", labels=_BAND)
    promised = GaugeMetricFamily(PROMISED, "Share of outcomes that the band promises.", labels=_BAND)
    for record in evidence:
        inside = record.number("share")
        if record.monitor == f"{COVERAGE} {CoverageSide.TOO_FEW}" and inside is not None:
            labels = (record.model, str(record.version), str(record.horizon))
            share.add_metric(labels, inside)
            promised.add_metric(labels, record.number("promised") or 0.0)
    return share, promised


HOST: Final = "127.0.0.1"
MAX_CONNECTION_S: Final = 5.0
"""Longest duration of a connection in seconds."""
MAX_CONNECTIONS: Final = 32
"""Most open connections; a further one closes the oldest."""
MAX_HEAD_BYTES: Final = 8192
"""Largest request."""
_GET: Final = "GET"
_TYPE: Final = "text/plain; charset=utf-8"


class MetricsSource(Protocol):
    """Source of the metrics; see `Metrics` and `MetricTotals`."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        ...


@final
class MetricsPort:
    """A local port, on the running event loop. Call `bind`, `start` and `close` in this order.

    Args:
        source: source of the metrics.
        port: port number; 0: any free port.
    """

    def __init__(self, source: MetricsSource, port: int) -> None:
        self._source = source
        self._port = port
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}
        """Oldest first."""
        self._rendering = asyncio.Lock()

    def bind(self) -> int:
        """Bind the port and return its number; raises ConfigurationError if the port is in use or not permitted."""
        try:
            self._socket = socket.create_server((HOST, self._port))
        except OSError as error:
            problem = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound: {error.strerror}"
            raise ConfigurationError(
                f"the metrics port {self._port} {problem}; choose another one (port 0 picks a free one)"
            ) from None
        return self._socket.getsockname()[1]

    async def start(self) -> None:
        """Start responding."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        """Release the port immediately, in any state."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for writer in list(self._connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]  # immediately: its task may react only after further connections
            oldest.transport.abort()
        try:
            async with asyncio.timeout(MAX_CONNECTION_S):
                await self._answer(reader, writer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()  # too slow, malformed or disconnected: no response
        finally:
            self._connections.pop(writer, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, headers = _parse_head(head)
        if path != "/metrics":
            writer.write(_encode_response("404 Not Found", b"not found; use /metrics\n", _TYPE))
        elif method != _GET:
            writer.write(_encode_response("405 Method Not Allowed", b"use GET\n", _TYPE, allow=_GET))
        else:
            async with self._rendering:
                body, content_type = await asyncio.to_thread(self._source.page, headers.get("accept", ""))
            writer.write(_encode_response("200 OK", body, content_type))


def _parse_head(head: str) -> "tuple[str, str, Mapping[str, str]]":
    """Parse the method, path and headers of a request; skips malformed lines."""
    first, *lines = head.split("\r\n")
    method, _, rest = first.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    pairs = (line.partition(":") for line in lines)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _encode_response(status: str, body: bytes, content_type: str, *, allow: str | None = None) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([] if allow is None else [f"Allow: {allow}"]),
    ]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body
