"""Inputs of a fuzzer as steps of a client and of the owner of an HTTP/2 connection; see `predictor/http2/fuzz.py`."""

import struct
from collections import Counter

import http2_peer as peer

from predictor import http2

LIMITS = http2.ConnectionLimits(
    4, stream_window=65_535, connection_window=100_000, frame=16_384, header_list=600, resets=4, unsent=200_000
)
WINDOW, LARGEST = 65_535, (1 << 31) - 1
UNKNOWN_KIND, BIG_DATA, REQUEST, BYTES, SEND_HEADERS, SEND_DATA, ACKNOWLEDGE, RESET, OWNER = range(10, 19)


class FuzzedConnection:
    """A connection, and the windows that its client knows."""

    def __init__(self, greeting: bytes, *, is_cut: bool) -> None:
        self.connection, self.is_cut, self.knows_windows = http2.Http2StateMachine(LIMITS), is_cut, True
        self.events, self.output = list[http2.Event](), bytearray()
        self.windows, self.initial, self.frame, self.room = Counter[int](), WINDOW, 16_384, WINDOW
        self.unacknowledged, self.header_bytes, self.ended = Counter[int](), 0, set[int]()
        self.receive(greeting)
        self.check_output()

    def step(self, operation: int, flags: int, stream: int, content: bytes) -> None:
        """Send a frame, or do what the owner may do."""
        size, ends, connection = len(content), bool(flags & 1), self.connection
        if operation <= UNKNOWN_KIND:
            self.send(operation, flags, stream, content)
        elif operation == BIG_DATA:
            self.send(peer.DATA, flags, stream, bytes(64 * size))
        elif operation == REQUEST:
            self.send(peer.HEADERS, flags | 4, stream, peer.BLOCK + content)
        elif operation == BYTES:
            self.knows_windows = False
            self.receive(content)
        elif operation == SEND_HEADERS:
            block = http2.encode_headers([(b":status", b"200"), (b"long", bytes(128 * size))])
            self.header_bytes += len(block)
            connection.send_headers(stream, block, end=ends)
        elif operation == SEND_DATA:
            connection.send_data(stream, bytes(128 * size), end=ends)
        elif operation == ACKNOWLEDGE:
            count = min(64 * size, self.unacknowledged[stream])
            connection.acknowledge(stream, count)
            self.unacknowledged[stream] -= count
        elif operation == RESET:
            connection.reset(stream, flags)
        else:
            (lambda: connection.ping(bytes(8)), connection.renew_budgets, connection.go_away)[size % 3]()
        self.check_output()

    def send(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == peer.SETTINGS and not flags & peer.ACK:
            for name, value in struct.iter_unpack(">HI", content[: len(content) // 6 * 6]):
                self.initial = value if name == 4 else self.initial
                self.frame = max(value, 16_384) if name == 5 else self.frame
        elif kind == peer.WINDOW_UPDATE:
            self.windows[stream] += int.from_bytes(content) & LARGEST
        elif kind == peer.DATA:
            self.room -= len(content)
        self.receive(peer.frame(kind, content, flags=flags, stream=stream))

    def receive(self, data: bytes) -> None:
        was_ended, size = self.connection.ended is not None, max(5, len(data) // 8 if self.is_cut else len(data))
        for at in range(0, len(data), size):
            for event in self.connection.receive(data[at : at + size]):
                assert not was_ended or isinstance(event, http2.ConnectionEnded), "an event after the end"
                self.events.append(event)
                if isinstance(event, http2.DataReceived):
                    self.unacknowledged[event.stream] += len(event.data)
                elif isinstance(event, http2.StreamReset):
                    self.ended.add(event.stream)

    def check_output(self) -> None:
        """The output stays within the client's windows, and the connection within its limits."""
        self.output += (output := self.connection.data_to_send())
        for one in peer.frames(output) if self.knows_windows else ():
            size = len(one.content)
            assert size <= self.frame, "a frame is too large"
            if one.kind in {peer.DATA, peer.HEADERS}:
                assert one.stream not in self.ended, "a frame after the end of its stream"
            if one.kind == peer.RST_STREAM or (one.kind in {peer.DATA, peer.HEADERS} and one.flags & peer.END_STREAM):
                self.ended.add(one.stream)
            if one.kind == peer.DATA and size:
                self.windows.subtract({0: size, one.stream: size})
                assert min(WINDOW + self.windows[0], self.initial + self.windows[one.stream]) >= 0, "beyond a window"
            elif one.kind == peer.WINDOW_UPDATE and not one.stream:
                self.room += int.from_bytes(one.content)
        assert self.connection.streams <= LIMITS.streams, "too many streams"
        assert self.connection.pending_bytes <= LIMITS.unsent + self.header_bytes, "too much output waits"
        assert self.room <= LIMITS.connection_window, "the client may send too much"


def run_input(data: bytes) -> None:
    """Do the steps on two connections, of which one gets its bytes in small parts: both must do the same."""
    greeting = b"" if data[:1] == b"\xf1" else peer.GREETING
    whole, cut = (FuzzedConnection(greeting, is_cut=is_cut) for is_cut in (False, True))
    at = 0
    while at + 4 <= len(data):
        operation, flags, stream, size = data[at : at + 4]
        for connection in (whole, cut):
            connection.step(operation % (OWNER + 1), flags, stream, data[at + 4 : at + 4 + size])
        at += 4 + size
    assert (whole.events, whole.output) == (cut.events, cut.output), "the parts of the input matter"
    if whole.connection.ended is None and whole.knows_windows:
        for stream in range(1, 256, 2):
            whole.step(RESET, 8, stream, b"")
        assert 2 * whole.room > LIMITS.connection_window, "bytes of ended streams are not given back"
