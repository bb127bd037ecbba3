"""The first step of a task from `StockTrainer(model="best")`, with its default features and horizons.

python -m benchmarks.forecasts.best TASK.npz QUANTILES.npz best SEED SECONDS

The trainer forecasts the return or the volatility of a whole horizon, which is the task's target at the first step
only. Its training and selection split are the task's training part, its calibration split is the validation part.
"""

from itertools import pairwise
from typing import Final

import numpy as np
import torch

from benchmarks.forecasts.indices import INDICES, index_panel
from benchmarks.forecasts.protocol import TrainingRequest
from benchmarks.forecasts.task import LEVELS, FloatArray, Task
from predictor.bars import BarPanel
from predictor.errors import format_date
from trainers import StockTrainer
from trainers.stock.splits import DataSplits

TARGETS: Final = {"ret": "log-return", "vol": "log-volatility"}
SELECTION_SESSIONS: Final = 252
TOLERANCE: Final = 1e-3
"""Largest difference of the trainer's outcomes from the task's, which are float32 and floor ranges elsewhere."""


def splits_of(task: Task, bars: BarPanel) -> DataSplits:
    """The trainer's splits; the last session of the validation part makes the first forecast of the test part."""
    # a task has no step for the first session
    parts = (0, task.learnt + 1 - SELECTION_SESSIONS, task.learnt + 1, task.seen, len(bars.sessions))
    return DataSplits.by_dates([(int(bars.sessions[i]), int(bars.sessions[end - 1])) for i, end in pairwise(parts)])


def first_steps(trainer: StockTrainer, bars: BarPanel, task: Task) -> FloatArray:
    """Quantiles [N, 1, Q] of the test windows, whose outcomes must be the task's."""
    days = [format_date(day) for day in bars.sessions]
    found = trainer.forecast_history(bars, start=days[task.seen]).to_pandas()
    found = found[found["horizon"] == 1]
    rows = found.set_index([found["unique_id"], found["cutoff"].astype(str)])
    windows = task.windows("test")
    keys = [(INDICES[s], days[t + 1]) for s, t in zip(windows.series, windows.decisions, strict=True)]
    raw = rows.loc[keys, ["y", *(f"{level:g}" for level in LEVELS)]].to_numpy(np.float64)
    values = (raw - task.center[windows.series, None]) / task.unit[windows.series, None]
    apart = float(np.abs(values[:, 0] - windows.future[:, 0]).max())
    if apart > TOLERANCE:
        raise ValueError(f"outcomes differ by up to {apart:g} from those of task {task.name}")
    return values[:, None, 1:].astype(np.float32)


def main() -> None:
    torch.set_num_threads(1)
    request = TrainingRequest.of_command_line()
    task, bars = request.task, index_panel()
    trainer = StockTrainer(
        model=request.model,
        target=TARGETS[task.name],
        quantiles=LEVELS,
        calendar="XNYS",
        splits=splits_of(task, bars),
        seed=request.seed,
        budget=f"{request.effort}s",
    )
    trainer.fit(bars)
    member = trainer.card.best_member
    request.write_quantiles(
        {"plain": first_steps(trainer, bars, task)},
        steps=1,
        hindsight=() if member is None else (member.improvement, member.lower, member.upper),
    )


if __name__ == "__main__":
    main()
