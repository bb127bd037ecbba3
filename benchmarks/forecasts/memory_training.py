"""Trains once and tells the most memory that each stage held: a JSON line at the end.

python -m benchmarks.forecasts.memory_training lstm|graph BARS
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict, final

import polars as pl  # noqa: F401  what reading bars imports shall not count as growth
import torch

from predictor.bars import BarPanel
from predictor.features import default_features
from predictor.networks import configured, kind_named
from trainers.loop import Report
from trainers.stock.material import Material
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.training import train

STATUS, PEAKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What makes Linux forget the most memory so far; see proc(5)."""


class Stage(TypedDict):
    """What one stage took."""

    name: str
    seconds: float
    peak: int
    """Bytes."""


@final
class Stages:
    """The stages of a training, each told when it begins."""

    def __init__(self) -> None:
        self.done: list[Stage] = []
        self.name, self._since = "reading the bars", time.perf_counter()
        PEAKS.write_text(RESET_PEAK)

    def begin(self, name: str) -> None:
        """End the stage before, and begin this one."""
        self.done.append(Stage(name=self.name, seconds=time.perf_counter() - self._since, peak=held("VmHWM")))
        self.name, self._since = name.partition(" (")[0], time.perf_counter()
        PEAKS.write_text(RESET_PEAK)


def held(key: str) -> int:
    """Bytes of memory, now (VmRSS) or at most (VmHWM)."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def consume(reports: Iterable[Report]) -> Iterator[Report]:
    """Show nothing."""
    yield from reports


def main() -> int:
    """Train one epoch on all windows of the bars."""
    kind, path = kind_named(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    imported, stages = held("VmRSS"), Stages()
    bars, features = BarPanel.read(path), default_features()
    recipe = Recipe(
        kind=kind.name,
        config=configured(kind, {"hidden": 16}),
        optimisation=Optimisation(max_epochs=1, batch_size=256),
    )
    with tempfile.TemporaryDirectory() as folder:
        made = train(Material(bars, features), recipe, Path(folder) / "out", consume=consume, announce=stages.begin)
    stages.begin("end")
    cells, columns = bars.close.size, [bars.open, bars.high, bars.low, bars.close, bars.volume, bars.adj_close]
    answer = {
        "imported": imported,
        "bars": sum(column.nbytes for column in columns if column is not None),
        "features": cells * len(features.observed) * 5,
        "windows": made.told.splits[0].windows,
        "stages": stages.done,
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
