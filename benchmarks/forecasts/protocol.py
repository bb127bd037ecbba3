"""Sizes, budget and command line that all trained systems share.

python -m benchmarks.peers.forecast_with_LIBRARY TASK.npz QUANTILES.npz MODEL SEED STEPS
"""

import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.forecasts.task import LEVELS, Task

HIDDEN: Final = 32
"""Width of a TFT."""
HEADS: Final = 4
DROPOUT: Final = 0.1
LSTM_HIDDEN: Final = 64
LSTM_LAYERS: Final = 2
BATCH: Final = 64
STEPS: Final = 300
CLIP: Final = 1.0
HINDSIGHT: Final = "hindsight"
"""Key of an ensemble's improvement on its best member, beside the quantiles."""
PEER_RATE: Final = 1e-3
"""Adam's constant learning rate in the peers, as in their defaults."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """A training request.

    Attributes:
        task: series and splits.
        answer: .npz file for the quantiles [N, H, Q] of the test windows.
        model: kind of model, such as `tft` or `lstm`.
        seed: seed of all random numbers.
        effort: optimizer steps, or seconds if the system trains within a time budget.
    """

    task: Task
    answer: Path
    model: str
    seed: int
    effort: int

    @classmethod
    def of_command_line(cls) -> Self:
        """Parse the command line of this process."""
        task, answer, model, seed, effort = sys.argv[1:]
        return cls(task=Task.load(Path(task)), answer=Path(answer), model=model, seed=int(seed), effort=int(effort))

    def write_quantiles(
        self,
        quantiles: Mapping[str, NDArray[np.floating]],
        *,
        steps: int | None = None,
        hindsight: Sequence[float] = (),
    ) -> None:
        """Write the quantiles of all test windows atomically, so that an existing answer is complete.

        Args:
            quantiles: [N, H, Q] in the task's standardised units by name; `plain` is as trained.
            steps: number of first steps that they forecast; by default all.
            hindsight: improvement of an ensemble on its best member in hindsight, with its interval.
        """
        wanted = (len(self.task.windows("test")), steps or self.task.horizon, len(LEVELS))
        for name, answer in quantiles.items():
            if answer.shape != wanted or not np.isfinite(answer).all():
                raise ValueError(f"{name}: quantiles of shape {answer.shape} must be finite and of shape {wanted}")
        partial = self.answer.with_suffix(".part.npz")
        kept: dict[str, Any] = {name: answer.astype(np.float32) for name, answer in quantiles.items()}
        if hindsight:
            kept[HINDSIGHT] = np.array(hindsight)
        np.savez(partial, **kept)
        partial.replace(self.answer)


def train_peer(quantiles: Callable[[TrainingRequest], NDArray[np.floating]], *loggers: str) -> None:
    """Write a library's quantiles [N, H, Q] of the test windows, as the command line asks; its loggers are silenced."""
    warnings.filterwarnings("ignore")
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    request = TrainingRequest.of_command_line()
    request.write_quantiles({"plain": quantiles(request)})
