"""Forecast accuracy of our networks, other libraries and baselines on identical windows, with intervals.

The tasks are daily returns (`ret`) and volatility (`vol`) of two stock indices. Every training takes 300 steps of 64
windows on one thread; `--model best`, which is compared at the first step, and AutoGluon have 300 seconds. Other
libraries run in virtual environments, which are created once in `.venv-peers` (a few GB). An interrupted run continues.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.forecasts.baselines import baselines
from benchmarks.forecasts.indices import TASKS, index_task
from benchmarks.forecasts.protocol import STEPS
from benchmarks.forecasts.results import Results
from benchmarks.forecasts.systems import (
    OUR_BEST,
    OUR_SELECTED_TFT,
    OUR_TFT,
    OURS,
    PEERS,
    FailedError,
    System,
    Trainings,
)
from benchmarks.forecasts.task import Task
from benchmarks.forecasts.verdicts import rows, table
from benchmarks.report import common_options, publish

SEEDS: Final = 5
QUICK_SEEDS: Final = 2
QUICK_STEPS: Final = 20


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = common_options(__doc__ or "")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="default both")
    parser.add_argument("--seeds", type=int, help=f"trainings per system (default {SEEDS}, {QUICK_SEEDS} if quick)")
    parser.add_argument("--jobs", type=int, default=1, help="parallel trainings (default 1)")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, help="other libraries (default: if not quick)"
    )
    parser.add_argument("--folder", type=Path, default=Path("forecasting.run"), help="folder of results")
    given = parser.parse_args()
    if given.jobs < 1 or (given.seeds is not None and given.seeds < 1):
        parser.error("--jobs and --seeds must be at least 1")
    return given


def systems_of(given: argparse.Namespace) -> Sequence[System]:
    """The systems to train."""
    ours = (OUR_TFT, OUR_SELECTED_TFT) if given.quick else (*OURS, OUR_BEST)
    wanted = given.peers if given.peers is not None else not given.quick
    return [*ours, *(PEERS if wanted else ())]


def results_of(task: Task, given: argparse.Namespace) -> Results:
    """All scores on a task."""
    trainings = Trainings(task, given.folder.resolve(), steps=QUICK_STEPS if given.quick else STEPS)
    seeds = given.seeds or (QUICK_SEEDS if given.quick else SEEDS)
    outcome = trainings.of(systems_of(given), range(1, seeds + 1), jobs=given.jobs)
    return Results(task, baselines(task), outcome)


def main() -> int:
    given = arguments()
    try:
        results = [results_of(task, given) for task in map(index_task, given.tasks)]
    except FailedError as error:
        print(f"forecasting: {error}", file=sys.stderr)
        return 2
    status = publish([row for one in results for row in rows(one, judged=not given.quick)], given.json)
    for one in results:
        print("\n".join(table(one)))
    return status


if __name__ == "__main__":
    sys.exit(main())
