"""Responses within the windows of the peer, and request bodies within those of the server."""

from collections.abc import Callable

import pytest
from http2_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    RST_STREAM,
    WHOLE_HEADERS,
    WINDOW_UPDATE,
    Frame,
    call,
    data,
    ending,
    frame,
    frames,
    greeted,
    headers,
    number,
    settings,
)
from raw_http2 import decoded

from predictor.http2 import (
    ConnectionLimits,
    DataReceived,
    ErrorCode,
    Http2StateMachine,
    RequestReceived,
    StreamReset,
    StreamSent,
    encode_headers,
)

START = encode_headers([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode_headers([(b"grpc-status", b"0")])
FIRST_WINDOW = 65_535
WIDE = frame(WINDOW_UPDATE, number(1 << 28))
INITIAL_WINDOW, MAX_FRAME = 4, 5


def _bodies(output: bytes) -> dict[int, int]:
    """Bytes of data of each stream."""
    found: dict[int, int] = {}
    for one in frames(output):
        if one.kind == DATA:
            found[one.stream] = found.get(one.stream, 0) + len(one.content)
    return found


def _answer(connection: Http2StateMachine, stream: int, body: bytes) -> None:
    connection.send_response(stream, START, body, TRAILERS)


def _answer_in_steps(connection: Http2StateMachine, stream: int, body: bytes) -> None:
    connection.send_headers(stream, START)
    connection.send_data(stream, body)
    connection.send_headers(stream, TRAILERS, end=True)


@pytest.mark.parametrize("answer", [_answer, _answer_in_steps])
def test_a_response_is_headers_data_and_trailers(answer: Callable[[Http2StateMachine, int, bytes], None]) -> None:
    connection = greeted()
    connection.receive(call(1))
    answer(connection, 1, b"answer")
    answer(connection, 1, b"a second one is ignored")
    assert frames(connection.data_to_send()) == [
        Frame(HEADERS, END_HEADERS, 1, START),
        Frame(DATA, 0, 1, b"answer"),
        Frame(HEADERS, WHOLE_HEADERS, 1, TRAILERS),
    ]
    assert connection.data_to_send() == b""


def test_data_end_a_stream_also_if_they_are_empty() -> None:
    connection = greeted()
    connection.receive(call(1) + call(3) + call(5))
    connection.send_data(1, b"x", end=True)
    connection.send_data(3, b"", end=True)
    connection.send_data(5, b"")
    assert frames(connection.data_to_send()) == [Frame(DATA, END_STREAM, 1, b"x"), Frame(DATA, END_STREAM, 3)]
    assert connection.streams == 1


@pytest.mark.parametrize("answer", [_answer, _answer_in_steps])
def test_trailers_wait_for_the_data_before_them(answer: Callable[[Http2StateMachine, int, bytes], None]) -> None:
    connection = greeted()
    connection.receive(call(1))
    answer(connection, 1, bytes(FIRST_WINDOW + 10))
    sent = frames(connection.data_to_send())
    assert sum(len(one.content) for one in sent if one.kind == DATA) == FIRST_WINDOW
    assert (sent[-1].kind, connection.count_waiting_bytes(1)) == (DATA, 10 + len(TRAILERS))
    assert connection.receive(frame(WINDOW_UPDATE, number(100))) == []
    assert connection.receive(frame(WINDOW_UPDATE, number(10), stream=1)) == [StreamSent(1)]
    assert frames(connection.data_to_send()) == [
        Frame(DATA, 0, 1, bytes(10)),
        Frame(HEADERS, WHOLE_HEADERS, 1, TRAILERS),
    ]
    assert (connection.streams, connection.count_waiting_bytes(1), connection.pending_bytes) == (0, 0, 0)


def test_a_whole_response_that_is_not_read_ends_the_connection() -> None:
    connection = greeted(ConnectionLimits(unsent=100_000))
    connection.receive(call(1))
    _answer(connection, 1, bytes(200_000))
    assert connection.ended is not None
    assert frames(connection.data_to_send())[-1].kind == GOAWAY


def test_an_empty_end_needs_no_window() -> None:
    connection = greeted(first=greeting_with_window(10))
    connection.receive(call(1))
    connection.send_data(1, bytes(20))
    connection.send_data(1, b"", end=True)
    connection.receive(frame(WINDOW_UPDATE, number(10), stream=1))
    assert frames(connection.data_to_send())[-1] == Frame(DATA, END_STREAM, 1)


def greeting_with_window(window: int) -> bytes:
    """A first message of a peer whose streams have this window."""
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings(INITIAL_WINDOW, window)


def test_all_streams_get_a_share_of_the_connection_window() -> None:
    connection = greeted(first=greeting_with_window(1 << 20) + frame(WINDOW_UPDATE, number(1)))
    connection.receive(call(1) + call(3) + call(5))
    for stream in (1, 3, 5):
        connection.send_data(stream, bytes(1 << 17), end=True)
    assert _bodies(connection.data_to_send()) == {1: 1 << 16}
    connection.receive(frame(WINDOW_UPDATE, number(3 << 14)))
    assert _bodies(connection.data_to_send()) == {1: 1 << 14, 3: 1 << 14, 5: 1 << 14}


def test_a_smaller_initial_window_takes_bytes_from_open_streams() -> None:
    connection = greeted()
    connection.receive(call(1))
    connection.send_data(1, bytes(1000))
    connection.receive(settings(INITIAL_WINDOW, 400))
    connection.send_data(1, bytes(10), end=True)
    connection.receive(frame(WINDOW_UPDATE, number(600), stream=1))
    assert connection.count_waiting_bytes(1) == 10
    assert connection.receive(frame(WINDOW_UPDATE, number(10), stream=1)) == [StreamSent(1)]


def test_a_larger_initial_window_releases_data() -> None:
    connection = greeted(first=greeting_with_window(0))
    connection.receive(call(1))
    connection.send_data(1, bytes(10), end=True)
    assert connection.receive(settings(INITIAL_WINDOW, 10)) == [StreamSent(1)]


def test_frames_have_the_size_that_the_peer_announces() -> None:
    connection = greeted()
    connection.receive(call(1) + settings(MAX_FRAME, 30_000))
    connection.send_data(1, bytes(50_000))
    assert [len(one.content) for one in frames(connection.data_to_send()) if one.kind == DATA] == [30_000, 20_000]


def test_large_headers_are_continued() -> None:
    connection = greeted()
    connection.receive(call(1))
    block = encode_headers([(b"long", b"x" * 40_000)])
    connection.send_headers(1, block, end=True)
    sent = frames(connection.data_to_send())
    assert [(one.kind, one.flags) for one in sent] == [(HEADERS, END_STREAM), (CONTINUATION, 0), (CONTINUATION, 4)]
    assert b"".join(one.content for one in sent) == block


def test_a_response_before_the_end_of_the_request_stops_it() -> None:
    connection = greeted()
    connection.receive(headers(1))
    connection.send_headers(1, TRAILERS, end=True)
    assert frames(connection.data_to_send())[-1] == Frame(RST_STREAM, 0, 1, number(ErrorCode.NO_ERROR))
    late = data(1, bytes(1000)) + headers(1, b"", flags=WHOLE_HEADERS) + frame(RST_STREAM, number(8), stream=1)
    assert connection.receive(late) == []


def test_late_data_return_to_the_window_of_the_connection() -> None:
    connection = greeted(ConnectionLimits(connection_window=100_000))
    connection.receive(headers(1))
    connection.send_headers(1, TRAILERS, end=True)
    connection.data_to_send()
    for _ in range(4):
        assert connection.receive(data(1, bytes(25_000))) == []
    increments = [int.from_bytes(one.content) for one in frames(connection.data_to_send())]
    assert increments == [50_000, 50_000]


def test_acknowledged_bytes_return_to_both_windows() -> None:
    connection = greeted(ConnectionLimits(connection_window=100_000))
    connection.receive(headers(1) + data(1, bytes(60_000)))
    connection.acknowledge(1, 2000)
    assert connection.data_to_send() == b""
    connection.acknowledge(1, 58_000)
    assert frames(connection.data_to_send()) == [
        Frame(WINDOW_UPDATE, 0, 0, number(60_000)),
        Frame(WINDOW_UPDATE, 0, 1, number(60_000)),
    ]
    assert connection.receive(data(1, bytes(60_000), end=True)) == [DataReceived(1, bytes(60_000), True)]


def test_full_windows_do_not_grow_by_0() -> None:
    connection = greeted(ConnectionLimits(stream_window=65_535, connection_window=65_535))
    connection.receive(headers(1) + data(1, bytes(65_535)) + call(3, b""))
    connection.acknowledge(1, 0)
    connection.send_headers(3, TRAILERS, end=True)
    assert [one.kind for one in frames(connection.data_to_send())] == [HEADERS]


def test_bytes_of_a_whole_request_return_with_its_response() -> None:
    connection = greeted(ConnectionLimits(connection_window=65_535))
    for stream in range(1, 41, 2):
        assert len(connection.receive(call(stream, bytes(40_000)))) == 2
        connection.send_headers(stream, TRAILERS, end=True)


def test_the_window_of_a_whole_request_does_not_grow() -> None:
    connection = greeted()
    connection.receive(call(1, bytes(60_000)))
    connection.acknowledge(1, 60_000)
    assert connection.data_to_send() == b""


def test_no_more_can_be_acknowledged_than_arrived() -> None:
    connection = greeted()
    connection.receive(headers(1) + data(1, b"abc"))
    with pytest.raises(ValueError, match="4 bytes are acknowledged, but 3 of stream 1"):
        connection.acknowledge(1, 4)
    connection.acknowledge(3, 4)  # never opened: ignored as one that ended


def test_padding_returns_to_the_windows() -> None:
    connection = greeted()
    connection.receive(headers(1))
    padded = frame(DATA, bytes([255]) + b"x" + bytes(255), flags=PADDED, stream=1)
    for _ in range(2000):
        assert connection.receive(padded) == [DataReceived(1, b"x", False)]
        connection.acknowledge(1, 1)


def test_data_above_the_window_of_a_stream_reset_it() -> None:
    connection = greeted()
    events = connection.receive(headers(1) + data(1, bytes(60_000)) + data(1, bytes(5537)))
    assert events[2:] == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]
    assert frames(connection.data_to_send()) == [Frame(RST_STREAM, 0, 1, number(ErrorCode.FLOW_CONTROL_ERROR))]


def test_data_above_the_window_of_the_connection_end_it() -> None:
    connection = greeted(ConnectionLimits(connection_window=100_000))
    events = connection.receive(call(1, bytes(60_000)) + headers(3) + data(3, bytes(40_001)))
    assert ending(events) == ErrorCode.FLOW_CONTROL_ERROR


def test_a_reset_stream_frees_its_share_of_the_windows() -> None:
    connection = greeted(ConnectionLimits(connection_window=65_535))
    for stream in range(1, 41, 2):
        events = connection.receive(headers(stream) + data(stream, bytes(40_000)))
        assert isinstance(events[0], RequestReceived)
        connection.reset(stream, ErrorCode.CANCEL)


def test_responses_that_a_peer_does_not_let_through_end_the_connection() -> None:
    connection = greeted(ConnectionLimits(unsent=100_000))
    connection.receive(call(1) + call(3))
    connection.send_data(1, bytes(90_000))
    connection.data_to_send()
    assert connection.ended is None
    connection.send_data(3, bytes(90_000))
    assert connection.ended is not None
    assert [one.kind for one in frames(connection.data_to_send())] == [GOAWAY]
    assert ending(connection.receive(b"")) == ErrorCode.ENHANCE_YOUR_CALM
    assert (connection.receive(call(5)), connection.streams) == ([], 0)


def test_a_reset_drops_what_waits() -> None:
    connection = greeted(first=greeting_with_window(0))
    connection.receive(call(1) + call(3))
    connection.send_data(1, bytes(100))
    connection.send_data(3, bytes(10))
    connection.reset(1, ErrorCode.CANCEL)
    connection.data_to_send()
    assert connection.pending_bytes == 10


def test_output_that_is_never_fetched_ends_the_connection() -> None:
    connection = greeted(ConnectionLimits(unsent=10_000), GREETING_AND_WIDE)
    connection.receive(call(1))
    connection.send_data(1, bytes(9000))
    assert connection.ended is None
    connection.send_data(1, bytes(1000))
    assert connection.ended is not None


GREETING_AND_WIDE = greeting_with_window(1 << 20) + WIDE


def test_answers_to_a_peer_that_reads_nothing_end_the_connection() -> None:
    connection = greeted(ConnectionLimits(unsent=2000))
    events = connection.receive(frame(6, bytes(8)) * 200)
    assert ending(events) == ErrorCode.ENHANCE_YOUR_CALM
    assert len(connection.data_to_send()) < 100


def test_long_headers_are_encoded_for_every_decoder() -> None:
    fields = {"x-name": "v" * 300, "n" * 200: "", "grpc-message": "a b"}
    block = encode_headers([(name.encode(), value.encode()) for name, value in fields.items()])
    assert decoded(block) == fields
    assert encode_headers([(b":status", b"200"), (b":method", b"GET")]) == b"\x88\x82"
