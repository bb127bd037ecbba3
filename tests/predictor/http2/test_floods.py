"""Attacks that need no error of the protocol, and what bounds them."""

from collections.abc import Callable

import pytest
from http2_peer import (
    ACK,
    BLOCK,
    CONTINUATION,
    END_HEADERS,
    GREETING,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WINDOW_UPDATE,
    call,
    data,
    encoded,
    ending,
    frame,
    greeted,
    headers,
    number,
    settings,
)

from predictor.http2 import ConnectionLimits, ErrorCode, Http2StateMachine, RequestReceived, encode_headers

CALM = ErrorCode.ENHANCE_YOUR_CALM
TRAILERS = encode_headers([(b"grpc-status", b"0")])
CANCEL = number(ErrorCode.CANCEL)

FLOODS = {
    "pings": frame(PING, bytes(8)),
    "answers to no ping": frame(PING, bytes(8), flags=ACK),
    "settings": frame(SETTINGS),
    "acknowledged settings": frame(SETTINGS, flags=ACK),
    "windows": frame(WINDOW_UPDATE, number(1)),
    "windows of a stream": frame(WINDOW_UPDATE, number(1), stream=1),
    "priorities": frame(PRIORITY, number(0) + b"\0", stream=3),
    "unknown frames": frame(UNKNOWN),
    "empty data": data(1),
    "padded empty data": frame(0, b"\x05" + bytes(5), flags=8, stream=1),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_frames_without_content_are_counted(flood: bytes) -> None:
    connection = greeted()
    connection.receive(headers(1))
    assert connection.receive(flood * 200) == []
    connection.data_to_send()
    assert ending(connection.receive(flood * 1000)) == CALM


def _answer(connection: Http2StateMachine, streams: range) -> None:
    for stream in streams:
        connection.receive(call(stream))
        connection.send_headers(stream, TRAILERS, end=True)
    connection.data_to_send()


def test_responses_earn_further_frames() -> None:
    connection = greeted()
    for first in range(1, 4001, 200):
        assert connection.receive(frame(PING, bytes(8)) * 700) == []
        _answer(connection, range(first, first + 200, 2))


def test_what_is_earned_is_bounded() -> None:
    connection = greeted()
    _answer(connection, range(1, 8001, 2))
    assert connection.receive(frame(PING, bytes(8)) * 4000) == []
    assert ending(connection.receive(frame(PING, bytes(8)))) == CALM


def test_messages_of_a_stream_earn_its_window_updates() -> None:
    connection = greeted()
    connection.receive(headers(1))
    for _ in range(3000):
        connection.send_data(1, b"x")
        connection.data_to_send()
        update = frame(WINDOW_UPDATE, number(1), stream=1) + frame(WINDOW_UPDATE, number(1))
        assert connection.receive(update) == []


def test_bytes_of_bodies_earn_further_frames() -> None:
    connection = greeted()
    connection.receive(headers(1))
    for _ in range(3000):
        assert len(connection.receive(data(1, bytes(1024)) + frame(PING, bytes(8)))) == 1
        connection.acknowledge(1, 1024)
        connection.data_to_send()


def test_bytes_of_a_response_earn_its_window_updates() -> None:
    connection = greeted(ConnectionLimits(unsent=1 << 25))
    connection.receive(call(1))
    connection.send_data(1, bytes(20_000_000), end=True)
    update = frame(WINDOW_UPDATE, number(4096), stream=1) + frame(WINDOW_UPDATE, number(4096))
    for _ in range(4000):
        assert connection.receive(update) == []
        connection.data_to_send()


def test_large_messages_earn_their_window_updates() -> None:
    connection = greeted(ConnectionLimits(unsent=1 << 25), GREETING + frame(WINDOW_UPDATE, number(1 << 30)))
    connection.receive(headers(1) + frame(WINDOW_UPDATE, number(1 << 30), stream=1))
    for _ in range(40):
        connection.send_data(1, bytes(1 << 20))
        connection.data_to_send()
        assert connection.receive(frame(WINDOW_UPDATE, number(1 << 13), stream=1) * 128) == []


def test_dribbled_windows_earn_nothing() -> None:
    connection = greeted(first=GREETING[:24] + settings(4, 0))
    connection.receive(call(1))
    connection.send_data(1, bytes(10_000))
    assert ending(connection.receive(frame(WINDOW_UPDATE, number(1), stream=1) * 1100)) == CALM


def test_budgets_are_renewed_by_the_owner() -> None:
    connection = greeted()
    for _ in range(5):
        assert connection.receive(frame(PING, bytes(8)) * 900) == []
        connection.data_to_send()
        connection.renew_budgets()


def test_rapid_resets() -> None:
    connection = greeted()
    events = connection.receive(b"".join(call(n) + frame(RST_STREAM, CANCEL, stream=n) for n in range(1, 401, 2)))
    assert ending(events) == CALM
    assert sum(isinstance(event, RequestReceived) for event in events) == 101


def test_a_part_of_the_responses_may_be_given_up() -> None:
    connection = greeted()
    for first in range(1, 4001, 80):
        _answer(connection, range(first, first + 60, 2))
        given_up = range(first + 60, first + 80, 2)
        assert connection.receive(b"".join(call(n) + frame(RST_STREAM, CANCEL, stream=n) for n in given_up))
        assert connection.ended is None


PROVOKED: dict[str, Callable[[int], bytes]] = {
    "zero windows": lambda n: call(n) + frame(WINDOW_UPDATE, number(0), stream=n),
    "overflowing windows": lambda n: call(n) + frame(WINDOW_UPDATE, number((1 << 31) - 1), stream=n),
    "data after the end": lambda n: call(n) + data(n, b"x"),
    "headers after the end": lambda n: call(n) + headers(n, b""),
    "malformed headers": lambda n: headers(n, encoded({":path": "/"})),
    "large headers": lambda n: headers(n, BLOCK + encoded({"key": "x" * 16_384})),
    "wrong lengths": lambda n: headers(n, BLOCK + encoded({"content-length": "1"})) + data(n, end=True),
}


@pytest.mark.parametrize("provoke", PROVOKED.values(), ids=PROVOKED.keys())
def test_resets_that_the_peer_provokes(provoke: Callable[[int], bytes]) -> None:
    connection = greeted()
    assert connection.receive(b"".join(provoke(n) for n in range(1, 201, 2))) is not None
    assert connection.ended is None
    assert ending(connection.receive(provoke(201))) == CALM


def test_data_of_a_stream_that_the_peer_has_reset() -> None:
    connection = greeted()
    connection.receive(headers(1) + frame(RST_STREAM, CANCEL, stream=1))
    assert ending(connection.receive(data(1, b"x") * 100)) == CALM


def test_a_flood_of_refused_streams() -> None:
    connection = greeted(ConnectionLimits(streams=1))
    assert ending(connection.receive(b"".join(headers(n) for n in range(1, 401, 2)))) == CALM


def test_a_flood_of_streams_after_the_farewell() -> None:
    connection = greeted()
    connection.go_away()
    assert ending(connection.receive(b"".join(headers(n) for n in range(1, 4001, 2)))) == CALM


def test_data_of_an_early_response_are_counted_by_frames() -> None:
    connection = greeted()
    connection.receive(headers(1))
    connection.send_headers(1, TRAILERS, end=True)
    connection.data_to_send()
    assert ending(connection.receive(data(1, b"x") * 1100)) == CALM


def test_empty_continuations() -> None:
    connection = greeted()
    events = connection.receive(headers(1, BLOCK, flags=0) + frame(CONTINUATION, stream=1) * 40)
    assert ending(events) == CALM


def test_the_frames_of_all_header_blocks_are_counted() -> None:
    connection = greeted()
    block = headers(1, b"", flags=0) + frame(CONTINUATION, stream=1) * 30 + frame(CONTINUATION, flags=4, stream=1)
    connection.receive(headers(1))
    connection.send_headers(1, TRAILERS, end=True)
    assert ending(connection.receive(block * 40)) == CALM


def test_a_header_block_without_end() -> None:
    connection = greeted()
    part = frame(CONTINUATION, bytes(16_000), stream=1)
    assert ending(connection.receive(headers(1, flags=0) + part * 3)) == CALM
    assert len(connection._block) == 0


def test_indices_that_unpack_to_large_headers() -> None:
    connection = greeted()
    large = b"\x40" + encoded({"key": "x" * 4000})[1:]
    assert ending(connection.receive(headers(1, BLOCK + large + b"\xbe" * 10_000))) == CALM


def test_thousands_of_headers() -> None:
    connection = greeted()
    assert ending(connection.receive(headers(1, BLOCK + b"\x90" * 16_000))) == CALM


def test_changing_headers_do_not_fill_the_memory() -> None:
    connection = greeted()
    for stream in range(1, 401, 2):
        connection.receive(headers(stream, BLOCK + encoded({"key": str(stream) * 500})))
        connection.reset(stream, ErrorCode.CANCEL)
    stored = connection._decoder._cache
    assert 0 < sum(map(len, stored)) <= 1 << 17


def test_early_responses_do_not_fill_the_memory() -> None:
    connection = greeted(ConnectionLimits(streams=10))
    for stream in range(1, 2001, 2):
        connection.receive(headers(stream, flags=END_HEADERS))
        connection.send_headers(stream, TRAILERS, end=True)
        connection.data_to_send()
    assert len(connection._ended_early) == 110
