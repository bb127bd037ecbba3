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
    for descriptor, one in _sockets(place):
        if _is_listening(one):
            # Replace the descriptor, because gRPC still uses it and would log an error after a shutdown.
            with socket.socket(one.family) as unused:
                os.dup2(unused.fileno(), descriptor, inheritable=False)
            if isinstance(place, str):
                Path(place).unlink(missing_ok=True)
    for _, one in _sockets(place):
        with suppress(OSError):  # already closed
            one.shutdown(socket.SHUT_RDWR)


def _sockets(place: int | str) -> Iterator[tuple[int, socket.socket]]:
    """The sockets of this process at an address, with their descriptors; each is valid until the next."""
    if not _DESCRIPTORS.is_dir():
        return
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the folder changes while it is read
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # already closed
            continue
        with one:
            if _is_of(one, place):
                yield int(name), one


def _is_listening(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_of(one: socket.socket, place: int | str) -> bool:
    try:
        here = one.getsockname()
    except OSError:
        return False
    return here == place if isinstance(place, str) else isinstance(here, tuple) and here[1] == place
