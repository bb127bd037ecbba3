"""The work of every training loop: a small network, an optimizer, and ready-made batches."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, final

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

Kind = Literal["mlp", "lstm"]

BATCH, READY = 32, 64
RATE = 1e-3


class Batch(TypedDict):
    """Inputs and targets, in a dict because every loop can pass one on."""

    x: Tensor
    y: Tensor


class Scores(TypedDict):
    """Output of the networks: the mean loss under the name that Hugging Face's Trainer expects."""

    loss: Tensor


@final
class TinyMlp(nn.Module):
    """16 inputs, 32 hidden units, 1 output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor, y: Tensor) -> Scores:
        """Mean squared error of [N, 16] against [N, 1]."""
        return {"loss": nn.functional.mse_loss(self.body(x), y)}


@final
class TinyLstm(nn.Module):
    """20 steps of 8 inputs, 32 hidden units, 1 output."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(8, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor, y: Tensor) -> Scores:
        """Mean squared error of [N, 20, 8] against [N, 1]."""
        states, _ = self.encoder(x)
        return {"loss": nn.functional.mse_loss(self.head(states[:, -1]), y)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training run before its start.

    Attributes:
        network: takes a batch's `x` and `y`, returns the mean loss.
        optimizer: optimizer of all its parameters.
        scheduler: stepped after every optimizer step.
        batches: read once.
        accumulate: batches per optimizer step.
        clip: maximum norm of the gradient; None for no clipping.
    """

    network: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    batches: Iterable[Batch]
    accumulate: int = 1
    clip: float | None = 1.0


@final
class ClockedBatches(Dataset[Batch]):
    """Ready-made batches that read the clock when a loop requests the first and the last timed one.

    So all loops are timed in the same way, without their start and end.

    Args:
        batches: repeated as needed.
        warm: batches before the clock starts.
        steps: timed batches.

    Attributes:
        seconds: processor time of this process for the timed batches, after they are done.
    """

    def __init__(self, batches: Sequence[Batch], *, warm: int, steps: int) -> None:
        self._batches = batches
        self._first, self._last = warm, warm + steps
        self._started = 0.0
        self.seconds = 0.0

    def __len__(self) -> int:
        """Number of batches: those before the timed ones, the timed ones, and one after."""
        return self._last + 1

    def __getitem__(self, index: int) -> Batch:
        """The batch at an index; loops read in order."""
        if index == self._first:
            self._started = time.process_time()
        elif index == self._last:
            self.seconds = time.process_time() - self._started
        return self._batches[index % len(self._batches)]

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over all batches, for loops that read a plain iterable."""
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a loop is timed.

    Attributes:
        warm: batches before the clock starts.
        steps: timed batches.
    """

    warm: int
    steps: int


def network_of(kind: Kind) -> nn.Module:
    """A tiny network of a kind, with the same weights each time."""
    torch.manual_seed(0)
    return TinyMlp() if kind == "mlp" else TinyLstm()


def batches_of(kind: Kind) -> list[Batch]:
    """64 random batches of 32 samples for the network of a kind."""
    random = torch.Generator().manual_seed(1)
    shape = (BATCH, 16) if kind == "mlp" else (BATCH, 20, 8)
    return [
        {"x": torch.randn(shape, generator=random), "y": torch.randn(BATCH, 1, generator=random)} for _ in range(READY)
    ]


def default_optimizer(network: nn.Module) -> Optimizer:
    """Torch's default implementation: SGD for the perceptron, AdamW for the LSTM."""
    parameters = network.parameters()
    return SGD(parameters, lr=RATE) if isinstance(network, TinyMlp) else AdamW(parameters, lr=RATE)


def fastest_optimizer(network: nn.Module) -> Optimizer:
    """Torch's fastest implementation for a few small tensors: fused AdamW, and SGD with a loop over tensors."""
    parameters = network.parameters()
    if isinstance(network, TinyMlp):
        return SGD(parameters, lr=RATE, foreach=False)
    return AdamW(parameters, lr=RATE, fused=True)


def unchanging(optimizer: Optimizer) -> LambdaLR:
    """A scheduler with the usual cost that does not change the learning rate."""
    return LambdaLR(optimizer, lambda step: 1.0)  # noqa: ARG005  constant


def seconds_per_step(
    train: Callable[[Job], None], kind: Kind, optimizer: Callable[[nn.Module], Optimizer], timing: Timing
) -> float:
    """Processor time of a loop per batch of a new training."""
    network = network_of(kind)
    stepped = optimizer(network)
    clocked = ClockedBatches(batches_of(kind), warm=timing.warm, steps=timing.steps)
    batches = DataLoader(clocked, batch_size=None)  # as most loops read them
    train(Job(network=network, optimizer=stepped, scheduler=unchanging(stepped), batches=batches))
    return clocked.seconds / timing.steps
