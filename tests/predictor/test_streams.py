"""PredictStream: the same behaviour at every interface."""

import gc
import math
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, final
from unittest.mock import Mock

import pytest
from artifacts import recent_bars, small_models
from canned_service import CannedService, forecast_of
from google.rpc.code_pb2 import Code
from talks import SOON_S, StreamCaller, StreamInterface, stream_interface

from benchmarks.faults.calls import nested
from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls, prediction
from predictor.calls.live_sessions import SessionRequest
from predictor.errors import (
    DeadlineExceededError,
    MalformedRequestError,
    QuantraError,
    TooFewBarsError,
    UnavailableError,
    UnknownSessionError,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance
from predictor.limits import QueueLimits, ServiceLimits
from predictor.server.observed_calls import ObservedCall
from predictor.service import PredictionService, create_request
from predictor.wire import forecasts, instances

DOORS = ("grpc", "embedded")
ONE = instances.encode(Instance(input=recent_bars("AAPL"), request_id="ignored"))


def wide_panel(symbols: int) -> pb.Instance:
    """The same bars for many symbols."""
    bars = instances.encode(Instance(input=recent_bars("AAPL").last(3))).bars
    for name in ("open", "high", "low", "close", "volume", "adj_close"):
        setattr(bars, name, getattr(bars, name) * symbols)
    bars.symbols[:] = [f"S{count}" for count in range(symbols)]
    return pb.Instance(bars=bars)


WIDE = wide_panel(300)
"""More fields than are counted at once."""


def refuse_ibm(instance: Instance) -> Forecast | QuantraError:
    if instance.input.symbols == ("IBM",):
        return TooFewBarsError.of("IBM", have=3, need=30, unit="bars", best=140)
    return forecast_of(instance)


@pytest.fixture
def canned() -> Iterator[CannedService]:
    service = CannedService(refuse_ibm)
    yield service
    service.predictions_released.set()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, canned: CannedService) -> Iterator[StreamInterface]:
    with stream_interface(request.param, canned) as opened:
        yield opened


def predict_request(request_id: str, instance: pb.Instance = ONE, model: str = "canned", timeout_s: float = 0) -> bytes:
    predict = pb.StreamPredict(model=model, instance=instance)
    return pb.PredictStreamRequest(request_id=request_id, timeout_s=timeout_s, predict=predict).SerializeToString()


def cancelling(request_id: str, wanted: str = "") -> bytes:
    cancel = pb.CancelRequest(request_id=wanted)
    return pb.PredictStreamRequest(request_id=request_id, cancel=cancel).SerializeToString()


def summary_of(response: pb.PredictStreamResponse) -> str:
    """A short summary of a response."""
    return response.error.reason or response.WhichOneof("outcome") or ""


def final_responses(talk: StreamCaller) -> dict[str, str]:
    """The final response to each request, once the stream has ended in order."""
    talk.end()
    heard, error = talk.rest()
    assert error is None
    assert len({one.request_id for one in heard}) == len(heard)
    return {one.request_id: summary_of(one) for one in heard}


def test_every_request_gets_one_answer_with_its_id(door: StreamInterface) -> None:
    talk = door.open()
    for count in range(100):
        talk.send(predict_request(str(count)))
    assert final_responses(talk) == {str(count): "forecast" for count in range(100)}


def test_answers_come_as_they_are_ready(door: StreamInterface, canned: CannedService) -> None:
    canned.predictions_released.clear()
    talk = door.open()
    talk.send(predict_request("slow"))
    talk.send(predict_request("wrong", model="nobody"))
    assert summary_of(talk.on_losses()) == "MODEL_NOT_FOUND"
    canned.predictions_released.set()
    assert final_responses(talk) == {"slow": "forecast"}


def request_of(request_id: str = "bad", **fields: Any) -> bytes:
    return pb.PredictStreamRequest(request_id=request_id, **fields).SerializeToString()


WRONG = {
    "model": (predict_request("bad", model="nobody"), "MODEL_NOT_FOUND"),
    "long model": (predict_request("bad", model="x" * 300), "REQUEST_TOO_LARGE"),
    "bars": (predict_request("bad", instances.encode(Instance(input=recent_bars("IBM")))), "TOO_FEW_BARS"),
    "no input": (predict_request("bad", pb.Instance()), "MALFORMED_REQUEST"),
    "no instance": (request_of(predict=pb.StreamPredict(model="canned")), "MALFORMED_REQUEST"),
    "no action": (request_of(), "MALFORMED_REQUEST"),
    "two actions": (predict_request("bad") + cancelling(""), "MALFORMED_REQUEST"),
    "broken instance": (request_of() + bytes([3 << 3 | 2, 3, 2 << 3 | 2, 1, 0xFF]), "MALFORMED_REQUEST"),
    "broken action": (request_of() + bytes([3 << 3 | 2, 1, 0xFF]), "MALFORMED_REQUEST"),
    "negative time": (predict_request("bad", timeout_s=-1), "MALFORMED_REQUEST"),
    "no time": (predict_request("bad", timeout_s=math.nan), "MALFORMED_REQUEST"),
    "session": (request_of(open=pb.OpenSession(model="canned", instance=ONE)), "MALFORMED_REQUEST"),
    "push": (request_of(push=pb.PushBars(session_id="s", bars=ONE.bars)), "UNKNOWN_SESSION"),
    "close": (request_of(close=pb.CloseSession(session_id="s")), "UNKNOWN_SESSION"),
    "long session": (request_of(close=pb.CloseSession(session_id="s" * 300)), "REQUEST_TOO_LARGE"),
    "cancel of many fields": (
        request_of() + bytes([7 << 3 | 2, 0x80 | 100, 4]) + b"\x20\x01" * 306,
        "MALFORMED_REQUEST",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_one_request_is_its_own_answer(door: StreamInterface, wrong: str) -> None:
    request, reason = WRONG[wrong]
    talk = door.open()
    for sent in (predict_request("before"), request, predict_request("after")):
        talk.send(sent)
    assert final_responses(talk) == {"before": "forecast", "bad": reason, "after": "forecast"}


def test_two_instances_in_one_request_are_refused(door: StreamInterface) -> None:
    part = pb.StreamPredict(model="canned", instance=ONE).SerializeToString()
    twice = nested(part + part, pb.PredictStreamRequest.PREDICT_FIELD_NUMBER)
    talk = door.open()
    talk.send(pb.PredictStreamRequest(request_id="two").SerializeToString() + twice)
    response = talk.on_losses()
    assert (response.request_id, summary_of(response)) == ("two", "MALFORMED_REQUEST")
    assert "instance: have 2, need 1" in response.error.message
    assert final_responses(talk) == {}


def test_a_request_without_an_id_fails_without_one(door: StreamInterface) -> None:
    talk = door.open()
    talk.send(predict_request(""))
    assert final_responses(talk) == {"": "MALFORMED_REQUEST"}


def test_an_id_that_is_too_long_is_told_so_by_its_beginning(door: StreamInterface) -> None:
    talk = door.open()
    talk.send(predict_request("x" * 1000))
    assert final_responses(talk) == {"x" * 256: "REQUEST_TOO_LARGE"}


def test_an_id_that_is_under_way_is_refused_and_free_again_after_its_answer(
    door: StreamInterface, canned: CannedService
) -> None:
    canned.predictions_released.clear()
    talk = door.open()
    talk.send(predict_request("same"))
    talk.send(predict_request("same"))
    assert summary_of(talk.on_losses()) == "DUPLICATE_ID"
    canned.predictions_released.set()
    assert summary_of(talk.on_losses()) == "forecast"
    talk.send(predict_request("same"))
    assert final_responses(talk) == {"same": "forecast"}


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x01\xff", b"\x40\x01" * 100], ids=["tag", "text", "many fields"])
def test_bytes_that_are_no_message_end_the_stream_after_what_is_under_way(
    door: StreamInterface, canned: CannedService, body: bytes
) -> None:
    canned.predictions_released.clear()
    talk = door.open()
    for sent in (predict_request("first"), cancelling("mark", "nobody"), body, predict_request("never")):
        talk.send(sent)
    assert summary_of(talk.on_losses()) == "ack"
    canned.predictions_released.set()
    heard, error = talk.rest()
    assert [one.request_id for one in heard] == ["first"]
    assert isinstance(error, MalformedRequestError)


def test_a_stream_of_nothing_ends_in_order(door: StreamInterface) -> None:
    assert final_responses(door.open()) == {}


# --- cancel, deadlines


def test_one_request_is_cancelled_in_the_queue_and_no_other(door: StreamInterface, canned: CannedService) -> None:
    canned.predictions_released.clear()
    talk = door.open()
    for sent in (predict_request("first"), predict_request("one"), predict_request("other"), cancelling("c", "one")):
        talk.send(sent)
    heard = [talk.on_losses(), talk.on_losses()]
    assert {one.request_id: summary_of(one) for one in heard} == {"one": "CANCELLED", "c": "ack"}
    assert {one.error.code for one in heard} == {0, Code.Value("CANCELLED")}
    canned.predictions_released.set()
    assert final_responses(talk) == {"first": "forecast", "other": "forecast"}


def test_all_that_is_under_way_is_cancelled_by_an_empty_id(door: StreamInterface, canned: CannedService) -> None:
    canned.predictions_released.clear()
    talk = door.open()
    talk.send(predict_request("begun"))
    assert canned.begun.wait(SOON_S)
    for sent in (predict_request("one"), predict_request("other"), cancelling("c")):
        talk.send(sent)
    heard = [talk.on_losses() for _ in range(3)]
    assert {one.request_id: summary_of(one) for one in heard} == {"one": "CANCELLED", "other": "CANCELLED", "c": "ack"}
    assert canned.contexts[0].is_cancelled  # running requests still get a response
    canned.predictions_released.set()
    talk.send(predict_request("later"))
    assert final_responses(talk) == {"begun": "forecast", "later": "forecast"}


def test_cancelling_nothing_is_acknowledged(door: StreamInterface) -> None:
    talk = door.open()
    talk.send(cancelling("c", "nobody"))
    talk.send(cancelling("d"))
    assert final_responses(talk) == {"c": "ack", "d": "ack"}


def test_a_request_has_the_nearer_of_its_own_deadline_and_the_calls(
    door: StreamInterface, canned: CannedService
) -> None:
    talk = door.open(100)
    for request_id, timeout_s in (("own", 50), ("call", 0), ("late", 1e9)):
        talk.send(predict_request(request_id, timeout_s=timeout_s))
        assert talk.on_losses().request_id == request_id
    own_s, *others_s = [context.expires_at_s or 0 for context in canned.contexts]
    assert all(40 < other_s - own_s < 60 for other_s in others_s)
    assert final_responses(talk) == {}


# --- a real model


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionService]:
    with PredictionService.open(small_models(tmp_path_factory.mktemp("models")), device="cpu") as opened:
        yield opened


class HeldService:
    """A real service whose work pauses at its first look at the clock."""

    def __init__(self, service: PredictionService, limits: ServiceLimits | None = None) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.service = PredictionService(service.served.current.registry, limits=limits, clock=self._clock)

    def _clock(self) -> datetime:
        self.begun.set()
        self.released.wait(SOON_S)
        return datetime.now(UTC)


@pytest.mark.parametrize("kind", DOORS)
def test_a_stream_has_the_bits_of_predict(kind: str, service: PredictionService) -> None:
    (expected,) = service.predict("small", [instances.decode(ONE)], CallContext()).result(SOON_S)
    assert isinstance(expected, Forecast)
    with stream_interface(kind, service) as door:
        talk = door.open()
        talk.send(predict_request("one", model="small"))
        assert talk.on_losses().forecast == pb.Forecast.FromString(forecasts.encode(expected))
        talk.cancel()


@pytest.mark.parametrize("kind", DOORS)
def test_what_waits_and_what_is_worked_on_is_cancelled_at_once(kind: str, service: PredictionService) -> None:
    held = HeldService(service)
    with held.service, stream_interface(kind, held.service) as door:
        talk = door.open()
        talk.send(predict_request("begun", model="small"))
        assert held.begun.wait(SOON_S)
        talk.send(predict_request("waits", model="small"))
        talk.send(cancelling("c"))
        heard = [talk.on_losses() for _ in range(3)]
        assert {one.request_id: summary_of(one) for one in heard} == {
            **dict.fromkeys(("begun", "waits"), "CANCELLED"),
            "c": "ack",
        }
        assert held.service.prediction_load[0] == 1
        held.released.set()
        assert final_responses(talk) == {}


@pytest.mark.parametrize("kind", DOORS)
def test_a_full_queue_fails_one_request_with_a_retry_delay(kind: str, service: PredictionService) -> None:
    limits = ServiceLimits(predictions=QueueLimits(calls=1))
    held = HeldService(service, limits)
    with held.service, stream_interface(kind, held.service, limits) as door:
        talk = door.open()
        talk.send(predict_request("begun", model="small"))
        assert held.begun.wait(SOON_S)
        talk.send(predict_request("full", model="small"))
        response = talk.on_losses()
        assert (response.request_id, summary_of(response)) == ("full", "QUEUE_FULL")
        assert int(response.error.metadata["retry_after_ms"]) > 0
        held.released.set()
        assert final_responses(talk) == {"begun": "forecast"}


@pytest.mark.parametrize("kind", DOORS)
def test_an_expired_request_fails_and_the_others_continue(kind: str, service: PredictionService) -> None:
    held = HeldService(service)
    with held.service, stream_interface(kind, held.service) as door:
        talk = door.open()
        talk.send(predict_request("begun", model="small"))
        assert held.begun.wait(SOON_S)
        talk.send(predict_request("late", model="small", timeout_s=1e-9))
        talk.send(predict_request("patient", model="small", timeout_s=100))
        talk.send(cancelling("mark", "nobody"))
        assert talk.on_losses().request_id == "mark"
        held.released.set()
        assert final_responses(talk) == {"begun": "forecast", "late": "DEADLINE_EXCEEDED", "patient": "forecast"}


def test_requests_of_streams_and_calls_are_answered_together(service: PredictionService) -> None:
    held = HeldService(service)
    with held.service:
        calls, heard = PredictionCalls(held.service), list[bytes]()
        streams = [calls.open("PredictStream", CallContext(), heard.append) for _ in range(3)]
        for stream in streams:
            stream.send(predict_request("one", model="small"))
        request = pb.PredictRequest(model="small", instances=[ONE]).SerializeToString()
        answer = calls.handle("Predict", request, CallContext())
        assert held.service.prediction_load[0] == 4
        held.released.set()
        assert answer.result(SOON_S)
        for stream in streams:
            stream.end_requests()
            stream.completion.result(SOON_S)
        assert len(heard) == 3
        calls.close()


# --- large requests


def test_a_large_request_is_counted_elsewhere_and_answered_alike(door: StreamInterface) -> None:
    talk = door.open()
    for count in range(5):
        talk.send(predict_request(str(count), WIDE))
    assert set(final_responses(talk).values()) == {"forecast"}


def test_a_request_with_more_than_it_may_hold_is_refused_alone(door: StreamInterface) -> None:
    many = instances.encode(Instance(input=recent_bars("AAPL").last(3)))
    many.bars.symbols.extend("x" * 10_001)
    talk = door.open()
    for sent in (predict_request("many", many), predict_request("one")):
        talk.send(sent)
    assert final_responses(talk) == {"many": "REQUEST_TOO_LARGE", "one": "forecast"}


def test_the_emptiest_request_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_body: bytes) -> pb.Instance:
        raise AssertionError

    monkeypatch.setattr(pb.Instance, "FromString", parse)
    empty = b"\x0a\x00" * 1_000_000
    bars = _field(2, empty)
    body = request_of("many") + _field(3, _field(2, bars))
    calls, heard = PredictionCalls(CannedService(forecast_of)), list[bytes]()
    stream = calls.open("PredictStream", CallContext(), heard.append)
    stream.send(body)
    stream.end_requests()
    stream.completion.result(SOON_S)
    assert pb.PredictStreamResponse.FromString(heard[0]).error.reason == "REQUEST_TOO_LARGE"
    calls.close()


def _field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


# --- how a stream ends


def test_draining_answers_what_is_under_way_and_ends_streams_as_unavailable(
    door: StreamInterface, canned: CannedService
) -> None:
    idle, busy = door.open(), door.open()
    idle.send(predict_request("x"))
    assert idle.on_losses().request_id == "x"
    canned.predictions_released.clear()
    canned.begun.clear()
    busy.send(predict_request("y"))
    assert canned.begun.wait(SOON_S)
    door.drain()
    heard, error = idle.rest()
    assert (heard, type(error)) == ([], UnavailableError)
    busy.send(predict_request("too late"))
    canned.predictions_released.set()
    heard, error = busy.rest()
    assert ([one.request_id for one in heard], type(error)) == (["y"], UnavailableError)


def test_a_stream_that_is_opened_while_it_drains_is_unavailable(canned: CannedService) -> None:
    calls = PredictionCalls(canned)
    calls.drain()
    stream = calls.open("PredictStream", CallContext(), lambda _: None)
    assert isinstance(stream.completion.exception(SOON_S), UnavailableError)
    calls.close()


def cancelled_stream(calls: PredictionCalls, heard: list[bytes]) -> "weakref.ref[object]":
    """A stream cancelled with two open requests."""
    stream = calls.open("PredictStream", CallContext(), heard.append)
    stream.send(predict_request("one"))
    stream.send(predict_request("two", WIDE))
    stream.cancel()
    return weakref.ref(stream)


def test_a_stream_that_is_cancelled_leaves_nothing_behind(canned: CannedService) -> None:
    calls, heard = PredictionCalls(canned), list[bytes]()
    canned.predictions_released.clear()
    freed = [cancelled_stream(calls, heard) for _ in range(100)]
    canned.predictions_released.set()
    calls.close()
    canned.settle()
    gc.collect()
    assert not any(ref() for ref in freed)
    assert heard == []


def test_work_of_a_cancelled_stream_is_cancelled(canned: CannedService) -> None:
    calls = PredictionCalls(canned)
    canned.predictions_released.clear()
    stream = calls.open("PredictStream", CallContext(), lambda _: None)
    stream.send(predict_request("one"))
    assert canned.begun.wait(SOON_S)
    assert not canned.contexts[0].is_cancelled
    stream.cancel()
    assert canned.contexts[0].is_cancelled
    canned.predictions_released.set()
    calls.close()


def test_a_request_that_is_cancelled_while_a_model_is_being_asked_leaves_the_queue() -> None:
    work: Future[Any] = Future()

    @final
    class Asking(CannedService):
        """A service that sees the cancellation before it queues the work."""

        def predict(
            self, reference: str, request: object, context: CallContext, encode: object = None, *, inline: bool = False
        ) -> "Future[Any]":
            del reference, request, context, encode, inline
            stream.send(cancelling("cancel", "one"))
            return work

    heard: list[bytes] = []
    calls = PredictionCalls(Asking(forecast_of))
    stream = calls.open("PredictStream", CallContext(), heard.append)
    stream.send(predict_request("one"))
    assert work.cancelled()
    responses = [pb.PredictStreamResponse.FromString(message) for message in heard]
    assert {one.request_id: summary_of(one) for one in responses} == {"cancel": "ack", "one": "CANCELLED"}
    calls.close()


def test_the_observer_of_a_call_sees_each_of_its_requests(canned: CannedService) -> None:
    calls = PredictionCalls(canned)
    observer = ObservedCall(service="s.S", method="PredictStream", request_id="r", peer="p", has_many=True)
    stream = calls.open("PredictStream", CallContext(observer=observer), lambda _: None)
    for timeout_s in (0, 50):
        stream.send(predict_request(f"in {timeout_s}", timeout_s=timeout_s))
    canned.settle()
    assert [context.observer for context in canned.contexts] == [observer, observer]
    calls.close()


@pytest.mark.parametrize("name", ["PredictStream", "ModelStreamInfer", "ExplainGlobal"])
@pytest.mark.parametrize("is_late", [False, True], ids=["opened before", "opened after"])
def test_closing_the_calls_ends_streams_as_unavailable(canned: CannedService, name: str, *, is_late: bool) -> None:
    calls = PredictionCalls(canned)
    if is_late:
        calls.close()
    stream = calls.open(name, CallContext(), lambda _: None)
    calls.close()
    assert isinstance(stream.completion.exception(SOON_S), UnavailableError)


def test_a_call_whose_time_is_over_takes_no_more(canned: CannedService) -> None:
    calls = PredictionCalls(canned)
    stream = calls.open("PredictStream", CallContext.with_timeout(0), lambda _: None)
    stream.send(predict_request("late"))
    assert isinstance(stream.completion.exception(SOON_S), DeadlineExceededError)
    calls.close()


# --- sessions


class RecordingSessions:
    """Sessions that record their requests; a push without bars is acknowledged."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.outcomes: list[Outcome] = []

    def open(self, request: pb.OpenSession) -> SessionRequest:
        self.events.append(f"open {request.session_id}")
        asked = create_request([instances.decode(request.instance)])
        return SessionRequest(request.model, asked, self.told)

    def push(self, request: pb.PushBars) -> SessionRequest | pb.Ack:
        self.events.append(f"push {request.session_id} {len(request.bars.symbols)}")
        if not request.bars.symbols:
            return pb.Ack(waiting_for=["IBM"])
        asked = create_request([instances.decode(pb.Instance(bars=request.bars))])
        return SessionRequest("canned", asked, self.told)

    def told(self, outcome: Outcome) -> Outcome:
        self.outcomes.append(outcome)
        return outcome

    def close(self, request: pb.CloseSession) -> pb.Ack:
        if request.session_id == "bug":
            raise ZeroDivisionError
        raise UnknownSessionError(f"there is no session {request.session_id}")

    def end(self) -> None:
        self.events.append("end")


@pytest.fixture
def recording_sessions() -> RecordingSessions:
    return RecordingSessions()


@pytest.fixture(params=DOORS)
def talk(
    request: pytest.FixtureRequest,
    canned: CannedService,
    recording_sessions: RecordingSessions,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[StreamCaller]:
    monkeypatch.setattr(prediction, "LiveSessions", Mock(return_value=recording_sessions))
    with stream_interface(request.param, canned) as opened:
        yield opened.open()


def opening(request_id: str, model: str = "canned") -> bytes:
    return request_of(request_id, open=pb.OpenSession(session_id="s", model=model, instance=ONE))


def pushing(request_id: str, bars: pb.BarPanel | None = None) -> bytes:
    return request_of(request_id, push=pb.PushBars(session_id="s", bars=bars))


def test_sessions_answer_with_a_forecast_an_ack_or_an_error(
    talk: StreamCaller, recording_sessions: RecordingSessions
) -> None:
    for sent in (opening("o"), pushing("p"), pushing("q", ONE.bars), request_of("c", close={"session_id": "s"})):
        talk.send(sent)
    talk.end()
    heard, error = talk.rest()
    assert error is None
    assert {one.session_id for one in heard} == {"s"}
    assert {one.request_id: summary_of(one) for one in heard} == {
        "o": "forecast",
        "p": "ack",
        "q": "forecast",
        "c": "UNKNOWN_SESSION",
    }
    assert [list(one.ack.waiting_for) for one in heard if one.HasField("ack")] == [["IBM"]]
    assert recording_sessions.events == ["open s", "push s 0", "push s 1", "end"]
    assert [type(outcome) for outcome in recording_sessions.outcomes] == [Forecast] * 2


def test_sessions_are_asked_in_order_however_large_a_request_is(
    talk: StreamCaller, recording_sessions: RecordingSessions
) -> None:
    sent = [opening("o"), pushing("wide", WIDE.bars), pushing("small", ONE.bars), pushing("w", WIDE.bars), pushing("n")]
    for one in sent:
        talk.send(one)
    assert len(final_responses(talk)) == 5
    assert recording_sessions.events == ["open s", "push s 300", "push s 1", "push s 300", "push s 0", "end"]


def test_sessions_are_told_of_what_their_model_does_not_answer(
    talk: StreamCaller, recording_sessions: RecordingSessions
) -> None:
    talk.send(opening("o", "nobody"))
    assert final_responses(talk) == {"o": "MODEL_NOT_FOUND"}
    assert [type(outcome).__name__ for outcome in recording_sessions.outcomes] == ["ModelNotFoundError"]


def test_sessions_are_notified_of_cancellations(
    talk: StreamCaller, recording_sessions: RecordingSessions, canned: CannedService
) -> None:
    canned.predictions_released.clear()
    talk.send(predict_request("first"))
    assert canned.begun.wait(SOON_S)
    talk.send(opening("o"))
    talk.send(cancelling("c", "o"))
    assert {talk.on_losses().request_id, talk.on_losses().request_id} == {"o", "c"}
    assert [type(outcome).__name__ for outcome in recording_sessions.outcomes] == ["CallCancelledError"]
    canned.predictions_released.set()
    assert final_responses(talk) == {"first": "forecast"}


def test_a_bug_of_sessions_is_internal_and_ends_no_other_request(talk: StreamCaller) -> None:
    talk.send(request_of("bug", close={"session_id": "bug"}))
    talk.send(predict_request("one"))
    assert final_responses(talk) == {"bug": "INTERNAL", "one": "forecast"}


def test_sessions_end_once_when_their_stream_is_cancelled(
    canned: CannedService, recording_sessions: RecordingSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "LiveSessions", Mock(return_value=recording_sessions))
    calls = PredictionCalls(canned)
    stream = calls.open("PredictStream", CallContext(), lambda _: None)
    stream.send(opening("o"))
    for count in range(20):
        stream.send(pushing(str(count), WIDE.bars))
    stream.cancel()
    stream.cancel()
    calls.close()
    assert recording_sessions.events[-1] == "end"
    assert recording_sessions.events.count("end") == 1


@final
class SlowSessions:
    """Slow sessions that record when a push begins and ends."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.events: list[str] = []

    def open(self, request: pb.OpenSession) -> pb.Ack:
        raise NotImplementedError(request)

    def push(self, request: pb.PushBars) -> pb.Ack:
        del request
        self.events.append("begun")
        self.begun.set()
        self.may_go_on.wait(SOON_S)
        self.events.append("done")
        return pb.Ack()

    def close(self, request: pb.CloseSession) -> pb.Ack:
        raise NotImplementedError(request)

    def end(self) -> None:
        self.events.append("end")


@pytest.mark.parametrize("how", ["cancel", "end_requests"])
def test_sessions_end_after_the_request_that_they_are_taking(
    canned: CannedService, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    slow = SlowSessions()
    monkeypatch.setattr(prediction, "LiveSessions", Mock(return_value=slow))
    calls = PredictionCalls(canned)
    stream = calls.open("PredictStream", CallContext(), lambda _: None)
    stream.send(pushing("wide", WIDE.bars))
    assert slow.begun.wait(SOON_S)
    getattr(stream, how)()
    slow.may_go_on.set()
    calls.close()
    assert slow.events == ["begun", "done", "end"]


# --- stream limits


def test_a_stream_limits_requests_and_responses_and_reports_free_room(canned: CannedService) -> None:
    calls, heard = PredictionCalls(canned, ServiceLimits(requests_per_stream=3)), list[bytes]()
    stream = calls.open("PredictStream", CallContext(), heard.append)
    canned.predictions_released.clear()
    assert [stream.send(predict_request(str(count))) for count in range(3)] == [True, True, False]
    canned.predictions_released.set()
    canned.settle()
    assert len(heard) == 3
    assert not stream.send(predict_request("too many"))  # responses are still unread
    assert not stream.acknowledge(len(heard[0]))
    assert stream.acknowledge(len(heard[1]))
    calls.close()


def test_a_stream_holds_so_many_bytes_and_one_request_more(canned: CannedService) -> None:
    body = predict_request("0")
    calls, heard = PredictionCalls(canned, ServiceLimits(bytes_per_stream=2 * len(body))), list[bytes]()
    stream = calls.open("PredictStream", CallContext(), heard.append)
    canned.predictions_released.clear()
    assert [stream.send(predict_request(str(count))) for count in range(2)] == [True, False]
    canned.predictions_released.set()
    canned.settle()
    assert len(heard[0]) < len(body)
    assert [stream.acknowledge(len(one)) for one in heard] == [True, True]
    assert stream.send(predict_request("2"))
    calls.close()


def test_a_response_too_large_to_send_is_a_separate_error(canned: CannedService) -> None:
    calls, heard = PredictionCalls(canned), list[bytes]()
    stream = calls.open("PredictStream", CallContext(), heard.append, 100)
    stream.send(predict_request("large"))
    stream.end_requests()
    stream.completion.result(SOON_S)
    response = pb.PredictStreamResponse.FromString(heard[0])
    assert (response.request_id, summary_of(response)) == ("large", "REQUEST_TOO_LARGE")
    calls.close()
