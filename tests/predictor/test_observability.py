"""Observability: metrics, access log, request ids and spans of calls to real servers."""

import asyncio
import contextlib
import gzip
import importlib
import importlib.metadata
import json
import logging
import re
import socket
import sys
import threading
import urllib.request
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, final

import grpc
import pytest
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model, small_models
from canned_service import CannedService, forecast_of
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families
from serving import failed_start, server_process, serving

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import ModelAdminServiceStub, PredictionServiceStub
from predictor.bars import BarPanel
from predictor.call_context import OK, Observation
from predictor.errors import ConfigurationError, InternalError, MissingPackageError, QuantraError, UnavailableError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.registry import ModelVersions, Registry
from predictor.server import ServerSettings, logs, metrics, observed_calls
from predictor.server.metrics import Metrics, MetricsPort, ServerGauges
from predictor.server.observed_calls import AccessLog, CallObservers, ObservedCall
from predictor.service import PredictionService
from predictor.wire import instances

TOKEN = "marked-token-0123456789abcdef0123456789"  # noqa: S105 - nobody's
VALUE = 1234.56789
SYMBOL = "MARKEDSYMBOL"
MODEL = "markedmodel"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Labels = frozenset[tuple[str, str]]
Samples = Mapping[tuple[str, Labels], float]


# --- one server and its output


@dataclass(frozen=True, slots=True)
class ServerOutput:
    """Metrics, log and spans of one server."""

    ready: Mapping[str, object]
    before: Samples
    """Metrics after all calls."""
    after: Samples
    """Metrics after one model was unloaded."""
    log: str
    folder: Path
    spans: Sequence[Span]


def samples(port: object) -> Samples:
    """Samples as Prometheus reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    families = text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def labels(**named: str) -> Labels:
    return frozenset(named.items())


def call_of(method: str, model: str, version: str) -> Labels:
    return labels(method=method, model=model, version=version)


def request_sample(method: str, model: str, version: str, code: str, reason: str = "") -> tuple[str, Labels]:
    return "quantra_requests_total", call_of(method, model, version) | labels(code=code, reason=reason)


def marked_bars() -> BarPanel:
    """Bars that must not appear in a log."""
    bars = recent_bars()
    factor = VALUE / bars.close[0, -1]
    prices = {name: factor * getattr(bars, name) for name in ("open", "high", "low", "close")}
    return replace(bars, symbols=(SYMBOL,), adj_close=None, **prices)


def request(*bars: BarPanel, model: str = "") -> pb.PredictRequest:
    return pb.PredictRequest(model=model, instances=[instances.encode(Instance(input=one)) for one in bars])


class Collector(BaseHTTPRequestHandler):
    """A collector that records spans."""

    spans: list[Span]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        sent = ExportTraceServiceRequest.FromString(plain)
        self.spans += [span for of in sent.resource_spans for scope in of.scope_spans for span in scope.spans]

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the name is the base's


@contextmanager
def collecting() -> Generator[tuple[str, list[Span]]]:
    """Address of a collector, and the recorded spans."""
    spans: list[Span] = []
    with HTTPServer(("127.0.0.1", 0), type("One", (Collector,), {"spans": spans})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server_output(tmp_path_factory: pytest.TempPathFactory) -> ServerOutput:
    folder = small_models(tmp_path_factory.mktemp("models"))
    save_small_artifact(folder / "small" / "2", seed=2)
    log = folder.parent / "server.log"
    with collecting() as (address, spans), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        ready, before, after = run_server(folder, log)
    return ServerOutput(ready, before, after, log.read_text(), folder, spans)


def run_server(folder: Path, log: Path) -> tuple[Mapping[str, object], Samples, Samples]:
    """A server from startup to shutdown, with its metrics before and after unloading a model."""
    options = ("--metrics-port", "0", "--admin-listen", "127.0.0.1:0", "--log-level", "debug", "--otel")
    with log.open("w") as file, server_process(folder, file, *options) as process:
        with grpc.insecure_channel(process.target) as channel:
            ask(PredictionServiceStub(channel))
        before = samples(process.ready["metrics_port"])
        with grpc.insecure_channel(f"127.0.0.1:{process.ready['admin_port']}") as channel:
            ModelAdminServiceStub(channel).UnloadModel(pb.UnloadModelRequest(model="small@1"))
        return process.ready, before, samples(process.ready["metrics_port"])


def ask(stub: PredictionServiceStub) -> None:
    """Calls of each kind: 5 forecasts of two versions, one half refused, and failing calls."""
    secret = (("authorization", f"Bearer {TOKEN}"),)
    named = (("traceparent", f"00-{TRACE}-{PARENT}-01"), ("x-request-id", "mine-1"))
    stub.Predict(request(marked_bars(), model="small"), metadata=(*secret, *named))
    for _ in range(2):
        stub.Predict(request(marked_bars(), model="small"), metadata=secret)
    stub.Predict(request(recent_bars("AAPL", "IBM"), model="small@1"))
    stub.Predict(request(recent_bars(), recent_bars().last(2), model="small@1"))
    explained = pb.ExplainRequest(model="small@1", instance=instances.encode(Instance(input=recent_bars())))
    stub.Explain(explained)
    stub.ListModels(pb.ListModelsRequest())
    for wrong in (pb.PredictRequest(), request(marked_bars(), model=MODEL)):
        with pytest.raises(grpc.RpcError):
            stub.Predict(wrong, metadata=secret)
    list(stub.ExplainGlobal(pb.ExplainGlobalRequest(model="small@1", instances=[explained.instance])))


def test_the_ready_line_has_the_port_of_the_metrics(server_output: ServerOutput) -> None:
    assert isinstance(server_output.ready["metrics_port"], int)


def test_each_call_counts_once_by_how_it_ended(server_output: ServerOutput) -> None:
    counted = {key: value for key, value in server_output.before.items() if key[0] == "quantra_requests_total"}
    assert counted == {
        request_sample("Predict", "small", "2", OK): 3,
        request_sample("Predict", "small", "1", OK): 2,
        request_sample("Explain", "small", "1", OK): 1,
        request_sample("ExplainGlobal", "small", "1", OK): 1,
        request_sample("ListModels", "", "", OK): 1,
        request_sample("Predict", "", "", "INVALID_ARGUMENT", "MALFORMED_REQUEST"): 1,
        request_sample("Predict", "", "", "NOT_FOUND", "MODEL_NOT_FOUND"): 1,
    }


def test_an_instance_that_is_refused_among_others_counts_by_itself(server_output: ServerOutput) -> None:
    refused = {key: value for key, value in server_output.before.items() if key[0] == "quantra_refused_instances_total"}
    (key,) = refused
    assert key[1] == labels(model="small", version="1", reason="TOO_FEW_BARS")
    assert refused[key] == 1


@pytest.mark.parametrize("stage", ["request_seconds", "queue_seconds", "prepare_seconds", "forward_seconds"])
def test_each_forecast_counts_once_in_each_stage(server_output: ServerOutput, stage: str) -> None:
    for number, count in (("1", 2), ("2", 3)):
        key = f"quantra_{stage}_count", call_of("Predict", "small", number)
        assert server_output.before[key] == count
        assert 0 < server_output.before[f"quantra_{stage}_sum", key[1]] < 60


def test_rows_of_batches_are_those_of_the_requests(server_output: ServerOutput) -> None:
    assert server_output.before["quantra_batch_rows_sum", call_of("Predict", "small", "1")] == 2 + 2
    assert server_output.before["quantra_batch_rows_sum", call_of("Predict", "small", "2")] == 3


def test_explanations_wait_and_have_no_forward(server_output: ServerOutput) -> None:
    assert server_output.before["quantra_queue_seconds_count", call_of("Explain", "small", "1")] == 1
    assert ("quantra_forward_seconds_count", call_of("Explain", "small", "1")) not in server_output.before


def test_queues_are_empty_once_all_is_answered(server_output: ServerOutput) -> None:
    for unit in ("calls", "rows", "bytes"):
        for queue in ("predictions", "explanations"):
            assert server_output.before[f"quantra_queue_{unit}", labels(queue=queue)] == 0
    assert server_output.before["quantra_sessions", frozenset()] == 0


def test_a_version_that_is_served_no_more_has_no_series(server_output: ServerOutput) -> None:
    left = {key[1] for key in server_output.after if ("model", "small") in key[1]}
    assert left
    assert all(("version", "2") in one for one in left)
    assert server_output.after[request_sample("UnloadModel", "", "", OK)] == 1


def test_no_label_comes_from_a_caller(server_output: ServerOutput) -> None:
    told = {value for _, named in (*server_output.before, *server_output.after) for _, value in named}
    assert not {value for value in told if MODEL in value or SYMBOL in value or TOKEN in value}


def test_the_log_at_level_debug_holds_no_value_no_token_no_path_and_nothing_of_grpc(
    server_output: ServerOutput,
) -> None:
    assert "Predict small@1: OK" in server_output.log
    assert "Predict: NOT_FOUND MODEL_NOT_FOUND" in server_output.log
    for secret in (TOKEN, SYMBOL, MODEL, f"{VALUE:.2f}", "AAPL", str(server_output.folder), "/python/predictor"):
        assert secret not in server_output.log
    assert {line.split()[3].split(".")[0].rstrip(":") for line in server_output.log.splitlines()} == {"predictor"}


# --- calls abandoned by their caller


@final
class EndedCalls:
    """An observer that records ended calls."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[ObservedCall] = SimpleQueue()

    def on_end(self, call: ObservedCall) -> None:
        self.calls.put(call)


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_a_caller_that_disconnects_is_counted_for_its_model(timeout: float | None) -> None:
    begun, may_go_on, told = threading.Event(), threading.Event(), EndedCalls()

    def clock() -> datetime:
        begun.set()
        may_go_on.wait(30)
        return datetime.now(UTC)

    model = small_model(small_artifact())
    registry = Registry(models={"small": ModelVersions.of(model)}, problems=())
    with (
        PredictionService(registry, clock=clock) as service,
        serving(service, watching=CallObservers([told])) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        call: Any = PredictionServiceStub(channel).Predict.future(request(recent_bars()), timeout=timeout)
        begun.wait(30)
        if timeout is None:
            call.cancel()
        ended = told.calls.get(timeout=30)
        may_go_on.set()
    assert ended.reference == "small@1"
    assert ended.reason in ({"CANCELLED"} if timeout is None else {"DEADLINE_EXCEEDED", "CANCELLED"})
    assert told.calls.empty()


@pytest.mark.parametrize(
    ("error", "counted"),
    [(None, ["small@1 OK", "small@2 OK"]), (UnavailableError("away"), ["small@1 OK", "small@2 OK", " UNAVAILABLE"])],
)
def test_of_a_call_with_many_requests_each_counts_and_the_call_if_it_fails(
    error: QuantraError | None, counted: list[str]
) -> None:
    told = EndedCalls()
    stream = ObservedCall(
        service="s.S", method="PredictStream", request_id="r-1", peer="p", observers=[told], has_many=True
    )
    for version in (1, 2):
        stream.on_queued("small", version)
        stream.on_finished(observation("small", version))
    stream.end(error)
    calls = [told.calls.get_nowait() for _ in counted]
    assert [f"{call.reference} {call.code}" for call in calls] == counted
    assert told.calls.empty()


# --- request ids


@pytest.mark.parametrize(
    ("sent", "comes_back"),
    [("order-17/a", True), ("x" * 128, True), ("x" * 129, False), ("two words", False), ("", False), (None, False)],
)
def test_the_callers_request_id_comes_back_if_it_is_well_formed_and_else_one_is_made(
    sent: str | None, *, comes_back: bool
) -> None:
    metadata = () if sent is None else (("x-request-id", sent),)
    with serving(CannedService(forecast_of)) as served, grpc.insecure_channel(served.target) as channel:
        _, call = PredictionServiceStub(channel).ListModels.with_call(pb.ListModelsRequest(), metadata=metadata)
        (told,) = [value for key, value in call.trailing_metadata() if key == "x-request-id"]
    assert (told == sent) is comes_back
    assert isinstance(told, str)
    assert re.fullmatch(r"[!-~]{1,128}", told)


def test_an_error_carries_the_request_id_and_its_incident_is_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Instance) -> Forecast:
        raise ZeroDivisionError(f"the value was {VALUE}")

    with (
        caplog.at_level(logging.INFO, logger="predictor"),
        serving(CannedService(broken)) as served,
        grpc.insecure_channel(served.target) as channel,
        pytest.raises(grpc.RpcError) as failed,
    ):
        PredictionServiceStub(channel).Predict(request(recent_bars()), metadata=(("x-request-id", "mine-1"),))
    error: Any = failed.value
    assert ("x-request-id", "mine-1") in [tuple(one) for one in error.trailing_metadata()]
    incident = error.details().partition("see incident ")[2].split()[0]
    (line,) = [record for record in caplog.records if record.name == observed_calls.__name__]
    assert f"INTERNAL INTERNAL {incident}" in line.getMessage()
    assert "request mine-1" in line.getMessage()


def test_two_made_request_ids_differ() -> None:
    with serving(CannedService(forecast_of)) as served, grpc.insecure_channel(served.target) as channel:
        stub = PredictionServiceStub(channel)
        calls = [stub.ListModels.with_call(pb.ListModelsRequest())[1] for _ in range(5)]
    assert len({dict(call.trailing_metadata())["x-request-id"] for call in calls}) == 5


# --- the log


def call(code: str = OK, reason: str = "", model: str = "small", version: int = 1) -> ObservedCall:
    return ObservedCall(
        service="s.S",
        method="Predict",
        request_id="r-1",
        peer="ipv4:127.0.0.1:9",
        model=model,
        version=version,
        code=code,
        reason=reason,
        took_s=0.0123,
    )


def test_calls_are_logged_at_debug_and_failures_at_info(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger=observed_calls.__name__):
        AccessLog().on_end(call())
        AccessLog().on_end(call("NOT_FOUND", "MODEL_NOT_FOUND", model="", version=0))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "Predict small@1: OK, 12.3 ms, request r-1 from ipv4:127.0.0.1:9"),
        ("INFO", "Predict: NOT_FOUND MODEL_NOT_FOUND, 12.3 ms, request r-1 from ipv4:127.0.0.1:9"),
    ]


def test_many_failures_in_one_second_have_so_many_lines_and_then_a_number(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([1.0] * 250 + [2.5])
    told = AccessLog(clock=lambda: next(times))
    with caplog.at_level(logging.INFO, logger=observed_calls.__name__):
        for _ in range(251):
            told.on_end(call("NOT_FOUND", "MODEL_NOT_FOUND"))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == observed_calls.MAX_FAILURES + 2
    assert messages[-2].startswith("150 more calls failed")


def raise_with_value() -> None:
    raise ValueError(f"at /home/someone: {VALUE}")


def record_of(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    try:
        try:
            raise_with_value()
        except ValueError as error:
            raise KeyError(SYMBOL) from error
    except KeyError as error:
        InternalError.of("Predict", error, log)
    return caplog.records[-1]


@pytest.mark.parametrize("formatter", [logs.TextLine(), logs.JsonLine()])
def test_an_incident_names_its_origin_without_values(
    formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    line = formatter.format(record_of(logging.getLogger("predictor.test"), caplog))
    assert "builtins.KeyError" in line
    assert "builtins.ValueError" in line
    assert f"{__name__}:" in line
    assert "record_of" in line
    for secret in (str(VALUE), SYMBOL, "/home", "test_observability.py"):
        assert secret not in line


def test_a_json_line_has_the_facts_of_a_call_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger=observed_calls.__name__):
        AccessLog().on_end(call())
    told = json.loads(logs.JsonLine().format(caplog.records[-1]))
    assert {name: told[name] for name in ("level", "method", "model", "code", "reason", "ms", "request_id")} == {
        "level": "DEBUG",
        "method": "Predict",
        "model": "small@1",
        "code": "OK",
        "reason": "",
        "ms": 12.3,
        "request_id": "r-1",
    }


# --- metrics port


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.run_until_complete(running.shutdown_default_executor())
    running.close()


@pytest.fixture
def port(loop: asyncio.AbstractEventLoop) -> Iterator[int]:
    """A running metrics port."""
    opened = MetricsPort(Metrics(), 0)
    number = opened.bind()
    asyncio.run_coroutine_threadsafe(opened.start(), loop).result()
    yield number
    asyncio.run_coroutine_threadsafe(opened.close(), loop).result()


def raw(port: int, sent: bytes) -> bytes:
    """Send raw bytes and return the whole response."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_three_hundred_connections_that_say_nothing_do_not_hold_the_metrics(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_CONNECTION_S", 60.0)
    with ExitStack() as silent:
        opened = [silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(300)]
        assert samples(port)["quantra_build_info", built()] == 1
        assert [is_ended(one) for one in opened[: -metrics.MAX_CONNECTIONS]] == [True] * (300 - metrics.MAX_CONNECTIONS)


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side closes the connection; raises TimeoutError if it does not."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def built() -> Labels:
    version = importlib.metadata.version("quantra")
    return labels(version=version, python=".".join(map(str, sys.version_info[:3])))


def test_a_connection_that_is_slow_ends_after_its_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_CONNECTION_S", 0.2)
    assert raw(port, b"GET /metrics HTTP/1.1\r\nHost") == b""


def test_a_request_whose_head_is_endless_has_no_answer(port: int) -> None:
    with contextlib.suppress(ConnectionError):  # it may close before everything was sent
        assert raw(port, b"GET /metrics HTTP/1.1\r\nX: " + bytes(200_000)) == b""
    assert samples(port)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"\r\n\r\n", b"404 Not Found"),
        (b"\xff\xfe /metrics \x00\r\n:\r\n\r\n", b"405 Method Not Allowed"),
    ],
)
def test_there_is_get_metrics_alone(port: int, sent: bytes, status: bytes) -> None:
    assert raw(port, sent).startswith(b"HTTP/1.1 " + status + b"\r\n")


def test_a_reader_may_ask_for_open_metrics(port: int) -> None:
    page = raw(port, b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n")
    assert b"Content-Type: application/openmetrics-text" in page
    assert page.endswith(b"# EOF\n")


def test_a_port_of_metrics_that_is_in_use_is_named_and_the_server_ends(tmp_path: Path) -> None:
    small_models(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"metrics port {taken} is in use"):
            MetricsPort(Metrics(), taken).bind()
        ran = failed_start("--models", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics-port", str(taken))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(f"the metrics port {taken} is in use")


@pytest.mark.parametrize("number", [-1, 65536])
def test_an_invalid_port_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(ConfigurationError, match=f"metrics port {number} is invalid"):
        ServerSettings(models=tmp_path, metrics_port=number)


# --- metrics of loaded and unloaded models


def observation(model: str, version: int) -> Observation:
    return Observation(
        method="Predict",
        model=model,
        version=version,
        rows=1,
        code=OK,
        reason="",
        refused=("TOO_FEW_BARS",),
        took_s=0.01,
        queue_s=0.001,
        prepare_s=0.001,
        forward_s=0.001,
        batch_rows=1,
    )


def test_series_do_not_grow_while_models_come_and_go_and_nobody_reads() -> None:
    metrics, served = Metrics(), set[tuple[str, int]]()
    metrics.read(ServerGauges(versions=lambda: served, queues={}, sessions=lambda: 0))
    for version in range(1, 50):
        served.clear()
        served.add(("small", version))
        metrics.on_finished(observation("small", version))
        metrics.on_end(call(version=version))
    page, _ = metrics.page("")
    assert set(re.findall(rb'version="(\d+)"', page)) == {b"49"}


# --- spans


def test_each_call_is_a_span_below_its_callers_own(server_output: ServerOutput) -> None:
    span = next(one for one in server_output.spans if one.trace_id.hex() == TRACE)
    assert span.parent_span_id.hex() == PARENT
    assert span.name == "quantra.v1.PredictionService/Predict"
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    told = {one.key: one.value for one in span.attributes}
    assert (told["quantra.model"].string_value, told["quantra.version"].int_value) == ("small", 2)
    assert told["quantra.request_id"].string_value == "mine-1"
    assert told["quantra.forward_s"].double_value > 0
    counted = sum(value for (name, _), value in server_output.before.items() if name == "quantra_requests_total")
    assert len(server_output.spans) == counted + 1  # the call that unloaded a model came later


def test_spans_hold_no_value_and_no_token(server_output: ServerOutput) -> None:
    told = b"".join(span.SerializeToString() for span in server_output.spans).decode("latin-1")
    assert not [secret for secret in (TOKEN, SYMBOL, MODEL, f"{VALUE:.2f}") if secret in told]


def test_spans_without_their_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "predictor.server.tracer", raising=False)
    with pytest.raises(MissingPackageError, match=r"--otel needs .*quantra\[otel\]"):
        importlib.import_module("predictor.server.tracer")
