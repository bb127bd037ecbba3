"""A process that checks a server's health every 20 ms: `python -m benchmarks.faults.pulse TARGET`.

It stops when its input ends, and prints its results as one line of JSON.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final, final

import grpc

from benchmarks.report import Row, at_most

EVERY_S: Final = 0.02
TIMEOUT_S: Final = 20.0
MAX_WAIT_MS: Final = 100.0
CHECK: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = b"\x08\x01"


@final
@dataclass(frozen=True, slots=True)
class HealthWaits:
    """Results of the health checks."""

    asked: int = 0
    unanswered: int = 0
    """Checks that failed or did not return SERVING."""
    longest_ms: float = 0.0

    def rows(self, name: str, *, judged: bool) -> Iterator[Row]:
        """Rows for the longest wait and the failed checks."""
        detail = f"{self.asked} checks, one every {1000 * EVERY_S:g} ms"
        yield at_most(
            f"{name}: longest wait for health, ms", self.longest_ms, MAX_WAIT_MS, detail=detail, judged=judged
        )
        yield at_most(f"{name}: failed health checks", self.unanswered, 0, detail=detail)


@final
class HealthMonitor:
    """Handle of the process."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen

    def stop(self) -> HealthWaits:
        """Stop the process and read its results."""
        try:
            output, _ = self._popen.communicate("", timeout=TIMEOUT_S + 5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return HealthWaits(unanswered=1, longest_ms=1000 * TIMEOUT_S)
        return HealthWaits(**json.loads(output.splitlines()[-1]))


@contextmanager
def health_monitor(target: str) -> Generator[HealthMonitor]:
    """Start the process and wait for its first check."""
    command = [sys.executable, "-m", "benchmarks.faults.pulse", target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            yield HealthMonitor(popen)
        finally:
            popen.kill()


def check_until_closed(target: str) -> HealthWaits:
    """Check health until the input ends."""
    asked = unanswered = 0
    longest_s = 0.0
    with grpc.insecure_channel(target) as channel:
        check = channel.unary_unary(CHECK)

        def is_serving() -> bool:
            try:
                return check(b"", timeout=TIMEOUT_S) == SERVING
            except grpc.RpcError:
                return False

        print("serving" if is_serving() else "no answer", flush=True)
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            start = time.perf_counter()
            unanswered += not is_serving()
            asked, longest_s = asked + 1, max(longest_s, time.perf_counter() - start)
    return HealthWaits(asked, unanswered, 1000 * longest_s)


if __name__ == "__main__":
    print(json.dumps(asdict(check_until_closed(sys.argv[1]))))
