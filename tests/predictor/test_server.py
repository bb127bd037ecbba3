"""gRPC server behaviour in front of a canned service."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

import grpc
import grpc.aio
import numpy as np
import pytest
from canned_service import CannedService, forecast_of
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from market import bokeh_panel
from raw_http2 import Connection, Stream, message
from serving import Served, serving

from predictor import errors
from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.calls import PredictionCalls
from predictor.client import AsyncQuantraClient, QuantraClient
from predictor.errors import (
    ConfigurationError,
    ModelNotFoundError,
    QuantraError,
    RequestTooLargeError,
    Status,
    TooFewBarsError,
)
from predictor.forecast import Forecast
from predictor.global_importance import GlobalExplanationQuery
from predictor.instance import Instance
from predictor.limits import ServiceLimits
from predictor.server import Address, ServerLimits, ServerSettings
from predictor.server.listener import Listener
from predictor.server.servicer import STATUS_CODES
from predictor.wire import errors as wire_errors
from predictor.wire import forecasts, instances

METHODS = ("ListModels", "GetModel", "Predict", "Explain")
GARBAGE = b"\xff\xff\xff\xff garbage"
UNBOUNDED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def refuse_ibm(instance: Instance) -> Forecast | QuantraError:
    if instance.input.symbols == ("IBM",):
        return TooFewBarsError.of("IBM", have=3, need=30, unit="bars", best=140)
    return forecast_of(instance)


@pytest.fixture(scope="module")
def service() -> CannedService:
    return CannedService(refuse_ibm)


@pytest.fixture(scope="module")
def served(service: CannedService) -> Iterator[Served]:
    with serving(service) as running:
        yield running


@pytest.fixture(scope="module")
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.target, options=UNBOUNDED) as open_channel:
        yield open_channel


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> PredictionServiceStub:
    return PredictionServiceStub(channel)


def instance_of(symbol: str, request_id: str = "") -> pb.Instance:
    return instances.encode(Instance(input=bokeh_panel(symbol).last(3), request_id=request_id))


def request_of(*symbols: str, model: str = "canned") -> pb.PredictRequest:
    return pb.PredictRequest(model=model, instances=map(instance_of, symbols))


SERVING = health_pb2.HealthCheckResponse.SERVING


def health_of(channel: grpc.Channel | grpc.aio.Channel) -> Any:
    """A stub of the untyped health service."""
    return health_pb2_grpc.HealthStub(channel)


def raw(channel: grpc.Channel, method: str, body: bytes, **options: Any) -> bytes:
    """Call a method with raw bytes."""
    return channel.unary_unary(f"/quantra.v1.PredictionService/{method}")(body, timeout=10, **options)


SETTINGS, PING, GOAWAY = 4, 6, 7
"""Kinds of HTTP/2 frames."""


def frame(kind: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + content


def kinds_until(answers: BinaryIO, last: int) -> list[int]:
    """Kinds of the received frames, up to one of that kind or GOAWAY."""
    kinds: list[int] = []
    while not kinds or kinds[-1] not in {last, GOAWAY}:
        head = answers.read(9)
        answers.read(int.from_bytes(head[:3], "big"))
        kinds.append(head[3])
    return kinds


def _exhausted(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, Iterator) else [answer]


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str, str]:
    """Status, reason and message of a failing call."""
    with pytest.raises(grpc.RpcError) as failure:
        call()
    code, message = failure.value.code(), failure.value.details() or ""
    trailers: Any = failure.value.trailing_metadata()
    meant = wire_errors.decode_details(dict(trailers).get(wire_errors.DETAILS_KEY, b""))
    assert_reveals_nothing(message)
    return code, errors.get_error_status(meant).reason if meant else "", message


def assert_reveals_nothing(message: str) -> None:
    assert not any(
        word in message for word in ("Traceback", ".py", "Exception", "<class", "predictor.", "/home", "/work")
    )


def test_every_error_has_a_status() -> None:
    def family(kind: type[QuantraError]) -> set[type[QuantraError]]:
        ours = (child for child in kind.__subclasses__() if child.__module__.startswith(("predictor", "trainers")))
        return {kind}.union(*map(family, ours))

    assert family(QuantraError) == set(errors.ANSWERS)


def test_reasons_are_unique() -> None:
    assert len({answer.reason for answer in errors.ANSWERS.values()}) == len(errors.ANSWERS)


def test_every_status_has_a_code_of_grpc() -> None:
    assert {status.value: code.name for status, code in STATUS_CODES.items()} == {s.value: s.value for s in Status}


def test_forecasts_arrive_in_the_order_of_the_request(stub: PredictionServiceStub) -> None:
    request = pb.PredictRequest(
        instances=[instance_of("MSFT", "m"), instance_of("AAPL", "a"), instance_of("GOOG", "g")]
    )
    results = stub.Predict(request).results
    assert [(r.request_id, *r.forecast.symbols) for r in results] == [("m", "MSFT"), ("a", "AAPL"), ("g", "GOOG")]


def test_one_bad_instance_leaves_the_others_their_forecasts(stub: PredictionServiceStub) -> None:
    request = request_of("AAPL", "GOOG", "IBM", "MSFT")
    request.instances[1].bars.close = b"short"
    results = stub.Predict(request).results
    assert [r.WhichOneof("outcome") for r in results] == ["forecast", "error", "error", "forecast"]
    assert results[1].error.reason == "MALFORMED_REQUEST"
    assert (results[2].error.code, results[2].error.reason) == (3, "TOO_FEW_BARS")
    assert dict(results[2].error.metadata) == {"symbol": "IBM", "have": "3", "need": "30"}


def test_instances_that_are_all_bad_are_answered_each(stub: PredictionServiceStub) -> None:
    results = stub.Predict(pb.PredictRequest(instances=[pb.Instance(request_id="x"), pb.Instance()])).results
    assert [(r.request_id, r.error.reason) for r in results] == [("x", "MALFORMED_REQUEST"), ("", "MALFORMED_REQUEST")]


def test_an_unknown_model_is_not_found_even_if_every_instance_is_bad(stub: PredictionServiceStub) -> None:
    code, reason, _ = refusal(lambda: stub.Predict(pb.PredictRequest(model="nope", instances=[pb.Instance()])))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


def test_a_request_without_instances_is_refused(stub: PredictionServiceStub) -> None:
    code, reason, message = refusal(lambda: stub.Predict(pb.PredictRequest()))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")
    assert "instances: have 0" in message


def test_too_many_instances_are_refused(stub: PredictionServiceStub) -> None:
    request = pb.PredictRequest(instances=[pb.Instance()] * 4097)
    code, reason, _ = refusal(lambda: stub.Predict(request))
    assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE")


def test_an_explanation_carries_the_request_id(stub: PredictionServiceStub) -> None:
    response = stub.Explain(pb.ExplainRequest(instance=instance_of("AAPL", "seven")))
    assert (response.request_id, response.queue_ms, response.compute_ms) == ("seven", 0.25, 1.5)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_request_are_malformed(channel: grpc.Channel, method: str) -> None:
    code, reason, message = refusal(lambda: raw(channel, method, GARBAGE))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")
    assert f"quantra.v1.{method}Request" in message


def test_a_truncated_request_is_malformed(channel: grpc.Channel) -> None:
    whole = request_of("AAPL").SerializeToString()
    code, reason, _ = refusal(lambda: raw(channel, "Predict", whole[:-7]))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")


def test_text_that_is_no_utf8_is_malformed(channel: grpc.Channel) -> None:
    code, reason, _ = refusal(lambda: raw(channel, "GetModel", b"\x0a\x02\xc3\x28"))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")


def test_an_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    code, _, _ = refusal(lambda: raw(channel, "Train", b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", "a/b", "\0", "x" * 257, "x" * 1_000_000, "canned@../1", "\u20ac"]
)
@pytest.mark.parametrize("method", ["GetModel", "Predict", "Explain"])
def test_a_hostile_model_name_finds_nothing(channel: grpc.Channel, method: str, name: str) -> None:
    request = {
        "GetModel": pb.GetModelRequest(model=name),
        "Predict": pb.PredictRequest(model=name, instances=[pb.Instance()]),
        "Explain": pb.ExplainRequest(model=name),
    }[method]
    code, _, message = refusal(lambda: raw(channel, method, request.SerializeToString()))
    assert code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert len(message) < 1500


def test_a_request_over_the_limit_is_refused(service: CannedService) -> None:
    with serving(service, ServerLimits(receive_bytes=1000)) as small, grpc.insecure_channel(small.target) as channel:
        code, _, _ = refusal(lambda: raw(channel, "Predict", bytes(1001)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert PredictionServiceStub(channel).GetModel(pb.GetModelRequest()).model.name == "canned"


def test_a_response_over_the_limit_is_an_error(service: CannedService) -> None:
    with serving(service, ServerLimits(send_bytes=100)) as small, grpc.insecure_channel(small.target) as channel:
        code, reason, message = refusal(lambda: PredictionServiceStub(channel).Predict(request_of("AAPL")))
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE")
        assert "at most 100" in message


def test_metadata_over_the_limit_is_refused(service: CannedService) -> None:
    with serving(service, ServerLimits(metadata_bytes=1000)) as small, grpc.insecure_channel(small.target) as channel:
        code, _, _ = refusal(lambda: raw(channel, "GetModel", b"", metadata=(("much", "x" * 1000),)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert raw(channel, "GetModel", b"", metadata=(("little", "x"),))


def test_more_calls_than_the_bound_are_refused_in_order() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service, ServerLimits(calls_in_flight=1)) as small, grpc.insecure_channel(small.target) as channel:
        stub = PredictionServiceStub(channel)
        first = stub.Predict.future(request_of("AAPL"))
        service.begun.wait()
        code, reason, _ = refusal(lambda: stub.Predict(request_of("AAPL")))
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        service.predictions_released.set()
        assert len(first.result().results) == 1


def test_a_burst_of_calls_loses_none_without_a_reason(served: Served) -> None:
    async def burst() -> list[grpc.StatusCode]:
        async with grpc.aio.insecure_channel(served.target) as channel:
            stub = PredictionServiceStub(channel)
            calls = [stub.ListModels(pb.ListModelsRequest()) for _ in range(3000)]
            return await asyncio.gather(*(call.code() for call in calls))

    assert set(asyncio.run(burst())) == {grpc.StatusCode.OK}


def test_our_own_bug_is_internal_with_an_incident_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Instance) -> Forecast:
        raise ZeroDivisionError("secret /home/someone/model.py")

    with serving(CannedService(broken)) as small, grpc.insecure_channel(small.target) as channel:
        with caplog.at_level(logging.ERROR):
            code, reason, message = refusal(lambda: PredictionServiceStub(channel).Predict(request_of("AAPL")))
        assert (code, reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
        assert "secret" not in message
        assert "ZeroDivisionError" not in message
        assert message.partition("see incident ")[2].split()[0] in caplog.text
        assert "secret /home/someone/model.py" in caplog.text


def test_requests_are_logged_without_their_content(
    stub: PredictionServiceStub, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="predictor"):
        stub.Predict(request_of("AAPL"))
    assert "Predict: " in caplog.text
    assert "AAPL" not in caplog.text


def test_a_call_has_its_callers_deadline() -> None:
    service = CannedService(forecast_of)
    with serving(service) as small, grpc.insecure_channel(small.target) as channel:
        stub = PredictionServiceStub(channel)
        stub.Predict(request_of("AAPL"), timeout=1000)
        stub.Predict(request_of("AAPL"))
    assert service.contexts[0].expires_at_s is not None
    assert service.contexts[1].expires_at_s is None


def test_a_call_past_its_deadline_is_cancelled_in_the_service() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service) as small, grpc.insecure_channel(small.target) as channel:
        code, _, _ = refusal(lambda: PredictionServiceStub(channel).Predict(request_of("AAPL"), timeout=1.0))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert service.is_cancelled_soon()
        service.predictions_released.set()


def test_a_caller_that_goes_away_cancels_its_call() -> None:
    service = CannedService(forecast_of)
    service.explanations_released.clear()
    with serving(service) as small, grpc.insecure_channel(small.target) as channel:
        call = PredictionServiceStub(channel).Explain.future(pb.ExplainRequest(instance=instance_of("AAPL")))
        service.begun.wait()
        call.cancel()
        assert service.is_cancelled_soon()
        service.explanations_released.set()


def test_a_prediction_does_not_wait_for_an_explanation() -> None:
    service = CannedService(forecast_of)
    service.explanations_released.clear()
    with serving(service) as small, grpc.insecure_channel(small.target) as channel:
        stub = PredictionServiceStub(channel)
        explanation = stub.Explain.future(pb.ExplainRequest(instance=instance_of("AAPL")))
        service.begun.wait()
        assert stub.Predict(request_of("AAPL")).results[0].HasField("forecast")
        assert not explanation.done()
        service.explanations_released.set()
        explanation.result()


@pytest.mark.parametrize("name", ["", "canned", "quantra.v1.PredictionService"])
def test_health_knows_the_whole_and_each_model(channel: grpc.Channel, name: str) -> None:
    answer = health_of(channel).Check(health_pb2.HealthCheckRequest(service=name))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_health_of_an_unknown_model_is_not_found(channel: grpc.Channel) -> None:
    stub = health_of(channel)
    code, _, _ = refusal(lambda: stub.Check(health_pb2.HealthCheckRequest(service="nope")))
    assert code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("body", [GARBAGE, b"\x0a\x02\xff\xff"], ids=["garbage", "no UTF-8"])
@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bytes_that_are_no_question_about_health_are_invalid(channel: grpc.Channel, method: str, body: bytes) -> None:
    place = f"/grpc.health.v1.Health/{method}"
    kind = channel.unary_unary if method == "Check" else channel.unary_stream
    code, _, message = refusal(lambda: _exhausted(kind(place)(body, timeout=10)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"the {len(body)} bytes of the request are not a grpc.health.v1.HealthCheckRequest" in message


def test_bytes_that_are_no_question_about_services_are_invalid_after_one_that_is(channel: grpc.Channel) -> None:
    place = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    answers: Any = channel.stream_stream(place)(iter([asked, GARBAGE]), timeout=10)
    assert b"quantra.v1.PredictionService" in next(answers)
    code, _, _ = refusal(lambda: _exhausted(answers))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_method_of_health_that_grpc_lacks_is_unimplemented_and_no_error_of_ours(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    listing: Any = channel.unary_unary("/grpc.health.v1.Health/List")
    code, _, _ = refusal(lambda: listing(b"", timeout=10))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert not caplog.records


def test_reports_of_many_instances_come_as_a_stream(served: Served) -> None:
    asked = GlobalExplanationQuery(instances=(Instance(input=bokeh_panel("AAPL").last(200)),) * 3)
    with QuantraClient(served.target) as client:
        known = list(client.explain_global(asked))
    assert [one.done for one in known] == [3, 3]
    np.testing.assert_array_equal(known[0].targets[0].mean_size, [0.25, 1 / 3])


def test_the_async_client_gets_the_same_reports(served: Served) -> None:
    asked = GlobalExplanationQuery(instances=(Instance(input=bokeh_panel("AAPL").last(200)),) * 3)

    async def heard() -> list[int]:
        async with AsyncQuantraClient(served.target) as client:
            return [known.done async for known in client.explain_global(asked)]

    assert asyncio.run(heard()) == [3, 3]


def test_a_stream_that_fails_ends_with_the_error(served: Served) -> None:
    asked = GlobalExplanationQuery(instances=(Instance(input=bokeh_panel("AAPL").last(200)),))
    with QuantraClient(served.target, "nobody") as client, pytest.raises(ModelNotFoundError):
        list(client.explain_global(asked))


def test_a_stream_whose_message_is_too_large_to_be_sent_ends_the_work(service: CannedService) -> None:
    service.contexts.clear()
    with serving(service, ServerLimits(send_bytes=10)) as running, QuantraClient(running.target, "canned") as client:
        with pytest.raises(RequestTooLargeError, match="at most 10"):
            list(
                client.explain_global(GlobalExplanationQuery(instances=(Instance(input=bokeh_panel("AAPL").last(3)),)))
            )
        assert service.contexts[0].is_cancelled


@pytest.mark.slow
def test_a_client_that_pings_each_second_without_a_call_is_not_cut_off(served: Served) -> None:
    host, port = served.target.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
        answers = client.makefile("rb")
        for _ in range(5):
            client.sendall(frame(PING, b"a second"))
            assert PING in kinds_until(answers, PING)
            assert not threading.Event().wait(1.0)  # the client's action between two pings


def test_reflection_lists_the_services(channel: grpc.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = next(iter(stub.ServerReflectionInfo(iter([asked]))))
    assert {service.name for service in answer.list_services_response.service} == {
        "quantra.v1.PredictionService",
        "quantra.v1.LedgerService",
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_draining_finishes_calls_in_flight_and_takes_no_more() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service) as running, grpc.insecure_channel(running.target) as channel:
        stub, health = PredictionServiceStub(channel), health_of(channel)
        watched = health.Watch(health_pb2.HealthCheckRequest(service="canned"))
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        in_flight = stub.Predict.future(request_of("AAPL"))
        service.begun.wait()
        running.begin_drain()
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        code, reason, message = refusal(lambda: stub.Predict(request_of("AAPL")))
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
        assert "stopping" in message
        watched.cancel()
        service.predictions_released.set()
        assert in_flight.result().results[0].HasField("forecast")
        running.drained.result(10)


def test_draining_gives_up_after_its_time() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service, ServerLimits(drain_s=0)) as running, grpc.insecure_channel(running.target) as channel:
        in_flight = PredictionServiceStub(channel).Predict.future(request_of("AAPL"))
        service.begun.wait()
        running.begin_drain()
        running.drained.result(10)
        assert in_flight.code() is grpc.StatusCode.UNAVAILABLE
        service.predictions_released.set()


def test_late_calls_of_a_server_that_ends_are_unavailable_and_never_cancelled() -> None:
    async def until_cut(target: str) -> grpc.StatusCode:
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            stub: Any = PredictionServiceStub(channel)
            while True:
                try:
                    await stub.Predict(request_of("AAPL"))
                except grpc.aio.AioRpcError as failure:
                    if rpc_status.from_call(cast("Any", failure)) is None:  # the stream ends without a reason
                        return failure.code()

    async def codes_at_the_end(running: Served) -> set[grpc.StatusCode]:
        callers = [asyncio.create_task(until_cut(running.target)) for _ in range(8)]
        async with grpc.aio.insecure_channel(running.target) as channel:
            await cast("Any", PredictionServiceStub(channel)).Predict(request_of("AAPL"))
        running.begin_drain()
        return set(await asyncio.gather(*callers))

    with serving(CannedService(forecast_of)) as running:
        assert asyncio.run(codes_at_the_end(running)) == {grpc.StatusCode.UNAVAILABLE}


def test_a_port_in_use_is_an_error_with_a_remedy(served: Served) -> None:
    async def clash() -> None:
        Listener(Address.parse(served.target), ServerLimits()).bind()

    with pytest.raises(ConfigurationError, match="is in use; stop the server there, or listen on another port"):
        asyncio.run(clash())


def test_all_addresses_include_those_of_ipv4() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with serving(CannedService(forecast_of), address=Address("::", 0)) as running:
        port = int(running.target.rpartition(":")[2])
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), timeout=10) as connection:
                assert connection.recv(9)


def test_an_address_of_another_machine_is_an_error() -> None:
    async def bind() -> None:
        Listener(Address("192.0.2.1", 0), ServerLimits()).bind()

    with pytest.raises(ConfigurationError, match=r"cannot listen on 192.0.2.1:0: .*choose an address of this machine"):
        asyncio.run(bind())


def test_the_canned_forecast_arrives_bit_for_bit(stub: PredictionServiceStub) -> None:
    instance = Instance(input=bokeh_panel("AAPL").last(3))
    answer = forecasts.decode(stub.Predict(request_of("AAPL")).results[0].forecast)
    assert answer.values.tobytes() == forecast_of(instance).values.tobytes()


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:1", "::1", 1, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),  # noqa: S104 - it is the address that must be told apart
        ("quotes.example:443", "quotes.example", 443, False),
    ],
)
def test_addresses_are_read(text: str, host: str, port: int, *, loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, loopback, text)


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", ":50051", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "a:-1", "a:\u0663"]
)
def test_texts_that_are_no_address_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
        Address.parse(text)


def test_a_public_address_needs_to_be_meant(tmp_path: Any) -> None:
    public = Address("0.0.0.0", 0)  # noqa: S104 - what is refused here
    with pytest.raises(ConfigurationError, match="pass --insecure-public to allow it"):
        ServerSettings(models=tmp_path, listen=public)
    assert ServerSettings(models=tmp_path, listen=public, insecure_public=True).listen == public


@pytest.mark.parametrize("name", ["receive_bytes", "send_bytes", "metadata_bytes", "calls_in_flight"])
def test_bounds_that_let_nothing_through_are_refused(name: str) -> None:
    none: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigurationError, match=f"{name} is 0, but must be at least 1"):
        ServerLimits(**none)


def test_a_time_limit_of_explanations_below_a_second_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"explanation_s is 0.5 seconds, but must be at least 1"):
        ServiceLimits(explanation_s=0.5)


def test_a_negative_drain_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="drain_s is -1 seconds"):
        ServerLimits(drain_s=-1)


# --- incomplete requests


def start_call(connection: Connection, content: bytes) -> Stream:
    """A call that has sent part of its request."""
    stream = connection.call("/quantra.v1.PredictionService/Predict")
    assert connection.send(stream, content)
    return stream


def port_of(running: Served) -> int:
    return int(running.target.rpartition(":")[2])


def test_an_incomplete_request_times_out_with_the_reason(service: CannedService) -> None:
    limits = ServerLimits(request_s=0.2)
    with serving(service, limits) as running, Connection(port_of(running)) as connection:
        ended = connection.finish(start_call(connection, message(bytes(1000))[:500]))
        assert ended.status == "4"
        assert "was incomplete after 0.2 seconds" in ended.headers["grpc-message"]


def test_a_call_that_sends_nothing_ends_too(service: CannedService) -> None:
    with serving(service, ServerLimits(request_s=0.2)) as running, Connection(port_of(running)) as connection:
        assert connection.finish(start_call(connection, b"")).status == "4"


def test_a_request_that_comes_in_parts_and_in_time_is_answered(service: CannedService) -> None:
    content = message(request_of("AAPL").SerializeToString())
    with serving(service) as running, Connection(port_of(running)) as connection:
        stream = start_call(connection, content[:100])
        connection.send(stream, content[100:], last=True)
        assert connection.finish(stream).status == "0"
        assert pb.PredictResponse.FromString(bytes(stream.answer[5:])).results[0].HasField("forecast")


def test_a_call_that_ends_without_a_request_is_malformed(service: CannedService) -> None:
    with serving(service) as running, Connection(port_of(running)) as connection:
        stream = connection.call("/quantra.v1.PredictionService/Predict")
        connection.send(stream, b"", last=True)
        assert connection.finish(stream).status == "3"


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"arriving": 2}, {"arriving_per_peer": 2}], ids=str)
def test_while_others_wait_for_a_place_the_oldest_request_on_its_way_ends(
    service: CannedService, limits: dict[str, Any]
) -> None:
    with serving(service, ServerLimits(**limits)) as running, Connection(port_of(running)) as connection:
        streams = [start_call(connection, message(bytes(1000))[:500]) for _ in range(5)]
        for oldest in streams[:3]:
            ended = connection.finish(oldest)
            assert (ended.status, ended.headers["grpc-retry-pushback-ms"]) == ("8", "100")
        assert [one.ended for one in streams[3:]] == ["", ""]


def test_a_slow_request_stays_while_its_slot_is_not_needed(service: CannedService) -> None:
    content = message(request_of("AAPL").SerializeToString())
    with serving(service, ServerLimits(arriving=1)) as running, Connection(port_of(running)) as connection:
        stream = start_call(connection, content[:100])
        assert not threading.Event().wait(2.0)  # the slow caller
        connection.send(stream, content[100:], last=True)
        assert connection.finish(stream).status == "0"


def test_requests_without_a_place_are_hardly_taken_in(service: CannedService) -> None:
    """gRPC buffers 64 KiB until a request is read."""
    with (
        serving(service, ServerLimits(arriving=1)) as running,
        Connection(port_of(running)) as first,
        Connection(port_of(running), timeout_s=0.4) as second,
    ):
        start_call(first, message(bytes(1 << 20))[: 1 << 19])
        waiting = second.call("/quantra.v1.PredictionService/Predict")
        with pytest.raises(TimeoutError):
            second.send(waiting, message(bytes(1 << 20)))
        assert waiting.window == 0


QUESTIONS = (
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
"""Calls that need no token."""


@pytest.mark.parametrize("method", QUESTIONS)
def test_half_a_question_to_grpcs_own_services_ends_in_time(service: CannedService, method: str) -> None:
    with serving(service, ServerLimits(request_s=0.2)) as running, Connection(port_of(running)) as connection:
        stream = connection.call(f"/{method}")
        assert connection.send(stream, message(bytes(1000))[:500])
        assert connection.finish(stream).status == "4"


@pytest.mark.parametrize("method", QUESTIONS)
def test_large_questions_to_grpcs_own_services_are_refused(service: CannedService, method: str) -> None:
    with serving(service) as running, Connection(port_of(running)) as connection:
        stream = connection.call(f"/{method}")
        connection.send(stream, message(bytes(1 << 16))[: 1 << 15])
        assert connection.finish(stream).status == "8"


def test_so_many_may_watch_health_and_other_calls_go_on(service: CannedService) -> None:
    limits = ServerLimits(streams=2)
    with serving(service, limits) as running, grpc.insecure_channel(running.target) as channel:
        watching: list[Any] = [health_of(channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        assert [next(one).status for one in watching] == [SERVING, SERVING]
        code, _, _ = refusal(lambda: next(health_of(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert health_of(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status == SERVING
        assert PredictionServiceStub(channel).Predict(request_of("AAPL"), timeout=10).results
        for one in watching:
            one.cancel()


def test_a_stream_of_questions_about_services_counts_as_one_stream(service: CannedService) -> None:
    asked = SimpleQueue[Any]()
    asked.put(reflection_pb2.ServerReflectionRequest(list_services=""))
    with serving(service, ServerLimits(streams=1)) as running, grpc.insecure_channel(running.target) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        answers = stub.ServerReflectionInfo(iter(asked.get, None))
        assert next(answers).list_services_response.service
        code, _, _ = refusal(lambda: next(health_of(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        asked.put(None)
        assert list(answers) == []


def test_health_responds_while_every_request_slot_is_taken(service: CannedService) -> None:
    content = message(request_of("AAPL").SerializeToString())
    with serving(service, ServerLimits(arriving=1)) as running, Connection(port_of(running)) as connection:
        stream = start_call(connection, content[:100])
        assert not threading.Event().wait(1.1)  # the slow caller
        with grpc.insecure_channel(running.target) as channel:
            assert health_of(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status == SERVING
        connection.send(stream, content[100:], last=True)
        assert connection.finish(stream).status == "0"


# --- overload


def held_calls(stub: PredictionServiceStub, service: CannedService, count: int) -> list[Any]:
    calls = [stub.Predict.future(request_of("AAPL")) for _ in range(count)]
    assert service.begun.wait(10)
    return calls


def test_beyond_the_calls_of_one_connection_others_are_still_let_in() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    own: Any = (("grpc.use_local_subchannel_pool", 1),)
    with (
        serving(service, ServerLimits(calls_per_peer=2)) as running,
        grpc.insecure_channel(running.target, options=own) as greedy,
        grpc.insecure_channel(running.target, options=own) as modest,
    ):
        calls = held_calls(PredictionServiceStub(greedy), service, 3)
        other = PredictionServiceStub(modest).Predict.future(request_of("IBM"))
        service.predictions_released.set()
        assert other.result(10).results[0].HasField("forecast")
        assert all(call.code() is grpc.StatusCode.OK for call in calls)


def test_a_refusal_for_lack_of_room_has_a_retry_delay() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service, ServerLimits(calls_in_flight=1)) as running, grpc.insecure_channel(running.target) as channel:
        stub = PredictionServiceStub(channel)
        held = held_calls(stub, service, 1)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Predict(request_of("AAPL"))
        service.predictions_released.set()
        assert held[0].result(10).results
    call: Any = refused.value
    assert dict(call.trailing_metadata())["grpc-retry-pushback-ms"] == "100"
    status = rpc_status.from_call(call)
    assert status is not None
    retry = error_details_pb2.RetryInfo()
    assert [detail.Unpack(retry) for detail in status.details] == [False, True]
    assert retry.retry_delay.ToMilliseconds() == 100


def test_a_request_that_is_too_large_is_never_to_be_repeated(stub: PredictionServiceStub) -> None:
    many = pb.PredictRequest(instances=[pb.Instance()] * 4097)
    with pytest.raises(grpc.RpcError) as refused:
        stub.Predict(many)
    call: Any = refused.value
    assert dict(call.trailing_metadata())["grpc-retry-pushback-ms"] == "-1"


# --- loading


def test_calls_while_models_load_are_told_so_and_health_is_not_serving(service: CannedService) -> None:
    async def answers() -> list[object]:
        listener = Listener(Address("127.0.0.1", 0), ServerLimits())
        target = listener.bind()
        await listener.start()
        async with grpc.aio.insecure_channel(str(target)) as channel:
            early = PredictionServiceStub(channel).Predict(request_of("AAPL"))
            code, details = await early.code(), await early.details()
            asked = health_pb2.HealthCheckRequest()
            before = await health_of(channel).Check(asked)
            listener.serve(PredictionCalls(service), ["canned"])
            after = await health_of(channel).Check(asked)
            late = await PredictionServiceStub(channel).Predict(request_of("AAPL"))
        await listener.drain()
        return [code, "loading" in details, before.status, after.status, late.results[0].HasField("forecast")]

    said = health_pb2.HealthCheckResponse
    assert asyncio.run(answers()) == [grpc.StatusCode.UNAVAILABLE, True, said.NOT_SERVING, said.SERVING, True]


def test_health_follows_the_models_that_are_served(service: CannedService) -> None:
    async def statuses() -> list[object]:
        listener = Listener(Address("127.0.0.1", 0), ServerLimits())
        target = listener.bind()
        await listener.start()
        listener.serve(PredictionCalls(service), ["one", "two"])
        listener.set_health(["two", "three"])
        async with grpc.aio.insecure_channel(str(target)) as channel:
            asked = [health_pb2.HealthCheckRequest(service=name) for name in ("", "one", "two", "three")]
            found = [(await health_of(channel).Check(one)).status for one in asked]
        await listener.drain()
        return found

    said = health_pb2.HealthCheckResponse
    assert asyncio.run(statuses()) == [said.SERVING, said.NOT_SERVING, said.SERVING, said.SERVING]


# --- connections


def test_an_idle_connection_is_closed(service: CannedService) -> None:
    with (
        serving(service, ServerLimits(handshake_s=0.3)) as running,
        socket.create_connection(("127.0.0.1", port_of(running)), timeout=20) as silent,
    ):
        while silent.recv(4096):
            pass  # the server may send its settings first


def test_a_connection_without_a_call_ends_after_its_time_and_one_with_a_call_stays(service: CannedService) -> None:
    with serving(service, ServerLimits(idle_s=1)) as running, grpc.insecure_channel(running.target) as channel:
        watched: Any = health_of(channel).Watch(health_pb2.HealthCheckRequest(service="canned"))
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        with Connection(port_of(running), timeout_s=20) as idle, pytest.raises(ConnectionError, match="closed"):
            for _ in iter(idle.read, None):
                pass
        assert watched.is_active()
        watched.cancel()


def test_a_caller_that_goes_while_its_request_arrives_leaves_nothing_behind(service: CannedService) -> None:
    with serving(service, ServerLimits(calls_in_flight=1)) as running:
        for _ in range(3):
            with Connection(port_of(running)) as connection:
                start_call(connection, message(bytes(1000))[:500])
                connection.reset()
        with grpc.insecure_channel(running.target) as channel:
            stub = PredictionServiceStub(channel)
            predict_until_admitted(stub)


def predict_until_admitted(stub: PredictionServiceStub) -> None:
    """Retry until admitted: the server sees a reset a moment later."""
    for _ in range(1000):
        try:
            assert stub.Predict(request_of("AAPL"), timeout=10).results
        except grpc.RpcError as error:
            refused: Any = error
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            return
    raise AssertionError
