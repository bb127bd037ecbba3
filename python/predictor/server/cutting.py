"""Connections that a server cuts as it ends.

gRPC ends calls that arrive while it stops as CANCELLED, which nobody repeats. Where the connection is gone first, they
are UNAVAILABLE, and callers ask elsewhere.
"""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/dev/fd")
"""What this process has open; Windows has no such folder, and there nothing is cut."""


def cut(place: int | str) -> None:
    """End the connections that were made to this process there, in both directions, without a word.

    Args:
        place: a port of the network, or the path of a Unix socket.
    """
    for descriptor in _sockets():
        try:
            with socket.socket(fileno=os.dup(descriptor)) as one:
                if _is_of(one, place):
                    one.shutdown(socket.SHUT_RDWR)
        except OSError:  # it listens, or has ended meanwhile
            continue


def _sockets() -> Iterator[int]:
    if not _DESCRIPTORS.is_dir():
        return
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the folder changes while it is read
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            continue


def _is_of(one: socket.socket, place: int | str) -> bool:
    """Whether it is a connection that was made there; raises OSError where it is none."""
    one.getpeername()
    here = one.getsockname()
    return here == place if isinstance(place, str) else isinstance(here, tuple) and here[1] == place
