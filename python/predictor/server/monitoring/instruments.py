"""The access log, metrics and tracing of one server."""

import asyncio
from typing import final

from predictor.observation import Observer
from predictor.server.monitoring.access_log import AccessLog
from predictor.server.monitoring.metrics import Metrics, ServerGauges
from predictor.server.monitoring.metrics_port import MetricsPort
from predictor.server.monitoring.observed_calls import CallObserver, CallObservers


@final
class Instruments:
    """The access log and, if enabled, Prometheus metrics and OpenTelemetry spans.

    On the running event loop, call `bind`, `start` and `read` in this order; `close` works at any time.

    Args:
        metrics_port: port of the metrics; 0: any free port; None: no metrics.
        traces: whether to create spans of calls.
        has_port: whether to serve the metrics at the port; otherwise only `metrics` returns them.

    Raises:
        MissingPackageError: spans are enabled, but OpenTelemetry is not installed.
    """

    def __init__(self, metrics_port: int | None, *, traces: bool, has_port: bool = True) -> None:
        self._metrics = None if metrics_port is None else Metrics()
        self._port = None
        if has_port and metrics_port is not None and self._metrics is not None:
            self._port = MetricsPort(self._metrics, metrics_port)
        self._tracer = None
        if traces:
            from predictor.server.monitoring.tracer import CallTracer  # needs optional packages

            self._tracer = CallTracer()
        observers: tuple[CallObserver | None, ...] = (AccessLog(), self._metrics, self._tracer)
        self.observers = CallObservers([observer for observer in observers if observer is not None])
        """Observers of calls."""

    @property
    def observer(self) -> Observer | None:
        """Observer of the service, if any."""
        return self._metrics

    def bind(self) -> int | None:
        """Bind the metrics port, if any; raises as `MetricsPort.bind`."""
        return None if self._port is None else self._port.bind()

    async def start(self) -> None:
        """Start serving the metrics."""
        if self._port is not None:
            await self._port.start()

    def read(self, gauges: ServerGauges) -> None:
        """Include these gauges in the metrics."""
        if self._metrics is not None:
            self._metrics.read(gauges)

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format; empty if they are disabled."""
        return b"" if self._metrics is None else self._metrics.page("")[0]

    async def close(self) -> None:
        """Release the port and export the last spans."""
        if self._port is not None:
            await self._port.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
