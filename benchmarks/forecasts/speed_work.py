"""What is timed of forecasters: a training step and forecasts, of one size and on the same random windows."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, final

import torch
from torch import Tensor

Kind = Literal["tft", "lstm"]
Work = Literal["step", "one", "many"]

ENCODER, HORIZON = 60, 20
OBSERVED, KNOWN, STATIC = 20, 2, 2
HIDDEN, HEADS, DROPOUT = 32, 4, 0.1
LSTM_HIDDEN, LSTM_LAYERS = 64, 2
LEVELS = (0.1, 0.5, 0.9)
RATE, CLIP = 1e-4, 1.0
ROWS: dict[Work, int] = {"step": 64, "one": 1, "many": 256}


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """N random windows, the same in every process: observed features, of which the first is the target's own past."""

    observed: Tensor
    """[N, ENCODER, 1 + OBSERVED]"""
    known: Tensor
    """[N, ENCODER + HORIZON, KNOWN]"""
    static: Tensor
    """[N, STATIC]"""
    target: Tensor
    """[N, HORIZON]"""

    @classmethod
    def of(cls, work: Work) -> "Windows":
        """As many as that work takes."""
        random, rows = torch.Generator().manual_seed(1), ROWS[work]
        return cls(
            observed=torch.randn(rows, ENCODER, 1 + OBSERVED, generator=random),
            known=torch.randn(rows, ENCODER + HORIZON, KNOWN, generator=random),
            static=torch.randn(rows, STATIC, generator=random),
            target=torch.randn(rows, HORIZON, generator=random),
        )


class Subject(Protocol):
    """A library whose forecasters are timed."""

    def call(self, kind: Kind, work: Work) -> Callable[[], object]:
        """One training step on 64 windows, or one forecast of 1 or 256, to be called again and again."""
        ...


class Seconds(NamedTuple):
    """Of one call, the median: of the processor in this process, and on the wall."""

    cpu: float
    wall: float


def seconds(call: Callable[[], object], *, warm: int, calls: int) -> Seconds:
    """Time calls one by one, after some that do not count."""
    for _ in range(warm):
        call()
    timed = [_timed(call) for _ in range(calls)]
    return Seconds(_median([one.cpu for one in timed]), _median([one.wall for one in timed]))


def _timed(call: Callable[[], object]) -> Seconds:
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
