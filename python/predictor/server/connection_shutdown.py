"""Connections that a server cuts as it ends.

gRPC ends calls that arrive while it stops as CANCELLED, which nobody repeats. Where the connection is gone first, they
are UNAVAILABLE, and callers ask elsewhere.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/dev/fd")
"""What this process has open; Windows has no such folder, and there nothing is cut."""


def cut(place: int | str) -> None:
    """Stop listening there, and end the connections that were made to this process there, without a word.

    It listens no longer before connections end: a caller that connected again would be cancelled as the server stops.

    Args:
        place: a port of the network, or the path of a Unix socket.
    """
    for descriptor, one in _sockets(place):
        if _is_listening(one):
            # gRPC goes on to use the descriptor, and would log an error if the socket were shut down.
            with socket.socket(one.family) as unused:
                os.dup2(unused.fileno(), descriptor, inheritable=False)
            if isinstance(place, str):
                Path(place).unlink(missing_ok=True)
    for _, one in _sockets(place):
        with suppress(OSError):  # it has ended meanwhile
            one.shutdown(socket.SHUT_RDWR)


def _sockets(place: int | str) -> Iterator[tuple[int, socket.socket]]:
    """The sockets of this process with that address, each with its descriptor; each may be used until the next."""
    if not _DESCRIPTORS.is_dir():
        return
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the folder changes while it is read
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # it is not open any more
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
