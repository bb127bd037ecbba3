"""How soon `import predictor` and `quantra --help` are done, an empty interpreter's own start deducted."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.structure.checkout import Checkout
from benchmarks.structure.table import Both, Line, at_most

IMPORT = "import predictor"
HELP = "import sys; from trainers.cli import main; sys.argv = ['quantra', '--help']; sys.exit(main())"
"""What the script `quantra` does."""
HELP_REACH_S, MARGIN_S = 0.6, 0.005
"""The margin is what `not slower` allows for the noise of a machine."""
ROUNDS, QUICK_ROUNDS = 11, 3


def rows(before: Checkout, now: Checkout, *, quick: bool) -> list[Line]:
    """Medians of rounds in which an empty program, the commit before and this checkout have their turn."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    imports, helps = (_medians(program, (before, now), rounds) for program in (IMPORT, HELP))
    detail = f"medians of {rounds} rounds, less an empty program in the same round"
    not_slower = f"{detail}; not slower is at most {MARGIN_S} s more"
    return [
        at_most("import predictor, s", imports, imports[0] + MARGIN_S, not_slower),
        at_most("quantra --help, s", helps, HELP_REACH_S, detail),
    ]


def _medians(program: str, checkouts: tuple[Checkout, Checkout], rounds: int) -> Both:
    for checkout in checkouts:  # compiles every module
        _seconds(program, checkout)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        empty = _seconds("pass", checkouts[0])
        for checkout, seconds in zip(checkouts, taken, strict=True):
            seconds.append(_seconds(program, checkout) - empty)
    return statistics.median(taken[0]), statistics.median(taken[1])


def _seconds(program: str, checkout: Checkout) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            env=checkout.environment,
            cwd=Path(folder),
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start
