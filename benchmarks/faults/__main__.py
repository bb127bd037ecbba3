"""What a server survives: each fault is done to a real server process, and what came of it is counted.

The server is seen from outside alone: its answers, its health, its memory, threads and descriptors (Linux). Every fault
runs in a process of its own and within a time, so that one that hangs is a verdict. A full run takes about 90 minutes.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.faults.door import NAMES, PLAIN
from benchmarks.faults.findings import HEAD, Finding, lines
from benchmarks.faults.one import ALONE, DOORED, FAULTS
from benchmarks.report import Row, common_options, publish

LONGEST_S, QUICK_LONGEST_S = 3600.0, 120.0
"""How long one fault may take."""
_WHY: Final = 600
"""Characters of what a fault that broke off said last."""


def findings(name: str, material: Path, *, quick: bool, door: str = PLAIN) -> Iterator[Finding]:
    """Run one fault through one door; one that breaks off or does not end has a last finding that says so."""
    command = [sys.executable, "-m", "benchmarks.faults.one", name, str(material)]
    with tempfile.TemporaryDirectory() as work:
        popen = subprocess.Popen(
            [*command, work, "--door", door, *(["--quick"] if quick else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        limit_s, problem = QUICK_LONGEST_S if quick else LONGEST_S, ""
        try:
            told, errors = popen.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(popen.pid, signal.SIGKILL)
            told, errors = popen.communicate()
            problem = f"did not end within {limit_s:g} s"
        else:
            problem = f"broke off: {errors[-_WHY:]}" if popen.returncode else ""
        yield from map(Finding.from_line, told.splitlines())
    if problem:
        yield Finding(fault=f"{name}: the rest", done=problem, calls=0, wrong=0, lost=1)


def runs_of(names: Sequence[str], doors: Sequence[str]) -> list[tuple[str, str]]:
    """Each fault and its door: some come through every door, the others through the plain one alone."""
    return [(name, door) for door in doors for name in names if door == PLAIN or name in DOORED]


def told(runs: Sequence[tuple[str, str]], material: Path, *, quick: bool) -> Iterator[Finding]:
    """The findings of each fault in turn; in a short run of two faults at a time."""

    def every(run: tuple[str, str]) -> list[Finding]:
        name, door = run
        return list(findings(name, material, quick=quick, door=door))

    with ThreadPoolExecutor(2 if quick else 1) as pool:
        for found in pool.map(every, (run for run in runs if run[0] not in ALONE)):
            yield from found
    for run in runs:
        if run[0] in ALONE:
            yield from every(run)


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), help="these faults alone")
    parser.add_argument("--door", nargs="+", choices=NAMES, default=NAMES, help="through these doors alone")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "benchmarks.faults.models", folder], check=True)
        print(HEAD)
        for finding in told(runs_of(given.only, given.door), Path(folder), quick=given.quick):
            print(lines(finding), flush=True)
            rows += finding.judged()
    return publish(rows, given.json)


if __name__ == "__main__":
    sys.exit(main())
