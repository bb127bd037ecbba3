"""gRPC over HTTP/2: encodings, headers, deadlines, and responses that are not read."""

import asyncio
import gzip
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast, final

import grpc
import pytest
from artifacts import small_models
from canned_service import CannedService, LargeAnswers, forecast_of
from raw_http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    SETTINGS,
    Connection,
    Stream,
    encoded,
    frame,
    message,
)
from serving import Served, hosted_server, serving

from predictor._pb import prediction_pb2 as pb
from predictor.server import ServerLimits
from predictor.server.observed_calls import CallObservers, ObservedCall
from predictor.server.transport.call import encode_trailers, parse_head
from predictor.server.transport.connection import HttpConnection, OpenConnections

LIST = "/quantra.v1.PredictionService/ListModels"
MIB = LargeAnswers.SIZE


def port_of(running: Served) -> int:
    return int(running.target.rpartition(":")[2])


def ended(running: Served, content: bytes, **headers: str) -> Stream:
    """The end of a call with this request and these further headers; _ stands for -."""
    with Connection(port_of(running)) as connection:
        stream = connection.call(LIST, **headers)
        connection.send(stream, content, last=True)
        return connection.finish(stream)


@pytest.fixture(scope="module")
def running() -> Any:
    with serving(CannedService(forecast_of), ServerLimits(receive_bytes=MIB)) as served:
        yield served


# --- encodings


def test_a_request_may_be_compressed_by_gzip(running: Served) -> None:
    with grpc.insecure_channel(running.target, compression=grpc.Compression.Gzip) as channel:
        call: Any = channel.unary_unary(LIST, pb.ListModelsRequest.SerializeToString, pb.ListModelsResponse.FromString)
        assert call(pb.ListModelsRequest(), timeout=10).models


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzip.compress(b""), "0"),
        (gzip.compress(bytes(2 * MIB)), "8"),
        (gzip.compress(bytes(1000))[:-10], "3"),
        (b"no gzip", "3"),
    ],
    ids=["empty", "a bomb", "cut off", "no gzip"],
)
def test_a_compressed_request_is_read_within_the_limit(running: Served, body: bytes, status: str) -> None:
    assert ended(running, message(body, compressed=True), grpc_encoding="gzip").status == status


def test_another_compression_is_unimplemented(running: Served) -> None:
    assert ended(running, message(b"", compressed=True), grpc_encoding="br").status == "12"


@pytest.mark.parametrize("method", ["ListModels", "PredictStream"])
@pytest.mark.parametrize("size", [1, 7])
def test_a_request_that_is_cut_off_is_malformed(running: Served, method: str, size: int) -> None:
    with Connection(port_of(running)) as connection:
        stream = connection.call(f"/quantra.v1.PredictionService/{method}")
        connection.send(stream, message(b"request")[:size], last=True)
        assert connection.finish(stream).status == "3"
    assert stream.headers["grpc-message"] == "the request ends within a message; send it again"


# --- headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content_type": "application/json"}, "415"),
        ({"content_type": "application/grpc-web+proto"}, "415"),
    ],
    ids=["GET", "JSON", "gRPC-Web"],
)
def test_a_request_that_is_no_call_has_a_status_of_http(running: Served, headers: dict[str, str], status: str) -> None:
    stream = ended(running, b"", **headers)
    assert (stream.headers[":status"], stream.status) == (status, "")


@pytest.mark.parametrize("timeout", ["", "S", "1", "1x", "-1S", "123456789S", "1.5S"])
def test_a_malformed_timeout_is_refused(running: Served, timeout: str) -> None:
    stream = ended(running, message(b""), grpc_timeout=timeout)
    assert (stream.status, stream.headers["grpc-message"][:19]) == ("13", "header grpc-timeout")


def test_a_binary_header_needs_no_padding(running: Served) -> None:
    assert ended(running, message(b""), some_bin="AQ").status == "0"


def test_values_of_a_binary_header_may_be_joined() -> None:
    head = parse_head(
        ((b":method", b"POST"), (b":path", b"/a"), (b"content-type", b"application/grpc"), (b"x-bin", b"AQ,Ag=="))
    )
    assert head.metadata[1:] == (("x-bin", b"\x01"), ("x-bin", b"\x02"))


def test_a_malformed_binary_header_is_refused(running: Served) -> None:
    assert ended(running, message(b""), some_bin="!").status == "13"


@pytest.mark.slow
def test_a_call_that_is_late_on_arrival_exceeds_its_deadline_and_harms_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        hosted_server(small_models(tmp_path)) as server,  # on uvloop, where timers are different
        Connection(int(server.target.rpartition(":")[2])) as connection,
    ):
        for late in ("0n", "1u"):
            assert connection.finish(connection.call(LIST, grpc_timeout=late)).status == "4"
        stream = connection.call(LIST)
        connection.send(stream, message(b""), last=True)
        assert connection.finish(stream).status == "0"
    assert "ERROR" not in caplog.text


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that a test advances."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_pings_of_an_idle_client_end_its_connection_only_if_they_come_close_together() -> None:
    pings = 600 * frame(PING, bytes(8))

    async def ping(loop: ClockedLoop, pause_s: float) -> bool:
        here, there = socket.socketpair()
        connections = OpenConnections(1)
        connection = HttpConnection({}, ServerLimits(), connections, "client")
        await loop.connect_accepted_socket(lambda: connection, here)
        with there:
            connection.data_received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS) + pings)
            loop.ahead_s += pause_s
            connections.check_times(limit_age=False)
            connection.data_received(pings)
            await asyncio.sleep(0)
            was_open = not connection.lost.is_set() and not here_closes(there)
            await connections.close()
        return was_open

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        loop = cast("ClockedLoop", runner.get_loop())
        assert [runner.run(ping(loop, pause_s)) for pause_s in (61.0, 0.0)] == [True, False]


def test_a_stream_that_crosses_the_end_of_its_connection_is_accepted() -> None:
    """The connection is silent and too old at once; the stream follows the answer to its first ping."""
    limits = ServerLimits(silence_s=1.0, age_s=1.0, idle_s=1000.0)
    block = encoded({":method": "POST", ":scheme": "http", ":path": "/a", ":authority": "server"})

    async def cross(loop: ClockedLoop) -> list[int]:
        here, there = socket.socketpair()
        connections = OpenConnections(1)
        connection = HttpConnection({}, limits, connections, "client")
        await loop.connect_accepted_socket(lambda: connection, here)
        with there:
            connection.data_received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
            connection.data_received(frame(HEADERS, block, flags=END_STREAM | END_HEADERS, stream=1))
            loop.ahead_s += 2.0
            connections.check_times(limit_age=True)
            await asyncio.sleep(0)
            first, *_ = [content for kind, _, content in frames(there.recv(1 << 20)) if kind == PING]
            connection.data_received(frame(PING, first, flags=ACK))
            connection.data_received(frame(HEADERS, block, flags=END_STREAM | END_HEADERS, stream=3))
            await asyncio.sleep(0)
            answered = [stream for kind, stream, _ in frames(there.recv(1 << 20)) if kind == HEADERS]
            await connections.close()
        return answered

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        assert runner.run(cross(cast("ClockedLoop", runner.get_loop()))) == [3]


def frames(received: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, stream and content of each frame."""
    found: list[tuple[int, int, bytes]] = []
    while received:
        end = 9 + int.from_bytes(received[:3], "big")
        found.append((received[3], int.from_bytes(received[5:9], "big"), received[9:end]))
        received = received[end:]
    return found


def here_closes(there: socket.socket) -> bool:
    """Whether the server says goodbye."""
    return GOAWAY in [kind for kind, _, _ in frames(there.recv(1 << 20))]


# --- connections


def kinds_until_closed(silent: Connection) -> list[int]:
    """The kinds of all frames until the server closes a connection."""
    kinds: list[int] = []
    while True:
        try:
            kinds.append(silent.read())
        except ConnectionError:
            return kinds


def test_connections_without_calls_keep_no_other_out() -> None:
    limits = ServerLimits(connections=3)
    with serving(CannedService(forecast_of), limits) as served, ExitStack() as opened:
        used = opened.enter_context(Connection(port_of(served)))
        assert used.finish(send_call(used)).status == "0"
        silent = [opened.enter_context(Connection(port_of(served))) for _ in range(20)]
        kinds_until_closed(silent[0])
        new = opened.enter_context(Connection(port_of(served)))
        assert [each.finish(send_call(each)).status for each in (new, used)] == ["0", "0"]


def test_a_connection_closes_the_one_that_is_idle_for_longest_and_none_with_a_call() -> None:
    with serving(CannedService(forecast_of), ServerLimits(connections=2)) as served, ExitStack() as opened:
        busy, idle = (opened.enter_context(Connection(port_of(served))) for _ in range(2))
        watch = busy.call("/grpc.health.v1.Health/Watch")
        busy.send(watch, message(b""), last=True)
        busy.read_until_answered(watch)
        for _ in range(2):  # after the second, the server has read all that the client sent
            assert idle.finish(send_call(idle)).status == "0"
        new = opened.enter_context(Connection(port_of(served)))
        assert GOAWAY in kinds_until_closed(idle)
        other = new.call("/grpc.health.v1.Health/Watch")
        new.send(other, message(b""), last=True)
        new.read_until_answered(other)
        refused = opened.enter_context(Connection(port_of(served)))
        with pytest.raises(ConnectionError):
            refused.read()
        assert busy.finish(send_call(busy)).status == "0"


def send_call(connection: Connection) -> Stream:
    stream = connection.call(LIST)
    connection.send(stream, message(b""), last=True)
    return stream


def test_a_method_that_does_not_exist_is_unimplemented(running: Served) -> None:
    with Connection(port_of(running)) as connection:
        assert connection.finish(connection.call("/quantra.v1.PredictionService/Guess")).status == "12"


# --- responses


def test_a_status_may_name_a_file_whose_name_is_no_unicode() -> None:
    assert b"no \x3fmodel" in encode_trailers(grpc.StatusCode.INTERNAL, "no \udcffmodel", {}, has_begun=True)


def test_many_large_responses_wait_for_a_slow_reader() -> None:
    calls = cast("Any", LargeAnswers())
    with (
        serving(CannedService(forecast_of), ServerLimits(send_bytes=MIB), calls) as served,
        Connection(port_of(served)) as slow,
    ):
        streams = slow.call_together(LIST, message(b""), 40)
        assert [(len(slow.finish(each).answer), each.status) for each in streams] == [(MIB + 5, "0")] * 40


@final
class Ends:
    """Records the ends of calls."""

    def __init__(self, expected: int) -> None:
        self.codes: list[str] = []
        self.all_ended = threading.Event()
        self._expected = expected

    def on_end(self, call: ObservedCall) -> None:
        self.codes.append(call.code)
        if len(self.codes) == self._expected:
            self.all_ended.set()


def test_a_caller_that_goes_while_its_response_waits_is_reported_once() -> None:
    ends, calls = Ends(40), cast("Any", LargeAnswers())
    with serving(CannedService(forecast_of), calls=calls, watching=CallObservers([ends])) as served:
        with Connection(port_of(served)) as slow:
            first = slow.call_together(LIST, message(b""), 40)[0]
            slow.finish(first)
            assert ends.all_ended.wait(10)
            slow.reset()
        with grpc.insecure_channel(served.target) as channel:
            channel.unary_unary(LIST)(b"", timeout=10)  # after the connection that was lost
    assert ends.codes == ["OK"] * 41


def test_the_deadline_of_a_call_is_the_servers_too() -> None:
    calls = LargeAnswers()
    with serving(CannedService(forecast_of), calls=cast("Any", calls)) as served:
        ended(served, message(b""), grpc_timeout="1H")
        ended(served, message(b""))
    assert [each.expires_at_s is not None for each in calls.contexts] == [True, False]
