"""A server process, seen from outside: its first line, its memory, descriptors, threads and CPU time (Linux)."""

import json
import os
import re
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, final

from benchmarks.faults.target import Secured, Target

START_S: Final = 120.0
"""How long a server may take to its first line."""
STOP_S: Final = 15.0
MOST_DATA_KIB: Final = 8 << 20
"""What a server may hold: one that would take the whole machine ends instead, and that is a verdict."""
MIB: Final = 1 << 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class NotServedError(RuntimeError):
    """A server did not begin, or did not end, in its time."""


@final
@dataclass(frozen=True, slots=True)
class Vitals:
    """What a process holds at one moment."""

    resident: int
    """Bytes."""
    peak: int
    """Bytes; the most since the last `forget_peak`."""
    threads: int
    descriptors: int
    cpu_s: float
    """CPU time since its start, all threads together."""

    @classmethod
    def of(cls, process: int) -> Self:
        """Read them from /proc.

        Raises:
            OSError: the process has ended.
        """
        place = Path("/proc") / str(process)
        status = place.joinpath("status").read_text(encoding="ascii", errors="replace")
        fields = dict(re.findall(r"^(VmRSS|VmHWM|Threads):\s+(\d+)", status, re.MULTILINE))
        times = place.joinpath("stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return cls(
            resident=int(fields["VmRSS"]) << 10,
            peak=int(fields["VmHWM"]) << 10,
            threads=int(fields["Threads"]),
            descriptors=len(list(place.joinpath("fd").iterdir())),
            cpu_s=(int(times[11]) + int(times[12])) / _TICKS,
        )

    def __str__(self) -> str:
        return f"{self.resident / MIB:.0f} MiB, {self.threads} threads, {self.descriptors} descriptors"


def forget_peak(process: int) -> None:
    """Let the peak begin anew."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


@final
@dataclass(frozen=True, slots=True)
class Server:
    """`python -m predictor.server`, a process of its own."""

    popen: "subprocess.Popen[str]"
    log: Path
    ready: dict[str, object]
    """Its first line; empty while it loads."""
    secured: Secured | None = None
    """What it reads; None: nothing is encrypted."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(str(self.ready["port"]))

    @property
    def target(self) -> Target:
        """For callers."""
        return Target(self.port, self.secured)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.popen.poll() is None

    def vitals(self) -> Vitals:
        """What it holds now."""
        return Vitals.of(self.popen.pid)

    def settled(self, before: Vitals, within_s: float) -> tuple[Vitals, float]:
        """Wait until threads and descriptors are those of before; what it holds then, and after how many seconds."""
        start = time.monotonic()

        def is_back() -> bool:
            now = self.vitals()
            return now.threads <= before.threads and now.descriptors <= before.descriptors

        wait_for(is_back, within_s)
        return self.vitals(), time.monotonic() - start


def free_port() -> int:
    """One of 127.0.0.1 that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
    return port


def wait_for(is_so: Callable[[], bool], within_s: float, every_s: float = 0.02) -> bool:
    """Ask until it is so; False if it was not in time."""
    end = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True


def begin(
    models: Path,
    log: Path,
    *options: str,
    listen: str = "127.0.0.1:0",
    secured: Secured | None = None,
    descriptors: int | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Server:
    """Start a server and do not wait.

    Args:
        models: Folder of NAME/VERSION artifacts.
        log: Where its stderr goes, behind what is there.
        options: Further ones of its command line.
        listen: Its address.
        secured: Its certificates and tokens; None: nothing is encrypted.
        descriptors: How many it may have; None for this process's own limit.
        environment: Variables beside those of this process.
    """
    most = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limited = ["sh", "-c", f'ulimit -n {most}; ulimit -d {MOST_DATA_KIB}; exec "$@"', "sh"]
    safe = () if secured is None else secured.options
    command = [*limited, *server_command("--models", str(models), "--listen", listen, *safe, *options)]
    with log.open("a", encoding="utf-8") as file:
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=variables)
    return Server(popen, log, {}, secured)


def server_command(*options: str) -> Sequence[str]:
    """How a server is run."""
    return [sys.executable, "-m", "predictor.server", *options]


def first_line(server: Server, within_s: float) -> str:
    """What it says first; empty if it ended without, or said nothing in time."""
    assert server.popen.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(server.popen.stdout, selectors.EVENT_READ)
        return server.popen.stdout.readline() if selector.select(within_s) else ""


@contextmanager
def serving(
    models: Path,
    log: Path,
    *options: str,
    secured: Secured | None = None,
    descriptors: int | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Generator[Server]:
    """A server that answers; it is ended with the block.

    Raises:
        NotServedError: it did not begin in time.
    """
    begun = begin(models, log, *options, secured=secured, descriptors=descriptors, environment=environment)
    try:
        line = first_line(begun, START_S)
        if not line:
            raise NotServedError(f"no server in {START_S:g} s: {log.read_text(encoding='utf-8')[-500:]}")
        yield Server(begun.popen, log, json.loads(line), secured)
    finally:
        end(begun)


def end(server: Server) -> None:
    """End it, by force if need be."""
    server.popen.terminate()
    try:
        server.popen.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.popen.kill()
        server.popen.wait(STOP_S)
    assert server.popen.stdout is not None
    server.popen.stdout.close()
