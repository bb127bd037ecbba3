"""Our loop against that of another commit, in interleaved pairs: what has been added must not cost.

Every pair has two new processes, one of each commit, which differ by nothing but the loop: the benchmarks are those of
this checkout. They are measured in turn, first one then the other, then the other way round, so that neither a drift of
the machine nor the place that the system gave a process in memory counts for one side.
"""

import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from benchmarks.report import Row, unmeasured
from benchmarks.training.asking import ROOT, GoneError, Respondent
from benchmarks.training.job import Kind
from benchmarks.training.steps import STEPS, TITLES, WARM

PAIRS, QUICK_PAIRS = 10, 2
QUANTILES = {PAIRS: 2.262, QUICK_PAIRS: 12.706}
"""Of Student's t: what 95 % of its values lie within, for so many pairs."""
HIGHEST = 1.02
REACH = "1 or < 1.02"

Pair: TypeAlias = tuple[float, float]
"""Seconds of a batch: before, now."""


@final
@dataclass(frozen=True, slots=True)
class Work:
    """What both loops are given."""

    kind: Kind
    accumulate: int

    @property
    def title(self) -> str:
        """Its name in the row."""
        return TITLES[self.kind] + (f", accumulate={self.accumulate}" if self.accumulate > 1 else "")


WORKS = (Work("mlp", 1), Work("lstm", 1), Work("mlp", 4))


def is_commit(name: str) -> bool:
    """Whether the repository has it."""
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").returncode == 0


def rows(commit: str, *, quick: bool) -> list[Row]:
    """The loop of this checkout / that of the commit, for every work."""
    pairs: dict[Work, list[Pair]] = {work: [] for work in WORKS}
    try:
        with checked_out(commit) as other:
            for _ in range(QUICK_PAIRS if quick else PAIRS):
                for work, pair in _measured(other, quick=quick).items():
                    pairs[work].append(pair)
    except GoneError as error:
        return [unmeasured(_name(work, commit), str(error), reach=REACH) for work in WORKS]
    return [_row(work, commit, found, judged=not quick) for work, found in pairs.items()]


@contextmanager
def checked_out(commit: str) -> Generator[Path]:
    """The files of a commit in a temporary folder."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "checkout"
        _git("worktree", "add", "--detach", str(folder), commit).check_returncode()
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def interval(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The geometric mean of now / before, and what it lies between with 95 % confidence."""
    logs = [math.log(now / before) for before, now in pairs]
    middle, spread = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    reach = QUANTILES[len(logs)] * spread
    return math.exp(middle - reach), math.exp(middle), math.exp(middle + reach)


def _measured(other: Path, *, quick: bool) -> Mapping[Work, Pair]:
    """One pair of every work."""
    python = Path(sys.executable)
    with Respondent(python, "ours", other) as before, Respondent(python, "ours") as now:
        return {work: _pair(work, before, now, quick=quick) for work in WORKS}


def _pair(work: Work, before: Respondent, now: Respondent, *, quick: bool) -> Pair:
    steps = STEPS[work.kind] // (4 if quick else 1)
    seconds = [
        respondent.ask("loop", kind=work.kind, accumulate=work.accumulate, warm=WARM, steps=steps)
        for respondent in (before, now, now, before)
    ]
    return (seconds[0] + seconds[3]) / 2, (seconds[1] + seconds[2]) / 2


def _row(work: Work, commit: str, pairs: Sequence[Pair], *, judged: bool) -> Row:
    low, middle, high = interval(pairs)
    microseconds = 1e6 * statistics.median(now for _, now in pairs)
    return Row(
        name=_name(work, commit),
        value=middle,
        reach=REACH,
        ok=(low <= 1.0 or high < HIGHEST) if judged else None,
        detail=f"95 % interval {low:.3f} to {high:.3f} of {len(pairs)} pairs; {microseconds:.1f} us a batch now",
    )


def _name(work: Work, commit: str) -> str:
    return f"{work.title}: ours / ours at {commit[:12]}"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
