"""The embedded server for host programs: request bytes in, response bytes or google.rpc.Status out."""

import gc
import math
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_models
from canned_service import CannedService, forecast_of
from ensembles import UNEVEN, save_ensemble
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from request_bytes import explain_request, predict_request

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.embed import EmbeddedCall, EmbeddedServer, EmbeddedStream, open_embedded_server
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    MalformedRequestError,
    ModelNotFoundError,
    QuantraError,
    QueueFullError,
    UnavailableError,
    VersionNotFoundError,
)
from predictor.forecast import Forecast, TargetPoint
from predictor.inference import choose_device
from predictor.instance import ExplanationQuery, Instance
from predictor.limits import QueueLimits, ServiceLimits
from predictor.registry import Registry, Runtime
from predictor.service import PredictionService
from predictor.wire import attributions, errors, forecasts, instances

CALLS = {"Predict": predict_request(), "Explain": explain_request()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain model, a ranking model, one with internals, and a weighted ensemble."""
    folder = small_models(tmp_path_factory.mktemp("models"))
    for kind in ("graph", "tft"):
        save_small_artifact(folder / kind / "1", kind)
    members = {name: folder / name / "1" for name in ("small", "tft")}
    save_ensemble(folder / "weighted" / "1", members, UNEVEN)
    return folder


def opened(models: Path) -> EmbeddedServer:
    door, problems = open_embedded_server(str(models), "cpu", 256, 1)
    assert door is not None
    assert problems == []
    return door


@pytest.fixture(scope="module")
def door(models: Path) -> Iterator[EmbeddedServer]:
    door = opened(models)
    yield door
    door.close()


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[PredictionService]:
    with PredictionService.open(models, device="cpu") as service:
        yield service


@contextmanager
def paused_server(
    models: Path, limits: ServiceLimits | None = None
) -> Generator[tuple[EmbeddedServer, threading.Event, Callable[[], None]]]:
    """An embedded server whose work pauses at its first look at the clock, and events for reaching and leaving it."""
    begun, released = threading.Event(), threading.Event()

    def clock() -> datetime:
        begun.set()
        released.wait(timeout=30)
        return datetime.now(UTC)

    registry = Registry.open(models, Runtime(choose_device("cpu"), 256))
    door = EmbeddedServer(PredictionService(registry, limits=limits, clock=clock))
    try:
        yield door, begun, released.set
    finally:
        released.set()
        door.close()


def predict_bytes(*asked: Instance, model: str = "small") -> bytes:
    return pb.PredictRequest(model=model, instances=map(instances.encode, asked)).SerializeToString()


def explain_bytes(query: ExplanationQuery, model: str = "small") -> bytes:
    return attributions.encode_query(query, model).SerializeToString()


def answer(door: EmbeddedServer, name: str, request: bytes) -> bytes:
    """Bytes of a successful response."""
    given, status = door.call(name, request, 30).answer()
    assert status == b""
    return given


def results(door: EmbeddedServer, request: bytes) -> list[pb.Result]:
    return list(pb.PredictResponse.FromString(answer(door, "Predict", request)).results)


def error_of(pending: EmbeddedCall) -> QuantraError:
    """The google.rpc.Status of a failed call."""
    given, status = pending.answer()
    assert given == b""
    error = errors.decode_details(status)
    assert error is not None
    return error


@pytest.mark.parametrize("model", ["small", "weighted"])
def test_a_forecast_has_the_services_numbers(model: str, door: EmbeddedServer, service: PredictionService) -> None:
    instance = Instance(input=recent_bars("AAPL", "IBM"), request_id="r")
    (result,) = results(door, predict_bytes(instance, model=model))
    expected = service.predict(model, [instance], CallContext()).result()[0]
    assert isinstance(expected, Forecast)
    found = forecasts.decode(result.forecast)
    assert (result.request_id, found.forecast_id) == ("r", expected.forecast_id)
    np.testing.assert_array_equal(found.values, expected.values)
    assert expected.prices is not None
    np.testing.assert_array_equal(found.prices, expected.prices)


@pytest.mark.parametrize(
    ("method", "asked", "here"),
    [
        (EmbeddedServer.call_alone, 1, [True]),
        (EmbeddedServer.call, 1, [False]),
        (EmbeddedServer.call_alone, 20, [False]),
    ],
)
def test_a_small_prediction_that_is_alone_is_worked_out_in_the_thread_that_starts_it(
    models: Path, method: Callable[[EmbeddedServer, str, bytes, float], EmbeddedCall], asked: int, here: list[bool]
) -> None:
    threads: list[int] = []

    def clock() -> datetime:
        threads.append(threading.get_ident())
        return datetime.now(UTC)

    door = EmbeddedServer(PredictionService(Registry.open(models, Runtime(choose_device("cpu"), 256)), clock=clock))
    request = predict_bytes(*[Instance(input=recent_bars("AAPL"))] * asked)
    answered, status = method(door, "Predict", request, 30).answer()
    door.close()
    assert (status, len(pb.PredictResponse.FromString(answered).results)) == (b"", asked)
    assert [thread == threading.get_ident() for thread in threads] == here


@pytest.mark.parametrize("model", ["small", "weighted"])
def test_an_explanation_has_the_services_numbers(model: str, door: EmbeddedServer, service: PredictionService) -> None:
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL")), targets=(TargetPoint(5, 0.5),))
    found = attributions.decode(pb.ExplainResponse.FromString(answer(door, "Explain", explain_bytes(query, model))))
    expected = service.explain(model, query, CallContext()).result().attributions[0]
    np.testing.assert_array_equal(found.attributions[0].per_row, expected.per_row)
    assert found.attributions[0].row_names == expected.row_names


def test_the_models_are_described(door: EmbeddedServer) -> None:
    listed = pb.ListModelsResponse.FromString(answer(door, "ListModels", b"")).models
    assert [model.name for model in listed] == ["graph", "small", "tft", "weighted"]
    request = pb.GetModelRequest(model="small@1").SerializeToString()
    assert pb.GetModelResponse.FromString(answer(door, "GetModel", request)).model == listed[1]


def test_one_bad_instance_does_not_fail_the_others(door: EmbeddedServer) -> None:
    bars = recent_bars("AAPL")
    asked = (Instance(input=bars, request_id="first"), Instance(input=bars.last(20)), Instance(input=bars))
    found = results(door, predict_bytes(*asked))
    assert [result.WhichOneof("outcome") for result in found] == ["forecast", "error", "forecast"]
    assert (found[0].request_id, found[1].error.reason) == ("first", "TOO_FEW_BARS")
    assert found[1].error.metadata["have"] == "20"


@pytest.mark.parametrize(
    "buffer", [bytearray(CALLS["Predict"]), np.frombuffer(CALLS["Predict"], np.uint8)], ids=["bytearray", "array"]
)
def test_a_request_may_lie_in_any_buffer(door: EmbeddedServer, buffer: object) -> None:
    assert door.call("Predict", buffer, 30).answer()[1] == b""


def test_the_host_may_reuse_the_buffer_of_a_request_at_once(models: Path) -> None:
    with paused_server(models) as (door, begun, release):
        buffer = bytearray(predict_request())
        pending = door.call("Predict", buffer, 30)
        begun.wait()
        buffer[:] = b"\xff" * len(buffer)
        release()
        assert len(pb.PredictResponse.FromString(pending.answer()[0]).results) == 3


def test_the_host_is_notified_of_a_response(door: EmbeddedServer) -> None:
    told = threading.Event()
    pending = door.call("Predict", predict_request(), 30)
    pending.when_done(told.set)
    assert told.wait(timeout=30)
    assert pending.answer()[1] == b""


def test_an_errors_status_has_its_code_message_reason_and_metadata(door: EmbeddedServer) -> None:
    request = pb.GetModelRequest(model="Z" * 257).SerializeToString()
    status = Status.FromString(door.call("GetModel", request, 30).answer()[1])
    (detail,) = status.details
    info = ErrorInfo()
    assert detail.Unpack(info)
    assert (status.code, info.domain, info.reason) == (Code.Value("RESOURCE_EXHAUSTED"), "quantra", "REQUEST_TOO_LARGE")
    assert dict(info.metadata) == {"field": "model", "have": "257", "most": "256"}
    assert "257" in status.message


@pytest.mark.parametrize(
    ("name", "request_bytes", "kind"),
    [
        ("Predict", b"", MalformedRequestError),
        ("Predict", b"\xff", MalformedRequestError),
        ("Predict", predict_request("large"), ModelNotFoundError),
        ("Explain", b"\xff", MalformedRequestError),
        ("ListModels", b"\xff", MalformedRequestError),
        ("GetModel", pb.GetModelRequest(model="small@7").SerializeToString(), VersionNotFoundError),
        ("Buy", b"", MalformedRequestError),
        ("\ud800" * 5000, b"", MalformedRequestError),
    ],
    ids=["nothing", "no message", "model", "no query", "no list", "version", "no call", "no text"],
)
def test_a_failed_call_gives_the_reason(
    door: EmbeddedServer, name: str, request_bytes: bytes, kind: type[QuantraError]
) -> None:
    assert type(error_of(door.call(name, request_bytes, 30))) is kind


def test_a_call_whose_time_is_over_is_not_computed(models: Path) -> None:
    with paused_server(models) as (door, begun, _):
        assert isinstance(error_of(door.call("Predict", predict_request(), 0)), DeadlineExceededError)
        assert not begun.is_set()


def test_a_full_queue_returns_a_retry_delay(models: Path) -> None:
    with paused_server(models, ServiceLimits(predictions=QueueLimits(calls=1))) as (door, begun, _):
        door.call("Predict", predict_request(), 30)
        begun.wait()
        refused = door.call("Predict", predict_request(), 30)
        assert isinstance(error_of(refused), QueueFullError)
        status, after = Status.FromString(refused.answer()[1]), RetryInfo()
        assert any(detail.Unpack(after) for detail in status.details)
        assert after.retry_delay.ToMilliseconds() > 0


def test_a_cancelled_call_that_waits_leaves_at_once(models: Path) -> None:
    with paused_server(models, ServiceLimits(predictions=QueueLimits(calls=2))) as (door, begun, release):
        first = door.call("Predict", predict_request(), 30)
        begun.wait()
        second, told = door.call("Predict", predict_request(), 30), threading.Event()
        second.when_done(told.set)
        second.cancel()
        assert told.is_set()
        assert isinstance(error_of(second), CallCancelledError)
        third = door.call("Predict", predict_request(), 30)  # in the second call's slot
        release()
        assert [first.answer()[1], third.answer()[1]] == [b"", b""]


@pytest.mark.parametrize("name", CALLS)
def test_a_cancelled_call_that_is_worked_on_ends(models: Path, name: str) -> None:
    request = CALLS[name]
    with paused_server(models) as (door, begun, release):
        pending, told = door.call(name, request, 30), threading.Event()
        pending.when_done(told.set)
        begun.wait()
        pending.cancel()
        assert told.is_set()
        assert isinstance(error_of(pending), CallCancelledError)
        release()
        assert door.call(name, request, 30).answer()[1] == b""


def test_work_of_a_call_cancelled_by_the_host_is_cancelled() -> None:
    canned = CannedService(forecast_of)
    canned.predictions_released.clear()
    door = EmbeddedServer(cast("Any", canned))
    pending = door.call("Predict", predict_bytes(Instance(input=recent_bars()), model="canned"), 30)
    assert canned.begun.wait(30)
    pending.cancel()
    assert canned.contexts[0].is_cancelled
    canned.predictions_released.set()
    canned.settle()


def test_work_of_a_cancelled_call_is_cancelled() -> None:
    context = CallContext()
    EmbeddedCall(Future(), context).cancel()
    with pytest.raises(CallCancelledError):
        context.check()


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_embedded_server_is_unavailable(models: Path, name: str) -> None:
    door = opened(models)
    door.close()
    assert isinstance(error_of(door.call(name, CALLS[name], 30)), UnavailableError)


def refusal(models: str, device: str = "cpu", max_batch_rows: int = 256, threads: int = 1) -> QuantraError:
    door, (status,) = open_embedded_server(models, device, max_batch_rows, threads)
    assert door is None
    error = errors.decode_details(status)
    assert error is not None
    return error


@pytest.mark.parametrize("folder", ["x" * 5000, "\0", "\ud800", "nowhere"], ids=["long", "nul", "half", "missing"])
def test_a_folder_that_cannot_be_is_refused(folder: str) -> None:
    assert isinstance(refusal(folder), ConfigurationError)


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    assert isinstance(refusal(str(tmp_path)), ConfigurationError)


def test_settings_out_of_range_are_refused(models: Path) -> None:
    refusals = (
        refusal(str(models), device="tpu"),
        refusal(str(models), device="\ud800"),
        refusal(str(models), max_batch_rows=0),
        refusal(str(models), threads=0),
        refusal(str(models), threads=10**40),
    )
    assert {type(error) for error in refusals} == {ConfigurationError}


def test_an_artifact_that_was_refused_is_a_problem(tmp_path: Path) -> None:
    small_models(tmp_path)
    (tmp_path / "small" / "aliases.json").write_text('{"champion": 1, "canary": 9}')
    door, (status,) = open_embedded_server(str(tmp_path), "cpu", 256, 1)
    assert door is not None
    problem = Status.FromString(status)
    assert problem.code == Code.Value("DATA_LOSS")
    assert "alias 'canary' names version 9, which is missing" in problem.message
    request = pb.GetModelRequest(model="small@canary").SerializeToString()
    assert isinstance(error_of(door.call("GetModel", request, 30)), VersionNotFoundError)
    door.close()


# --- idle streams


def end_of(stream: EmbeddedStream) -> Future[None]:
    """A future that is done when the stream has ended."""
    ended: Future[None] = Future()
    stream.when_done(lambda: ended.set_result(None))
    return ended


def unexpected_call(message: bytes) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize("name", ["PredictStream", "ModelStreamInfer", "ExplainGlobal"])
def test_an_idle_stream_ends_at_its_deadline(door: EmbeddedServer, name: str) -> None:
    stream = door.open(name, 0.05, unexpected_call)
    end_of(stream).result(timeout=30)
    status = Status.FromString(stream.status())
    assert status.code == Code.Value("DEADLINE_EXCEEDED")


def test_a_stream_cancelled_by_the_host_ends_at_once_and_cancels_its_work() -> None:
    canned = CannedService(forecast_of)
    canned.predictions_released.clear()
    stream = EmbeddedServer(cast("Any", canned)).open("PredictStream", math.inf, unexpected_call)
    predict = pb.StreamPredict(model="canned", instance=instances.encode(Instance(input=recent_bars())))
    stream.send(pb.PredictStreamRequest(request_id="one", predict=predict).SerializeToString())
    assert canned.begun.wait(30)
    stream.cancel()
    assert Status.FromString(stream.status()).code == Code.Value("CANCELLED")
    assert canned.contexts[0].is_cancelled
    canned.predictions_released.set()
    canned.settle()


def test_streams_end_in_the_order_of_their_deadlines_whenever_they_were_opened(door: EmbeddedServer) -> None:
    ended: SimpleQueue[str] = SimpleQueue()
    times_s = {"never": math.inf, "in a day": 86_400.0, "later": 0.3, "sooner": 0.05}
    streams = {name: door.open("PredictStream", time_s, unexpected_call) for name, time_s in times_s.items()}
    for name, stream in streams.items():
        stream.when_done(partial(ended.put, name))
    assert [ended.get(timeout=30) for _ in range(2)] == ["sooner", "later"]
    for name in ("in a day", "never"):
        streams[name].end()
        assert ended.get(timeout=30) == name


@pytest.mark.parametrize("time_s", [math.inf, math.nan])
def test_a_stream_without_a_deadline_is_not_monitored(time_s: float) -> None:
    before = {*threading.enumerate()}
    stream = EmbeddedServer(cast("Any", CannedService(forecast_of))).open("PredictStream", time_s, unexpected_call)
    assert not {*threading.enumerate()} - before
    stream.end()
    end_of(stream).result(timeout=30)


def test_an_embedded_server_drops_an_ended_stream_before_its_deadline(door: EmbeddedServer) -> None:
    def heard(message: bytes) -> None:
        del message

    kept = weakref.ref(heard)
    stream = door.open("PredictStream", 86_400.0, heard)
    end_of(door.open("PredictStream", 0.05, unexpected_call)).result(timeout=30)  # both are pending now
    stream.end()
    end_of(stream).result(timeout=30)
    del stream, heard
    gc.collect()
    assert kept() is None


def test_a_closed_embedded_server_ends_its_streams_as_unavailable(models: Path) -> None:
    closing = opened(models)
    stream = closing.open("PredictStream", math.inf, unexpected_call)
    closing.close()
    end_of(stream).result(timeout=30)
    assert Status.FromString(stream.status()).code == Code.Value("UNAVAILABLE")


def test_a_closed_embedded_server_leaves_no_thread(models: Path) -> None:
    before = {*threading.enumerate()}
    closing = opened(models)
    closing.open("PredictStream", 86_400.0, unexpected_call)
    closing.close()
    assert {*threading.enumerate()} <= before
