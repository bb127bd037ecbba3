"""OpenTelemetry spans of calls, as children of the caller's span. The OTEL_* variables configure the export."""

import threading
import time
from collections.abc import Iterator
from typing import Final, final

from predictor.call_context import OK
from predictor.errors import MissingPackageError
from predictor.server.observed_calls import ObservedCall

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise MissingPackageError.of("opentelemetry-sdk", "otel", "--otel") from None

_NS: Final = 1_000_000_000
_SERVER_ERRORS: Final = frozenset({"INTERNAL", "DATA_LOSS", "UNAVAILABLE", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"})
"""Codes that mark a server span as failed, according to OpenTelemetry's conventions."""
_CLOSE_TIMEOUT_S: Final = 2.0
"""Longest time to export the last spans; without a collector, the exporter would take far longer."""


@final
class CallTracer:
    """Creates a span for each ended call. A separate thread exports spans, and drops them on failure.

    Args:
        exporter: exporter of the spans; None: OTLP over HTTP, configured by OTEL_EXPORTER_OTLP_*.
    """

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("quantra")
        self._propagator = TraceContextTextMapPropagator()

    def on_end(self, call: ObservedCall) -> None:
        """See `CallObserver.on_end`."""
        ended_ns = time.time_ns()
        span = self._tracer.start_span(
            f"{call.service}/{call.method}",
            context=self._propagator.extract(call.trace),
            kind=SpanKind.SERVER,
            attributes=dict(_list_attributes(call)),
            start_time=ended_ns - int(_NS * call.took_s),
        )
        if call.code in _SERVER_ERRORS:
            span.set_status(Status(StatusCode.ERROR, call.reason))
        span.end(ended_ns)

    def close(self) -> None:
        """Export the last spans, within a time limit."""
        thread = threading.Thread(target=self._provider.shutdown, name="otel-close", daemon=True)
        thread.start()
        thread.join(_CLOSE_TIMEOUT_S)


def _list_attributes(call: ObservedCall) -> Iterator[tuple[str, str | int | float]]:
    """Yield attributes of a call; they contain no request or response data."""
    yield "rpc.system", "grpc"
    yield "rpc.service", call.service
    yield "rpc.method", call.method
    yield "quantra.code", call.code
    yield "quantra.request_id", call.request_id
    if call.code != OK:
        yield "quantra.reason", call.reason
    if call.model:
        yield "quantra.model", call.model
        yield "quantra.version", call.version
    observation = call.observation
    if observation is not None:
        yield "quantra.rows", observation.rows
        yield "quantra.batch_rows", observation.batch_rows
        stages = {"queue": observation.queue_s, "prepare": observation.prepare_s, "forward": observation.forward_s}
        yield from ((f"quantra.{stage}_s", seconds) for stage, seconds in stages.items() if seconds is not None)
