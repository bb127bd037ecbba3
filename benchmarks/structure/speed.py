"""What users wait for, with the code before and the code now, in interleaved pairs.

Every pair has two new processes, one of each commit, which run `work` of this checkout. Each work is done before, now,
now, before, so that neither a drift of the machine nor the place that a process got in memory counts for one side. A
whole training by the command line is timed in pairs too; both begin from nothing.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.structure import trainings
from benchmarks.structure.checkout import Checkout
from benchmarks.structure.passes import LSTM
from benchmarks.structure.table import Line
from benchmarks.training.against import PAIRS, QUICK_PAIRS, Pair, interval
from benchmarks.training.asking import Respondent

HIGHEST: Final = 1.03
TRAINING: Final = "train stock, LSTM, a window"


def rows(before: Checkout, now: Checkout, folder: Path, *, quick: bool) -> list[Line]:
    """Now / before of every work, with a 95 % interval.

    Args:
        before: The code of the commit.
        now: The code of this checkout.
        folder: Empty; everything is written there.
        quick: Two pairs instead of ten, which are not judged.
    """
    trainings.write_files(folder)
    artifact = trainings.train(before, folder, "lstm", LSTM)
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for turn in range(QUICK_PAIRS if quick else PAIRS):
        for name, pair in _pair(before, now, artifact).items():
            pairs[name].append(pair)
        sides = [(checkout, f"{turn}-{side}") for side, checkout in enumerate((before, now))]
        seconds = {name: _window(checkout, folder, name) for checkout, name in sides[:: 1 if turn % 2 else -1]}
        pairs[TRAINING].append((seconds[f"{turn}-0"], seconds[f"{turn}-1"]))
    return [_line(name, found, judged=not quick) for name, found in pairs.items()]


def _pair(before: Checkout, now: Checkout, artifact: Path) -> Mapping[str, Pair]:
    """One pair of every work."""
    python, module = Path(sys.executable), "benchmarks.structure.work"
    with (
        Respondent(python, str(artifact), before.root, module) as one,
        Respondent(python, str(artifact), now.root, module) as other,
    ):
        names: list[str] = other.ask("names")
        found: dict[str, Pair] = {}
        for name in names:
            for respondent in (one, other):  # what is done for the first time
                respondent.ask(name)
            seconds: list[float] = [respondent.ask(name) for respondent in (one, other, other, one)]
            found[name] = ((seconds[0] + seconds[3]) / 2, (seconds[1] + seconds[2]) / 2)
    return found


def _window(checkout: Checkout, folder: Path, name: str) -> float:
    """Median seconds of a window of a training by the command line."""
    trainings.train(checkout, folder, name, LSTM)
    reports = (folder / "models" / name / "1.run" / "reports.jsonl").read_text(encoding="utf-8").splitlines()
    windows = [report["seconds"] for report in map(json.loads, reports) if report["kind"] == "window"]
    return statistics.median(windows)


def _line(name: str, pairs: list[Pair], *, judged: bool) -> Line:
    low, middle, high = interval(pairs)
    milliseconds = 1e3 * statistics.median(now for _, now in pairs)
    return Line(
        name=f"{name}: now / before",
        before=1.0,
        now=middle,
        reach=f"1 or < {HIGHEST}",
        met=(low <= 1.0 or high < HIGHEST) if judged else None,
        detail=f"95 % interval {low:.3f} to {high:.3f} of {len(pairs)} pairs; {milliseconds:.4g} ms now",
    )
