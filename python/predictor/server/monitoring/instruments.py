"""All that watches one server, put together."""

import asyncio
from typing import final

from predictor.observation import Observer
from predictor.server.monitoring.access_log import AccessLog
from predictor.server.monitoring.metrics import Metrics, ServerGauges
from predictor.server.monitoring.metrics_port import MetricsPort
from predictor.server.monitoring.observed_calls import CallObserver, CallObservers


@final
class Instruments:
    """The log of calls always, numbers for Prometheus and spans for OpenTelemetry where they are wanted.

    On the running event loop: `bind`, `start`, `read` in this order; `close` at any time.

    Args:
        metrics_port: where Prometheus reads; 0 = any free port; None = nowhere, and nothing is counted.
        traces: whether calls become spans.
        has_port: whether the numbers are read here; else whoever asks for them gets them by `numbers`.

    Raises:
        MissingPackageError: spans are wanted, and OpenTelemetry is not installed.
    """

    def __init__(self, metrics_port: int | None, *, traces: bool, has_port: bool = True) -> None:
        self._metrics = None if metrics_port is None else Metrics()
        self._port = None
        if has_port and metrics_port is not None and self._metrics is not None:
            self._port = MetricsPort(self._metrics, metrics_port)
        self._tracing = None
        if traces:
            from predictor.server.monitoring.tracer import CallTracer  # needs packages that not everybody has

            self._tracing = CallTracer()
        watchers: tuple[CallObserver | None, ...] = (AccessLog(), self._metrics, self._tracing)
        self.observers = CallObservers([one for one in watchers if one is not None])
        """For whoever has calls."""

    @property
    def observer(self) -> Observer | None:
        """For the service; None = nobody observes it."""
        return self._metrics

    def bind(self) -> int | None:
        """Claim the port of the metrics, if there is one; raises as `MetricsPort.bind`."""
        return None if self._port is None else self._port.bind()

    async def start(self) -> None:
        """Let the metrics be read."""
        if self._port is not None:
            await self._port.start()

    def read(self, levels: ServerGauges) -> None:
        """Read these at each scrape, from now on."""
        if self._metrics is not None:
            self._metrics.read(levels)

    def numbers(self) -> bytes:
        """What was counted, in Prometheus' text format; empty if nothing is."""
        return b"" if self._metrics is None else self._metrics.page("")[0]

    async def close(self) -> None:
        """Give the port back, and send the last spans."""
        if self._port is not None:
            await self._port.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
