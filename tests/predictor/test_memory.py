"""Out of memory: smaller batches, a retryable error for the caller, and unaffected other requests."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import cast, final

import grpc
import numpy as np
import pytest
import torch
from artifacts import recent_bars, small_artifact, small_model
from canned_service import CannedService, forecast_of
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from serving import serving
from torch import nn

from predictor._pb import prediction_pb2 as pb
from predictor._pb import prediction_pb2_grpc
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls, prediction
from predictor.errors import InternalError, QueueFullError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.memory import RETRY_S, is_out_of_memory, make_caller_error
from predictor.model import Model
from predictor.networks import Inputs
from predictor.registry import ModelVersions, Registry
from predictor.server.transport import IncomingCall
from predictor.service import PredictionService
from predictor.wire import instances

SOON_S = 30
TOO_MUCH = 1 << 60
"""More bytes than any machine has."""


def cpu_shortage() -> object:
    return torch.empty(TOO_MUCH, dtype=torch.uint8)


def python_shortage() -> object:
    return bytearray(TOO_MUCH)


def out_of_memory(*_: object) -> object:
    """Replaces a function that runs out of memory."""
    return python_shortage()


def cuda_shortage() -> object:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def thread_shortage() -> object:
    raise RuntimeError("can't start new thread")


def onednn_shortage() -> object:
    raise RuntimeError("could not create a primitive")


def cut_short() -> object:
    raise RuntimeError("[enforce fail a")


SHORTAGES = (cpu_shortage, cut_short, python_shortage, cuda_shortage, thread_shortage, onednn_shortage)


def raised_by(fail: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is
        fail()
    return raised.value


@final
class RowLimit:
    """Limits the number of rows of a forward pass."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: list[int] = []
        """Of every forward, of those that failed too."""

    def over(self, network: nn.Module) -> None:
        network.register_forward_pre_hook(self._check)

    def _check(self, _network: nn.Module, given: tuple[Inputs]) -> None:
        self.rows.append(len(given[0].observed))
        if len(given[0].observed) > self.most:
            cpu_shortage()


def instance_of(*symbols: str) -> Instance:
    return Instance(input=recent_bars(*symbols))


@pytest.fixture
def model() -> Model:
    return small_model(small_artifact())


@pytest.fixture
def service(model: Model) -> Iterator[PredictionService]:
    line = ModelVersions.of(model)
    with PredictionService(Registry(models={model.identity.name: line}, problems=())) as running:
        yield running


def request(*symbols: str) -> bytes:
    return pb.PredictRequest(instances=[instances.encode(instance_of(*symbols))]).SerializeToString()


@pytest.mark.parametrize("shortage", SHORTAGES)
def test_every_kind_of_shortage_is_known_by_its_error(shortage: Callable[[], object]) -> None:
    assert is_out_of_memory(raised_by(shortage))


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("memory")])
def test_other_errors_are_none(error: Exception) -> None:
    assert not is_out_of_memory(error)
    assert isinstance(make_caller_error("Predict", error, logging.getLogger("quiet")), InternalError)


def test_a_caller_gets_a_retryable_error_and_the_log_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    told = make_caller_error("Predict", raised_by(cpu_shortage), logging.getLogger("memory"))
    assert isinstance(told, QueueFullError)
    assert told.retry_after_s == RETRY_S
    assert "fewer symbols" in told.message
    assert "allocate" not in told.message
    assert caplog.messages[0].startswith("Predict: memory ran out: ")
    assert "can't allocate memory" in caplog.messages[0]


def test_memory_used_before_a_shortage_is_free_once_the_caller_has_the_error() -> None:
    left: list[weakref.ref[LargeObject]] = []

    def work() -> None:
        holding = LargeObject()
        left.append(weakref.ref(holding))
        python_shortage()

    error = raised_by(work)
    assert left[0]() is not None
    make_caller_error("Predict", error, logging.getLogger("memory"))
    assert left[0]() is None


def test_rows_that_do_not_fit_together_are_forecast_in_halves(model: Model) -> None:
    prepared = model.prepare(instance_of("AAPL", "IBM", "GOOG"), datetime.now(UTC))
    (whole,) = model.forecast([prepared])
    ration = RowLimit(2)
    ration.over(model.engine.network)
    (halves,) = model.forecast([prepared])
    assert ration.rows == [3, 1, 2]
    np.testing.assert_allclose(halves.values, whole.values, rtol=1e-6, atol=1e-8)


def test_one_row_that_does_not_fit_is_told_as_such_and_the_next_call_is_answered(
    model: Model, service: PredictionService
) -> None:
    ration = RowLimit(0)
    ration.over(model.engine.network)
    calls = PredictionCalls(service)
    failed = calls.handle("Predict", request("AAPL", "IBM"), CallContext())
    assert isinstance(failed.exception(SOON_S), QueueFullError)
    ration.most = 8
    answer = pb.PredictResponse.FromString(calls.handle("Predict", request("AAPL"), CallContext()).result(SOON_S))
    assert answer.results[0].forecast.symbols == ["AAPL"]


@pytest.mark.parametrize(("count", "module"), [(1, prediction), (2, instances)])
def test_requests_that_cannot_be_decoded_for_lack_of_memory_may_be_repeated(
    count: int, module: ModuleType, service: PredictionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone instance is decoded when it arrives, several when they leave the queue."""
    monkeypatch.setattr(module, "decode_or_error", out_of_memory)
    body = pb.PredictRequest(instances=count * [instances.encode(instance_of("AAPL"))]).SerializeToString()
    assert isinstance(PredictionCalls(service).handle("Predict", body, CallContext()).exception(SOON_S), QueueFullError)


def test_an_explanation_that_does_not_fit_may_be_repeated(
    model: Model, service: PredictionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "explain", out_of_memory)
    body = pb.ExplainRequest(instance=instances.encode(instance_of("AAPL"))).SerializeToString()
    assert isinstance(PredictionCalls(service).handle("Explain", body, CallContext()).exception(SOON_S), QueueFullError)


@pytest.fixture
def onednn() -> Iterator[None]:
    yield
    torch.backends.mkldnn.set_flags(_enabled=True)


def broken_onednn(*_: object) -> None:
    onednn_shortage()


@pytest.mark.usefixtures("onednn")
def test_onednn_that_ran_out_of_memory_is_never_used_again_for_it_never_works_again(model: Model) -> None:
    prepared = model.prepare(instance_of("AAPL"), datetime.now(UTC))
    broken = model.engine.network.register_forward_pre_hook(broken_onednn)
    with pytest.raises(RuntimeError, match="primitive"):
        model.forecast([prepared])
    broken.remove()
    assert not torch.backends.mkldnn.enabled
    assert model.forecast([prepared])


class LargeObject:
    """A large object: memory is short while it exists."""


def test_calls_that_do_not_fit_together_are_answered_one_by_one_with_what_they_took_free_again(
    model: Model, service: PredictionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, begun = threading.Event(), threading.Event()
    sizes: list[int] = []
    left: list[weakref.ref[LargeObject]] = []
    prepare_each = model.prepare_each

    def prepare(given: list[Instance], *rest: object) -> object:
        begun.set()
        released.wait(SOON_S)
        gc.collect()
        assert not [one for one in left if one() is not None]
        holding = LargeObject()
        left.append(weakref.ref(holding))
        sizes.append(len(given))
        return cpu_shortage() if len(given) > 1 else prepare_each(given, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "prepare_each", prepare)
    first = service.predict("", [instance_of("AAPL")], CallContext())
    assert begun.wait(SOON_S)
    others = [service.predict("", [instance_of(symbol)], CallContext()) for symbol in ("IBM", "GOOG")]
    released.set()
    assert all(isinstance(one.result(SOON_S)[0], Forecast) for one in (first, *others))
    assert sizes == [1, 2, 1, 1]


def test_a_request_for_whose_bytes_there_is_no_memory_is_refused_and_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(CannedService(forecast_of)) as served, grpc.insecure_channel(served.target) as channel:
        stub = prediction_pb2_grpc.PredictionServiceStub(channel)
        with monkeypatch.context() as short:
            short.setattr(IncomingCall, "take_request", out_of_memory)
            with pytest.raises(grpc.RpcError) as refused:
                stub.ListModels(pb.ListModelsRequest(), timeout=SOON_S)
        status = rpc_status.from_call(cast("grpc.Call", refused.value))
        assert status is not None
        retry = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(retry) for detail in status.details)
        assert (status.code, retry.retry_delay.seconds) == (grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], RETRY_S)
        assert stub.ListModels(pb.ListModelsRequest(), timeout=SOON_S).models
