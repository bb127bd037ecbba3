"""Addresses to listen on: host and port, or a Unix socket."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias, final

from predictor.errors import ConfigurationError

LAST_PORT: Final = 65535
_SCHEME: Final = "unix:"
_LONGEST_PATH: Final = 100
"""Bytes; the system limit is 108 on Linux and 104 on macOS, including a final zero byte."""


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
class SocketAddress:
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
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ConfigurationError(f"the path of {text[:80]!r} has over {_LONGEST_PATH} bytes; choose a shorter one")
        return cls(path)

    @property
    def is_loopback(self) -> bool:
        """Always true."""
        return True

    def __str__(self) -> str:
        return f"{_SCHEME}{self.path}"


Listening: TypeAlias = Address | SocketAddress


def parse_listening(text: str) -> Listening:
    """Read "HOST:PORT" or "unix:PATH"; raises as their `parse`."""
    return SocketAddress.parse(text) if text.startswith(_SCHEME) else Address.parse(text)


DEFAULT_ADDRESS: Final = Address("127.0.0.1", 50051)
