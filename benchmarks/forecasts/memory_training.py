"""Trains once and prints the peak memory of each stage as a JSON line.

python -m benchmarks.forecasts.memory_training lstm|graph BARS
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TypedDict, final

import torch

from predictor.bars import BarPanel
from predictor.features import load_default_features
from predictor.networks import NetworkKind, get_kind, make_config
from trainers.loop import Report
from trainers.stock.recipe import Optimisation, StockRecipe
from trainers.stock.training import TrainingResult, train
from trainers.stock.training_data import TrainingMaterial

STATUS, PEAKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
IMPORTED_WHEN_NEEDED = ("polars", "sklearn.linear_model", "sklearn.pipeline", "statsmodels.api", "torch._dynamo")
"""Libraries that a training run imports lazily; they are imported first, so that they do not count as growth."""
BYTES_A_FEATURE = 5
"""A float32 and its mask."""
RESET_PEAK = "5"
"""Resets the peak on Linux; see proc(5)."""


class Stage(TypedDict):
    """Time and memory of a stage."""

    name: str
    seconds: float
    peak: int
    """Bytes."""


@final
class Stages:
    """Records the stages of a training run as they begin."""

    def __init__(self) -> None:
        self.done: list[Stage] = []
        self.name, self._since = "reading the bars", time.perf_counter()
        PEAKS.write_text(RESET_PEAK)

    def begin(self, name: str) -> None:
        """End the current stage and begin another."""
        self.done.append(Stage(name=self.name, seconds=time.perf_counter() - self._since, peak=held("VmHWM")))
        self.name, self._since = name.partition(" (")[0], time.perf_counter()
        PEAKS.write_text(RESET_PEAK)


def held(key: str) -> int:
    """Bytes of memory: current (VmRSS) or peak (VmHWM)."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def consume(reports: Iterable[Report]) -> Iterator[Report]:
    """Run the training without showing its progress."""
    yield from reports


def trained(kind: NetworkKind, bars: BarPanel, announce: Callable[[str], None]) -> TrainingResult:
    """Train one epoch on all windows of the bars, from the features to the saved artifact."""
    recipe = StockRecipe(
        kind=kind.name,
        config=make_config(kind, {"hidden": 16}),
        optimisation=Optimisation(max_epochs=1, batch_size=256),
    )
    with tempfile.TemporaryDirectory() as folder:
        return train(
            TrainingMaterial(bars, load_default_features()),
            recipe,
            Path(folder) / "out",
            consume=consume,
            announce=announce,
        )


def main() -> int:
    kind, path = get_kind(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    for module in IMPORTED_WHEN_NEEDED:
        import_module(module)
    imported, stages = held("VmRSS"), Stages()
    bars = BarPanel.read(path)
    made = trained(kind, bars, stages.begin)
    stages.begin("end")
    columns = [bars.open, bars.high, bars.low, bars.close, bars.volume, bars.adj_close]
    answer = {
        "imported": imported,
        "bars": sum(column.nbytes for column in columns if column is not None),
        "features": bars.close.size * len(load_default_features().observed) * BYTES_A_FEATURE,
        "windows": made.summary.splits[0].windows,
        "stages": stages.done,
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
