"""Time of our TFT and LSTM against neuralforecast's of the same size: a training step, 1 and 256 forecasts.

The networks read 20 observed covariates and the target's past over 60 sessions and forecast 20 steps, on one thread.
Each library runs in a separate process; the processes take turns, and ratios are medians over rounds. Processor time
is judged, because a busy machine disturbs it less than wall time, which is also shown. A further row is the ratio to a
peer whose process keeps the memory that it frees, as our training loop does: returning memory to the system after
each step can double the step of a small network.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.environments import python_of
from benchmarks.forecasts.speed_work import ROWS, Kind, Seconds, Work
from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from benchmarks.respondent import Respondent

PEER: Final = "neuralforecast"
ANSWERING: Final = "benchmarks.forecasts.speed_answering"
KEEP_MEMORY: Final = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""Environment that stops glibc from returning freed memory to the system."""
TITLES: Final[dict[Work, str]] = {"step": "training step", "one": "1 forecast", "many": "256 forecasts"}
REACH: Final[dict[tuple[Kind, Work], float]] = {
    ("tft", "step"): 0.60,
    ("tft", "one"): 0.45,
    ("tft", "many"): 0.33,
    ("lstm", "step"): 0.80,
    ("lstm", "one"): 0.80,
    ("lstm", "many"): 0.80,
}
CALLS: Final[dict[Work, int]] = {"step": 5, "one": 100, "many": 5}
ROUNDS: Final = 15


class Rounds(NamedTuple):
    """Times of each round."""

    ours: list[Seconds]
    theirs: list[Seconds]
    keeping: list[Seconds]
    """The peer with freed memory kept."""


def compared(kind: Kind, work: Work, *, quick: bool) -> list[Row]:
    """Compare in fresh processes, because a process's history decides whether its C library returns memory."""
    peer = python_of(PEER)
    with (
        Respondent(Path(sys.executable), ANSWERING, "ours") as ours,
        Respondent(peer, ANSWERING, PEER) as theirs,
        Respondent(peer, ANSWERING, PEER, KEEP_MEMORY) as keeping,
    ):
        taken = measured((ours, theirs, keeping), kind, work, quick=quick)
    return rows_of(kind, work, taken, judged=not quick)


def measured(sides: Sequence[Respondent], kind: Kind, work: Work, *, quick: bool) -> Rounds:
    """Time all in turn; the first round has more warm-up calls."""
    rounds, calls = (2, max(1, CALLS[work] // 5)) if quick else (ROUNDS, CALLS[work])
    taken = Rounds([], [], [])
    for k in range(rounds):
        for side, seconds in zip(sides, taken, strict=True):
            answer = side.ask(kind=kind, work=work, warm=1 if k else 3, calls=calls)
            seconds.append(Seconds(**answer))
    return taken


def rows_of(kind: Kind, work: Work, taken: Rounds, *, judged: bool) -> list[Row]:
    """Rows for the judged ratio, the ratio of wall times, and the peer with freed memory kept."""
    title = f"{kind.upper()} {TITLES[work]}"
    ours, theirs, keeping = (_milliseconds([one.cpu for one in side]) for side in taken)
    detail = f"{ROWS[work]} windows; {ours:.3g} against {theirs:.3g} ms of processor time, {len(taken.ours)} rounds"
    ratio, on_the_wall = (_ratio(taken.ours, taken.theirs, clock) for clock in ("cpu", "wall"))
    kept = _ratio(taken.ours, taken.keeping, "cpu")
    return [
        at_most(f"{title}: ours / {PEER}", ratio, REACH[kind, work], detail=detail, judged=judged),
        shown(f"{title}: ours / {PEER}, wall time", on_the_wall, detail="depends on the load of the machine"),
        shown(f"{title}: ours / {PEER} with memory kept", kept, detail=f"{keeping:.3g} ms"),
    ]


def _ratio(ours: Sequence[Seconds], theirs: Sequence[Seconds], clock: str) -> float:
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(mine._asdict()[clock] / other._asdict()[clock] for mine, other in pairs)


def _milliseconds(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1e3


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    rows: list[Row] = []
    for kind, work in REACH:
        rows += compared(kind, work, quick=arguments.quick)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
