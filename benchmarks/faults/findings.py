"""What came of a fault: calls, how many were answered wrong, how many got no answer at all, and further figures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, final

from benchmarks.report import Row, at_most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault.

    Attributes:
        fault: Its name.
        done: What was done to the server.
        calls: How many calls were made.
        wrong: Calls whose answer is not what it must be; a server that died counts too.
        lost: Calls that got no answer, or none in time.
        rows: Further figures, whose names need not say the fault.
        detail: What the counts consist of.
        naive: What the same fault does to a plain server or a simpler way, as text; empty if that is not known.
    """

    fault: str
    done: str
    calls: int
    wrong: int
    lost: int
    rows: Sequence[Row] = ()
    detail: str = ""
    naive: str = ""

    @property
    def missed(self) -> tuple[str, ...]:
        """The names of the rows that break their promise."""
        return tuple(row.name for row in self.judged() if row.ok is False)

    def judged(self) -> list[Row]:
        """Every row; counts are judged in short runs too, since no machine is too busy for them.

        Without any call there are no counts; the rows then say why.
        """
        said = "; ".join(part for part in (f"{self.calls} calls", self.done, self.detail, self.naive) if part)
        counts = [
            at_most(f"{self.fault}: wrong", self.wrong, 0, detail=said),
            at_most(f"{self.fault}: lost", self.lost, 0, detail=said),
        ]
        further = [replace(row, name=f"{self.fault}: {row.name}") for row in self.rows]
        return [*(counts if self.calls or self.lost else []), *further]

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read what `to_line` wrote."""
        given: dict[str, Any] = json.loads(line)
        rows = [Row(**row) for row in given.pop("rows")]
        return cls(**given, rows=rows)


HEAD = f"{'fault':<46} {'calls':>8} {'wrong':>7} {'lost':>7}  verdict"
"""Above the lines of a table."""


def lines(finding: Finding) -> str:
    """Fault, calls, wrong, lost and verdict, with what was done below."""
    missed = (name.removeprefix(f"{finding.fault}: ") for name in finding.missed)
    verdict = "; ".join(f"MISSED {name}" for name in missed) or ("ok" if finding.calls else "not measured")
    first = f"{finding.fault:<46} {finding.calls:>8} {finding.wrong:>7} {finding.lost:>7}  {verdict}"
    return "\n".join([first, *(f"    {text}" for text in (finding.done, finding.detail, finding.naive) if text)])
