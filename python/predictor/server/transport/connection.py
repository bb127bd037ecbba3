"""One HTTP/2 connection on the event loop, and its calls."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast, final

from grpc import StatusCode

from predictor.http2 import (
    ConnectionEnded,
    ConnectionLimits,
    DataReceived,
    Headers,
    Http2StateMachine,
    PingAnswered,
    RequestReceived,
    StreamReset,
    StreamSent,
    encode_headers,
)
from predictor.server.settings import ServerLimits
from predictor.server.transport.call import (
    IncomingCall,
    MethodHandler,
    NotGrpcError,
    RequestHead,
    encode_trailers,
    parse_head,
)

if TYPE_CHECKING:
    import ssl

_ENCODINGS: Final = frozenset({"identity", "gzip"})
_MAX_CACHED_HEADS: Final = 8
"""Largest number of parsed heads cached per connection."""
_STREAM_WINDOW: Final = 1 << 16
"""Bytes of a request that may arrive before they are wanted."""
_MAX_UNSENT: Final = 1 << 20
"""Bytes of output that the socket does not accept, above which streams send nothing more."""
_MAX_STARTED_PER_TURN: Final = 32
"""Calls of one connection that start in one turn of the loop, so that others wait for no more."""
_KEEP_ALIVE_PING: Final = b"keep-ali"
_DRAIN_PING: Final = b"draining"
"""Its answer means that the peer knows that the connection ends."""
_RENEWAL_S: Final = 60.0
"""Seconds after which a peer may again send as many control frames as at first."""
_CLOSE_S: Final = 1.0
"""Time for the last bytes to leave."""

_log = logging.getLogger(__name__)


@final
class HttpConnection(asyncio.Protocol):
    """One connection.

    Args:
        handlers: The handler of each method, by /SERVICE/METHOD.
        limits: Limits of the server.
        connections: The server's open connections; this one registers itself.
        name: Name of the peer of a Unix socket; None: its address.
    """

    def __init__(
        self,
        handlers: Mapping[str, MethodHandler],
        limits: ServerLimits,
        connections: "OpenConnections",
        name: str | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.peer = name or ""
        self._handlers, self._limits, self._connections = handlers, limits, connections
        self.http = Http2StateMachine(
            ConnectionLimits(  # of what the protocol itself stores; `IncomingCall.check_response` limits responses
                streams=limits.calls_per_peer,
                resets=limits.calls_per_peer,
                header_list=limits.metadata_bytes,
                connection_window=_STREAM_WINDOW * limits.calls_per_peer,
                unsent=limits.unread_bytes_per_peer + limits.send_bytes + _MAX_UNSENT,
            )
        )
        """The protocol's state. Call `flush_soon` after sending."""
        self._calls: dict[int, IncomingCall] = {}
        self._new_calls: list[tuple[MethodHandler, IncomingCall]] = []
        self._heads: dict[int, tuple[Headers, RequestHead]] = {}
        self._transport: asyncio.Transport | None = None
        self._is_paused = self._is_starting = self._is_flushing = False
        self._is_draining = self._is_drain_acknowledged = self._is_ending = self._is_used = False
        self._opened_at_s = self._last_received_at_s = self._last_used_at_s = self.loop.time()
        self._budgets_renewed_at_s = self._opened_at_s
        self._pinged_at_s: float | None = None
        self._writable_callbacks: list[Callable[[], None]] = []
        self.lost = asyncio.Event()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = self.peer or _format_peer(transport.get_extra_info("peername"))
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.add(self)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() == "h2":
            self._flush()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol."""
        self._transport = None
        for call in [*self._calls.values()]:
            call.cancel()
        self._call_writable_callbacks()
        self._connections.discard(self)
        self.lost.set()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_paused = False
        self._flush()

    def eof_received(self) -> None:
        """See asyncio.Protocol; a half-closed connection is closed."""

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_ending:
            return
        self._last_received_at_s = self.loop.time()
        for event in self.http.receive(data):
            match event:
                case RequestReceived():
                    self._last_used_at_s = self._last_received_at_s
                    if not self._is_used:
                        self._is_used = True
                        self._connections.note_use(self)
                    self._begin(event)
                case DataReceived():
                    call = self._calls.get(event.stream)
                    if call is None:
                        self.http.acknowledge(event.stream, len(event.data))
                    else:
                        call.receive(event.data, has_all=event.ended)
                case StreamReset():
                    if (call := self._calls.get(event.stream)) is not None:
                        call.cancel()
                case StreamSent():
                    self._call_writable_callbacks()
                case PingAnswered():
                    self._pinged_at_s = None
                    if event.content == _DRAIN_PING:
                        self._is_drain_acknowledged = True
                        self.http.go_away()
                case ConnectionEnded():
                    _log.debug("connection of %s ended: %s", self.peer, event.reason)
        if not self._is_starting:
            self._start_calls()
        self.flush_soon()

    # --- for calls

    def flush_soon(self) -> None:
        """Flush at the end of this turn of the loop: one write for all calls."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def can_send(self, stream: int) -> bool:
        """Whether the peer reads what was sent on this stream, and the socket accepts it; also if it is gone.

        Other streams do not matter: a peer that does not read one may still read this one.
        """
        return self._transport is None or not (self._is_full or self.http.count_waiting_bytes(stream))

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the peer has read something or is gone."""
        self._writable_callbacks.append(callback)

    def forget(self, stream: int) -> None:
        """Forget a call that has ended."""
        self._calls.pop(stream, None)
        self._last_used_at_s = self.loop.time()

    # --- for the server

    def check_times(self, *, limit_age: bool) -> None:
        """End the connection if it is idle, silent, too slow to begin or too old; call it regularly.

        Args:
            limit_age: Whether its age is limited.
        """
        now_s, limits = self.loop.time(), self._limits
        is_slow = not self.http.has_begun and now_s - self._opened_at_s > limits.handshake_s
        is_dead = self._pinged_at_s is not None and now_s - self._pinged_at_s > limits.silence_s
        if is_slow or is_dead:
            self.abort()
        elif not self._calls and now_s - self._last_used_at_s > limits.idle_s:
            self.close()
        elif self._pinged_at_s is None and now_s - self._last_received_at_s > limits.silence_s:
            self._pinged_at_s = now_s
            self.http.ping(_KEEP_ALIVE_PING)
            self.flush_soon()
        if now_s - self._budgets_renewed_at_s > _RENEWAL_S:
            self._budgets_renewed_at_s = now_s
            self.http.renew_budgets()
        # Each connection takes a call, or clients of a busy server could connect in vain. Without one it is idle.
        if limit_age and self._is_used and now_s - self._opened_at_s > limits.age_s:
            self._drain()

    def close(self) -> None:
        """Announce the end, cancel the calls and close."""
        self.http.go_away()
        self._end()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def idle_since_at_s(self) -> float | None:
        """When its last call ended, in seconds of the loop's clock; None while it has calls."""
        return None if self._calls else self._last_used_at_s

    # --- private

    @property
    def _is_full(self) -> bool:
        return self.http.unfetched_bytes > _MAX_UNSENT

    def _start_calls(self) -> None:
        """Start new calls, whose requests may have arrived with their headers; many in several turns of the loop."""
        calls, self._new_calls = self._new_calls[:_MAX_STARTED_PER_TURN], self._new_calls[_MAX_STARTED_PER_TURN:]
        for handler, call in calls:
            if not call.is_over:
                handler(call)
        self._is_starting = bool(self._new_calls)
        if self._is_starting:
            self.loop.call_soon(self._start_calls)

    def _begin(self, event: RequestReceived) -> None:
        stream, cached = event.stream, self._heads.get(id(event.headers))
        try:
            head = self._parse_head(event.headers) if cached is None else cached[1]
        except NotGrpcError as error:
            self.http.send_headers(stream, encode_headers(((b":status", error.status),)), end=True)
            return
        except ValueError as error:
            self._refuse(stream, StatusCode.INTERNAL, str(error))
            return
        handler = self._handlers.get(head.method)
        if handler is None:
            self._refuse(stream, StatusCode.UNIMPLEMENTED, "this server has no such method")
        elif head.encoding not in _ENCODINGS:
            self._refuse(stream, StatusCode.UNIMPLEMENTED, "the request's encoding is unknown; use gzip or identity")
        else:
            call = self._calls[stream] = IncomingCall(self, stream, head, self._limits)
            if event.ended:
                call.receive(b"", has_all=True)
            self._new_calls.append((handler, call))

    def _parse_head(self, headers: Headers) -> RequestHead:
        """Parse headers, and remember the result: equal blocks of headers are one object while it is referred to."""
        head = parse_head(headers)
        if len(self._heads) >= _MAX_CACHED_HEADS:
            self._heads.clear()
        self._heads[id(headers)] = headers, head
        return head

    def _refuse(self, stream: int, code: StatusCode, message: str) -> None:
        self.http.send_headers(stream, encode_trailers(code, message, {}, has_begun=False), end=True)

    def _drain(self) -> None:
        """Refuse new calls; close after the last call, once the peer has acknowledged."""
        if not self._is_draining:
            self._is_draining = True
            self.http.announce_end()
            self.http.ping(_DRAIN_PING)
            self._pinged_at_s = self.loop.time()
            self.flush_soon()
        if self._is_drain_acknowledged and not self._calls:
            self._end()

    def _call_writable_callbacks(self) -> None:
        callbacks, self._writable_callbacks = self._writable_callbacks, []
        for callback in callbacks:
            callback()

    def _flush(self) -> None:
        self._is_flushing = False
        if self._transport is None or self._is_paused:
            return
        data = self.http.data_to_send()
        if data:
            self._transport.write(data)
        if self._writable_callbacks and not self._is_full:
            self._call_writable_callbacks()
        if self.http.ended is not None:
            self._end()

    def _end(self) -> None:
        """Send what is due, then close; abort if the peer does not read."""
        if self._is_ending or self._transport is None:
            return
        self._is_ending = True
        self._flush()
        self._transport.close()
        self.loop.call_later(_CLOSE_S, self.abort)


@final
class OpenConnections:
    """The open connections of a server.

    Args:
        max_count: Most connections. A further one closes an idle one: the oldest that never had a call, or else the
            one that is idle for longest. Without an idle one, it is closed itself.
    """

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._connections: set[HttpConnection] = set()
        self._unused: dict[HttpConnection, None] = {}
        """Those that never had a call, oldest first."""
        self._is_closed = False

    def add(self, connection: HttpConnection) -> None:
        """Add a connection; it is closed if the server has stopped."""
        if self._is_closed:
            self._connections.add(connection)
            connection.close()
            return
        if len(self._connections) >= self._max_count:
            idle = self._find_idle()
            if idle is None:
                connection.abort()
                return
            self.discard(idle)  # immediately: it is lost only after further connections
            idle.close()
        self._connections.add(connection)
        self._unused[connection] = None

    def note_use(self, connection: HttpConnection) -> None:
        """Note that a connection has a call."""
        self._unused.pop(connection, None)

    def discard(self, connection: HttpConnection) -> None:
        """Remove a connection that is lost."""
        self._connections.discard(connection)
        self._unused.pop(connection, None)

    def _find_idle(self) -> HttpConnection | None:
        if self._unused:
            return next(iter(self._unused))
        idle = [
            (since_at_s, connection)
            for connection in self._connections
            if (since_at_s := connection.idle_since_at_s) is not None
        ]
        return min(idle, key=itemgetter(0))[1] if idle else None

    def check_times(self, *, limit_age: bool) -> None:
        """See `HttpConnection.check_times`."""
        for connection in [*self._connections]:
            connection.check_times(limit_age=limit_age)

    def limit_unread(self, max_bytes: int) -> None:
        """Abort the connections with the most unread bytes until their total is at most `max_bytes`."""
        total = sum(connection.http.pending_bytes for connection in self._connections)
        for connection in sorted(self._connections, key=lambda connection: connection.http.pending_bytes, reverse=True):
            if total <= max_bytes:
                return
            total -= connection.http.pending_bytes
            connection.abort()

    async def close(self) -> None:
        """Close all connections, and later ones at once."""
        self._is_closed = True
        connections = [*self._connections]
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.lost.wait() for connection in connections))


def _format_peer(address: Any) -> str:
    """Return an address as gRPC spells it."""
    host, port, *rest = address
    return f"ipv6:[{host}]:{port}" if rest else f"ipv4:{host}:{port}"
