"""The transport-independent call layer: bytes in, bytes or a QuantraError out, without blocking."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from artifacts import recent_bars, small_models
from canned_service import CannedService, forecast_of, model_info

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls
from predictor.calls.futures import MAX_INLINE_PARTS
from predictor.errors import (
    CallCancelledError,
    InternalError,
    MalformedRequestError,
    ModelNotFoundError,
    QueueFullError,
    RequestTooLargeError,
    UnavailableError,
    UnknownHorizonError,
)
from predictor.forecast import Forecast, TargetPoint
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import Instance
from predictor.limits import QueueLimits, ServiceLimits
from predictor.service import PredictionService
from predictor.wire import forecasts, global_importance, instances, models

if TYPE_CHECKING:
    from concurrent.futures import Future

SOON_S = 30
ONE = instances.encode(Instance(input=recent_bars("AAPL"), request_id="one"))


def predict_bytes(count: int = 1, model: str = "") -> bytes:
    return pb.PredictRequest(model=model, instances=[ONE] * count).SerializeToString()


@pytest.fixture
def canned() -> CannedService:
    return CannedService(forecast_of)


@pytest.fixture
def calls(canned: CannedService) -> Iterator[PredictionCalls]:
    made = PredictionCalls(canned)
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionService]:
    with PredictionService.open(small_models(tmp_path_factory.mktemp("models")), device="cpu") as opened:
        yield opened


def test_every_unary_call_is_answered_in_bytes(calls: PredictionCalls) -> None:
    explain = pb.ExplainRequest(instance=ONE).SerializeToString()
    answers = {
        name: calls.handle(name, body, CallContext()).result(SOON_S)
        for name, body in {"ListModels": b"", "GetModel": b"", "Predict": predict_bytes(2), "Explain": explain}.items()
    }
    assert models.decode(pb.GetModelResponse.FromString(answers["GetModel"]).model) == model_info()
    assert len(pb.ListModelsResponse.FromString(answers["ListModels"]).models) == 1
    results = pb.PredictResponse.FromString(answers["Predict"]).results
    assert [(one.request_id, tuple(one.forecast.symbols)) for one in results] == [("one", ("AAPL",))] * 2
    assert pb.ExplainResponse.FromString(answers["Explain"]).request_id == "one"


def test_a_large_request_is_counted_elsewhere_and_answered_alike(calls: PredictionCalls) -> None:
    count = MAX_INLINE_PARTS // 10
    assert len(predict_bytes(count)) < 1 << 20
    answer = calls.handle("Predict", predict_bytes(count), CallContext()).result(SOON_S)
    assert len(pb.PredictResponse.FromString(answer).results) == count


def test_the_callers_thread_never_waits(canned: CannedService, calls: PredictionCalls) -> None:
    canned.predictions_released.clear()
    answers = [calls.handle("Predict", predict_bytes(count), CallContext()) for count in (1, 100)]
    assert not any(answer.done() for answer in answers)
    canned.predictions_released.set()
    assert all(answer.result(SOON_S) for answer in answers)


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("Predict", b"\xff", MalformedRequestError),
        ("Predict", b"", MalformedRequestError),
        ("Predict", predict_bytes(model="x"), ModelNotFoundError),
        ("Predict", predict_bytes(model="x" * 300), RequestTooLargeError),
        ("Explain", b"\x0a\xff", MalformedRequestError),
        ("ListModels", b"\x03", MalformedRequestError),
        ("GetModel", b"\x0a\x01x", ModelNotFoundError),
        ("ExplainGlobal", b"", MalformedRequestError),
        ("Nothing", b"", MalformedRequestError),
    ],
)
def test_what_fails_fails_through_the_future(
    calls: PredictionCalls, name: str, body: bytes, kind: type[Exception]
) -> None:
    assert isinstance(calls.handle(name, body, CallContext()).exception(SOON_S), kind)


def test_a_bug_of_ours_is_an_internal_error(calls: PredictionCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_forecast: Forecast, _message: pb.Forecast) -> pb.Forecast:
        raise ZeroDivisionError

    monkeypatch.setattr(forecasts, "encode", broken)
    assert isinstance(calls.handle("Predict", predict_bytes(), CallContext()).exception(SOON_S), InternalError)


def test_cancelling_an_answer_drops_the_call_with_its_bytes(service: PredictionService) -> None:
    begun, released = threading.Event(), threading.Event()

    def clock() -> datetime:
        begun.set()
        released.wait(SOON_S)
        return datetime.now(UTC)

    with PredictionService(service.served.current.registry, clock=clock) as held:
        calls = PredictionCalls(held)
        first = calls.handle("Predict", predict_bytes(), CallContext())
        assert begun.wait(SOON_S)
        alone = held.prediction_load
        answers = [calls.handle("Predict", predict_bytes(), CallContext()) for _ in range(100)]
        assert held.prediction_load[0] == 101
        freed = [weakref.ref(answer) for answer in answers]
        assert all(answer.cancel() for answer in answers)
        assert held.prediction_load == alone == (1, 1, len(predict_bytes()))
        del answers
        gc.collect()
        assert not any(ref() for ref in freed)
        released.set()
        assert first.result(SOON_S)
        calls.close()


def test_requests_that_wait_to_be_counted_are_bounded_in_bytes(canned: CannedService) -> None:
    body = predict_bytes(100)
    calls = PredictionCalls(canned, ServiceLimits(uncounted=QueueLimits(size=len(body))))
    answers = [calls.handle("Predict", body, CallContext()) for _ in range(50)]
    ends = [answer.exception(SOON_S) for answer in answers]
    assert {type(end) for end in ends} <= {type(None), QueueFullError}
    assert ends[0] is None
    calls.close()


def test_closed_calls_stop_accepting_that_must_be_counted(canned: CannedService) -> None:
    calls = PredictionCalls(canned)
    calls.close()
    assert isinstance(calls.handle("Predict", predict_bytes(100), CallContext()).exception(SOON_S), UnavailableError)


def test_requests_that_wait_to_be_counted_when_all_is_closed_are_answered(service: PredictionService) -> None:
    closing = PredictionService(service.served.current.registry)
    calls = PredictionCalls(closing)
    empty = pb.PredictRequest(instances=[pb.Instance()] * 2000).SerializeToString()
    answers = [calls.handle("Predict", empty, CallContext()) for _ in range(10)]
    calls.close()
    closing.close()
    assert [type(answer.exception(SOON_S)) for answer in answers] == [type(None)] * 10


def test_counting_a_large_request_leaves_the_interpreter_to_others(calls: PredictionCalls) -> None:
    """Another thread gets turns while a request of thousands of instances is counted, decoded and answered."""
    body = predict_bytes(4000)
    turns, ended = [0], threading.Event()

    def count_turns() -> None:
        while not ended.is_set():
            turns[0] += 1
            time.sleep(0)

    other = threading.Thread(target=count_turns)
    other.start()
    calls.handle("Predict", body, CallContext()).result(SOON_S)
    ended.set()
    other.join()
    assert turns[0] > 10


# --- streams


def reports(
    calls: PredictionCalls, body: bytes, context: CallContext | None = None
) -> tuple[list[GlobalImportance], "Future[None]"]:
    emitted: list[GlobalImportance] = []
    call = calls.open(
        "ExplainGlobal",
        context or CallContext(),
        lambda message: emitted.append(global_importance.decode(pb.ExplainGlobalProgress.FromString(message))),
    )
    call.send(body)
    call.end_requests()
    return emitted, call.completion


def global_bytes(query: GlobalExplanationQuery) -> bytes:
    return global_importance.encode_query(query, "small").SerializeToString()


QUERY = GlobalExplanationQuery(
    instances=tuple(Instance(input=recent_bars(*panel)) for panel in (("AAPL",), ("IBM", "MSFT"), ("GOOG",))),
    targets=(TargetPoint(5, 0.5),),
)


def test_each_report_is_over_all_instances_so_far(service: PredictionService) -> None:
    calls = PredictionCalls(service)
    emitted, ended = reports(calls, global_bytes(QUERY))
    assert ended.result(SOON_S) is None
    assert [(one.done, one.total, one.refused) for one in emitted] == [(1, 3, 0), (2, 3, 0), (3, 3, 0)]
    assert [one.targets[0].windows for one in emitted] == [1, 3, 4]
    alone = [
        service.explain_global(
            "small", GlobalExplanationQuery(instances=(one,), targets=QUERY.targets), lambda _: None, CallContext()
        )
        for one in QUERY.instances
    ]
    means = [one.result(SOON_S).targets[0].mean_size for one in alone]
    np.testing.assert_allclose(emitted[-1].targets[0].mean_size, (means[0] + 2 * means[1] + means[2]) / 4, rtol=1e-9)
    calls.close()


def test_of_many_instances_about_a_hundred_reports_come(service: PredictionService) -> None:
    short = Instance(input=recent_bars("AAPL").last(3))
    calls = PredictionCalls(service)
    emitted, ended = reports(
        calls, global_bytes(GlobalExplanationQuery(instances=(short,) * 250, targets=QUERY.targets))
    )
    ended.result(SOON_S)
    assert [one.done for one in emitted[:2]] == [3, 6]
    assert len(emitted) == 84
    assert (emitted[-1].done, emitted[-1].refused) == (250, 250)
    calls.close()


def test_an_explanation_of_one_instance_comes_between_those_of_many(service: PredictionService) -> None:
    calls = PredictionCalls(service)
    many = GlobalExplanationQuery(instances=QUERY.instances * 20, targets=QUERY.targets)
    emitted, ended = reports(calls, global_bytes(many))
    explain = pb.ExplainRequest(model="small", instance=ONE, targets=[pb.ExplainTarget(horizon=5, quantile=0.5)])
    calls.handle("Explain", explain.SerializeToString(), CallContext()).result(SOON_S)
    assert len(emitted) < 60
    ended.result(SOON_S)
    assert len(emitted) == 60
    calls.close()


def test_a_target_that_the_model_lacks_ends_the_stream(service: PredictionService) -> None:
    calls = PredictionCalls(service)
    emitted, ended = reports(
        calls, global_bytes(GlobalExplanationQuery(instances=QUERY.instances, targets=(TargetPoint(7, 0.5),)))
    )
    assert isinstance(ended.exception(SOON_S), UnknownHorizonError)
    assert emitted == []
    calls.close()


def test_a_stream_that_is_cancelled_between_two_instances_ends(service: PredictionService) -> None:
    calls, context = PredictionCalls(service), CallContext()
    many = GlobalExplanationQuery(instances=QUERY.instances * 100, targets=QUERY.targets)
    first = threading.Event()
    call = calls.open("ExplainGlobal", context, lambda _: first.set())
    call.send(global_bytes(many))
    assert first.wait(SOON_S)
    call.cancel()
    known = service.explain_global("small", QUERY, lambda _: None, CallContext())
    assert known.result(SOON_S).done == 3
    calls.close()


@pytest.mark.parametrize("count", [0, 2])
def test_a_stream_takes_one_request(service: PredictionService, count: int) -> None:
    calls = PredictionCalls(service)
    call = calls.open("ExplainGlobal", CallContext(), lambda _: None)
    for _ in range(count):
        call.send(global_bytes(QUERY))
    call.end_requests()
    assert isinstance(call.completion.exception(SOON_S), MalformedRequestError)
    calls.close()


def test_a_stream_of_no_such_call_fails(service: PredictionService) -> None:
    calls = PredictionCalls(service)
    call = calls.open("Predict", CallContext(), lambda _: None)
    call.send(predict_bytes())
    assert isinstance(call.completion.exception(SOON_S), MalformedRequestError)
    calls.close()


def test_a_deadline_is_looked_at_between_instances(service: PredictionService) -> None:
    context = CallContext()
    seen: list[int] = []

    def cancel_at_two(known: GlobalImportance) -> None:
        seen.append(known.done)
        if known.done == 2:
            context.cancel()

    answer = service.explain_global("small", QUERY, cancel_at_two, context)
    assert isinstance(answer.exception(SOON_S), CallCancelledError)
    assert seen == [1, 2]


def test_bytes_of_the_same_folder_come_from_the_same_answers(service: PredictionService) -> None:
    """The layer only encodes the service's results."""
    calls = PredictionCalls(service)
    answer = pb.PredictResponse.FromString(calls.handle("Predict", predict_bytes(), CallContext()).result(SOON_S))
    (outcome,) = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext()).result(SOON_S)
    assert isinstance(outcome, Forecast)
    assert answer.results[0].forecast == pb.Forecast.FromString(forecasts.encode(outcome))
    calls.close()
