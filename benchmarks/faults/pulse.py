"""A process of its own that asks a server every 20 ms whether it is well, and tells how long it had to wait.

Run as `python -m benchmarks.faults.pulse PORT [FOLDER]`, with the folder of certificates and tokens; it ends when its
input does, and then prints one line of JSON.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

import grpc

from benchmarks.faults.target import Secured, Target
from benchmarks.report import Row, at_most

EVERY_S: Final = 0.02
PATIENCE_S: Final = 20.0
LONGEST_WAIT_MS: Final = 100.0
"""What the longest wait must not exceed."""
CHECK: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = b"\x08\x01"


@final
@dataclass(frozen=True, slots=True)
class Waits:
    """What the process saw."""

    asked: int = 0
    unanswered: int = 0
    """Questions that failed, or got another answer than SERVING."""
    longest_ms: float = 0.0

    def rows(self, *, judged: bool) -> list[Row]:
        """The longest wait, and whether every question was answered."""
        detail = f"{self.asked} questions, one every {1000 * EVERY_S:g} ms, from a process of its own"
        return [
            at_most("health's longest wait, ms", self.longest_ms, LONGEST_WAIT_MS, detail=detail, judged=judged),
            at_most("health not answered SERVING", self.unanswered, 0, detail=detail),
        ]


@final
class Pulse:
    """A process that asks; `stop` ends it."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen

    def stop(self) -> Waits:
        """End it; what it saw. No questions at all if it does not answer itself."""
        try:
            told, _ = self._popen.communicate("", timeout=PATIENCE_S + 5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return Waits(unanswered=1, longest_ms=1000 * PATIENCE_S)
        return Waits(**json.loads(told.splitlines()[-1]))


@contextmanager
def asking(target: Target) -> Generator[Pulse]:
    """A process that asks from now on; it has had its first answer."""
    command = [sys.executable, "-m", "benchmarks.faults.pulse", str(target.port)]
    command += [] if target.secured is None else [str(target.secured.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            yield Pulse(popen)
        finally:
            popen.kill()


def ask_until_told(target: Target) -> Waits:
    """Ask until the input ends."""
    asked = unanswered = 0
    longest_s = 0.0
    with target.blocking_channel() as channel:
        check = channel.unary_unary(CHECK)
        sys.stdout.write("begun\n" if is_well(check) else "nothing answers\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            start = time.perf_counter()
            unanswered += not is_well(check)
            asked, longest_s = asked + 1, max(longest_s, time.perf_counter() - start)
    return Waits(asked, unanswered, 1000 * longest_s)


def is_well(check: "grpc.UnaryUnaryMultiCallable[bytes, bytes]") -> bool:
    """Whether the server says SERVING."""
    try:
        return check(b"", timeout=PATIENCE_S) == SERVING
    except grpc.RpcError:
        return False


if __name__ == "__main__":
    print(
        json.dumps(
            asdict(ask_until_told(Target(int(sys.argv[1]), *(Secured(Path(folder)) for folder in sys.argv[2:]))))
        )
    )
