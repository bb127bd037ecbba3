"""What came of a fault: calls, how many were answered wrong, how many got no answer at all, and further figures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self, final

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
        rows: Further figures; their names need not say the fault.
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
        """Every row; counts are judged in short runs too, since no machine is too busy for them."""
        said = "; ".join(part for part in (f"{self.calls} calls", self.done, self.detail, self.naive) if part)
        return [
            at_most(f"{self.fault}: wrong", self.wrong, 0, detail=said),
            at_most(f"{self.fault}: lost", self.lost, 0, detail=said),
            *(Row(**{**asdict(row), "name": f"{self.fault}: {row.name}"}) for row in self.rows),
        ]

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read what `to_line` wrote."""
        given = json.loads(line)
        return cls(**{**given, "rows": [Row(**row) for row in given["rows"]]})


def table(findings: Sequence[Finding]) -> str:
    """Fault, calls, wrong, lost and verdict, with what was done below each."""
    lines = [f"{'fault':<46} {'calls':>8} {'wrong':>7} {'lost':>7}  verdict"]
    for one in findings:
        verdict = "; ".join(f"MISSED {name.removeprefix(one.fault + ': ')}" for name in one.missed) or "ok"
        lines.append(f"{one.fault:<46} {one.calls:>8} {one.wrong:>7} {one.lost:>7}  {verdict}")
        lines += [f"    {text}" for text in (one.done, one.detail, one.naive) if text]
    return "\n".join(lines)
