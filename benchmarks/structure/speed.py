"""What users wait for, with the code before and the code now, in interleaved pairs.

Every pair has two new processes, one of each commit, which run `work` of this checkout. Each work is done before, now,
now, before, so that neither a drift of the machine nor the place that a process got in memory counts for one side. A
server's start and the windows of a training by the command line are timed in pairs too, each from nothing.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.structure import trainings
from benchmarks.structure.checkout import Checkout
from benchmarks.structure.passes import LSTM
from benchmarks.structure.table import Line
from benchmarks.training.against import PAIRS, QUICK_PAIRS, Pair, interval
from benchmarks.training.asking import Respondent

HIGHEST: Final = 1.03
TFT: Final = ("--model", "tft", "--epochs", "1")
TRAINING, SERVING = "train stock, LSTM, a window", "serve to SERVING"


def rows(before: Checkout, now: Checkout, folder: Path, *, quick: bool) -> list[Line]:
    """Now / before of every work, with a 95 % interval.

    Args:
        before: The code of the commit.
        now: The code of this checkout.
        folder: Empty; everything is written there.
        quick: Two pairs instead of ten, which are not judged.
    """
    trainings.write_files(folder)
    for name, settings in (("lstm", LSTM), ("tft", TFT)):
        trainings.train(before, folder, name, settings)
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for turn in range(QUICK_PAIRS if quick else PAIRS):
        print(f"pair {turn + 1} …", file=sys.stderr, flush=True)
        for name, pair in _pair(before, now, folder / "models").items():
            pairs[name].append(pair)
        pairs[SERVING].append(_in_turn(before, now, turn, lambda checkout: _start(checkout, folder / "models")))
        pairs[TRAINING].append(_in_turn(before, now, turn, lambda checkout: _window(checkout, folder)))
    return [_line(name, found, judged=not quick) for name, found in pairs.items()]


def _pair(before: Checkout, now: Checkout, models: Path) -> Mapping[str, Pair]:
    """One pair of every work."""
    python, module = Path(sys.executable), "benchmarks.structure.work"
    with (
        Respondent(python, str(models), before.root, module) as one,
        Respondent(python, str(models), now.root, module) as other,
    ):
        names: list[str] = other.ask("names")
        found: dict[str, Pair] = {}
        for name in names:
            for respondent in (one, other):  # what is done for the first time
                respondent.ask(name)
            seconds: list[float] = [respondent.ask(name) for respondent in (one, other, other, one)]
            found[name] = ((seconds[0] + seconds[3]) / 2, (seconds[1] + seconds[2]) / 2)
    return found


def _in_turn(before: Checkout, now: Checkout, turn: int, seconds: Callable[[Checkout], float]) -> Pair:
    """A pair of what is done once, every other time in the other order."""
    if turn % 2:
        after = seconds(now)
        return seconds(before), after
    return seconds(before), seconds(now)


def _start(checkout: Checkout, models: Path) -> float:
    """From the start of a server process to the line that says that it answers."""
    command = [sys.executable, "-m", "predictor.server", "--models", str(models), "--listen", "127.0.0.1:0"]
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=checkout.environment, cwd=models, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        seconds = time.perf_counter() - start
        process.terminate()
    return seconds


def _window(checkout: Checkout, folder: Path) -> float:
    """Median seconds of a window of a training by the command line."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        trainings.write_files(Path(place))
        run = trainings.train(checkout, Path(place), "lstm", LSTM).with_name("1.run")
        reports = map(json.loads, (run / "reports.jsonl").read_text(encoding="utf-8").splitlines())
        return statistics.median(report["seconds"] for report in reports if report["kind"] == "window")


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
