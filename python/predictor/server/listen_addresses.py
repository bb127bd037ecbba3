"""The addresses of a running server, and the ready line that announces them on standard output."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import final

from predictor.server.address import Listening, SocketAddress
from predictor.server.settings import ServerSettings


@final
@dataclass(frozen=True, slots=True)
class ListenAddresses:
    """The bound addresses of a server."""

    calls: int
    """0 for a Unix socket."""
    admin: int | None
    """Admin port, if any."""
    metrics: int | None = None
    """Metrics port, if any."""
    socket: Path | None = None
    """Unix socket instead of `calls`."""
    admin_socket: Path | None = None
    """Unix socket instead of `admin`."""

    def to_json(self) -> Mapping[str, int | str]:
        """Fields of the ready line."""
        places = {
            "port": None if self.socket is not None else self.calls,
            "socket": None if self.socket is None else str(self.socket),
            "admin_port": None if self.admin_socket is not None else self.admin,
            "admin_socket": None if self.admin_socket is None else str(self.admin_socket),
            "metrics_port": self.metrics,
        }
        return {name: place for name, place in places.items() if place is not None}


def ports_of(settings: ServerSettings, calls: int, admin: int | None, metrics: int | None) -> ListenAddresses:
    """Return the bound ports, or the sockets instead of them."""
    return ListenAddresses(
        calls, admin, metrics, socket=_path(settings.listen), admin_socket=_path(settings.admin_listen)
    )


def _path(address: Listening | None) -> Path | None:
    return address.path if isinstance(address, SocketAddress) else None


def announce(ports: ListenAddresses) -> None:
    """Print the ready line."""
    line = {"ready": True, **ports.to_json(), "pid": os.getpid(), "version": version("quantra")}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
