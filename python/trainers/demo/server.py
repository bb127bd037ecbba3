"""A forecast server as a process of its own, for the demo."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from predictor.errors import UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that answers."""

    process: "subprocess.Popen[str]"
    port: int

    def stop(self) -> None:
        """Let calls in flight finish, then end the process."""
        self.process.terminate()
        self.process.wait(timeout=30)


def start(models: Path) -> Serving:
    """Start a server on a free port and wait until it answers.

    Raises:
        UnavailableError: it ended before it was ready; its own message stands above.
    """
    options = ["--models", str(models), "--listen", "127.0.0.1:0", "--log-level", "warning"]
    command = [sys.executable, "-m", "predictor.server", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own server
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise UnavailableError(f"the server ended with exit code {process.wait()} before it was ready")
    return Serving(process=process, port=int(json.loads(line)["port"]))


@contextmanager
def serving(models: Path, *, keep: bool) -> Generator[Serving]:
    """A server for the time inside; it goes on afterwards if `keep`."""
    server = start(models)
    try:
        yield server
    except BaseException:
        server.stop()
        raise
    if not keep:
        server.stop()
