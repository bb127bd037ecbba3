"""`quantra daily` is killed with SIGKILL at random moments, and the next run must complete the evenings.

Every run catches up on the same evenings of a small universe, from a copy of the same ledger. The commands run in forks
of this process, so that no time is spent on imports.
"""

import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.lifecycle import universe
from benchmarks.report import Row, at_most, common_options, publish, shown
from predictor.bars import BarPanel
from predictor.features import default_features
from predictor.ledger import Ledger
from trainers.cli.commands import app
from trainers.stock import RollingSplits, TrainingMaterial, train
from trainers.stock.recipe import recipe_of

EVENINGS: Final = 20
LOADED: Final = ("trainers.stock.daily.command", "trainers.stock.daily.page")
"""Modules that are imported before the forks."""
LONGEST_DELAY: Final = 0.03
"""Seconds after a write until the kill."""
ENDED: Final = (0, 3)
"""Exit codes of a run that was completed."""
CONTENT: Final = {
    "bars": "select symbol, first_session, last_session, sessions, bars from bar order by symbol, first_session",
    "forecasts": """
        select forecast_id, symbol, role, model, version, as_of, "values", is_prospective from forecast
        order by as_of, model, version, symbol""",
    "labels": """
        select f.as_of, f.model, f.version, f.symbol, l.horizon, l.revision, l.status, l.value, s.pinball, s.below
        from label l join forecast f on f.id = l.forecast
        left join score s on s.forecast = l.forecast and s.horizon = l.horizon and s.revision = l.revision
        order by f.as_of, f.model, f.version, f.symbol, l.horizon, l.revision""",
    "evidence": """
        select model, version, monitor, horizon, session, lamp, state from evidence
        order by session, model, version, monitor, horizon""",
    "events": "select kind, model, version, session, reason, detail, key from event order by session, key",
}
"""What a ledger holds, without numbers and times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The files that every run begins with."""

    folder: Path
    bars: Path
    models: Path
    ledger: Path
    """After the first evening."""

    @classmethod
    def create(cls, folder: Path) -> "Setting":
        """Train a model, and run the first evening."""
        panel = varied(universe(8, 700))
        days = panel.sessions.tolist()
        recipe = replace(recipe_of("har"), parts=RollingSplits(selection=60, calibration=150))
        learnt = panel.until(days[-EVENINGS - 10])
        train(TrainingMaterial(learnt, default_features()), recipe, folder / "models" / "mine" / "1", consume=iter)
        made = cls(folder=folder, bars=folder / "bars.csv", models=folder / "models", ledger=folder / "first.db")
        panel.until(days[-EVENINGS - 1]).write_csv(made.bars)
        wait_for(made.start(made.ledger))
        panel.write_csv(made.bars)
        return made

    def copy(self, name: str) -> Path:
        """A copy of the ledger with its baselines."""
        copied = self.folder / f"{name}.db"
        shutil.copy(self.ledger, copied)
        shutil.copytree(f"{self.ledger}.baselines", f"{copied}.baselines")
        return copied

    def start(self, ledger: Path) -> int:
        """Start `quantra daily` and return its process."""
        words = ["daily", "--bars", self.bars, "--models", self.models, "--ledger", ledger]
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            try:
                app([*map(str, words), "--report", str(ledger.with_suffix(".html"))])
            except SystemExit as ended:
                os._exit(int(ended.code or 0))
            finally:
                os._exit(99)
        return process


def varied(panel: BarPanel) -> BarPanel:
    """Bars whose ranges and volumes vary."""
    random = np.random.default_rng(1)
    spread = 0.01 * random.uniform(0.2, 1, (4, *panel.close.shape))
    return replace(
        panel,
        open=panel.close * (1 + spread[0] - spread[1]),
        high=panel.close * (1 + spread[0] + spread[2]),
        low=panel.close * (1 - spread[1] - spread[3]),
        volume=np.exp(random.normal(13, 0.5, panel.close.shape)),
    )


def wait_for(process: int) -> int:
    """The exit code of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def watch_log(process: int, ledger: Path, size: float = inf, delay: float = 0.0) -> tuple[int, int]:
    """The largest size of a ledger's log and the exit code of the process, which is killed when the log has a size.

    The log grows with every write, so kills at sizes are spread over the writes, however fast the machine is.
    """
    log, largest = ledger.with_name(f"{ledger.name}-wal"), 0
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return largest, os.waitstatus_to_exitcode(status)
        with contextlib.suppress(FileNotFoundError):
            largest = max(largest, log.stat().st_size)
        if largest >= size:
            time.sleep(delay)
            os.kill(process, signal.SIGKILL)
            size = inf
        time.sleep(0.0005)


def read_content(ledger: Path) -> dict[str, list[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        return {name: connection.execute(query).fetchall() for name, query in CONTENT.items()}


def verifies(ledger: Path) -> bool:
    with Ledger.open(ledger) as opened:
        return not opened.verify().problem


def count_batches(ledger: Path) -> int:
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        return int(connection.execute("select count(*) from chain").fetchone()[0])


@dataclass
class Counts:
    """What was found after the kills."""

    unverified: int = 0
    """Chains that did not verify, after the kill or at the end."""
    failed: int = 0
    """Next runs that failed."""
    different: int = 0
    """Ledgers or pages that differ from those of a run that was not killed."""
    late: int = 0
    """Kills that came after the end of the run."""


def kill_rows(folder: Path, kills: int) -> Iterator[Row]:
    setting, random = Setting.create(folder), np.random.default_rng(0)
    whole = setting.copy("whole")
    written, code = watch_log(setting.start(whole), whole)
    assert code in ENDED
    expected = read_content(whole), whole.with_suffix(".html").read_bytes()
    counts, writes = Counts(), set[int]()
    for number in range(kills):
        ledger = setting.copy(f"kill{number}")
        _, code = watch_log(setting.start(ledger), ledger, random.uniform(0, written), random.uniform(0, LONGEST_DELAY))
        counts.late += code != -signal.SIGKILL
        counts.unverified += not verifies(ledger)
        writes.add(count_batches(ledger) - count_batches(setting.ledger))
        counts.failed += wait_for(setting.start(ledger)) not in ENDED
        counts.unverified += not verifies(ledger)
        counts.different += (read_content(ledger), ledger.with_suffix(".html").read_bytes()) != expected
    possible = count_batches(whole) - count_batches(setting.ledger)
    detail = f"of {kills} kills, after {len(writes)} different numbers of writes up to {possible}"
    yield at_most("chains that do not verify", float(counts.unverified), 0.0, detail=detail)
    yield at_most("next runs that fail", float(counts.failed), 0.0, detail=detail)
    yield at_most("ledgers or pages that differ from an undisturbed run", float(counts.different), 0.0, detail=detail)
    yield shown("kills after the end of the run", float(counts.late), detail=detail)
    for name, rows in expected[0].items():
        yield shown(f"{name} of an undisturbed run", float(len(rows)), detail=f"{EVENINGS} evenings after the first")


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--kills", type=int, default=30, metavar="N", help="30 by default")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for module in LOADED:
        import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        return publish(kill_rows(Path(folder), 3 if arguments.quick else arguments.kills), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
