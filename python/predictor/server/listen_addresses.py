"""Where a server listens, and the one line on standard output by which others learn of it."""

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
    """Where a server listens."""

    calls: int
    """0 for a Unix socket."""
    admin: int | None
    """For changes of the models; None = nowhere."""
    metrics: int | None = None
    """For Prometheus; None = nowhere."""
    socket: Path | None = None
    """In place of the port for calls."""
    admin_socket: Path | None = None
    """In place of the other."""

    def told(self) -> Mapping[str, int | str]:
        """As the ready line has them."""
        told = {
            "port": None if self.socket is not None else self.calls,
            "socket": None if self.socket is None else str(self.socket),
            "admin_port": None if self.admin_socket is not None else self.admin,
            "admin_socket": None if self.admin_socket is None else str(self.admin_socket),
            "metrics_port": self.metrics,
        }
        return {name: place for name, place in told.items() if place is not None}


def ports_of(settings: ServerSettings, calls: int, admin: int | None, metrics: int | None) -> ListenAddresses:
    """The ports that were claimed, and the sockets in their place."""
    return ListenAddresses(
        calls, admin, metrics, socket=_path(settings.listen), admin_socket=_path(settings.admin_listen)
    )


def _path(address: Listening | None) -> Path | None:
    return address.path if isinstance(address, SocketAddress) else None


def announce(ports: ListenAddresses) -> None:
    """Say that the server answers, and where."""
    line = {"ready": True, **ports.told(), "pid": os.getpid(), "version": version("quantra")}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
