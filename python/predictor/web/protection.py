"""Checks of every request before its route, and the headers of every response."""

from collections.abc import Iterable
from typing import Final, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from predictor.errors import PermissionDeniedError
from predictor.server import Address
from predictor.web.responses import respond_error

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of each response that does not set them."""


@final
class HostCheck:
    """Rejects requests for other hosts, which a web page sends after it changed its own name's address.

    Args:
        app: The routes.
        names: Names and addresses of this server.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = _name_of(Headers(scope=scope).getlist("host"))
        if scope["type"] != "http":
            return
        if host in self._names:
            await self._app(scope, receive, send_with_headers)
            return
        error = PermissionDeniedError(
            f"{host[:80]!r} is not a name of this server; use {' or '.join(sorted(self._names))}, or start it with "
            "--host NAME"
        )
        await respond_error(error, ends_connection=True)(scope, receive, send_with_headers)


def host_names(address: Address, others: Iterable[str]) -> frozenset[str]:
    """Return the names of a server: that of its address, those of this machine if it is local, and others."""
    own = f"[{address.host}]" if ":" in address.host else address.host
    return frozenset({own.lower(), *(name.lower() for name in others)}) | (
        LOCAL_NAMES if address.is_loopback else frozenset()
    )


def _name_of(values: list[str]) -> str:
    """Return the host of a request, without the port; empty if there is not exactly one."""
    if len(values) != 1:
        return ""
    name, colon, port = values[0].lower().rpartition(":")
    return name if colon and port.isdecimal() else values[0].lower()
