"""What callers notice: how long their thread is held, and how soon they are answered after they changed their mind."""

from pathlib import Path
from typing import Final

from benchmarks.interop.program import found_of
from benchmarks.report import Row, at_most

HELD_REACH_MS: Final = 5.0
AFTER_CANCELLED_REACH_S: Final = 0.3


def caller_rows(target: str, models: Path, file: Path, *, judged: bool) -> list[Row]:
    """At both doors."""
    doors = {"gRPC": ("grpc", f"http://{target}"), "embedded": ("embedded", models)}
    return [row for name, (kind, where) in doors.items() for row in _rows(name, kind, where, file, judged=judged)]


def _rows(name: str, kind: str, where: object, file: Path, *, judged: bool) -> list[Row]:
    (held,) = found_of("held", kind, where, file)
    (cancelled,) = found_of("cancelled", kind, where, file)
    detail = "1,000 instances of 200 bars"
    return [
        at_most(
            f"{name}: caller's thread held, first call, ms",
            held["first"],
            HELD_REACH_MS,
            detail="of a process",
            judged=judged,
        ),
        at_most(
            f"{name}: caller's thread held, 1,000 instances, ms",
            held["many"],
            HELD_REACH_MS,
            detail=detail,
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
