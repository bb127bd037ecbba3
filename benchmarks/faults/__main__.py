"""What a server survives: each fault is done to a real server process, and what came of it is counted.

The server is seen from outside alone: its answers, its health, its memory, threads and descriptors (Linux). Every fault
runs in a process of its own and within a time, so that one that hangs is a verdict. A full run takes half an hour.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.faults.findings import Finding, table
from benchmarks.faults.one import FAULTS
from benchmarks.report import common_options, publish

LONGEST_S, QUICK_LONGEST_S = 900.0, 120.0
"""How long one fault may take."""
_WHY: Final = 600
"""Characters of what a fault that broke off said last."""


def findings(name: str, material: Path, *, quick: bool) -> Iterator[Finding]:
    """Run one fault; one that breaks off or does not end has a last finding that says so."""
    command = [sys.executable, "-m", "benchmarks.faults.one", name, str(material)]
    with tempfile.TemporaryDirectory() as work:
        popen = subprocess.Popen(
            [*command, work, *(["--quick"] if quick else [])],
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


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), help="these faults alone")
    given = parser.parse_args()
    found: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "benchmarks.faults.models", folder], check=True)
        for name in given.only:
            found += findings(name, Path(folder), quick=given.quick)
    print(table(found))
    return publish([row for one in found for row in one.judged()], given.json)


if __name__ == "__main__":
    sys.exit(main())
