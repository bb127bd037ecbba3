"""What it costs when memory runs out once: the window in which it does, against an undisturbed one cut as small."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.optim import SGD

from benchmarks.report import Row, at_most, shown
from trainers.loop import IterableSource, Loop, Loss, Phase, WindowReport

Stage = Literal["forward", "backward"]
SAMPLES, INPUTS, WIDTH = 512, 256, 1024
CALM, DISTURBED = 4, 8
REACH = 2.0


@final
class Memory:
    """Memory for so many samples, which grows short at some time.

    Attributes:
        fits: The most samples; None for any number.
    """

    def __init__(self) -> None:
        self.fits: int | None = None

    def take(self, samples: int) -> None:
        """Use memory for some samples.

        Raises:
            torch.OutOfMemoryError: They do not fit.
        """
        if self.fits is not None and samples > self.fits:
            raise torch.OutOfMemoryError(f"CUDA out of memory. (planted: {samples} samples)")


@final
class Net(nn.Module):
    """Three layers, apart from each other so that memory can grow short between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, 1)


@final
class TakingBackward(torch.autograd.Function):
    """Passes values on; its backward uses memory."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, memory: Memory) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]  torch takes any arguments
        """The values."""
        ctx.memory = memory  # pyright: ignore[reportAttributeAccessIssue]  where torch wants such things
        return values.view_as(values)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient, if there is memory."""
        ctx.memory.take(len(gradient))  # pyright: ignore[reportAttributeAccessIssue]
        return gradient, None


def rows(*, quick: bool) -> list[Row]:
    """A shortage in the last layer of the forward, and in the first of the backward after most of it was done."""
    rounds = 3 if quick else 15
    found = {stage: _rounds(stage, rounds) for stage in _STAGES}
    return [
        *(
            at_most(
                f"window in which memory runs out in the {stage} / undisturbed",
                statistics.median(disturbed / usual for disturbed, usual in found[stage]),
                REACH,
                detail=f"512 samples, then 256 at a time; per-round median of {rounds}",
                judged=not quick,
            )
            for stage in _STAGES
        ),
        shown(
            "undisturbed window of 2 x 256 samples, ms",
            1e3 * statistics.median(usual for stage in _STAGES for _, usual in found[stage]),
            detail=f"{INPUTS} inputs, two layers of {WIDTH}",
        ),
    ]


_STAGES: tuple[Stage, ...] = ("forward", "backward")


def _rounds(stage: Stage, rounds: int) -> list[tuple[float, float]]:
    """Seconds of the disturbed window and of the median one after it, a fresh training each round."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        disturbed, *after = _window_seconds(stage)[CALM:]
        found.append((disturbed, statistics.median(after)))
    return found


def _window_seconds(stage: Stage) -> list[float]:
    torch.manual_seed(0)
    memory = Memory()
    network = Net()
    phase = Phase[Tensor](
        name="main",
        loss=_loss(network, memory, stage),
        parameters=network.parameters(),
        optimizer=SGD(network.parameters(), lr=1e-3),
    )
    seconds: list[float] = []
    with Loop([phase], modules={"network": network}, device="cpu").running() as run:
        for report in _timed(run.epochs(IterableSource(_batches()), max_epochs=1), seconds):
            if isinstance(report, WindowReport) and report.window == CALM - 1:
                memory.fits = SAMPLES // 2
    return seconds[: CALM + DISTURBED]


def _loss(network: Net, memory: Memory, stage: Stage) -> Callable[[Tensor], Loss]:
    def loss(x: Tensor) -> Loss:
        first = network.first(x)
        if stage == "backward":
            first = TakingBackward.apply(first, memory)
        hidden = network.body(first)
        if stage == "forward":
            memory.take(len(x))
        return Loss(network.head(hidden).square().mean(), len(x))

    return loss


def _batches() -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(SAMPLES, INPUTS, generator=random)] * (CALM + DISTURBED)


def _timed(reports: Iterator[object], seconds: list[float]) -> Iterator[object]:
    """The reports; processor time of what came before every report of a window is noted."""
    started = time.process_time()
    for report in reports:
        if isinstance(report, WindowReport):
            seconds.append(time.process_time() - started)
        yield report
        started = time.process_time()
