"""The server's end of one HTTP/2 connection, as a state machine without I/O (RFC 9113)."""

from collections import OrderedDict
from typing import Final, final

from predictor.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    PingAnswered,
    RequestReceived,
    StreamReset,
    StreamSent,
)
from predictor.http2.frame_writer import FrameWriter, Stream
from predictor.http2.frames import (
    ACK,
    CONTINUATION,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    RST_STREAM,
    SETTINGS,
    STREAM_BITS,
    WINDOW_UPDATE,
    Budget,
    ConnectionFault,
    ConnectionLimits,
    ErrorCode,
    StreamFault,
    check_length,
    decode_number,
    decode_settings,
    encode_number,
    remove_padding,
    unpack_header,
)
from predictor.http2.header_blocks import HeaderDecoder

_ANY: Final = -1
_MAX_STREAM: Final = 2**31 - 1
_PRIORITY_SIZE, _PING_SIZE, _GOAWAY_SIZE, _NUMBER_SIZE = 5, 8, 8, 4
_MAX_CONTINUATIONS: Final = 32
_CONTROL_FRAMES: Final = 1000
_CONTROL_FRAMES_PER_RESPONSE: Final = 8
_CONTROL_FRAMES_PER_MESSAGE: Final = 2
_CONTROL_BYTES_BITS: Final = 10
"""One more control frame for each 1024 bytes of a request or response."""
_SETTINGS_COST: Final = 4
"""Settings are applied to every stream."""
_RESET_COST: Final = 2
"""Responses for which a peer may reset one stream."""


@final
class Http2StateMachine:
    """One connection of a client.

    Feed it with `receive`, answer with the `send_` methods, and write what `data_to_send` returns to the socket. Do not
    call the latter while the socket accepts nothing: `ConnectionLimits.unsent` then ends the connection of a peer that
    does not read. A violation of the protocol is an event and never an exception. If `send_data` ends the connection,
    the event is in the result of the next `receive`, which may get no bytes, and in `ended` at once.

    Windows: bytes of a body count against the windows of their stream and of the connection until they are acknowledged
    or their stream ends. The connection itself acknowledges padding, and data of streams that have ended.

    Memory is bounded by the limits: a partial frame (`frame`), a header block (twice `header_list`), the table and the
    cache of header blocks (132 KiB), and the output including what waits for windows (`unsent` and one message). Bodies
    that the caller stores are bounded by `connection_window`. The state of open streams, and the record of streams that
    the peer may not know to have ended, are bounded by `streams`.

    Attacks: resets of streams, caused by either end, and frames without content are paid from two budgets, which
    responses and bytes of bodies raise again. An owner with a clock calls `renew_budgets` about once a minute, so that
    pings of idle connections do not exhaust them.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.ended: ConnectionEnded | None = None
        self._limits = limits
        self._writer = FrameWriter()
        self._decoder = HeaderDecoder(limits.header_list)
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._last_accepted: int | None = None
        self._ended_early: OrderedDict[int, bool] = OrderedDict()
        """Streams that ended before their request did, and whether the peer ended them."""
        self._stream_window = limits.stream_window
        self._connection_window = limits.connection_window
        """Bytes of bodies that the peer may still send."""
        self._unannounced = 0
        """Acknowledged bytes that no WINDOW_UPDATE of the connection has given back."""
        self._control = Budget(_CONTROL_FRAMES, 4 * _CONTROL_FRAMES, "too many frames without content")
        self._resets = Budget(
            limits.resets * _RESET_COST, 10 * limits.resets * _RESET_COST, "too many streams were reset"
        )
        self._unread_bytes = bytearray()
        self._needed_size = 0
        """Bytes of `_unread_bytes` without which nothing can be read."""
        self._has_preface = False
        self._expected_kind = SETTINGS
        """The only kind of frame that may come now, or _ANY."""
        self._block = bytearray()
        self._block_stream = self._block_flags = self._block_frames = 0
        self._pings: list[bytes] = []
        self._pending_events: list[Event] = []
        self._writer.write(SETTINGS, 0, 0, limits.encode_settings())
        if limits.connection_window > DEFAULT_WINDOW:
            self._writer.write(WINDOW_UPDATE, 0, 0, encode_number(limits.connection_window - DEFAULT_WINDOW))
        self._receivers = (
            self._receive_data, self._receive_headers, self._receive_priority, self._receive_reset,
            self._receive_settings, self._receive_push_promise, self._receive_ping, self._receive_go_away,
            self._receive_window_update, self._receive_continuation,
        )  # fmt: skip

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    @property
    def has_begun(self) -> bool:
        """Whether the peer has begun to speak HTTP/2."""
        return self._has_preface

    @property
    def unfetched_bytes(self) -> int:
        """Bytes of output that were not fetched."""
        return len(self._writer.output)

    @property
    def pending_bytes(self) -> int:
        """Bytes of output that were not fetched, or wait for a window."""
        return len(self._writer.output) + self._writer.waiting_bytes

    def receive(self, data: bytes) -> list[Event]:
        """Read bytes from the peer."""
        events, self._pending_events = self._pending_events, []
        if self.ended is not None:
            return events
        if self._unread_bytes:
            self._unread_bytes += data
            if len(self._unread_bytes) < self._needed_size:
                return events
            data = bytes(self._unread_bytes)
            self._unread_bytes.clear()
        try:
            end = self._receive_frames(data, events)
        except ConnectionFault as fault:
            events.append(self._end(fault))
            return events
        if end < len(data):
            self._unread_bytes += data[end:] if end else data
        if len(self._writer.output) + self._writer.waiting_bytes > self._limits.unsent:
            events.append(self._end_unread())
        return events

    def data_to_send(self) -> bytes:
        """Return the output so far, and forget it."""
        output = bytes(self._writer.output)
        self._writer.output.clear()
        return output

    def send_headers(self, stream: int, block: bytes, *, end: bool = False) -> None:
        """Send headers or trailers, encoded by `encode_headers`; ignored after the end of the stream or response."""
        state = self._streams.get(stream)
        if state is None or state.is_response_complete:
            return
        self._writer.write_headers(state, block, end)
        if end:
            state.is_response_complete = True
            if state.waiting is None:
                self._finish(state)

    def send_data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send a part of the response; what exceeds the peer's windows waits."""
        state = self._streams.get(stream)
        if state is None or state.is_response_complete:
            return
        writer = self._writer
        writer.write_data(state, data, end)
        self._control.level += _CONTROL_FRAMES_PER_MESSAGE + (len(data) >> _CONTROL_BYTES_BITS)
        if end:
            state.is_response_complete = True
            if state.waiting is None:
                self._finish(state)
        if len(writer.output) + writer.waiting_bytes > self._limits.unsent:
            self._pending_events.append(self._end_unread())

    def send_response(self, stream: int, headers: bytes, data: bytes, trailers: bytes) -> None:
        """Send a whole response; as `send_headers`, `send_data` and `send_headers` with `end`."""
        state = self._streams.get(stream)
        if state is None or state.is_response_complete:
            return
        self._writer.write_headers(state, headers, end=False)
        self.send_data(stream, data)
        if self.ended is None:
            self._writer.write_headers(state, trailers, end=True)
            state.is_response_complete = True
            if state.waiting is None:
                self._finish(state)

    def count_waiting_bytes(self, stream: int) -> int:
        """Count the bytes of a response that wait for a window."""
        state = self._streams.get(stream)
        return 0 if state is None else state.waiting_bytes

    def acknowledge(self, stream: int, count: int) -> None:
        """Let the peer send `count` more bytes of a request's body; ignored for a stream that has ended.

        Raises:
            ValueError: more bytes than arrived.
        """
        state = self._streams.get(stream)
        if state is None:
            return
        if not 0 <= count <= state.unacknowledged:
            raise ValueError(
                f"{count} bytes are acknowledged, but {state.unacknowledged} of stream {stream} are not yet"
            )
        state.unacknowledged -= count
        self._give_back(count)
        if state.is_request_complete:
            return
        state.unannounced += count
        if state.unannounced >= max(1, self._stream_window - state.unacknowledged - state.unannounced):
            self._writer.write(WINDOW_UPDATE, 0, stream, encode_number(state.unannounced))
            state.unannounced = 0

    def reset(self, stream: int, code: int) -> None:
        """End a stream with an error."""
        state = self._streams.get(stream)
        if state is not None:
            self._writer.write(RST_STREAM, 0, stream, encode_number(code))
            self._close(state)

    def ping(self, content: bytes) -> None:
        """Ask the peer for a sign of life, which is the event `PingAnswered` with the same 8 bytes."""
        if self.ended is None:
            self._pings.append(content)
            self._writer.write(PING, 0, 0, content)

    def announce_end(self) -> None:
        """Ask the peer to open no further streams; those that it has already opened are still accepted.

        Follow with `ping`: after its answer, the peer opens none, and `go_away` loses none (section 6.8).
        """
        if self.ended is None and self._last_accepted is None:
            self._write_go_away(_MAX_STREAM, ErrorCode.NO_ERROR)

    def go_away(self, code: int = ErrorCode.NO_ERROR) -> None:
        """Accept no further streams; open streams go on (section 6.8)."""
        if self.ended is None:
            if self._last_accepted is None:
                self._last_accepted = self._last_stream
            self._write_go_away(self._last_accepted, code)

    def renew_budgets(self) -> None:
        """Give the peer its first budgets again if it has less; see the class."""
        self._control.level = max(self._control.level, _CONTROL_FRAMES)
        self._resets.level = max(self._resets.level, self._limits.resets * _RESET_COST)

    def _receive_frames(self, data: bytes, events: list[Event]) -> int:
        """Handle whole frames, and return where the first partial one starts."""
        at = 0
        if not self._has_preface:
            if data[: len(PREFACE)] != PREFACE[: len(data)]:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the client does not speak HTTP/2")
            if len(data) < len(PREFACE):
                self._needed_size = 0  # each byte is compared at once
                return 0
            self._has_preface, at = True, len(PREFACE)
        largest, receivers, size = self._limits.frame, self._receivers, len(data)
        while size - at >= HEADER_SIZE:
            high, low, kind, flags, stream = unpack_header(data, at)
            length = high << 8 | low
            end = at + HEADER_SIZE + length
            if length > largest:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {length} bytes")
            if end > size:
                self._needed_size = end - at
                return at
            if kind != self._expected_kind != _ANY:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of kind {kind} comes too early")
            try:
                if kind <= CONTINUATION:
                    receivers[kind](flags, stream & STREAM_BITS, data[at + HEADER_SIZE : end], events)
                else:
                    self._control.spend()
            except StreamFault as fault:
                self._resets.spend(_RESET_COST)
                self._writer.write(RST_STREAM, 0, fault.stream, encode_number(fault.code))
                faulty = self._streams.get(fault.stream)
                if faulty is None:
                    self._remember_early_end(fault.stream, by_peer=self._ended_early.get(fault.stream, False))
                else:
                    self._close(faulty)
                    events.append(StreamReset(fault.stream, fault.code))
            at = end
        self._needed_size = HEADER_SIZE
        return at

    def _receive_data(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)
        self._connection_window -= size
        if self._connection_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "data exceed the connection's window")
        stream = self._streams.get(number)
        if stream is None:
            self._give_back(size)
            self._receive_late(number)
            return
        stream.unacknowledged += size
        if stream.is_request_complete:
            raise StreamFault(number, ErrorCode.STREAM_CLOSED, "data after the end of the request")
        if stream.unacknowledged + stream.unannounced > self._stream_window:
            raise StreamFault(number, ErrorCode.FLOW_CONTROL_ERROR, "data exceed the stream's window")
        if flags & PADDED:
            payload = remove_padding(payload)
            self.acknowledge(number, size - len(payload))
            size = len(payload)
        if stream.content_left >= 0:
            stream.content_left -= size
            if stream.content_left < 0:
                raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "the body is longer than its content-length")
        if flags & END_STREAM:
            if stream.content_left > 0:
                raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "the body is shorter than its content-length")
            stream.is_request_complete = True
            events.append(DataReceived(number, payload, True))
        elif size:
            self._control.level += size >> _CONTROL_BYTES_BITS
            events.append(DataReceived(number, payload, False))
        else:
            self._control.spend()

    def _receive_late(self, number: int) -> None:
        """Judge DATA or HEADERS of a stream that is not open (section 5.1)."""
        self._check_stream_exists(number)
        self._control.spend()
        if self._last_accepted is not None and number > self._last_accepted:
            return
        by_peer = self._ended_early.get(number)
        if by_peer is None:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"stream {number} has ended")
        if by_peer:
            raise StreamFault(number, ErrorCode.STREAM_CLOSED, "the peer has reset the stream")

    def _receive_headers(self, flags: int, number: int, block: bytes, events: list[Event]) -> None:
        if flags & (PADDED | PRIORITIZED | END_HEADERS) != END_HEADERS:
            if flags & PADDED:
                block = remove_padding(block)
            if flags & PRIORITIZED:
                block = _remove_priority(number, block)
            if not flags & END_HEADERS:
                if not number & 1:
                    raise _make_even_stream_fault(number)
                self._block_stream, self._block_flags, self._block_frames = number, flags & END_STREAM, 0
                self._expected_kind = CONTINUATION
                self._extend_block(block)
                return
        if number <= self._last_stream:
            self._receive_trailers(flags, number, block, events)
            return
        if not number & 1:
            raise _make_even_stream_fault(number)
        self._last_stream = number
        if self._last_accepted is not None or len(self._streams) >= self._limits.streams:
            self._refuse(number, block)
            return
        request = self._decoder.decode_request(number, block)
        has_ended = flags & END_STREAM != 0
        if has_ended and request.content_length > 0:
            raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "the body is shorter than its content-length")
        self._streams[number] = Stream(number, self._writer.initial_stream_window, request.content_length, has_ended)
        events.append(RequestReceived(number, request.headers, has_ended))

    def _receive_continuation(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        if self._expected_kind != CONTINUATION or number != self._block_stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a continuation has no headers before it")
        self._control.spend()
        self._block_frames += 1
        if self._block_frames > _MAX_CONTINUATIONS:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block has too many frames")
        self._extend_block(payload)
        if flags & END_HEADERS:
            self._expected_kind = _ANY
            block = bytes(self._block)
            self._block.clear()
            self._receive_headers(self._block_flags | END_HEADERS, number, block, events)

    def _extend_block(self, payload: bytes) -> None:
        self._block += payload
        if len(self._block) > 2 * self._limits.header_list:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large")

    def _receive_trailers(self, flags: int, number: int, block: bytes, events: list[Event]) -> None:
        stream = self._streams.get(number)
        if stream is None:
            self._decoder.skip(block)
            self._receive_late(number)
            return
        self._decoder.decode_trailers(number, block)
        if stream.is_request_complete:
            raise StreamFault(number, ErrorCode.STREAM_CLOSED, "headers after the end of the request")
        if not flags & END_STREAM:
            raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "trailers do not end the request")
        if stream.content_left > 0:
            raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "the body is shorter than its content-length")
        stream.is_request_complete = True
        events.append(DataReceived(number, b"", True))

    def _refuse(self, number: int, block: bytes) -> None:
        self._decoder.skip(block)
        self._writer.write(RST_STREAM, 0, number, encode_number(ErrorCode.REFUSED_STREAM))
        if self._last_accepted is None:
            self._resets.spend(_RESET_COST)
            self._remember_early_end(number, by_peer=False)
        else:
            self._control.spend()

    def _receive_priority(self, _flags: int, number: int, payload: bytes, _events: list[Event]) -> None:
        self._control.spend()
        check_length(payload, _PRIORITY_SIZE)
        if number == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the connection has no priority")
        _remove_priority(number, payload)

    def _receive_reset(self, _flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        check_length(payload, _NUMBER_SIZE)
        self._check_stream_exists(number)
        stream = self._streams.get(number)
        if stream is None:
            self._control.spend()
            return
        self._resets.spend(_RESET_COST)
        self._close(stream, by_peer=True)
        events.append(StreamReset(number, int.from_bytes(payload, "big")))

    def _receive_settings(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "settings belong to the connection")
        is_first = self._expected_kind == SETTINGS
        if flags & ACK:
            check_length(payload, 0)
            if is_first:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first settings are an acknowledgment")
            self._control.spend()
            return
        self._expected_kind = _ANY
        self._control.spend(_SETTINGS_COST)
        changed = decode_settings(payload)
        self._writer.write(SETTINGS, ACK, 0)
        if changed.frame is not None:
            self._writer.frame = changed.frame
        if changed.window is not None:
            increment = changed.window - self._writer.initial_stream_window
            self._writer.initial_stream_window = changed.window
            for stream in tuple(self._streams.values()):
                try:
                    is_sent = self._writer.widen_stream(stream, increment)
                except StreamFault as fault:
                    raise ConnectionFault(fault.code, str(fault)) from None
                if is_sent:
                    self._report_sent(stream, events)

    def _receive_push_promise(self, _flags: int, _number: int, _payload: bytes, _events: list[Event]) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client sends a push promise")

    def _receive_ping(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        check_length(payload, _PING_SIZE)
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a ping belongs to the connection")
        if not flags & ACK:
            self._control.spend()
            self._writer.write(PING, ACK, 0, payload)
        elif payload in self._pings:
            self._pings.remove(payload)
            events.append(PingAnswered(payload))
        else:
            self._control.spend()

    def _receive_go_away(self, _flags: int, number: int, payload: bytes, _events: list[Event]) -> None:
        """A client that accepts no pushes, of which there are none, still awaits its responses."""
        self._control.spend()
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a farewell belongs to the connection")
        if len(payload) < _GOAWAY_SIZE:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a farewell is too short")

    def _receive_window_update(self, _flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        self._control.spend()
        check_length(payload, _NUMBER_SIZE)
        increment = decode_number(payload)
        waiting_bytes = self._writer.waiting_bytes
        if number == 0:
            if increment == 0:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the connection's window grows by 0")
            sent_streams = self._writer.widen_connection(increment)
        else:
            self._check_stream_exists(number)
            stream = self._streams.get(number)
            if stream is None:
                return
            if increment == 0:
                raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "the stream's window grows by 0")
            sent_streams = [stream] if self._writer.widen_stream(stream, increment) else []
        self._control.level += (waiting_bytes - self._writer.waiting_bytes) >> _CONTROL_BYTES_BITS
        for stream in sent_streams:
            self._report_sent(stream, events)

    def _check_stream_exists(self, number: int) -> None:
        if not number & 1:
            raise _make_even_stream_fault(number)
        if number > self._last_stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {number} does not exist")

    def _report_sent(self, stream: Stream, events: list[Event]) -> None:
        events.append(StreamSent(stream.number))
        if stream.is_response_complete:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Close a stream whose response is in the output."""
        self._control.level += _CONTROL_FRAMES_PER_RESPONSE
        self._resets.level += 1
        if not stream.is_request_complete:
            self._writer.write(RST_STREAM, 0, stream.number, encode_number(ErrorCode.NO_ERROR))
            self._close(stream)
            return
        del self._streams[stream.number]
        self._unannounced += stream.unacknowledged
        if self._unannounced >= self._connection_window:
            self._give_back(0)

    def _close(self, stream: Stream, *, by_peer: bool = False) -> None:
        del self._streams[stream.number]
        if not stream.is_request_complete:
            self._remember_early_end(stream.number, by_peer=by_peer)
        if stream.waiting is not None:
            self._writer.discard(stream)
        if stream.unacknowledged:
            self._give_back(stream.unacknowledged)

    def _remember_early_end(self, number: int, *, by_peer: bool) -> None:
        """Remember that the peer may still send frames of this stream; it knows at most `streams` of these."""
        self._ended_early[number] = by_peer
        if len(self._ended_early) > self._limits.streams + self._limits.resets:
            self._ended_early.popitem(last=False)

    def _give_back(self, count: int) -> None:
        """Give bytes back to the connection's window."""
        self._unannounced += count
        if self._unannounced >= max(1, self._connection_window):
            self._writer.write(WINDOW_UPDATE, 0, 0, encode_number(self._unannounced))
            self._connection_window += self._unannounced
            self._unannounced = 0

    def _end_unread(self) -> ConnectionEnded:
        unsent = len(self._writer.output) + self._writer.waiting_bytes
        fault = ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"{unsent} bytes of output are not read")
        return self._end(fault)

    def _end(self, fault: ConnectionFault) -> ConnectionEnded:
        self.ended = ConnectionEnded(fault.code, fault.reason)
        output = self._writer.output
        self._writer = FrameWriter()
        if len(output) <= self._limits.unsent:
            self._writer.output += output
        self._streams.clear()
        self._ended_early.clear()
        self._unread_bytes.clear()
        self._block.clear()
        self._write_go_away(self._last_stream, fault.code, fault.reason.encode())
        return self.ended

    def _write_go_away(self, last_stream: int, code: int, reason: bytes = b"") -> None:
        self._writer.write(GOAWAY, 0, 0, encode_number(last_stream) + encode_number(code) + reason)


def _make_even_stream_fault(number: int) -> ConnectionFault:
    reason = f"stream {number} is even, but clients open odd ones (section 5.1.1)"
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)


def _remove_priority(number: int, payload: bytes) -> bytes:
    """Check and drop the priority of a stream, which the RFC deprecates (section 5.3.2)."""
    if len(payload) < _PRIORITY_SIZE:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a priority is too short")
    if decode_number(payload) == number:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {number} depends on itself")
    return payload[_PRIORITY_SIZE:]
