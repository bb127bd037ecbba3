"""Prometheus metrics of a server.

Labels are the names of calls, errors and loaded models, never input of callers. The series of a model version are
removed when it is unloaded.
"""

import platform
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, TypeVar, final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from predictor.observation import Observation
from predictor.server.monitoring.observed_calls import ObservedCall

SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Bucket bounds of the duration histograms."""
ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bucket bounds of the row histogram."""

_MODEL: Final = ("model", "version")
_CALL: Final = ("method", *_MODEL)

MetricT = TypeVar("MetricT", Counter, Histogram)

QueueContents = tuple[int, int, int]
"""Number of calls, symbols and request bytes."""


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
class Metrics:
    """Metrics of a server in a separate registry. Thread-safe.

    It implements `CallObserver` for all calls, and `Observer` for the timings within the service.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._versions: set[tuple[str, int]] = set()
        """Model versions with series."""
        self._gauges: ServerGauges | None = None
        self._children: dict[tuple[Counter | Histogram, tuple[str, ...]], Any] = {}
        requests = "Calls and stream requests by outcome; model is empty if no model was reached."
        self._requests = Counter(
            "quantra_requests", requests, (*_CALL, "code", "reason"), registry=self._registry
        )  # exposed as quantra_requests_total
        self._refused = Counter(
            "quantra_refused_instances",
            "Rejected instances in answered requests.",
            (*_MODEL, "reason"),
            registry=self._registry,
        )
        self._request_s = self._histogram("request", "Time from a call's arrival to its response.")
        self._queue_s = self._histogram("queue", "Time that a request spent in the queue.")
        self._prepare_s = self._histogram("prepare", "Time from instances to network inputs of a request's batch.")
        self._forward_s = self._histogram("forward", "Time of a request's batch in the network.")
        self._batch_rows = Histogram(
            "quantra_batch_rows", "Symbols of a request's batch.", _CALL, buckets=ROWS, registry=self._registry
        )
        self._of_versions = (
            *(self._requests, self._refused, self._request_s),
            *(self._queue_s, self._prepare_s, self._forward_s, self._batch_rows),
        )
        build = Gauge("quantra_build_info", "Always 1.", ("version", "python"), registry=self._registry)
        build.labels(version("quantra"), platform.python_version()).set(1)
        ProcessCollector(registry=self._registry)

    def read(self, gauges: ServerGauges) -> None:
        """Include these gauges; called once, when models are loaded."""
        self._gauges = gauges

    def ended(self, call: ObservedCall) -> None:
        """See `CallObserver.ended`."""
        self._track(call.model, call.version)
        labels = (call.method, call.model, _version_label(call.version))
        self._child(self._requests, *labels, call.code, call.reason).inc()
        self._child(self._request_s, *labels).observe(call.took_s)

    def reached(self, model: str, version: int) -> None:
        """See `Observer.reached`. Does nothing: requests are counted when they end."""

    def observed(self, observation: Observation) -> None:
        """See `Observer.observed`."""
        self._track(observation.model, observation.version)
        labels = (observation.method, observation.model, _version_label(observation.version))
        for histogram, seconds in (
            (self._queue_s, observation.queue_s),
            (self._prepare_s, observation.prepare_s),
            (self._forward_s, observation.forward_s),
        ):
            if seconds is not None:
                self._child(histogram, *labels).observe(seconds)
        if observation.forward_s is not None:
            self._child(self._batch_rows, *labels).observe(observation.batch_rows)
        for reason in observation.refused:
            self._refused.labels(*labels[1:], reason).inc()

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return all metrics as text, and the content type.

        Args:
            accepted: the HTTP header Accept of the request.
        """
        self._remove_unloaded()
        encode, content_type = choose_encoder(accepted)
        return encode(_MetricsPage(self._registry, self._gauges)), content_type

    def _histogram(self, stage: str, what: str) -> Histogram:
        return Histogram(f"quantra_{stage}_seconds", what, _CALL, buckets=SECONDS, registry=self._registry)

    def _child(self, metric: MetricT, *labels: str) -> MetricT:
        """The series of a metric with these labels; `labels` takes longer than the rest of an observation."""
        key = (metric, labels)
        child: MetricT | None = self._children.get(key)
        if child is None:
            child = metric.labels(*labels)
            self._children[key] = child
        return child

    def _track(self, model: str, version: int) -> None:
        """Remember a version that gets series; remove the series of unloaded versions."""
        if model and (model, version) not in self._versions:
            self._remove_unloaded()
            with self._lock:
                self._versions.add((model, version))

    def _remove_unloaded(self) -> None:
        """Remove the series of unloaded versions."""
        if self._gauges is None:
            return
        served = set(self._gauges.versions())
        with self._lock:
            unloaded = self._versions - served
            self._versions -= unloaded
        for model, number in unloaded:
            for metric in self._of_versions:
                metric.remove_by_labels({"model": model, "version": _version_label(number)})
        if unloaded:
            self._children.clear()


@final
class _MetricsPage:
    """The metrics of one scrape.

    Args:
        registry: registry of the counters and histograms.
        gauges: gauges; None while models are loading.
    """

    def __init__(self, registry: CollectorRegistry, gauges: ServerGauges | None) -> None:
        self._registry = registry
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, without the `_created` series, which would double their number."""
        for metric in self._registry.collect():
            if not metric.name.endswith("_created"):
                yield _without_created(metric)
        if self._gauges is not None:
            yield from _queues(self._gauges.queues)
            yield GaugeMetricFamily("quantra_sessions", "Open sessions.", value=self._gauges.sessions())
            yield from self._gauges.ledger()
            yield from _count_recorded(self._gauges.recorded)


def _without_created(metric: Metric) -> Metric:
    filtered = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    filtered.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return filtered


def _queues(queues: Mapping[str, Callable[[], QueueContents]]) -> Iterable[Metric]:
    contents = {name: read() for name, read in queues.items()}
    for index, (unit, what) in enumerate(
        (("calls", "Calls"), ("rows", "Symbols of calls"), ("bytes", "Bytes of requests"))
    ):
        family = GaugeMetricFamily(f"quantra_queue_{unit}", f"{what} without a response yet.", labels=("queue",))
        for name, counts in contents.items():
            family.add_metric((name,), counts[index])
        yield family


def _count_recorded(recorded: Mapping[str, Callable[[], int]]) -> Iterable[Metric]:
    if recorded:
        text = "Forecasts of clients: recorded in the ledger, or lost."
        family = CounterMetricFamily("quantra_ledger_forecasts", text, labels=("result",))
        for result, count in recorded.items():
            family.add_metric((result,), count())
        yield family


def _version_label(version: int) -> str:
    """Format the label of a version; empty if the call reached no model."""
    return str(version) if version else ""
