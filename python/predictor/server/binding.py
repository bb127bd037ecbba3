"""Claims the place where a server listens, and tells why it cannot."""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from predictor.errors import ConfigurationError
from predictor.server.address import Address, Listening, SocketAddress

if TYPE_CHECKING:
    import grpc
    import grpc.aio

_OTHERS: Final = 0o077
_OWN_FOLDER: Final = 0o700
_ANSWER_S: Final = 1.0


def bind(
    server: "grpc.aio.Server",
    address: Listening,
    credentials: "grpc.ServerCredentials | None",
    *,
    is_shared: bool = False,
) -> int:
    """Claim a place for a server. gRPC removes a Unix socket when the server stops.

    Args:
        server: that will listen there.
        address: the place.
        credentials: for addresses of the network; None: without TLS.
        is_shared: whether other processes listen on the port too, which is then reserved for them and this one.

    Returns:
        The port; of a Unix socket, a number that says nothing.

    Raises:
        ConfigurationError: it is in use, not allowed, or not this machine's; a socket's folder is open to others.
    """
    if isinstance(address, SocketAddress):
        _make_folder(address.path.parent)
        _check_unused(address)
    elif not is_shared:
        _check_free(address)
    try:
        if credentials is None or isinstance(address, SocketAddress):
            return server.add_insecure_port(str(address))
        return server.add_secure_port(str(address), credentials)
    except RuntimeError:
        raise ConfigurationError(f"cannot listen on {address}; choose another address") from None


@contextmanager
def reserved(address: Address) -> Generator[Address]:
    """Keep an address for several processes of this user, and from others, while the block runs.

    Yields it with the port that was chosen where it was 0. The socket never listens, so no connection comes to it.

    Raises:
        ConfigurationError: the address is in use, not allowed, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before may still be ending
        try:
            kept.bind((address.host, address.port))
        except OSError as error:
            raise ConfigurationError(why_not(address, error)) from None
        # Claimed alone; only now may others join, of the same user. Asked for before, it would join another server.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port: int = kept.getsockname()[1]
        yield replace(address, port=port)


def _check_free(address: Address) -> None:
    """Ask the system, whose errors tell why; gRPC's do not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # elsewhere the option would allow what this is to find out
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            raise ConfigurationError(why_not(address, error)) from None


def why_not(address: Address, error: OSError) -> str:
    """What the system's error about an address means, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use; stop the server there, or listen on another port (port 0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"{address} needs more rights than this user has; choose port 1024 or above"
    return f"cannot listen on {address}: {error.strerror}; choose an address of this machine"


def _make_folder(folder: Path) -> None:
    """A folder that this user alone can enter: whoever can connect to a socket is whoever can enter its folder."""
    try:
        folder.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(
            f"cannot make the folder {folder.name!r} of the socket: {error.strerror}; choose another one"
        ) from None
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"the folder {folder.name!r} of the socket is another user's; choose one of your own")
    if found.st_mode & _OTHERS:
        raise ConfigurationError(
            f"others can enter the folder {folder.name!r} of the socket (mode {stat.S_IMODE(found.st_mode):04o}); "
            "choose a folder for it alone, or chmod 700 that one"
        )


def _check_unused(address: SocketAddress) -> None:
    """Hold that no server lives there: gRPC takes the place of whatever socket is there."""
    try:
        if not stat.S_ISSOCK(address.path.lstat().st_mode):
            raise ConfigurationError(f"{address.path.name} is there and is no socket; listen on another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_ANSWER_S)
            probe.connect(str(address.path))
    except (FileNotFoundError, ConnectionRefusedError):  # nothing, or what a dead server left
        return
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on the socket {address.path.name}: {error.strerror or error}; listen on another path"
        ) from None
    raise ConfigurationError(f"the socket {address.path.name} is in use; stop the server there, or choose another path")
