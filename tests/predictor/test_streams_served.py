"""PredictStream over gRPC: server behaviour and both Python clients."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast, final

import grpc
import pytest
from canned_service import CannedService, forecast_of
from market import bokeh_panel
from raw_http2 import Connection, Stream, message
from serving import Served, serving
from talks import METHOD, SOON_S, GrpcStreamCaller

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.calls import PredictionCalls
from predictor.cli import app, run
from predictor.cli import server_commands as serve_command
from predictor.client import AsyncQuantraClient, QuantraClient, StreamResponse
from predictor.client.streams import RequestSender, RequestStream
from predictor.errors import (
    BarsError,
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    InternalError,
    ModelNotFoundError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnavailableError,
)
from predictor.forecast import Forecast
from predictor.instance import Instance, InstanceLike
from predictor.limits import ServiceLimits
from predictor.server import ServerLimits, ServerSettings
from predictor.server import __main__ as plain
from predictor.server.observed_calls import CallObservers, ObservedCall
from predictor.wire import instances

BARS = bokeh_panel("AAPL").last(3)


@pytest.fixture
def canned() -> Iterator[CannedService]:
    service = CannedService(forecast_of)
    yield service
    service.predictions_released.set()


def predict_request(request_id: str, model: str = "canned") -> bytes:
    predict = pb.StreamPredict(model=model, instance=instances.encode(Instance(input=BARS)))
    return pb.PredictStreamRequest(request_id=request_id, predict=predict).SerializeToString()


def port_of(running: Served) -> int:
    return int(running.target.rpartition(":")[2])


# --- stream limits


def opened(connection: Connection, content: bytes) -> Stream:
    stream = connection.call(METHOD)
    assert connection.send(stream, content)
    return stream


def test_a_caller_that_never_reads_is_not_read_from(canned: CannedService) -> None:
    """Once enough responses are unread, requests are not read either, and gRPC buffers 64 KiB of them."""
    calls = PredictionCalls(canned, ServiceLimits(requests_per_stream=8))
    with serving(canned, ServerLimits(), calls) as running:
        with Connection(port_of(running), window=0, timeout_s=2.0) as silent:
            sent = sent_until_refused(silent, 1000)
            held = 8 + 1 + 2 * 64 * 1024 // len(large("0000"))  # running, one being read, and gRPC's buffer
            assert 8 < sent <= held
        with QuantraClient(running.target) as other:
            assert isinstance(other.predict(BARS), Forecast)


def large(request_id: str) -> bytes:
    """A request of about 10 KB."""
    instance = instances.encode(Instance(input=bokeh_panel("AAPL").last(200)))
    request = pb.PredictStreamRequest(request_id=request_id, predict=pb.StreamPredict(instance=instance))
    return message(request.SerializeToString())


def sent_until_refused(connection: Connection, most: int) -> int:
    """Number of requests that a stream accepts before it refuses."""
    stream = connection.call(METHOD)
    for count in range(most):
        try:
            connection.send(stream, large(f"{count:04d}"))
        except TimeoutError:
            return count
    return most


def test_streams_count_as_calls_and_so_many_may_be_open(canned: CannedService) -> None:
    limits = ServerLimits(streams=2)
    with serving(canned, limits) as running, grpc.insecure_channel(running.target) as channel:
        talks = [GrpcStreamCaller(channel, None) for _ in range(2)]
        for talk in talks:
            talk.send(predict_request("one"))
            assert talk.on_losses().HasField("forecast")
        refused = GrpcStreamCaller(channel, None)
        heard, error = refused.rest()
        assert (heard, type(error)) == ([], QueueFullError)
        with QuantraClient(running.target) as client:
            assert isinstance(client.predict(BARS), Forecast)
        for talk in talks:
            talk.cancel()


def test_one_connection_may_have_so_many_streams(canned: CannedService) -> None:
    own: Any = (("grpc.use_local_subchannel_pool", 1),)
    with (
        serving(canned, ServerLimits(streams_per_peer=1)) as running,
        grpc.insecure_channel(running.target, options=own) as greedy,
        grpc.insecure_channel(running.target, options=own) as modest,
    ):
        first = GrpcStreamCaller(greedy, None)
        first.send(predict_request("one"))
        assert first.on_losses().HasField("forecast")
        _, error = GrpcStreamCaller(greedy, None).rest()
        assert isinstance(error, QueueFullError)
        other = GrpcStreamCaller(modest, None)
        other.send(predict_request("one"))
        assert other.on_losses().HasField("forecast")
        for talk in (first, other):
            talk.cancel()


def test_an_idle_stream_takes_no_place_from_requests_that_arrive(canned: CannedService) -> None:
    limits = ServerLimits(arriving=1, arriving_per_peer=1, request_s=0.2)
    with serving(canned, limits) as running, grpc.insecure_channel(running.target) as channel:
        talk = GrpcStreamCaller(channel, None)
        talk.send(predict_request("one"))
        assert talk.on_losses().HasField("forecast")
        with QuantraClient(running.target) as client:
            for _ in range(3):
                assert isinstance(client.predict(BARS), Forecast)
        assert not threading.Event().wait(0.4)  # the idle caller
        talk.send(predict_request("two"))
        assert talk.on_losses().HasField("forecast")
        talk.cancel()


def test_answers_that_were_read_make_room_for_as_many_requests(canned: CannedService) -> None:
    limits = ServerLimits(service=ServiceLimits(requests_per_stream=2))
    with serving(canned, limits) as running, grpc.insecure_channel(running.target) as channel:
        talk, busy = GrpcStreamCaller(channel, SOON_S), GrpcStreamCaller(channel, SOON_S)
        for request_id in ("one", "two"):
            talk.send(predict_request(request_id))
            assert talk.on_losses().request_id == request_id
        canned.begun.clear()
        canned.predictions_released.clear()
        busy.send(predict_request("busy"))
        assert canned.begun.wait(SOON_S)
        talk.send(predict_request("three"))
        cancel = pb.CancelRequest(request_id="three")
        talk.send(pb.PredictStreamRequest(request_id="four", cancel=cancel).SerializeToString())
        assert {talk.on_losses().request_id for _ in range(2)} == {"three", "four"}
        for each in (talk, busy):
            each.cancel()


def test_a_full_stream_continues_as_its_responses_are_read(canned: CannedService) -> None:
    limits = ServerLimits(service=ServiceLimits(requests_per_stream=2))
    with serving(canned, limits) as running, grpc.insecure_channel(running.target) as channel:
        talk = GrpcStreamCaller(channel, SOON_S)
        for count in range(9):
            talk.send(predict_request(str(count)))
        talk.end()
        heard, error = talk.rest()
        assert (len(heard), error) == (9, None)


def test_a_stream_whose_time_is_over_counts_as_late_and_not_as_cancelled(canned: CannedService) -> None:
    told = EndedCalls()
    canned.predictions_released.clear()
    with serving(canned, watching=CallObservers([told])) as running, Connection(port_of(running)) as connection:
        stream = connection.call(METHOD, grpc_timeout="200m")
        connection.send(stream, message(predict_request("one")))
        assert connection.finish(stream).status == "4"
        assert told.calls.get(timeout=SOON_S).code == "DEADLINE_EXCEEDED"


@final
class EndedCalls:
    """An observer that records ended calls."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[ObservedCall] = SimpleQueue()

    def on_end(self, call: ObservedCall) -> None:
        self.calls.put(call)


def test_half_requests_of_streams_are_as_many_as_streams_may_be(canned: CannedService) -> None:
    limits = ServerLimits(streams=3, receive_bytes=1 << 20, request_s=0.2)
    half = message(bytes(1 << 20))[: 1 << 19]
    with serving(canned, limits) as running, Connection(port_of(running)) as connection:
        idle = opened(connection, message(predict_request("one")))
        halves = [opened(connection, half) for _ in range(2)]
        refused = connection.call(METHOD)
        connection.send(refused, half)
        assert connection.finish(refused).status == "8"
        assert not threading.Event().wait(0.4)  # the idle caller
        assert connection.send(idle, message(predict_request("two")), last=True)
        assert connection.finish(idle).status == "0"
        assert [stream.ended for stream in halves] == ["", ""]


def test_by_default_half_requests_of_streams_are_a_gibibyte_at_most() -> None:
    limits = ServerLimits()
    assert limits.streams * limits.receive_bytes == 1 << 30
    assert limits.streams_per_peer * limits.receive_bytes == 1 << 29


@pytest.mark.parametrize(("flags", "most"), [([], 64), (["--max-streams", "9"], 9)], ids=str)
def test_serve_hands_the_number_of_streams_to_the_server(
    flags: list[str], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def served(settings: ServerSettings, *_: object) -> int:
        seen.append(settings.limits.streams)
        return 0

    monkeypatch.setattr(serve_command, "serve_models", served)
    monkeypatch.setattr(plain, "serve", served)
    with pytest.raises(SystemExit):
        run(app, ["serve", "--models", str(tmp_path), *flags])
    plain.main(["--models", str(tmp_path), *flags])
    assert seen == [most, most]


def test_a_request_of_a_stream_that_announces_too_much_is_refused_before_it_comes(canned: CannedService) -> None:
    with serving(canned) as running, Connection(port_of(running)) as connection:
        stream = opened(connection, message(bytes((16 << 20) + 1))[:1000])
        assert connection.finish(stream).status == "8"


def test_a_request_over_the_limit_ends_its_stream(canned: CannedService) -> None:
    with serving(canned, ServerLimits(receive_bytes=500)) as running, grpc.insecure_channel(running.target) as channel:
        talk = GrpcStreamCaller(channel, None)
        talk.send(predict_request("x" * 600))
        heard, error = talk.rest()
        assert (heard, type(error)) == ([], RequestTooLargeError)


def test_an_answer_over_the_limit_is_one_requests_error(canned: CannedService) -> None:
    with serving(canned, ServerLimits(send_bytes=300)) as running, QuantraClient(running.target) as client:
        (answer,) = client.predict_stream([BARS])
        assert isinstance(answer.outcome, RequestTooLargeError)


def test_streams_that_are_abandoned_leave_no_task_behind(canned: CannedService) -> None:
    with serving(canned) as running:
        before = tasks_of(running)
        for _ in range(20):
            with Connection(port_of(running)) as connection:
                for count in range(10):
                    opened(connection, message(predict_request(str(count)))[: 100 * count])
                connection.reset()
        with QuantraClient(running.target) as client:
            while tasks_of(running) > before:
                client.models()


def tasks_of(running: Served) -> int:
    """Number of tasks on the server's loop, without the counting one."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), running.loop).result(SOON_S)


def test_a_connection_that_has_fallen_silent_ends_with_its_streams(canned: CannedService) -> None:
    limits = ServerLimits(streams=1, silence_s=0.2)
    with serving(canned, limits) as running, Connection(port_of(running)) as silent:
        opened(silent, message(predict_request("one")))
        with QuantraClient(running.target) as client:
            while isinstance(failure(client), QueueFullError):
                pass


def failure(client: QuantraClient) -> QuantraError | None:
    """The error of a stream that cannot be opened."""
    try:
        list(client.predict_stream([BARS]))
    except QuantraError as error:
        return error
    return None


def test_draining_gives_up_on_a_stream_that_is_not_read(canned: CannedService) -> None:
    with serving(canned, ServerLimits(drain_s=0.2)) as running, Connection(port_of(running), window=0) as silent:
        opened(silent, message(predict_request("one")))
        assert canned.begun.wait(SOON_S)
        running.begin_drain()
        running.drained.result(SOON_S)


# --- the clients


@pytest.fixture
def client(canned: CannedService) -> Iterator[QuantraClient]:
    with serving(canned) as running, QuantraClient(running.target) as opened:
        yield opened


def endless() -> Iterator[BarPanel]:
    return itertools.repeat(BARS)


def test_the_client_gives_each_question_its_answer_place_and_own_id(client: QuantraClient) -> None:
    wide = Instance(input=bokeh_panel("AAPL", "IBM").last(3), request_id="both")
    questions: list[InstanceLike] = [BARS, wide, Instance(input=BARS, request_id="both")]
    found = {answer.index: answer for answer in client.predict_stream(questions)}
    assert [found[place].request_id for place in range(3)] == ["", "both", "both"]
    forecasts = [answer.outcome for _, answer in sorted(found.items())]
    assert [one.symbols for one in forecasts if isinstance(one, Forecast)] == [("AAPL",), ("AAPL", "IBM"), ("AAPL",)]


def test_the_client_asks_no_more_than_may_be_under_way(client: QuantraClient, canned: CannedService) -> None:
    taken: list[int] = []

    def questions() -> Iterator[BarPanel]:
        for count in range(10):
            taken.append(count)
            yield BARS

    canned.predictions_released.clear()
    answers = client.predict_stream(questions(), in_flight=3)
    threading.Timer(0.2, canned.predictions_released.set).start()
    next(answers)
    assert len(taken) <= 4
    assert len(list(answers)) == 9


def test_an_error_of_one_question_is_its_outcome(canned: CannedService) -> None:
    with serving(canned) as running, QuantraClient(running.target, "nobody") as client:
        assert [type(answer.outcome) for answer in client.predict_stream([BARS, BARS])] == [ModelNotFoundError] * 2


def test_who_stops_to_read_cancels_the_rest(client: QuantraClient, canned: CannedService) -> None:
    for answer in client.predict_stream(endless(), in_flight=4):
        if answer.index == 10:
            canned.predictions_released.clear()
            break
    canned.predictions_released.set()
    canned.settle()
    assert len(canned.contexts) < 30


def failing_bars() -> Iterator[BarPanel]:
    yield BARS
    raise ZeroDivisionError


def test_what_the_questions_raise_is_raised_after_the_answers(client: QuantraClient) -> None:
    answers = client.predict_stream(failing_bars())
    assert isinstance(next(answers).outcome, Forecast)
    with pytest.raises(ZeroDivisionError):
        next(answers)


def test_a_stream_of_no_server_is_unavailable() -> None:
    with QuantraClient("127.0.0.1:9") as nobody, pytest.raises(UnavailableError):
        list(nobody.predict_stream([BARS]))


def test_a_closed_client_opens_no_stream(client: QuantraClient) -> None:
    client.close()
    with pytest.raises(UnavailableError, match="closed"):
        list(client.predict_stream([BARS]))


def test_a_stream_without_questions_under_way_is_refused(client: QuantraClient) -> None:
    with pytest.raises(ConfigurationError, match="in_flight is 0"):
        list(client.predict_stream([BARS], in_flight=0))


def test_a_server_that_drains_ends_the_clients_stream_after_its_answers(canned: CannedService) -> None:
    with serving(canned) as running, QuantraClient(running.target) as client:
        answers = client.predict_stream(endless(), in_flight=2)
        next(answers)
        running.begin_drain()
        with pytest.raises(UnavailableError, match="stopping"):
            list(answers)


def test_a_server_that_falls_silent_is_a_deadline(canned: CannedService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.client.streams.GRACE_S", 0.1)
    monkeypatch.setattr("predictor.client.streams.WATCH_S", 0.05)
    canned.predictions_released.clear()
    with (
        serving(canned) as running,
        QuantraClient(running.target, timeout_s=0.1) as client,
        pytest.raises(DeadlineExceededError, match="no response from"),
    ):
        list(client.predict_stream([BARS]))


async def places(client: AsyncQuantraClient, questions: Any) -> list[int]:
    return sorted([answer.index async for answer in client.predict_stream(questions, in_flight=2)])


def test_silence_counts_from_the_question_and_from_the_look_for_its_answer_whichever_is_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("predictor.client.streams.GRACE_S", 10.0)
    now_s = [100.0]
    monkeypatch.setattr("predictor.client.streams.time", Clock(now_s))
    stream = RequestStream("there", "canned", timeout_s=1.0, in_flight=2)
    stream.begin_wait()
    now_s[0] += 60  # slow requests
    assert stream.request(BARS).timeout_s == 1.0
    assert not stream.is_overdue()
    now_s[0] += 12
    assert stream.is_overdue()
    stream.begin_wait()  # a late reader waits from then on
    assert not stream.is_overdue()


def test_an_instance_that_is_none_is_an_error_and_hides_no_others() -> None:
    instances = cast("list[BarPanel]", [BARS, None, BARS])
    sender = RequestSender(RequestStream("there", "canned", timeout_s=1.0, in_flight=9), instances)
    assert len([*sender.requests()]) == 1
    with pytest.raises(BarsError):
        sender.check()


@pytest.mark.parametrize(
    ("response", "kind"),
    [(pb.PredictStreamResponse(), "nothing"), (pb.PredictStreamResponse(ack=pb.Ack()), "ack")],
)
def test_a_response_without_a_forecast_or_an_error_is_the_servers_fault(
    response: pb.PredictStreamResponse, kind: str
) -> None:
    stream = RequestStream("there", "canned", timeout_s=1.0, in_flight=1)
    response.request_id = stream.request(BARS).request_id
    with pytest.raises(InternalError, match=f"there answered with {kind} instead of a forecast or an error"):
        stream.decode_response(response)


def test_a_malformed_forecast_is_the_servers_fault() -> None:
    stream = RequestStream("there", "canned", timeout_s=1.0, in_flight=1)
    broken = pb.Forecast(symbols=["AAPL"], horizons=[1], quantiles=[0.5], values=b"123")
    with pytest.raises(InternalError, match="the response of there is malformed"):
        stream.decode_response(pb.PredictStreamResponse(request_id=stream.request(BARS).request_id, forecast=broken))


def test_who_reads_no_more_lets_the_thread_go_that_waits_for_room() -> None:
    sender = RequestSender(RequestStream("there", "canned", timeout_s=1.0, in_flight=1), itertools.repeat(BARS))
    requests = sender.requests()
    assert next(requests).HasField("predict")
    waiting = threading.Thread(target=lambda: [*requests], daemon=True)
    waiting.start()
    sender.stop()
    waiting.join(SOON_S)
    assert not waiting.is_alive()


@final
class Clock:
    """A clock that the test sets."""

    def __init__(self, now_s: list[float]) -> None:
        self._now_s = now_s

    def monotonic(self) -> float:
        return self._now_s[0]


def test_the_asynchronous_client_answers_the_same(canned: CannedService) -> None:
    async def several() -> AsyncIterator[BarPanel]:
        for _ in range(5):
            yield BARS

    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target) as client:
            assert await places(client, [BARS] * 5) == await places(client, several()) == [0, 1, 2, 3, 4]
            with pytest.raises(ZeroDivisionError):
                await places(client, failing_bars())
            with pytest.raises(ConfigurationError):
                await anext(client.predict_stream([], in_flight=0))
            stream = client.predict_stream(endless())
            assert isinstance((await anext(stream)).outcome, Forecast)
            await stream.aclose()
        with pytest.raises(UnavailableError, match="closed"):
            await places(client, [BARS])

    with serving(canned) as running:
        asyncio.run(ask(running.target))


async def rest(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [answer async for answer in stream]


def test_the_asynchronous_client_raises_what_ends_the_stream(canned: CannedService) -> None:
    async def drained(running: Served) -> None:
        async with AsyncQuantraClient(running.target) as client:
            stream = client.predict_stream(endless())
            await anext(stream)
            running.begin_drain()
            # grpc.aio loses the server's message if the stream ends while a request is being written.
            with pytest.raises(UnavailableError, match=r"stopping|ended the stream while a request was being sent"):
                await rest(stream)

    with serving(canned) as running:
        asyncio.run(drained(running))


def test_closing_the_asynchronous_client_ends_its_stream(canned: CannedService) -> None:
    async def close(target: str) -> None:
        async with AsyncQuantraClient(target) as client:
            stream = client.predict_stream([BARS])
            canned.predictions_released.clear()
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(canned.begun.wait, SOON_S)
            await client.close()
            with pytest.raises(CallCancelledError):
                await waiting

    with serving(canned) as running:
        asyncio.run(close(running.target))
        canned.predictions_released.set()


def test_a_silent_server_is_a_deadline_of_the_asynchronous_client(
    canned: CannedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.client.streams.GRACE_S", 0.1)
    monkeypatch.setattr("predictor.client.async_client.WATCH_S", 0.05)
    canned.predictions_released.clear()

    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target, timeout_s=0.1) as client:
            with pytest.raises(DeadlineExceededError, match="no response from"):
                await places(client, [BARS])

    with serving(canned) as running:
        asyncio.run(ask(running.target))
        canned.predictions_released.set()
