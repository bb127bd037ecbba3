"""The rows: a number of the commit before, the number now, what was promised."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias, final

from benchmarks.report import Row, commit, machine

Both: TypeAlias = tuple[float, float]
"""A number before and now."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row.

    Attributes:
        name: What was counted or measured, with its unit.
        before: At the commit before; None where nothing is compared.
        now: In this checkout; None where it could not be measured, and then `detail` says why.
        reach: What `now` must be, as text; empty where nothing is promised.
        met: Whether it is; None where nothing is promised.
        detail: What stands behind the number: names, or how it was measured.
    """

    name: str
    before: float | None
    now: float | None
    reach: str
    met: bool | None
    detail: str = ""


def shown(name: str, values: Both, detail: str = "") -> Line:
    """A row of which nothing is promised."""
    before, now = values
    return Line(name=name, before=before, now=now, reach="", met=None, detail=detail)


def at_most(name: str, values: Both, limit: float, detail: str = "") -> Line:
    """A row whose number must not exceed a limit."""
    before, now = values
    return Line(name=name, before=before, now=now, reach=f"<= {limit:g}", met=now <= limit, detail=detail)


def at_most_share(name: str, values: Both, share: float, detail: str = "") -> Line:
    """A row whose number must not exceed a share of the one before."""
    before, now = values
    limit = share * before
    return Line(
        name=name,
        before=before,
        now=now,
        reach=f"<= {share:g} of it: {limit:.0f}",
        met=now <= limit,
        detail=detail,
    )


def publish(lines: Sequence[Line], path: Path | None, against: str, *, details: bool) -> int:
    """Print the table, write its rows as JSON if asked to, and give the exit code: 1 if a promise is broken.

    Args:
        lines: The rows.
        path: Where the JSON goes; None for nowhere.
        against: The commit before.
        details: Whether what stands behind each number is printed too.
    """
    print("  ".join(f"{key} {value}" for key, value in machine().items()))
    print(f"commit {commit()}, against {against}")
    print(f"{'':<58} {'before':>9} {'now':>9} {'reach':>22} {'met':>7}")
    for line in lines:
        verdict = {True: "ok", False: "MISSED", None: "-"}[line.met]
        print(f"{line.name:<58} {_number(line.before):>9} {_number(line.now):>9} {line.reach:>22} {verdict:>7}")
        if line.detail and (details or line.now is None):
            print(f"    {line.detail}")
    if path is not None:
        report = {"machine": machine(), "commit": commit(), "rows": [asdict(_row(line, against)) for line in lines]}
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return int(any(line.met is False for line in lines))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _row(line: Line, against: str) -> Row:
    before = "" if line.before is None else f"{_number(line.before)} at {against}; "
    return Row(name=line.name, value=line.now, reach=line.reach, ok=line.met, detail=before + line.detail)
