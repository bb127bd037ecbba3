"""Errors of the protocol (RFC 9113), each with its code."""

import pytest
from http2_peer import (
    ACK,
    BLOCK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    FIELDS,
    GOAWAY,
    GREETING,
    HEADERS,
    PADDED,
    PING,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WHOLE_HEADERS,
    WINDOW_UPDATE,
    call,
    data,
    encoded,
    ending,
    frame,
    frames,
    greeted,
    headers,
    number,
    resets,
    settings,
)

from predictor.http2 import ConnectionLimits, DataReceived, ErrorCode, Http2StateMachine, StreamReset, encode_headers

TRAILERS = encode_headers([(b"grpc-status", b"0")])
PROTOCOL, FRAME_SIZE, FLOW = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.FLOW_CONTROL_ERROR
CLOSED, COMPRESSION, CALM = ErrorCode.STREAM_CLOSED, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM

FATAL = {
    "data on stream 0": (data(0, b"x"), PROTOCOL),
    "data on an idle stream": (data(1, b"x"), PROTOCOL),
    "data on an even stream": (call(3) + data(2, b"x"), PROTOCOL),
    "headers on stream 0": (headers(0), PROTOCOL),
    "an even stream": (headers(2), PROTOCOL),
    "an even stream whose headers are incomplete": (headers(2, flags=0), PROTOCOL),
    "an even stream below the last": (headers(5) + headers(2), PROTOCOL),
    "a stream below the last": (headers(5) + headers(3), CLOSED),
    "padding as long as data": (headers(1) + frame(DATA, b"\x01", flags=PADDED, stream=1), PROTOCOL),
    "padding without a length": (headers(1) + frame(DATA, flags=PADDED, stream=1), FRAME_SIZE),
    "padding longer than headers": (headers(1, b"\xff" + BLOCK, flags=END_HEADERS | PADDED), PROTOCOL),
    "a short priority of headers": (headers(1, b"\0\0", flags=END_HEADERS | PRIORITIZED), FRAME_SIZE),
    "headers that depend on themselves": (
        headers(1, number(1) + b"\0" + BLOCK, flags=END_HEADERS | PRIORITIZED),
        PROTOCOL,
    ),
    "a priority that depends on itself": (frame(PRIORITY, number(3) + b"\0", stream=3), PROTOCOL),
    "a priority of stream 0": (frame(PRIORITY, number(1) + b"\0"), PROTOCOL),
    "a short priority": (frame(PRIORITY, bytes(4), stream=1), FRAME_SIZE),
    "a reset of stream 0": (frame(RST_STREAM, number(8)), PROTOCOL),
    "a reset of an idle stream": (frame(RST_STREAM, number(8), stream=1), PROTOCOL),
    "a short reset": (headers(1) + frame(RST_STREAM, bytes(3), stream=1), FRAME_SIZE),
    "settings of a stream": (frame(SETTINGS, stream=1), PROTOCOL),
    "settings of a wrong length": (frame(SETTINGS, bytes(5)), FRAME_SIZE),
    "acknowledged settings with content": (frame(SETTINGS, bytes(6), flags=ACK), FRAME_SIZE),
    "pushes neither on nor off": (settings(2, 2), PROTOCOL),
    "an initial window above 2^31-1": (settings(4, 1 << 31), FLOW),
    "a largest frame below 16,384": (settings(5, 16_383), PROTOCOL),
    "a largest frame above 2^24-1": (settings(5, 1 << 24), PROTOCOL),
    "hundreds of settings": (frame(SETTINGS, (b"\0\x04" + bytes(4)) * 200), CALM),
    "a push promise": (headers(1) + frame(PUSH_PROMISE, number(2) + BLOCK, flags=END_HEADERS, stream=1), PROTOCOL),
    "a ping of a stream": (frame(PING, bytes(8), stream=1), PROTOCOL),
    "a short ping": (frame(PING, bytes(7)), FRAME_SIZE),
    "a farewell of a stream": (frame(GOAWAY, bytes(8), stream=1), PROTOCOL),
    "a short farewell": (frame(GOAWAY, bytes(7)), FRAME_SIZE),
    "a window that grows by 0": (frame(WINDOW_UPDATE, number(0)), PROTOCOL),
    "a short window update": (frame(WINDOW_UPDATE, bytes(3)), FRAME_SIZE),
    "a window of an idle stream": (frame(WINDOW_UPDATE, number(1), stream=1), PROTOCOL),
    "a connection window above 2^31-1": (frame(WINDOW_UPDATE, number((1 << 31) - 65_535)), FLOW),
    "initial windows that overflow a stream": (
        headers(1) + frame(WINDOW_UPDATE, number(1 << 30), stream=1) + settings(4, (1 << 31) - 1),
        FLOW,
    ),
    "a continuation without headers": (frame(CONTINUATION, BLOCK, flags=END_HEADERS, stream=1), PROTOCOL),
    "a continuation after whole headers": (headers(1) + frame(CONTINUATION, stream=1), PROTOCOL),
    "a continuation of another stream": (headers(1, flags=0) + frame(CONTINUATION, stream=3), PROTOCOL),
    "a frame between headers and continuation": (headers(1, flags=0) + frame(PING, bytes(8)), PROTOCOL),
    "an unknown frame between headers and continuation": (headers(1, flags=0) + frame(UNKNOWN), PROTOCOL),
    "headers between headers and continuation": (headers(1, flags=0) + headers(3), PROTOCOL),
    "a frame above the limit": (frame(DATA, bytes((1 << 16) + 1), stream=1)[:9], FRAME_SIZE),
    "an unknown index of a header": (headers(1, b"\xff\x80\x01"), COMPRESSION),
    "a header of index 0": (headers(1, b"\x80"), COMPRESSION),
    "a short integer of seven bytes": (
        headers(1, BLOCK + b"\0\x01k\x7f" + b"\x80" * 6 + b"\0" + b"v" * 127),
        COMPRESSION,
    ),
    "a truncated header": (headers(1, BLOCK[:-1]), COMPRESSION),
    "an endless integer": (headers(1, b"\xff" * 20), COMPRESSION),
    "a wrong Huffman code": (headers(1, b"\0\x81\0\x81\0"), COMPRESSION),
    "a table above 4,096 bytes": (headers(1, b"\x3f\xe2\x1f" + BLOCK), COMPRESSION),
    "a table that changes within headers": (headers(1, BLOCK + b"\x20"), COMPRESSION),
    "a table that changes three times": (headers(1, b"\x20\x3f\x01\x20" + BLOCK), COMPRESSION),
    "truncated headers of a closed stream": (headers(1) + frame(RST_STREAM, number(8), stream=1) + headers(1, b"\0"),
        COMPRESSION,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "code"), FATAL.values(), ids=FATAL.keys())
def test_errors_that_end_the_connection(content: bytes, code: ErrorCode) -> None:
    connection = greeted()
    assert ending(connection.receive(content)) == code
    last = frames(connection.data_to_send())[-1]
    assert (last.kind, last.stream, int.from_bytes(last.content[4:8])) == (GOAWAY, 0, code)
    assert (connection.receive(call(9)), connection.data_to_send()) == ([], b"")


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
        b"\x16\x03\x01",
        GREETING[:24] + frame(PING, bytes(8)),
        GREETING[:24] + frame(SETTINGS, flags=ACK),
        GREETING[:24] + frame(UNKNOWN),
        GREETING[:24] + frame(CONTINUATION),
    ],
)
def test_a_client_begins_with_the_preface_and_settings(first: bytes) -> None:
    assert ending(Http2StateMachine(ConnectionLimits()).receive(first)) == PROTOCOL


FAULTY = {
    "a stream window that grows by 0": (frame(WINDOW_UPDATE, number(0), stream=1), PROTOCOL),
    "a stream window above 2^31-1": (frame(WINDOW_UPDATE, number((1 << 31) - 1), stream=1), FLOW),
    "trailers that do not end the request": (headers(1, b""), PROTOCOL),
    "trailers with a pseudo header": (headers(1, encoded({":path": "/"}), flags=WHOLE_HEADERS), PROTOCOL),
    "trailers in upper case": (headers(1, encoded({"Key": ""}), flags=WHOLE_HEADERS), PROTOCOL),
    "trailers above the limit": (headers(1, encoded({"k": "x" * 16_384}), flags=WHOLE_HEADERS), CALM),
    "data after the end": (data(1, b"x", end=True) * 2, CLOSED),
    "trailers after the end": (data(1, end=True) + headers(1, b"", flags=WHOLE_HEADERS), CLOSED),
}


@pytest.mark.parametrize(("content", "code"), FAULTY.values(), ids=FAULTY.keys())
def test_errors_that_end_a_stream(content: bytes, code: ErrorCode) -> None:
    connection = greeted()
    connection.receive(headers(1) + headers(3))
    events = [event for event in connection.receive(content) if not isinstance(event, DataReceived)]
    assert (events, resets(connection)) == ([StreamReset(1, code)], [(1, code)])
    assert connection.receive(data(3, b"x", end=True)) == [DataReceived(3, b"x", True)]


MALFORMED = {
    **{f"no {name}": {key: value for key, value in FIELDS.items() if key != name} for name in (":method", ":scheme")},
    "no path": {key: value for key, value in FIELDS.items() if key != ":path"},
    "no authority": {key: value for key, value in FIELDS.items() if key != ":authority"},
    "an empty scheme": {**FIELDS, ":scheme": ""},
    "an empty path": {**FIELDS, ":path": ""},
    "a path without /": {**FIELDS, ":path": "method"},
    "a method of several words": {**FIELDS, ":method": "PO ST"},
    "an unknown pseudo header": {":version": "2", **FIELDS},
    "a pseudo header of responses": {":status": "200", **FIELDS},
    "a late pseudo header": {"key": "x", **FIELDS},
    "a name in upper case": {**FIELDS, "Key": "x"},
    "an empty name": {**FIELDS, "": "x"},
    "a name with a space": {**FIELDS, "a b": "x"},
    "a name with a colon": {**FIELDS, "a:b": "x"},
    "a value of two lines": {**FIELDS, "key": "a\r\nb: c"},
    "a value with NUL": {**FIELDS, "key": "a\0"},
    "a value that begins with a space": {**FIELDS, "key": " a"},
    "a value that ends with a tab": {**FIELDS, "key": "a\t"},
    "a path with a line feed": {**FIELDS, ":path": "/a\nb"},
    "connection": {**FIELDS, "connection": "close"},
    "keep-alive": {**FIELDS, "keep-alive": "5"},
    "proxy-connection": {**FIELDS, "proxy-connection": "close"},
    "transfer-encoding": {**FIELDS, "transfer-encoding": "chunked"},
    "upgrade": {**FIELDS, "upgrade": "h2c"},
    "te of HTTP/1": {**FIELDS, "te": "trailers, gzip"},
    "another host": {**FIELDS, "host": "elsewhere"},
    "a length that is no number": {**FIELDS, "content-length": "+5"},
    "a length of thousands of digits": {**FIELDS, "content-length": "1" * 5000},
    "a CONNECT request": {":method": "CONNECT", ":authority": "localhost:80"},
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_headers_reset_their_stream(fields: dict[str, str]) -> None:
    connection = greeted()
    assert connection.receive(headers(1, encoded(fields)) + data(1, b"late")) == []
    assert resets(connection) == [(1, PROTOCOL)]
    assert len(connection.receive(call(3))) == 2


REFUSED = {
    "a path twice": encoded({":path": "/first"}) + BLOCK,
    "a late path": BLOCK + encoded({":path": "/second"}),
    "two hosts": BLOCK + encoded({"host": "elsewhere"}) + encoded({"host": "localhost"}),
    "a body that is missing": BLOCK + encoded({"content-length": "5"}),
}


@pytest.mark.parametrize("block", REFUSED.values(), ids=REFUSED.keys())
def test_malformed_requests_without_a_body(block: bytes) -> None:
    connection = greeted()
    assert connection.receive(headers(1, block, flags=WHOLE_HEADERS)) == []
    assert resets(connection) == [(1, PROTOCOL)]


def test_two_lengths_must_be_equal() -> None:
    connection = greeted()
    five, six = encoded({"content-length": "5"}), encoded({"content-length": "6"})
    assert len(connection.receive(headers(1, BLOCK + five + five))) == 1
    assert connection.receive(headers(3, BLOCK + five + six)) == []


def test_a_body_shorter_than_its_length_resets_its_stream() -> None:
    connection = greeted()
    events = connection.receive(headers(1, BLOCK + encoded({"content-length": "5"})) + data(1, b"abcd", end=True))
    assert events[1:] == [StreamReset(1, PROTOCOL)]


def test_headers_above_the_limit_reset_their_stream() -> None:
    connection = greeted(ConnectionLimits(header_list=1000))
    assert connection.receive(headers(1, encoded({**FIELDS, "key": "x" * 800}))) == []
    assert resets(connection) == [(1, CALM)]
    assert len(connection.receive(call(3))) == 2


def test_frames_of_a_stream_that_has_ended() -> None:
    connection = greeted()
    connection.receive(call(1))
    connection.send_headers(1, TRAILERS, end=True)
    window = frame(WINDOW_UPDATE, number(1), stream=1) + frame(RST_STREAM, number(8), stream=1)
    assert connection.receive(window + frame(PRIORITY, number(0) + b"\0", stream=1)) == []
    assert ending(connection.receive(data(1, b"x"))) == CLOSED


def test_data_of_a_stream_that_the_peer_has_reset() -> None:
    connection = greeted()
    connection.receive(headers(1) + frame(RST_STREAM, number(8), stream=1))
    assert connection.receive(data(1, b"x")) == []
    assert resets(connection) == [(1, CLOSED)]


def test_an_error_keeps_the_output_before_it() -> None:
    connection = greeted()
    connection.receive(call(1))
    connection.send_headers(1, TRAILERS, end=True)
    connection.receive(frame(WINDOW_UPDATE, number(0)))
    assert [one.kind for one in frames(connection.data_to_send())] == [HEADERS, GOAWAY]
