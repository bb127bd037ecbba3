"""The server of grpcio."""

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import grpc
import grpc.aio

from predictor.errors import ConfigurationError
from predictor.server import certificates
from predictor.server.address import Address, Listening, SocketAddress
from predictor.server.binding import check_available
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerLimits
from predictor.server.transport.connection_shutdown import cut

_PING_INTERVAL_MS: Final = 900
"""Shortest interval between accepted pings; below 1 s, because pings once per second may come early."""


@final
class GrpcioServer:
    """See `CallServer`.

    Args:
        limits: Limits of calls and connections.
        current: Returns the certificates; None: no TLS.
        is_shared: Whether several processes share the port.
    """

    def __init__(self, limits: ServerLimits, current: Callable[[], Certificates] | None, *, is_shared: bool) -> None:
        self._server = grpc.aio.server(options=_options(limits, has_tls=current is not None, is_shared=is_shared))
        self._current = current
        self._is_shared = is_shared
        self._has_begun = False
        self._place: int | str = 0
        """Bound port or socket path."""

    def bind(self, address: Listening) -> int:
        """See `CallServer.bind`. gRPC removes a Unix socket when the server stops."""
        check_available(address, is_shared=self._is_shared)
        try:
            if self._current is None or isinstance(address, SocketAddress):
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), certificates.credentials(self._current))
        except RuntimeError:
            raise ConfigurationError(f"cannot listen on {address}; choose another address") from None
        self._place = port if isinstance(address, Address) else str(address.path)
        return port

    def add_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See `CallServer.add_handlers`."""
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, dict(handlers))])

    async def start(self) -> None:
        """See `CallServer.start`."""
        await self._server.start()
        self._has_begun = True

    async def stop(self) -> None:
        """See `CallServer.stop`."""
        if self._has_begun:
            cut(self._place)
        else:
            await self._server.start()  # gRPC releases the address of a started server only
        await self._server.stop(None)


def _options(limits: ServerLimits, *, has_tls: bool, is_shared: bool) -> tuple[tuple[str, int], ...]:
    age = (("grpc.max_connection_age_ms", round(1000 * limits.age_s)),) if has_tls else ()
    return (
        *age,
        ("grpc.max_receive_message_length", limits.receive_bytes),
        ("grpc.max_send_message_length", limits.send_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        # Undocumented; the default of 1000 drops calls without a reason.
        ("grpc.server.max_pending_requests", limits.pending_calls),
        ("grpc.server.max_pending_requests_hard_limit", limits.pending_calls),
        # Accept keepalive pings once per second without open calls.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_s)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle_s)),
        ("grpc.keepalive_time_ms", round(1000 * limits.silence_s)),
        ("grpc.keepalive_timeout_ms", round(1000 * limits.silence_s)),
        ("grpc.http2.ping_timeout_ms", round(1000 * limits.silence_s)),  # default 60 s overrides keepalive_timeout_ms
        # Otherwise gRPC buffers megabytes of each request on a fast connection before it is read.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", int(is_shared)),  # if not shared, a second server on the port must fail
    )
