"""How the code is built, beside a commit before; with `--bits` whether it does the same, with `--speed` as fast.

The rows are counted in the code itself, the same way in both. The commit's files stand in a temporary folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.report import common_options
from benchmarks.structure import bits, docstrings, imports, moves, passes, sources, speed, starts
from benchmarks.structure.checkout import Checkout
from benchmarks.structure.table import Line, publish
from benchmarks.training.against import checked_out, is_commit
from benchmarks.training.asking import ROOT

FIRST = "b23a6fb"
"""The commit on which the restructuring began."""


def lines_of(given: argparse.Namespace, before: Checkout, folder: Path) -> list[Line]:
    """The rows that were asked for."""
    now = Checkout(ROOT)
    if given.bits:
        return list(bits.rows(before, now, folder, quick=given.quick))
    if given.speed:
        return speed.rows(before, now, folder, quick=given.quick)
    return [
        *sources.rows(before, now),
        *imports.rows(before, now),
        *docstrings.rows(before, now),
        *moves.rows(given.against),
        *([] if given.quick else passes.rows(before, now, folder)),
        *starts.rows(before, now, quick=given.quick),
    ]


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--against", metavar="COMMIT", default=FIRST, help="the commit before [%(default)s]")
    parser.add_argument("--list", action="store_true", help="also print the names behind the numbers")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--bits", action="store_true", help="artifacts of that commit: the same answers, bit by bit?")
    what.add_argument("--speed", action="store_true", help="interleaved pairs of both; some ten minutes")
    given = parser.parse_args()
    if not is_commit(given.against):
        parser.error(f"--against: there is no commit {given.against!r} here")
    with checked_out(given.against) as files, tempfile.TemporaryDirectory() as folder:
        lines = lines_of(given, Checkout(files), Path(folder))
    return publish(lines, given.json, given.against, details=given.list or given.bits or given.speed)


if __name__ == "__main__":
    sys.exit(main())
