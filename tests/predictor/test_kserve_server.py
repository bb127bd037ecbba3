"""KServe protocol over gRPC next to quantra.v1: errors, limits and health."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from artifacts import small_models
from canned_service import CannedService, forecast_of
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from kserve_requests import a_window, bars, infer_request, outputs_in
from market import bokeh_panel
from serving import ANY_PORT, Served, serving

from predictor._pb import inference_pb2 as pb
from predictor._pb.inference_pb2_grpc import GRPCInferenceServiceStub
from predictor.errors import QuantraError, QueueFullError, TooFewBarsError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.server import ServerLimits
from predictor.server.listener import Listener
from predictor.server.servicer import ADMIN_ENDPOINTS
from predictor.service import PredictionService
from predictor.wire import errors

SERVICE = "inference.GRPCInferenceService"


def refuse_ibm(instance: Instance) -> Forecast | QuantraError:
    if instance.input.symbols == ("IBM",):
        return TooFewBarsError.of("IBM", have=3, need=30, unit="bars", best=140)
    return forecast_of(instance)


@pytest.fixture
def service() -> CannedService:
    return CannedService(refuse_ibm)


@pytest.fixture
def server(service: CannedService) -> Iterator[Served]:
    with serving(service) as running:
        yield running


@pytest.fixture
def channel(server: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.Channel) -> GRPCInferenceServiceStub:
    return GRPCInferenceServiceStub(channel)


def asking(*symbols: str, **fields: Any) -> pb.ModelInferRequest:
    panels = [bokeh_panel(symbol).last(3) for symbol in symbols]
    return infer_request(bars(*panels), "canned", **fields)


def error_of(refused: grpc.RpcError) -> tuple[grpc.StatusCode, QuantraError]:
    failure: Any = refused
    error = errors.decode_details(dict(failure.trailing_metadata())[errors.DETAILS_KEY])
    assert error is not None
    return failure.code(), error


def test_an_error_has_its_status_its_reason_and_its_facts(stub: GRPCInferenceServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(asking("IBM"))
    code, error = error_of(refused.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, TooFewBarsError)
    assert error.metadata == {"symbol": "IBM", "have": "3", "need": "30"}


def test_one_bad_row_of_several_is_reported_in_the_response(stub: GRPCInferenceServiceStub) -> None:
    told = outputs_in(stub.ModelInfer(asking("IBM", "AAPL")))
    assert told["error"][0].startswith("IBM: have 3 bars")
    assert told["error"][1] == ""


def test_many_requests_go_over_one_stream(stub: GRPCInferenceServiceStub) -> None:
    symbols = ["AAPL", "IBM", "GOOG"] * 20
    requests = iter([asking(symbol, id=str(n)) for n, symbol in enumerate(symbols)])
    answers = list(stub.ModelStreamInfer(requests))
    assert [one.infer_response.id for one in answers] == [str(n) for n in range(60)]
    assert [bool(one.error_message) for one in answers] == [symbol == "IBM" for symbol in symbols]


def test_bytes_that_are_no_request_are_their_own_answer_on_a_stream(channel: grpc.Channel) -> None:
    call: Any = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
    answers = call(iter([b"\xff\xff garbage", asking("AAPL", id="a").SerializeToString()]))
    told = [pb.ModelStreamInferResponse.FromString(one) for one in answers]
    assert "are not a inference.ModelInferRequest" in told[0].error_message
    assert (told[1].error_message, told[1].infer_response.id) == ("", "a")


def test_a_call_past_its_deadline_ends_and_cancels_its_work(
    service: CannedService, stub: GRPCInferenceServiceStub
) -> None:
    service.predictions_released.clear()
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(asking("AAPL"), timeout=1.0)
    failure: Any = refused.value
    assert failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    service.predictions_released.set()
    stub.ModelInfer(asking("AAPL"))
    assert service.contexts[0].expires_at_s is not None


def test_calls_of_both_protocols_count_together() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with (
        serving(service, ServerLimits(calls_in_flight=1)) as served,
        grpc.insecure_channel(served.target) as channel,
        ThreadPoolExecutor(1) as one,
    ):
        stub = GRPCInferenceServiceStub(channel)
        held = one.submit(stub.ModelInfer, asking("AAPL"))
        assert service.begun.wait(30)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(asking("AAPL"))
        service.predictions_released.set()
        held.result()
    assert isinstance(error_of(refused.value)[1], QueueFullError)


def test_health_and_reflection_tell_of_the_service(channel: grpc.Channel) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    database = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE in list(database.get_services())
    told = DescriptorPool(database).FindServiceByName(SERVICE)
    assert [method.name for method in told.methods] == [
        method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    ]


def test_while_models_load_the_server_is_live_and_not_ready() -> None:
    async def ask() -> tuple[bool, bool, grpc.StatusCode]:
        listener = Listener(ANY_PORT, ServerLimits())
        target = listener.bind()
        await listener.start()
        try:
            async with grpc.aio.insecure_channel(str(target)) as channel:
                stub: Any = GRPCInferenceServiceStub(channel)
                live = await stub.ServerLive(pb.ServerLiveRequest())
                ready = await stub.ServerReady(pb.ServerReadyRequest())
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.ModelInfer(asking("AAPL"))
                return live.live, ready.ready, refused.value.code()
        finally:
            await listener.close()

    assert asyncio.run(ask()) == (True, False, grpc.StatusCode.UNAVAILABLE)


def test_forecasts_are_not_asked_where_models_are_changed() -> None:
    async def ask() -> grpc.StatusCode:
        listener = Listener(ANY_PORT, ServerLimits(), ADMIN_ENDPOINTS)
        target = listener.bind()
        await listener.start()
        try:
            async with grpc.aio.insecure_channel(str(target)) as channel:
                stub: Any = GRPCInferenceServiceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.ModelInfer(asking("AAPL"))
                return refused.value.code()
        finally:
            await listener.close()

    assert asyncio.run(ask()) is grpc.StatusCode.UNIMPLEMENTED


def test_a_real_model_answers_over_the_wire(tmp_path: Any) -> None:
    with (
        PredictionService.open(small_models(tmp_path)) as service,
        serving(service) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        stub = GRPCInferenceServiceStub(channel)
        assert stub.ServerReady(pb.ServerReadyRequest()).ready
        assert stub.ServerMetadata(pb.ServerMetadataRequest()).name == "quantra"
        (unary,) = [stub.ModelInfer(infer_request(a_window()))]
        (streamed,) = stub.ModelStreamInfer(iter([infer_request(a_window())]))
        assert streamed.infer_response == unary
