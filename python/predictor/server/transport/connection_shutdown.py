"""Closing of a server's connections during shutdown.

gRPC ends calls that arrive during shutdown as CANCELLED, which clients do not retry. If the connection is closed first,
they are UNAVAILABLE and clients retry on another server.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/dev/fd")
"""Open descriptors of this process; missing on Windows, where connections are not closed."""


def cut(place: int | str) -> None:
    """Stop listening at an address and close this process's connections to it.

    Listening stops first, because a client that reconnects would be cancelled when the server stops.

    Args:
        place: A port, or the path of a Unix socket.
    """
    for descriptor, sock in _sockets(place):
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            # Replace the descriptor, because gRPC still uses it and would log an error after a shutdown.
            with socket.socket(sock.family) as unused:
                os.dup2(unused.fileno(), descriptor, inheritable=False)
            if isinstance(place, str):
                Path(place).unlink(missing_ok=True)
    for _, sock in _sockets(place):
        with suppress(OSError):  # already closed
            sock.shutdown(socket.SHUT_RDWR)


def _sockets(place: int | str) -> Iterator[tuple[int, socket.socket]]:
    """Yield the sockets of this process at an address, with their descriptors; each is valid until the next."""
    if not _DESCRIPTORS.is_dir():
        return
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the folder changes while it is read
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            sock = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # already closed
            continue
        with sock:
            if _is_at(sock, place):
                yield int(name), sock


def _is_at(sock: socket.socket, place: int | str) -> bool:
    try:
        address = sock.getsockname()
    except OSError:
        return False
    return address == place if isinstance(place, str) else isinstance(address, tuple) and address[1] == place
