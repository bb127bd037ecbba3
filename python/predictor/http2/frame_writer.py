"""Output of a connection: frames that may be sent, and responses that wait for the peer's windows."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import final

from predictor.http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    encode_frame,
    pack_header,
)


@final
@dataclass(slots=True)
class _WaitingPart:
    """Headers or data of a response that wait for a window."""

    content: memoryview
    is_data: bool
    is_last: bool


@final
@dataclass(slots=True)
class Stream:
    """State of an open stream."""

    number: int
    send_window: int
    """Bytes that the peer accepts; below 0 if it has reduced its initial window (RFC 9113, section 6.9.2)."""
    content_left: int = -1
    """Bytes of the body that are still to come according to content-length; -1 if not declared."""
    is_request_complete: bool = False
    """The whole request arrived."""
    is_response_complete: bool = False
    """The whole response is in the output or waits for a window."""
    unacknowledged: int = 0
    """Bytes of the body that arrived and were not acknowledged."""
    unannounced: int = 0
    """Acknowledged bytes that no WINDOW_UPDATE of the stream has given back."""
    waiting: deque[_WaitingPart] | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for a window."""
        return 0 if self.waiting is None else sum(len(part.content) for part in self.waiting)


@final
@dataclass(slots=True)
class FrameWriter:
    """Writes frames within the peer's windows and its largest frame (RFC 9113, section 6.9)."""

    output: bytearray = field(default_factory=bytearray)
    send_window: int = DEFAULT_WINDOW
    initial_stream_window: int = DEFAULT_WINDOW
    """Of new streams."""
    frame: int = DEFAULT_FRAME
    waiting_bytes: int = 0
    _stalled: OrderedDict[int, Stream] = field(default_factory=OrderedDict[int, Stream])
    """Streams that wait for the connection's window only, and get it in turn."""

    def write(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        """Write a frame without flow control."""
        self.output += encode_frame(kind, flags, stream, payload)

    def write_headers(self, stream: Stream, block: bytes, end: bool) -> None:  # noqa: FBT001
        """Write a header block, behind the data that wait."""
        if stream.waiting is not None:
            self._queue(stream, block, is_data=False, is_last=end)
            return
        size = len(block)
        if size <= self.frame:
            output = self.output
            output += pack_header(size >> 8, size & 0xFF, HEADERS, 5 if end else 4, stream.number)
            output += block
            return
        self.write(HEADERS, END_STREAM if end else 0, stream.number, block[: self.frame])
        for start in range(self.frame, size, self.frame):
            is_last = start + self.frame >= size
            part = block[start : start + self.frame]
            self.write(CONTINUATION, END_HEADERS if is_last else 0, stream.number, part)

    def write_data(self, stream: Stream, data: bytes, end: bool) -> None:  # noqa: FBT001
        """Write data as far as the windows allow; the rest waits."""
        size = len(data)
        if (
            0 < size <= self.send_window
            and size <= stream.send_window
            and size <= self.frame
            and stream.waiting is None
        ):
            self.send_window -= size
            stream.send_window -= size
            output = self.output
            output += pack_header(size >> 8, size & 0xFF, DATA, 1 if end else 0, stream.number)
            output += data
        elif size or end:
            self._queue(stream, data, is_data=True, is_last=end)
            self.resume(stream)

    def widen_connection(self, increment: int) -> list[Stream]:
        """Add to the connection's window, and return the streams whose bytes all found room.

        Raises:
            ConnectionFault: the window would be larger than allowed.
        """
        self.send_window += increment
        if self.send_window > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is above 2^31-1")
        sent_streams: list[Stream] = []
        while self.send_window > 0 and self._stalled:
            _, stream = self._stalled.popitem(last=False)
            if self._write_waiting(stream, max_frames=1):
                sent_streams.append(stream)
        return sent_streams

    def widen_stream(self, stream: Stream, increment: int) -> bool:
        """Add to a stream's window; True if all its waiting bytes found room.

        Raises:
            StreamFault: the window would be larger than allowed.
        """
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFault(stream.number, ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is above 2^31-1")
        return self.resume(stream)

    def resume(self, stream: Stream) -> bool:
        """Write what waits as far as the windows allow; True if something waited and nothing waits now."""
        if stream.waiting is None or stream.number in self._stalled:
            return False
        return self._write_waiting(stream)

    def discard(self, stream: Stream) -> None:
        """Drop what waits."""
        if stream.waiting is not None:
            self.waiting_bytes -= stream.waiting_bytes
            stream.waiting = None
            self._stalled.pop(stream.number, None)

    def _queue(self, stream: Stream, content: bytes, *, is_data: bool, is_last: bool) -> None:
        if stream.waiting is None:
            stream.waiting = deque()
        stream.waiting.append(_WaitingPart(memoryview(content), is_data, is_last))
        self.waiting_bytes += len(content)

    def _write_waiting(self, stream: Stream, max_frames: int | None = None) -> bool:
        """Whether nothing waits any more."""
        parts, stream.waiting = stream.waiting, None
        frames = 0
        while parts:
            part = parts[0]
            size = len(part.content)
            if part.is_data:
                count = max(0, min(size, self.send_window, stream.send_window, self.frame))
                if size and (count == 0 or frames == max_frames):
                    break
                frames += 1
                self.send_window -= count
                stream.send_window -= count
                ends = part.is_last and count == size
                self.write(DATA, END_STREAM if ends else 0, stream.number, bytes(part.content[:count]))
                part.content = part.content[count:]
            else:
                count = size
                self.write_headers(stream, bytes(part.content), part.is_last)
            self.waiting_bytes -= count
            if count == size:
                parts.popleft()
        if parts:
            stream.waiting = parts
            if stream.send_window > 0:
                self._stalled[stream.number] = stream
        return not parts
