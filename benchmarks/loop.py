"""What the training loop costs and what it keeps: against loops by hand, other libraries, shortages and kills.

One thread; every round measures all subjects in turn, and ratios are medians of the rounds' own. With `--peers` the
other libraries take part, each in a virtual environment that is made once in `.venv-peers` (a few GB). With `--against`
the loop of another commit does.
"""

import sys
from collections.abc import Sequence

import torch

from benchmarks.report import Row, common_options, publish
from benchmarks.training import (
    against,
    amp,
    decoding,
    guarantees,
    kills,
    peers,
    ranks,
    recovery,
    sharing,
    steps,
    windows,
)
from benchmarks.training.chart import bars
from benchmarks.training.environments import REQUIREMENTS


def chart_of(title: str, rows: Sequence[Row]) -> str:
    """The time of a step relative to the plain loop, for everybody whose row is there."""
    values = {row.name: row.value for row in rows if row.value is not None}
    shares = {
        name.removeprefix(f"{title}: ").removesuffix(" / plain loop"): value
        for name, value in values.items()
        if name.startswith(title) and name.endswith(" / plain loop")
    }
    fastest = values.get(f"{title}: fastest, us a step", 0.0) / values[f"{title}: plain, us a step"]
    return bars(f"{title}: time of a step, the plain loop is 1", {"fastest by hand": fastest} | shares)


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--peers", action="store_true", help="measure other libraries too, in their own environments")
    parser.add_argument("--against", metavar="COMMIT", help="compare the loop with that of a commit, in pairs")
    parser.add_argument("--cuda", action="store_true", help="only the rows that need a CUDA device")
    given = parser.parse_args()
    if given.against and not against.is_commit(given.against):
        parser.error(f"--against: there is no commit {given.against!r} here")
    torch.set_num_threads(1)
    if given.cuda:
        return publish(amp.rows(quick=given.quick), given.json)
    names = list(REQUIREMENTS) if given.peers else []
    timed = [*steps.rows(quick=given.quick), *peers.rows(names, quick=given.quick)]
    parts = (sharing, windows, recovery, kills, ranks, decoding, amp)
    kept = [part.rows(quick=given.quick) for part in parts]
    before = against.rows(given.against, quick=given.quick) if given.against else []
    findings = guarantees.found(names)
    status = publish([*timed, *before, *(row for part in kept for row in part), *guarantees.rows(findings)], given.json)
    for title in steps.TITLES.values():
        print(chart_of(title, timed))
    print()
    guarantees.show(findings)
    return status


if __name__ == "__main__":
    sys.exit(main())
