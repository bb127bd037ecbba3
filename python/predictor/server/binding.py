"""Binding of a server's address, with explanations of failures."""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from predictor.errors import ConfigurationError
from predictor.server.address import Address, SocketAddress

_OTHERS: Final = 0o077
_OWN_FOLDER: Final = 0o700
_ANSWER_S: Final = 1.0


def check_socket(address: SocketAddress) -> None:
    """Create the folder of a Unix socket, and check that nobody listens there.

    Raises:
        ConfigurationError: The socket is in use, or its folder is open to others or cannot be created.
    """
    _make_folder(address.path.parent)
    _check_unused(address)


@contextmanager
def reserved(address: Address) -> Generator[Address]:
    """Reserve an address for several processes of this user while the block runs.

    Yields it with the chosen port if it was 0. The socket never listens, so it gets no connections.

    Raises:
        ConfigurationError: The address is in use, not permitted, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier server's connections may linger
        try:
            sock.bind((address.host, address.port))
        except OSError as error:
            raise ConfigurationError(explain_bind_error(address, error)) from None
        # Allow sharing only after an exclusive bind; before, the bind could join another server's port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port: int = sock.getsockname()[1]
        yield replace(address, port=port)


def explain_bind_error(address: Address, error: OSError) -> str:
    """Explain the system's error about an address."""
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use; stop the server there, or listen on another port (port 0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"this user may not listen on {address}; choose port 1024 or above"
    return f"cannot listen on {address}: {error.strerror}; choose an address of this machine"


def _make_folder(folder: Path) -> None:
    """Create a folder that only this user can enter, which restricts who can connect to its sockets."""
    try:
        folder.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(
            f"cannot create the socket's folder {folder.name!r}: {error.strerror}; choose another one"
        ) from None
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"the socket's folder {folder.name!r} belongs to another user; choose your own")
    if found.st_mode & _OTHERS:
        raise ConfigurationError(
            f"other users can enter the socket's folder {folder.name!r} (mode {stat.S_IMODE(found.st_mode):04o}); "
            "choose a separate folder, or chmod 700 it"
        )


def _check_unused(address: SocketAddress) -> None:
    """Check that no server listens there, because a server replaces any socket."""
    try:
        if not stat.S_ISSOCK(address.path.lstat().st_mode):
            raise ConfigurationError(f"{address.path.name} exists and is not a socket; listen on another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_ANSWER_S)
            probe.connect(str(address.path))
    except (FileNotFoundError, ConnectionRefusedError):  # nothing, or the socket of a dead server
        return
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on the socket {address.path.name}: {error.strerror or error}; listen on another path"
        ) from None
    raise ConfigurationError(f"the socket {address.path.name} is in use; stop the server there, or choose another path")
