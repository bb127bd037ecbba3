"""What a fault is: it is given material and does its worst to servers of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from benchmarks.faults.door import Door
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import Material


@final
@dataclass(frozen=True, slots=True)
class Place:
    """What a fault works with.

    Attributes:
        material: Models and requests.
        work: A folder of its own, for logs and copies.
        quick: Few calls, and times are not judged.
        door: How callers reach the server and ask it; faults that have one way alone do not look at it.
    """

    material: Material
    work: Path
    quick: bool
    door: Door

    @property
    def log(self) -> Path:
        """Where servers write."""
        return self.work / "server.log"

    def count(self, full: int, quick: int, elsewhere: int | None = None) -> int:
        """How many, in this run; `elsewhere` in a full one through another door than the plain one."""
        if self.quick:
            return quick
        return full if elsewhere is None or self.door.is_plain else elsewhere


Fault: TypeAlias = Callable[[Place], Iterator[Finding]]
