"""Bar sessions of a stream: sequential requests, limits, and unchanged state after failures."""

import gc
import inspect
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from artifacts import recent_bars
from canned_service import CannedService, forecast_of, model_info
from pushing import no_bar, push_of, scaled

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls
from predictor.calls.futures import map_future
from predictor.calls.live_sessions import SessionQuota
from predictor.catalog import ModelInfo
from predictor.errors import ConfigurationError, NoUsableSymbolError, QueueFullError, SessionGapError, TooFewBarsError
from predictor.forecast import Outcome
from predictor.instance import Instance
from predictor.limits import ServiceLimits
from predictor.service import PredictionRequest
from predictor.subscription import Push
from predictor.wire import instances

SYMBOLS = ("AAPL", "IBM")
PANEL = recent_bars(*SYMBOLS)
DAYS = tuple(int(day) for day in PANEL.sessions)
BEGUN = 150
SOON_S = 30


@dataclass
class HeldModel:
    """A model that responds when the test says so."""

    info: ModelInfo = field(default_factory=model_info)
    asked: SimpleQueue["tuple[PredictionRequest, Future[tuple[Outcome, ...]]]"] = field(default_factory=SimpleQueue)

    def model(self, reference: str) -> ModelInfo:  # noqa: ARG002 - it is the only one
        return self.info

    def predict(
        self,
        reference: str,  # noqa: ARG002 - there is one model
        request: PredictionRequest,
        context: CallContext,  # noqa: ARG002 - a test decides when there is an answer
        encode: Callable[[tuple[Outcome, ...]], Any],
    ) -> "Future[Any]":
        outcomes: Future[tuple[Outcome, ...]] = Future()
        self.asked.put((request, outcomes))
        return map_future("PredictStream", outcomes, encode)

    def respond(self, outcome: Outcome | None = None) -> Instance:
        """Complete the next request with a forecast or an error."""
        asked, answer = self.asked.get(timeout=SOON_S)
        (instance,) = asked.decode()
        assert isinstance(instance, Instance)
        made = replace(forecast_of(instance), version=self.info.version, weights_hash=self.info.weights_hash)
        answer.set_result((made if outcome is None else outcome,))
        return instance


@dataclass
class RecordedStream:
    """A stream and all its responses."""

    calls: PredictionCalls
    heard: list[pb.PredictStreamResponse] = field(default_factory=list[pb.PredictStreamResponse])

    def __post_init__(self) -> None:
        self.on_losses: Callable[[bytes], None] = self._hear
        self.call = self.calls.open("PredictStream", CallContext(), self._told_one)

    def _told_one(self, message: bytes) -> None:
        self.on_losses(message)

    def _hear(self, message: bytes) -> None:
        self.heard.append(pb.PredictStreamResponse.FromString(message))

    def open(self, name: str = "s", *, days: int = BEGUN, model: str = "") -> None:
        instance = instances.encode(Instance(input=PANEL.until(DAYS[days - 1])))
        self._send(f"open {name}", open=pb.OpenSession(session_id=name, model=model, instance=instance))

    def push(self, day: int, *symbols: str, name: str = "s", flush: bool = False) -> None:
        self.send_push(push_of(PANEL, DAYS[day], *symbols, flush=flush), f"push {day} {' '.join(symbols)}", name)

    def send_push(self, push: Push, request_id: str, name: str = "s") -> None:
        self._send(request_id.strip(), push=instances.encode_push(name, push))

    def close(self, name: str = "s") -> None:
        self._send(f"close {name}", close=pb.CloseSession(session_id=name))

    def cancel(self, request_id: str) -> None:
        self._send(f"cancel {request_id}", cancel=pb.CancelRequest(request_id=request_id))

    def _send(self, request_id: str, **action: object) -> None:
        self.call.send(pb.PredictStreamRequest(request_id=request_id, **action).SerializeToString())  # type: ignore[arg-type]

    def told(self) -> dict[str, str]:
        """Responses since the last call."""
        heard, self.heard = self.heard, []
        return {one.request_id: _told(one) for one in heard}


def _told(response: pb.PredictStreamResponse) -> str:
    kind = response.WhichOneof("outcome")
    if kind == "error":
        return response.error.reason
    return "forecast" if kind == "forecast" else f"ack {' '.join(response.ack.waiting_for)}".strip()


@pytest.fixture
def held_model() -> HeldModel:
    return HeldModel()


@pytest.fixture
def calls(held_model: HeldModel) -> Iterator[PredictionCalls]:
    made = PredictionCalls(held_model)  # type: ignore[arg-type] - what streams need of a service
    yield made
    made.close()


@pytest.fixture
def stream(calls: PredictionCalls, held_model: HeldModel) -> RecordedStream:
    """A stream with one open session."""
    opened = RecordedStream(calls)
    opened.open()
    held_model.respond()
    assert opened.told() == {"open s": "forecast"}
    return opened


# --- one after the other


def test_a_day_is_answered_when_it_is_whole(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.push(BEGUN, "IBM")
    held_model.respond()
    stream.push(BEGUN, "AAPL")
    assert held_model.respond().input.symbols == SYMBOLS
    assert stream.told() == {f"push {BEGUN} IBM": "ack AAPL", f"push {BEGUN} AAPL": "forecast"}


def test_pushes_that_come_at_once_are_taken_in_their_order(stream: RecordedStream, held_model: HeldModel) -> None:
    for day in range(BEGUN, BEGUN + 5):
        stream.push(day)
    for day in range(BEGUN, BEGUN + 5):
        assert held_model.asked.qsize() == 1
        bars = held_model.respond().input
        assert int(bars.sessions[-1]) == DAYS[day]  # type: ignore[union-attr]
    assert list(stream.told().values()) == ["forecast"] * 5


def test_a_push_behind_one_that_is_refused_meets_the_session_as_it_was(
    stream: RecordedStream, held_model: HeldModel
) -> None:
    stream.push(BEGUN + 1)
    stream.push(BEGUN)
    held_model.respond(SessionGapError("a gap"))
    held_model.respond()
    assert stream.told() == {f"push {BEGUN + 1}": "SESSION_GAP", f"push {BEGUN}": "forecast"}


def test_many_pushes_that_fail_at_once_are_all_answered(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.push(BEGUN)
    for count in range(500):
        stream.send_push(push_of(PANEL, DAYS[BEGUN - 5]), f"late {count}")
    held_model.respond()
    told = stream.told()
    assert len(told) == 501
    assert set(told.values()) == {"forecast", "BARS_INVALID"}


def test_a_push_during_a_callback_is_not_handled_recursively(stream: RecordedStream, held_model: HeldModel) -> None:
    """Otherwise a host that pushes from its callback would recurse."""
    depths: list[int] = []

    def push_again(message: bytes) -> None:
        heard(message)
        if len(depths) < 40:
            depths.append(len(inspect.stack(0)))
            stream.send_push(push_of(PANEL, DAYS[BEGUN - 5]), f"late {len(depths)}")

    heard, stream.on_losses = stream.on_losses, push_again
    for name in ("first", "second"):
        stream.send_push(push_of(PANEL, DAYS[BEGUN]), name)
    held_model.respond()
    held_model.respond()
    assert len(stream.told()) == 42
    assert len({*depths[2:]}) == 1


def test_a_session_may_be_pushed_to_before_it_has_answered(calls: PredictionCalls, held_model: HeldModel) -> None:
    stream = RecordedStream(calls)
    stream.open()
    stream.push(BEGUN)
    held_model.respond()
    held_model.respond()
    assert stream.told() == {"open s": "forecast", f"push {BEGUN}": "forecast"}


def test_sessions_do_not_wait_for_each_other(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.open("other")
    held_model.respond()
    stream.push(BEGUN)
    stream.send_push(push_of(PANEL, DAYS[BEGUN]), "to the other", "other")
    assert held_model.asked.qsize() == 2


# --- failures leave a session unchanged


@pytest.mark.parametrize("error", [SessionGapError("gap"), QueueFullError("full"), NoUsableSymbolError("none")])
def test_bars_that_a_model_refuses_are_not_taken(
    stream: RecordedStream, held_model: HeldModel, error: QueueFullError
) -> None:
    stream.push(BEGUN)
    held_model.respond(error)
    stream.send_push(Push(bars=scaled(PANEL.between(DAYS[BEGUN], DAYS[BEGUN]), 1.01)), "again")
    again = held_model.respond().input
    assert len(again.sessions) == model_info().bars_needed  # type: ignore[union-attr]
    assert stream.told()["again"] == "forecast"


def test_a_day_that_a_model_cannot_begin_with_is_refused_at_its_first_bar(
    stream: RecordedStream, held_model: HeldModel
) -> None:
    stream.push(BEGUN + 1, "IBM")
    held_model.respond(SessionGapError("gap"))
    stream.push(BEGUN, "IBM")
    held_model.respond(NoUsableSymbolError("the others have not come"))
    assert stream.told() == {f"push {BEGUN + 1} IBM": "SESSION_GAP", f"push {BEGUN} IBM": "ack AAPL"}


def test_a_day_without_any_bar_is_taken_and_the_next_one_follows(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.send_push(Push(bars=no_bar(PANEL, DAYS[BEGUN])), "holiday of all")
    held_model.respond(NoUsableSymbolError("nothing traded"))
    stream.push(BEGUN + 1)
    assert DAYS[BEGUN] in held_model.respond().input.sessions  # type: ignore[union-attr]
    assert stream.told() == {"holiday of all": "ack", f"push {BEGUN + 1}": "forecast"}


def test_a_push_that_is_cancelled_is_not_taken(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.push(BEGUN)
    stream.push(BEGUN + 1)
    stream.cancel(f"push {BEGUN + 1}")  # queued in the session
    stream.cancel(f"push {BEGUN}")  # queued for the model
    held_model.asked.get(timeout=SOON_S)
    stream.push(BEGUN, flush=True)
    assert int(held_model.respond().input.sessions[-1]) == DAYS[BEGUN]  # type: ignore[union-attr]
    told = stream.told()
    assert [told[f"push {day}"] for day in (BEGUN + 1,)] == ["CANCELLED"]


def test_a_session_whose_history_is_refused_is_not_open(calls: PredictionCalls, held_model: HeldModel) -> None:
    stream = RecordedStream(calls)
    stream.open()
    stream.push(BEGUN)
    held_model.respond(TooFewBarsError("too few"))
    assert stream.told() == {"open s": "TOO_FEW_BARS", f"push {BEGUN}": "UNKNOWN_SESSION"}
    assert calls.session_load == (0, 0)
    stream.open()
    held_model.respond()
    assert stream.told() == {"open s": "forecast"}


def test_windows_cannot_be_subscribed(calls: PredictionCalls, held_model: HeldModel) -> None:
    stream = RecordedStream(calls)
    window = pb.Instance(window=pb.FeatureWindow(symbols=["AAPL"]))
    stream._send("w", open=pb.OpenSession(session_id="s", instance=window))
    asked, answer = held_model.asked.get(timeout=SOON_S)
    (error,) = asked.decode()
    answer.set_result((error,))  # type: ignore[arg-type]
    assert stream.told() == {"w": "MALFORMED_REQUEST"}


# --- ids


def test_an_id_that_is_open_already_is_refused(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.open()
    assert stream.told() == {"open s": "DUPLICATE_ID"}
    stream.push(BEGUN)
    held_model.respond()
    assert stream.told() == {f"push {BEGUN}": "forecast"}


def test_sessions_of_other_streams_are_unknown(stream: RecordedStream, calls: PredictionCalls) -> None:
    assert stream.told() == {}
    other = RecordedStream(calls)
    other.push(BEGUN)
    other.close()
    assert other.told() == {f"push {BEGUN}": "UNKNOWN_SESSION", "close s": "UNKNOWN_SESSION"}


def test_a_session_without_a_name_is_refused(calls: PredictionCalls) -> None:
    stream = RecordedStream(calls)
    stream.open("")
    assert stream.told() == {"open ": "MALFORMED_REQUEST"}


def test_a_session_that_is_closed_is_unknown_and_its_id_is_free(stream: RecordedStream, held_model: HeldModel) -> None:
    stream.push(BEGUN)
    stream.close()
    stream.push(BEGUN + 1)
    held_model.respond()
    assert stream.told() == {
        f"push {BEGUN}": "forecast",
        "close s": "ack",
        f"push {BEGUN + 1}": "UNKNOWN_SESSION",
    }
    stream.open()
    held_model.respond()
    assert stream.told() == {"open s": "forecast"}


def test_a_session_that_is_closed_twice_is_unknown_the_second_time(
    stream: RecordedStream, held_model: HeldModel
) -> None:
    stream.push(BEGUN)
    stream.close()
    stream._send("again", close=pb.CloseSession(session_id="s"))
    held_model.respond()
    assert stream.told() == {f"push {BEGUN}": "forecast", "close s": "ack", "again": "UNKNOWN_SESSION"}


# --- the model


@pytest.mark.parametrize("version", [1, 2], ids=["new weights of the version", "another version"])
def test_weights_that_came_between_are_asked_again_before_the_next_push(
    stream: RecordedStream, held_model: HeldModel, version: int
) -> None:
    for day in (BEGUN, BEGUN + 1):
        stream.push(day)
    asked, answer = held_model.asked.get(timeout=SOON_S)
    (instance,) = asked.decode()
    held_model.info = replace(held_model.info, version=version, weights_hash="3" * 64)
    answer.set_result((replace(forecast_of(instance), version=version, weights_hash="3" * 64),))  # type: ignore[arg-type]
    assert stream.told() == {}
    for day in (BEGUN, BEGUN + 1):
        assert held_model.asked.qsize() == 1
        assert int(held_model.respond().input.sessions[-1]) == DAYS[day]  # type: ignore[union-attr]
    assert stream.told() == {f"push {BEGUN}": "forecast", f"push {BEGUN + 1}": "forecast"}


def test_a_forecast_of_the_weights_that_were_asked_stands_though_others_have_come(
    stream: RecordedStream, held_model: HeldModel
) -> None:
    stream.push(BEGUN)
    asked, answer = held_model.asked.get(timeout=SOON_S)
    (instance,) = asked.decode()
    made = replace(forecast_of(instance), version=held_model.info.version, weights_hash=held_model.info.weights_hash)  # type: ignore[arg-type]
    held_model.info = replace(held_model.info, version=2, weights_hash="3" * 64)
    answer.set_result((made,))
    assert stream.told() == {f"push {BEGUN}": "forecast"}
    assert held_model.asked.empty()


def test_a_push_counts_in_the_queue_with_its_symbols_and_bytes(stream: RecordedStream, held_model: HeldModel) -> None:
    push = push_of(PANEL, DAYS[BEGUN])
    stream.send_push(push, "p")
    asked, answer = held_model.asked.get(timeout=SOON_S)
    assert (asked.rows, asked.size) == (len(SYMBOLS), instances.encode_push("s", push).ByteSize())
    answer.cancel()


def test_a_champion_that_reads_more_asks_for_a_new_subscription(stream: RecordedStream, held_model: HeldModel) -> None:
    few = held_model.info
    held_model.info = replace(few, version=2, bars_needed=few.bars_needed + 10)
    stream.push(BEGUN)
    assert stream.told() == {f"push {BEGUN}": "RESUBSCRIBE"}
    held_model.info = few
    stream.push(BEGUN)
    held_model.respond()
    assert stream.told() == {f"push {BEGUN}": "forecast"}


# --- bounds


def limited(held: HeldModel, **limits: int) -> PredictionCalls:
    return PredictionCalls(held, ServiceLimits(**limits))  # type: ignore[arg-type]


def test_a_stream_has_at_most_so_many_sessions(held_model: HeldModel) -> None:
    calls = limited(held_model, sessions_per_stream=2)
    stream, other = RecordedStream(calls), RecordedStream(calls)
    for name in ("one", "two", "three"):
        stream.open(name)
    assert stream.told() == {"open three": "QUEUE_FULL"}
    other.open()
    assert other.told() == {}
    calls.close()


def test_all_streams_together_have_at_most_so_many_sessions(held_model: HeldModel) -> None:
    calls = limited(held_model, sessions=2)
    streams = [RecordedStream(calls) for _ in range(3)]
    for stream in streams:
        stream.open()
    assert streams[2].told() == {"open s": "QUEUE_FULL"}
    streams[0].call.cancel()
    streams[2].open()
    assert streams[2].told() == {}
    calls.close()


def test_what_a_streams_room_refuses_takes_nothing_of_the_processs() -> None:
    process = SessionQuota.of_process(ServiceLimits(sessions_per_stream=1, session_bytes_per_stream=100))
    quota = process.create_stream_quota(ServiceLimits(sessions_per_stream=1, session_bytes_per_stream=100))
    quota.add(sessions=1)
    quota.add(size=60)
    for refused in (partial(quota.add, sessions=1), partial(quota.add, size=41)):
        with pytest.raises(QueueFullError):
            refused()
    assert process.load == quota.load == (1, 60)
    quota.add(sessions=-1, size=-60)
    assert process.load == quota.load == (0, 0)


@pytest.mark.parametrize("limit", ["session_bytes", "session_bytes_per_stream"])
def test_sessions_hold_at_most_so_many_bytes(held_model: HeldModel, limit: str) -> None:
    calls = limited(held_model, **{limit: 15_000})
    stream = RecordedStream(calls)
    for name in ("one", "two"):
        stream.open(name)
        held_model.respond()
    assert stream.told() == {"open one": "forecast", "open two": "QUEUE_FULL"}
    assert calls.session_load.sessions == 1
    calls.close()


def test_a_session_that_grows_beyond_the_bytes_refuses_the_push_and_stays(held_model: HeldModel) -> None:
    calls = limited(held_model, session_bytes=3_100)
    stream = RecordedStream(calls)
    stream.open(days=10)
    held_model.respond()
    told, day = "forecast", 9
    while told == "forecast":
        day += 1
        stream.push(day)
        held_model.respond()
        told = stream.told()[f"push {day}"]
    assert (told, day < 40) == ("QUEUE_FULL", True)
    stream.push(day - 1)
    held_model.respond()
    assert stream.told() == {f"push {day - 1}": "forecast"}
    calls.close()


def test_a_closed_session_frees_its_bytes(stream: RecordedStream, calls: PredictionCalls) -> None:
    count, size = calls.session_load
    assert count == 1
    assert size > 2 * model_info().bars_needed * 48
    stream.close()
    assert calls.session_load == (0, 0)


@pytest.mark.parametrize("how", ["end_requests", "cancel"])
def test_sessions_end_with_their_stream(
    stream: RecordedStream, calls: PredictionCalls, held_model: HeldModel, how: str
) -> None:
    stream.open("another")
    held_model.respond()
    assert calls.session_load.sessions == 2
    getattr(stream.call, how)()
    assert calls.session_load == (0, 0)


def test_a_stream_that_is_cancelled_while_a_model_is_asked_keeps_nothing(
    stream: RecordedStream, calls: PredictionCalls, held_model: HeldModel
) -> None:
    stream.push(BEGUN)
    stream.push(BEGUN + 1)
    asked, answer = held_model.asked.get(timeout=SOON_S)
    assert answer.set_running_or_notify_cancel()
    (instance,) = asked.decode()
    stream.call.cancel()
    answer.set_result((forecast_of(instance),))  # type: ignore[arg-type]
    assert calls.session_load == (0, 0)
    kept = weakref.ref(instance.input.close)  # type: ignore[union-attr]
    del asked, answer, instance
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("limit", ["sessions", "sessions_per_stream", "session_bytes", "session_bytes_per_stream"])
def test_limits_that_let_no_session_in_are_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} is 0"):
        ServiceLimits(**{limit: 0})  # type: ignore[arg-type]


def test_the_canned_service_is_one_that_sessions_can_ask() -> None:
    service = CannedService(forecast_of)
    calls = PredictionCalls(service)
    stream = RecordedStream(calls)
    stream.open(model="canned")
    service.settle()
    assert stream.told() == {"open s": "forecast"}
    calls.close()
