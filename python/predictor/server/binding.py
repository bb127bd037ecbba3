"""Binding of a server's address, with explanations of failures."""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from predictor.errors import ConfigurationError
from predictor.server.address import Address, Listening, SocketAddress

BACKLOG: Final = 4096
"""Connections that wait to be accepted."""
_OTHERS: Final = 0o077
_OWN_FOLDER: Final = 0o700
_ANSWER_S: Final = 1.0


def bind(address: Listening, *, is_shared: bool = False) -> list[socket.socket]:
    """Bind sockets to an address, and listen, so that no other process takes it.

    Args:
        address: The address; a host name may have several. The folder of a Unix socket is created.
        is_shared: Whether several processes share the port, which must be reserved.

    Raises:
        ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
    """
    if isinstance(address, SocketAddress):
        _make_folder(address.path.parent)
        _check_unused(address)
    try:
        if isinstance(address, Address):
            return _bind_each(address, is_shared=is_shared)
        address.path.unlink(missing_ok=True)
        return [_listening_socket(socket.AF_UNIX, str(address.path), is_shared=False)]
    except OSError as error:
        raise ConfigurationError(explain_bind_error(address, error)) from None


def _bind_each(address: Address, *, is_shared: bool) -> list[socket.socket]:
    """Bind each address of a host, such as those of IPv4 and IPv6, except those that this machine lacks."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found)
    with ExitStack() as unfinished:
        sockets: list[socket.socket] = []
        for family, host in places:
            port = sockets[0].getsockname()[1] if sockets else address.port
            try:
                sock = _listening_socket(family, (host, port), is_shared=is_shared)
            except OSError as error:
                if len(places) == 1 or error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
            else:
                sockets.append(unfinished.enter_context(sock))
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        unfinished.pop_all()
        return sockets


def _listening_socket(family: int, place: tuple[str, int] | str, *, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if os.name == "posix":  # on Windows the option would permit a port in use
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:  # [::] means every address, also of IPv4
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(place)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


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


def explain_bind_error(address: Listening, error: OSError) -> str:
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
