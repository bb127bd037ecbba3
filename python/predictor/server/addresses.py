"""Addresses of a server: parsing, binding, and the ready line that announces them."""

import errno
import ipaddress
import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self, TypeAlias, final

from predictor.errors import ConfigurationError

LAST_PORT: Final = 65535
_SCHEME: Final = "unix:"
_MAX_PATH_LENGTH: Final = 100
"""Bytes; the system limit is 108 on Linux and 104 on macOS, including a final zero byte."""
BACKLOG: Final = 4096
"""Connections that wait to be accepted."""
_OTHERS: Final = 0o077
_OWN_FOLDER: Final = 0o700
_ANSWER_S: Final = 1.0


@final
@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int
    """0 picks a free port."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "HOST:PORT", with brackets around an IPv6 host.

        Raises:
            ConfigurationError: It has another form.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
            raise ConfigurationError(f"the address {text[:80]!r} is not HOST:PORT, such as 127.0.0.1:50051")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a host name other than localhost counts as public."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@final
@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket."""

    path: Path
    """Absolute path, in a folder that only this user can access."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "unix:PATH".

        Raises:
            ConfigurationError: The path is missing or too long, or this system has no Unix sockets.
        """
        if os.name != "posix":
            raise ConfigurationError(f"{text[:80]!r}: this system has no Unix sockets; listen on 127.0.0.1:0")
        name = text.removeprefix(_SCHEME).removeprefix("//")
        path = Path(name).absolute()
        if not name or name.endswith("/") or "\0" in name:
            raise ConfigurationError(f"the address {text[:80]!r} is not unix:PATH, such as unix:run/quantra.sock")
        if len(os.fsencode(path)) > _MAX_PATH_LENGTH:
            raise ConfigurationError(
                f"the path of {text[:80]!r} has over {_MAX_PATH_LENGTH} bytes; choose a shorter one"
            )
        return cls(path)

    @property
    def is_loopback(self) -> bool:
        """Always true."""
        return True

    def __str__(self) -> str:
        return f"{_SCHEME}{self.path}"


ListenAddress: TypeAlias = Address | UnixAddress


def parse_listening(text: str) -> ListenAddress:
    """Read "HOST:PORT" or "unix:PATH"; raises as their `parse`."""
    return UnixAddress.parse(text) if text.startswith(_SCHEME) else Address.parse(text)


DEFAULT_ADDRESS: Final = Address("127.0.0.1", 50051)


def bind(address: ListenAddress, *, is_shared: bool = False) -> list[socket.socket]:
    """Bind sockets to an address, and listen, so that no other process takes it.

    Args:
        address: The address; a host name may have several. The folder of a Unix socket is created.
        is_shared: Whether several processes share the port, which must be reserved.

    Raises:
        ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
    """
    if isinstance(address, UnixAddress):
        folder = address.path.parent  # only this user may enter it, which restricts who can connect
        try:
            folder.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as error:
            raise ConfigurationError(
                f"cannot create the socket's folder {folder.name!r}: {error.strerror}; choose another one"
            ) from None
        if status.st_uid != os.geteuid():
            raise ConfigurationError(f"the socket's folder {folder.name!r} belongs to another user; choose your own")
        if status.st_mode & _OTHERS:
            raise ConfigurationError(
                f"other users can enter the socket's folder {folder.name!r} (mode {stat.S_IMODE(status.st_mode):04o}); "
                "choose a separate folder, or chmod 700 it"
            )
        _check_unused(address)
    try:
        if isinstance(address, Address):
            return _bind_each(address, partial(_open_socket, is_shared=is_shared))
        address.path.unlink(missing_ok=True)
        return [_open_socket(socket.AF_UNIX, str(address.path), is_shared=False)]
    except OSError as error:
        raise ConfigurationError(explain_bind_error(address, error)) from None


def _bind_each(address: Address, open_socket: Callable[[int, tuple[str, int]], socket.socket]) -> list[socket.socket]:
    """Bind each address of a host, such as those of IPv4 and IPv6, except those that this machine lacks."""
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    hosts = dict.fromkeys((family, str(address_info[0])) for family, _, _, _, address_info in infos)
    with ExitStack() as unfinished:
        sockets: list[socket.socket] = []
        for family, host in hosts:
            port = sockets[0].getsockname()[1] if sockets else address.port
            try:
                sock = open_socket(family, (host, port))
            except OSError as error:
                if len(hosts) == 1 or error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
            else:
                sockets.append(unfinished.enter_context(sock))
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        unfinished.pop_all()
        return sockets


def _open_socket(family: int, address: tuple[str, int] | str, *, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if os.name == "posix":  # on Windows the option would permit a port in use
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:  # [::] means every address, also of IPv4
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def reserve_address(address: Address) -> Generator[Address]:
    """Reserve an address for several processes of this user while the block runs; of a host name, all its addresses.

    Yields it with the chosen port if it was 0. The sockets never listen, so they get no connections.

    Raises:
        ConfigurationError: The address is in use, not permitted, or not of this machine.
    """
    try:
        sockets = _bind_each(address, _reserve_socket)
    except OSError as error:
        raise ConfigurationError(explain_bind_error(address, error)) from None
    with ExitStack() as reserved:
        for sock in sockets:
            reserved.enter_context(sock)
        yield replace(address, port=sockets[0].getsockname()[1])


def _reserve_socket(family: int, address: tuple[str, int]) -> socket.socket:
    """Bind exclusively, and allow sharing only then; before, the bind could join another server's port."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier server's connections may linger
        sock.bind(address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        sock.close()
        raise
    return sock


def explain_bind_error(address: ListenAddress, error: OSError) -> str:
    """Explain the system's error about an address."""
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use; stop the server there, or listen on another port (port 0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"this user may not listen on {address}; choose port 1024 or above"
    return f"cannot listen on {address}: {error.strerror}; choose an address of this machine"


def _check_unused(address: UnixAddress) -> None:
    """Check that no server listens there, because a new server replaces the socket file."""
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


@final
@dataclass(frozen=True, slots=True)
class BoundAddresses:
    """The addresses of a running server."""

    calls: ListenAddress
    admin: ListenAddress | None
    metrics_port: int | None

    def to_json(self) -> Mapping[str, int | str]:
        """Fields of the ready line."""
        line: dict[str, int | str] = {}
        for prefix, address in (("", self.calls), ("admin_", self.admin)):
            if isinstance(address, Address):
                line[f"{prefix}port"] = address.port
            elif address is not None:
                line[f"{prefix}socket"] = str(address.path)
        return line if self.metrics_port is None else {**line, "metrics_port": self.metrics_port}

    def announce(self) -> None:
        """Print the ready line on standard output."""
        line = {"ready": True, **self.to_json(), "pid": os.getpid(), "version": version("quantra")}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
