"""Callers that do not read their responses, or send half a request, hold up no one else."""

from contextlib import ExitStack
from typing import Any, cast

import grpc
import pytest
from canned_service import CannedService, LargeAnswers, forecast_of
from grpc_health.v1 import health_pb2
from raw_http2 import Connection, Stream, message
from serving import Served, serving

from predictor.server import ServerLimits

LIST = "/quantra.v1.PredictionService/ListModels"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
MIB = LargeAnswers.SIZE
WINDOW = 1000


def port_of(served: Served) -> int:
    return int(served.target.rpartition(":")[2])


def large_answers(limits: ServerLimits) -> Any:
    return serving(CannedService(forecast_of), limits, cast("Any", LargeAnswers()))


def whole(connection: Connection, path: str) -> Stream:
    stream = connection.call(path)
    connection.send(stream, message(b""), last=True)
    return connection.finish(stream)


def health(served: Served) -> int:
    with grpc.insecure_channel(served.target) as channel:
        check = channel.unary_unary(CHECK)
        return health_pb2.HealthCheckResponse.FromString(check(b"", timeout=10)).status


def test_large_responses_that_wait_for_their_windows_hold_up_no_other_call_of_the_connection() -> None:
    with large_answers(ServerLimits()) as served, Connection(port_of(served), window=WINDOW) as slow:
        slow.call_together(LIST, message(b""), 20)
        assert whole(slow, CHECK).status == "0"


def test_responses_that_are_not_read_leave_room_for_the_calls_of_others() -> None:
    with large_answers(ServerLimits(calls_in_flight=8)) as served, ExitStack() as stack:
        for _ in range(2):
            slow = stack.enter_context(Connection(port_of(served), window=0))
            for stream in slow.call_together(LIST, message(b""), 8):
                slow.read_until_answered(stream)
        with grpc.insecure_channel(served.target, [("grpc.max_receive_message_length", -1)]) as channel:
            assert len(channel.unary_unary(LIST)(b"", timeout=10)) == MIB


@pytest.mark.slow
def test_a_connection_that_leaves_too_much_unread_gets_errors() -> None:
    with (
        large_answers(ServerLimits(unread_bytes_per_peer=5 * MIB // 2)) as served,
        Connection(port_of(served), window=WINDOW) as slow,
    ):
        for stream in slow.call_together(LIST, message(b""), 3):
            slow.read_until_answered(stream)
        refused = whole(slow, LIST)
        assert refused.status == "8"
        assert "of responses are unread on this connection" in refused.headers["grpc-message"]
        assert whole(slow, CHECK).status == "0"


def test_a_connection_that_leaves_more_unread_than_all_may_is_closed() -> None:
    limits = ServerLimits(unread_bytes=3 * MIB, handshake_s=0.1)
    with (
        large_answers(limits) as served,
        Connection(port_of(served), window=WINDOW) as modest,
        Connection(port_of(served), window=WINDOW) as greedy,
    ):
        kept = modest.call_together(LIST, message(b""), 1)[0]
        streams = greedy.call_together(LIST, message(b""), 4)
        with pytest.raises(OSError, match=r"closed|reset"):
            greedy.finish(streams[0])
        assert whole(modest, CHECK).status == "0"
        assert not kept.ended


def test_a_connection_may_have_as_many_calls_as_are_free_while_others_have_some() -> None:
    limits = ServerLimits(calls_in_flight=8, calls_per_peer=4)
    with serving(CannedService(forecast_of), limits) as served, ExitStack() as stack:
        for _ in range(3):
            half_sent = stack.enter_context(Connection(port_of(served)))
            streams = [half_sent.call(LIST) for _ in range(8)]
            half_sent.send(streams[0], message(b"")[:3])
            half_sent.finish(streams[-1])  # refused
        with grpc.insecure_channel(served.target) as channel:
            assert channel.unary_unary(LIST)(b"", timeout=10)


@pytest.mark.parametrize("window", [0, WINDOW], ids=["unread", "read"])
def test_checks_of_health_are_answered_however_many_others_there_are(window: int) -> None:
    with (
        serving(CannedService(forecast_of), ServerLimits(calls_in_flight=4, calls_per_peer=4)) as served,
        Connection(port_of(served), window=window) as unread,
        Connection(port_of(served)) as half_sent,
        Connection(port_of(served)) as watching,
    ):
        unread.call_together(CHECK, message(b""), 4)
        for _ in range(4):
            half_sent.send(half_sent.call(CHECK), message(b"")[:3])
        watching.call_together(WATCH, message(b""), 4)
        assert health(served) == health_pb2.HealthCheckResponse.SERVING


def test_a_deadline_ends_a_response_that_waits_for_its_window() -> None:
    with serving(CannedService(forecast_of)) as served, Connection(port_of(served), window=0) as connection:
        stream = connection.call(WATCH, grpc_timeout="200m")
        connection.send(stream, message(b""), last=True)
        assert connection.finish(stream).ended == "reset 8"
