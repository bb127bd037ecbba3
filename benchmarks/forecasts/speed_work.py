"""The timed work of forecasters: a training step and forecasts, of one size and on the same random windows."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

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
    """N random windows, the same in every process; the first observed feature is the target's past."""

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
        """Draw the windows that the work needs."""
        random, rows = torch.Generator().manual_seed(1), ROWS[work]
        return cls(
            observed=torch.randn(rows, ENCODER, 1 + OBSERVED, generator=random),
            known=torch.randn(rows, ENCODER + HORIZON, KNOWN, generator=random),
            static=torch.randn(rows, STATIC, generator=random),
            target=torch.randn(rows, HORIZON, generator=random),
        )


class Subject(Protocol):
    """The timed forecasters of a library."""

    def call(self, kind: Kind, work: Work) -> Callable[[], object]:
        """A repeatable training step on 64 windows, or a forecast of 1 or 256."""
        ...


def forecast_with(network: nn.Module, inputs: object) -> Callable[[], object]:
    """A repeatable forecast."""

    def forecast() -> object:
        with torch.inference_mode():
            return network(inputs)

    return forecast


class Seconds(NamedTuple):
    """Median time of a call: CPU time of this process, and wall time."""

    cpu: float
    wall: float


def seconds(call: Callable[[], object], *, warm: int, calls: int) -> Seconds:
    """Time calls one by one, after warm-up calls that do not count."""
    for _ in range(warm):
        call()
    timed = [_timed(call) for _ in range(calls)]
    return Seconds(*map(statistics.median, zip(*timed, strict=True)))


def _timed(call: Callable[[], object]) -> Seconds:
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)
