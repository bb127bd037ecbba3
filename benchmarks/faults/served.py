"""Memory, threads, descriptors and CPU time of a process, read from /proc (Linux)."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

MIB: Final = 1 << 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@final
@dataclass(frozen=True, slots=True)
class Vitals:
    """Resources of a process at one moment."""

    resident: int
    """Bytes."""
    peak: int
    """Bytes; maximum since the last `forget_peak`."""
    threads: int
    descriptors: int
    cpu_s: float
    """CPU time of all threads since the start."""

    @classmethod
    def of(cls, process: int) -> Self:
        """Read the resources of a process.

        Raises:
            OSError: The process has ended.
        """
        folder = Path("/proc") / str(process)
        status = folder.joinpath("status").read_text(encoding="ascii", errors="replace")
        fields = dict(re.findall(r"^(VmRSS|VmHWM|Threads):\s+(\d+)", status, re.MULTILINE))
        times = folder.joinpath("stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return cls(
            resident=int(fields["VmRSS"]) << 10,
            peak=int(fields["VmHWM"]) << 10,
            threads=int(fields["Threads"]),
            descriptors=len(list(folder.joinpath("fd").iterdir())),
            cpu_s=(int(times[11]) + int(times[12])) / _TICKS,
        )


def forget_peak(process: int) -> None:
    """Reset the peak."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


def is_alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool], within_s: float) -> bool:
    """Poll until the condition holds; False if it does not within the time."""
    end = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
