"""What callers notice: how long a call blocks their thread, and the time of a call right after a cancelled one."""

import statistics
from pathlib import Path
from typing import Final

from benchmarks.interop.program import results_of
from benchmarks.report import Row, at_most

HELD_REACH_MS: Final = 5.0
AFTER_CANCELLED_REACH_S: Final = 0.3
_PROCESSES: Final = 5


def caller_rows(target: str, models: Path, file: Path, *, judged: bool) -> list[Row]:
    """Rows over gRPC and embedded."""
    doors = {"gRPC": ("grpc", f"http://{target}"), "embedded": ("embedded", models)}
    return [row for name, (kind, where) in doors.items() for row in _rows(name, kind, where, file, judged=judged)]


def _rows(name: str, kind: str, where: object, file: Path, *, judged: bool) -> list[Row]:
    held = [one for _ in range(_PROCESSES) for one in results_of("held", kind, where, file)]
    first_ms, many_ms = (sorted(one[name] for one in held) for name in ("first", "many"))
    (cancelled,) = results_of("cancelled", kind, where, file)
    return [
        at_most(
            f"{name}: caller's thread blocked, first call, ms",
            statistics.median(first_ms),
            HELD_REACH_MS,
            detail=f"of {_PROCESSES} processes; slowest {first_ms[-1]:.1f}",
            judged=judged,
        ),
        at_most(
            f"{name}: caller's thread blocked, 1,000 instances, ms",
            statistics.median(many_ms),
            HELD_REACH_MS,
            detail=f"of 200 bars, of {_PROCESSES} processes; slowest {many_ms[-1]:.1f}",
            judged=judged,
        ),
        at_most(
            f"{name}: a call right after a cancelled one of 1,000 instances, s",
            cancelled["slowest"] / 1000,
            AFTER_CANCELLED_REACH_S,
            detail="slowest of five",
            judged=judged,
        ),
    ]
