"""Requests as events of a connection, and the responses to them."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived as ClientData
from h2.events import Event as ClientEvent
from h2.events import PingAckReceived, PingReceived, StreamEnded, TrailersReceived
from http2_peer import (
    ACK,
    BLOCK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIELDS,
    GOAWAY,
    GREETING,
    HEADERS,
    PADDED,
    PING,
    PRIORITIZED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WHOLE_HEADERS,
    WINDOW_UPDATE,
    Frame,
    call,
    data,
    encoded,
    frame,
    frames,
    greeted,
    headers,
    number,
    resets,
    settings,
)

from predictor.http2 import (
    ConnectionEnded,
    ConnectionLimits,
    DataReceived,
    ErrorCode,
    Http2StateMachine,
    PingAnswered,
    RequestReceived,
    StreamReset,
    encode_headers,
)

FIELD_BYTES = tuple((name.encode(), value.encode()) for name, value in FIELDS.items())
START = encode_headers([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode_headers([(b"grpc-status", b"0")])


class Client:
    """An h2 client whose bytes go to a connection and back."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.server = Http2StateMachine(limits or ConnectionLimits())
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.h2.initiate_connection()
        self.exchange()

    def exchange(self) -> tuple[list[object], list[ClientEvent]]:
        """Events of the server and of the client."""
        received = self.server.receive(self.h2.data_to_send())
        return list(received), self.h2.receive_data(self.server.data_to_send())


def test_the_first_output_announces_the_limits() -> None:
    limits = ConnectionLimits(
        streams=7, stream_window=70_000, connection_window=100_000, frame=20_000, header_list=5000
    )
    first, window = frames(Http2StateMachine(limits).data_to_send())
    values = {name: int.from_bytes(first.content[at + 2 : at + 6]) for name, at in {3: 0, 4: 6, 5: 12, 6: 18}.items()}
    assert (first.kind, values) == (SETTINGS, {3: 7, 4: 70_000, 5: 20_000, 6: 5000})
    assert window == Frame(WINDOW_UPDATE, 0, 0, number(100_000 - 65_535))


@pytest.mark.parametrize(
    ("name", "value"),
    [("streams", 0), ("stream_window", 65_534), ("connection_window", 1 << 31), ("frame", 16_383), ("unsent", 0)],
)
def test_limits_outside_their_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"limit of {name} is {value}"):
        ConnectionLimits(**{name: value})


def test_a_unary_call_of_another_implementation() -> None:
    client = Client()
    client.h2.send_headers(1, FIELD_BYTES)
    client.h2.send_data(1, b"question", end_stream=True)
    assert client.exchange()[0] == [RequestReceived(1, FIELD_BYTES, False), DataReceived(1, b"question", True)]
    client.server.send_headers(1, START)
    client.server.send_data(1, b"answer")
    client.server.send_headers(1, TRAILERS, end=True)
    answers = client.exchange()[1]
    assert [event.data for event in answers if isinstance(event, ClientData)] == [b"answer"]
    assert [event.headers for event in answers if isinstance(event, TrailersReceived)] == [[(b"grpc-status", b"0")]]
    assert isinstance(answers[-1], StreamEnded)
    assert client.server.streams == 0


def test_large_bodies_pass_in_both_directions() -> None:
    client = Client()
    client.h2.send_headers(1, FIELD_BYTES)
    question, answer = bytes(range(256)) * 2000, bytes(range(255, -1, -1)) * 2000
    sent, received, answered = 0, b"", b""
    while sent < len(question):
        size = min(client.h2.local_flow_control_window(1), client.h2.max_outbound_frame_size, len(question) - sent)
        client.h2.send_data(1, question[sent : sent + size], end_stream=sent + size == len(question))
        sent += size
        for event in client.exchange()[0]:
            if isinstance(event, DataReceived):
                received += event.data
                client.server.acknowledge(1, len(event.data))
    client.server.send_headers(1, START)
    client.server.send_data(1, answer)
    client.server.send_headers(1, TRAILERS, end=True)
    while client.server.streams:
        for event in client.exchange()[1]:
            if isinstance(event, ClientData):
                answered += event.data
                client.h2.acknowledge_received_data(event.flow_controlled_length, 1)
    answered += b"".join(event.data for event in client.exchange()[1] if isinstance(event, ClientData))
    assert (received, answered) == (question, answer)


def test_equal_blocks_give_the_same_headers() -> None:
    client = Client()
    found: list[object] = []
    for stream in (1, 3, 5, 7):
        client.h2.send_headers(stream, FIELD_BYTES, end_stream=True)
        (request,) = client.exchange()[0]
        assert isinstance(request, RequestReceived)
        found.append(request.headers)
    assert found == [FIELD_BYTES] * 4
    assert found[2] is found[3]


def test_a_block_is_decoded_again_after_the_table_changed() -> None:
    connection = greeted()
    first, second = (b"\x40" + encoded({"key": value})[1:] for value in ("one", "two"))
    latest = BLOCK + b"\xbe"  # the newest entry of the dynamic table
    events = connection.receive(headers(1, BLOCK + first) + headers(3, latest) + headers(5, BLOCK + second))
    (event,) = connection.receive(headers(7, latest))
    assert isinstance(events[1], RequestReceived)
    assert isinstance(event, RequestReceived)
    assert (events[1].headers[-1], event.headers[-1]) == ((b"key", b"one"), (b"key", b"two"))


def test_equal_blocks_that_add_to_the_table_are_decoded_each_time() -> None:
    connection = greeted()
    block = BLOCK + b"\x40" + encoded({"key": "value"})[1:]
    oldest = BLOCK + b"\xbf"  # the second newest entry of the dynamic table
    events = connection.receive(headers(1, block) + headers(3, block) + headers(5, oldest))
    assert isinstance(events[-1], RequestReceived)
    assert events[-1].headers[-1] == (b"key", b"value")


def test_a_block_is_decoded_again_after_the_table_was_emptied() -> None:
    connection = greeted()
    latest = BLOCK + b"\xbe"
    connection.receive(headers(1, BLOCK + b"\x40" + encoded({"key": "value"})[1:]) + headers(3, latest))
    connection.receive(headers(5, b"\x20" + BLOCK))
    (event,) = connection.receive(headers(7, latest))
    assert isinstance(event, ConnectionEnded)
    assert event.code == ErrorCode.COMPRESSION_ERROR


def test_trailers_of_a_request_end_it() -> None:
    connection = greeted()
    connection.receive(headers(1) + data(1, b"x"))
    assert connection.receive(headers(1, encoded({"checksum": "5"}), flags=WHOLE_HEADERS)) == [
        DataReceived(1, b"", True)
    ]


def test_padding_and_priority_are_removed() -> None:
    connection = greeted()
    block = b"\x03" + number(0) + b"\x10" + BLOCK + bytes(3)
    padded = frame(DATA, b"\x02xy" + bytes(2), flags=PADDED | END_STREAM, stream=1)
    events = connection.receive(headers(1, block, flags=END_HEADERS | PADDED | PRIORITIZED) + padded)
    assert events == [RequestReceived(1, FIELD_BYTES, False), DataReceived(1, b"xy", True)]


def test_the_reserved_bit_of_a_stream_is_ignored() -> None:
    connection = greeted()
    assert connection.receive(headers(1 << 31 | 1)) == [RequestReceived(1, FIELD_BYTES, False)]


def test_frames_that_need_no_answer_are_ignored() -> None:
    connection = greeted()
    ignored = [
        frame(UNKNOWN, b"anything", flags=0xFF, stream=9),
        frame(PRIORITY, number(1) + b"\x10", stream=3),
        frame(SETTINGS, flags=ACK),
        frame(PING, bytes(8), flags=ACK),
        frame(GOAWAY, number(0) + number(0) + b"farewell"),
        settings(1, 0),
        settings(0xFFFF, 5),
    ]
    assert connection.receive(b"".join(ignored)) == []
    assert {one.kind for one in frames(connection.data_to_send())} == {SETTINGS}


@pytest.mark.parametrize("length", [4, 5])
def test_a_body_has_its_declared_length(length: int) -> None:
    connection = greeted()
    events = connection.receive(headers(1, BLOCK + encoded({"content-length": str(length)})) + data(1, b"xx"))
    events += connection.receive(data(1, b"yy", end=True))
    assert (events[-1] == DataReceived(1, b"yy", True)) is (length == 4)
    assert (events[-1] == StreamReset(1, ErrorCode.PROTOCOL_ERROR)) is (length == 5)


def test_pings_are_answered_both_ways() -> None:
    client = Client()
    client.h2.ping(b"12345678")
    answers = client.exchange()[1]
    assert [event.ping_data for event in answers if isinstance(event, PingAckReceived)] == [b"12345678"]
    client.server.ping(b"87654321")
    assert any(isinstance(event, PingReceived) for event in client.exchange()[1])
    assert client.exchange()[0] == [PingAnswered(b"87654321")]


def test_a_peer_resets_a_stream() -> None:
    connection = greeted()
    connection.receive(call(1))
    assert connection.receive(frame(RST_STREAM, number(8), stream=1)) == [StreamReset(1, ErrorCode.CANCEL)]
    connection.send_headers(1, START)
    connection.send_data(1, b"late", end=True)
    assert (connection.data_to_send(), connection.streams) == (b"", 0)


def test_a_stream_that_is_reset_gets_no_more_output() -> None:
    connection = greeted()
    connection.receive(call(1))
    connection.reset(1, ErrorCode.CANCEL)
    connection.reset(1, ErrorCode.CANCEL)
    connection.send_headers(1, TRAILERS, end=True)
    assert resets(connection) == [(1, ErrorCode.CANCEL)]


def test_streams_above_the_limit_are_refused() -> None:
    connection = greeted(ConnectionLimits(streams=2))
    events = connection.receive(call(1) + call(3) + call(5))
    assert [event.stream for event in events if isinstance(event, RequestReceived)] == [1, 3]
    assert resets(connection) == [(5, ErrorCode.REFUSED_STREAM)]
    connection.send_headers(1, TRAILERS, end=True)
    assert connection.receive(headers(7)) == [RequestReceived(7, FIELD_BYTES, False)]


def test_headers_of_refused_streams_remain_known() -> None:
    connection = greeted(ConnectionLimits(streams=1))
    connection.receive(call(1) + headers(3, BLOCK + b"\x40" + encoded({"key": "value"})[1:]))
    connection.reset(1, ErrorCode.CANCEL)
    (event,) = connection.receive(headers(5, BLOCK + b"\xbe"))
    assert isinstance(event, RequestReceived)
    assert event.headers[-1] == (b"key", b"value")


def test_after_a_farewell_open_streams_go_on_and_others_are_refused() -> None:
    connection = greeted()
    connection.receive(headers(1))
    connection.go_away()
    assert frames(connection.data_to_send()) == [Frame(GOAWAY, 0, 0, number(1) + number(0))]
    assert connection.receive(call(3) + data(1, b"rest", end=True)) == [DataReceived(1, b"rest", True)]
    assert resets(connection) == [(3, ErrorCode.REFUSED_STREAM)]


def test_streams_that_cross_an_announced_end_are_accepted() -> None:
    connection = greeted()
    connection.receive(headers(1))
    connection.announce_end()
    assert frames(connection.data_to_send()) == [Frame(GOAWAY, 0, 0, number(2**31 - 1) + number(0))]
    assert [type(event) for event in connection.receive(headers(3))] == [RequestReceived]
    connection.go_away()
    assert frames(connection.data_to_send()) == [Frame(GOAWAY, 0, 0, number(3) + number(0))]
    connection.receive(call(5))
    assert resets(connection) == [(5, ErrorCode.REFUSED_STREAM)]


def _conversation() -> bytes:
    """Frames of every kind that a client may send."""
    split = frame(HEADERS, BLOCK[:5], stream=5) + frame(CONTINUATION, BLOCK[5:9], stream=5)
    return b"".join([
        GREETING, call(1), headers(3), data(3, b"part"), frame(PING, bytes(8)), frame(UNKNOWN, b"?"),
        split, frame(CONTINUATION, BLOCK[9:], flags=END_HEADERS, stream=5),
        data(3, b"rest", end=True), frame(RST_STREAM, number(8), stream=5), frame(WINDOW_UPDATE, number(9)), data(5),
    ])  # fmt: skip


def test_events_do_not_depend_on_where_the_bytes_are_split() -> None:
    content = _conversation()
    whole = Http2StateMachine(ConnectionLimits())
    expected, output = whole.receive(content), whole.data_to_send()
    for at in range(len(content) + 1):
        connection = Http2StateMachine(ConnectionLimits())
        events = connection.receive(content[:at]) + connection.receive(content[at:])
        assert (events, connection.data_to_send()) == (expected, output)


def test_events_of_single_bytes() -> None:
    content = _conversation()
    whole, connection = Http2StateMachine(ConnectionLimits()), Http2StateMachine(ConnectionLimits())
    events = [event for at in range(len(content)) for event in connection.receive(content[at : at + 1])]
    assert events == whole.receive(content)


def test_a_partial_frame_is_not_copied_for_each_of_its_bytes() -> None:
    connection = greeted()
    connection.receive(headers(1))
    content = data(1, bytes(60_000))
    for at in range(len(content) - 1):
        connection.receive(content[at : at + 1])
        assert connection._needed_size in {9, len(content)}  # below it, bytes are appended and nothing else happens
    assert len(connection.receive(content[-1:])) == 1
