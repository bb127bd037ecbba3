"""What a way to train does where training loops go wrong, each found by training and looking at the weights."""

import math
import os
import signal
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from benchmarks.training.hand import SUBJECT as BY_HAND
from benchmarks.training.job import Batch, Job, Scores, unchanging
from benchmarks.training.subject import Subject

INPUTS, POOL, RATE = 6, 128, 0.1
UNEQUAL, EQUAL = (8, 8, 3), (8, 8, 8, 8, 8)
LARGE, FITTING, SHORT_FROM = 16, 10, 3
BAD, STEPS = 3, 6
SAVED_BATCH, SAVED_EVERY, SAVED_SAMPLES, SAVED_EPOCHS = 8, 8, 96, 2


@final
class Net(nn.Module):
    """6 inputs, 8 hidden units, 1 output.

    Args:
        dropout: Share of the hidden units that are dropped.
        short_from: From this forward on no more than `FITTING` samples fit into memory; None for enough memory.
    """

    def __init__(self, *, dropout: float = 0.0, short_from: int | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
        self._short_from = short_from
        self._forwards = 0

    def forward(self, x: Tensor, y: Tensor) -> Scores:
        """Mean squared error of [N, 6] against [N, 1].

        Raises:
            torch.OutOfMemoryError: There are more samples than fit.
        """
        self._forwards += 1
        if self._short_from is not None and self._forwards >= self._short_from and len(x) > FITTING:
            raise torch.OutOfMemoryError(f"CUDA out of memory. (planted: {len(x)} samples)")
        return {"loss": nn.functional.mse_loss(self.body(x), y)}


@final
class Items(Dataset[Batch]):
    """Batches or samples in memory.

    Args:
        items: What is handed out.
        die_after: The process kills itself when so many have been handed out; None to live on.
    """

    def __init__(self, items: Sequence[Batch], *, die_after: int | None = None) -> None:
        self._items = items
        self._die_after = die_after
        self._given = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._items)

    def __getitem__(self, index: int) -> Batch:
        """One of them."""
        if self._given == self._die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        self._given += 1
        return self._items[index]


def partition(subject: Subject) -> float:
    """A window of 8 + 8 + 3 samples against one batch of the same 19: relative error of the step."""
    ours, right = _job(_batches(UNEQUAL), accumulate=len(UNEQUAL)), _job(_batches((sum(UNEQUAL),)))
    before = _weights(ours)
    subject.train(ours)
    BY_HAND.train(right)
    return _error(_weights(ours) - before, _weights(right) - before)


def tail(subject: Subject) -> float:
    """Five equal batches in windows of two: size of the last window's step, relative to that of its only batch."""
    whole, without = _job(_batches(EQUAL), accumulate=2), _job(_batches(EQUAL[:-1]), accumulate=2)
    subject.train(whole)
    subject.train(without)
    start = _weights(without)
    BY_HAND.train(
        Job(
            network=without.network,
            optimizer=SGD(without.network.parameters(), lr=RATE),
            scheduler=without.scheduler,
            batches=_batches(EQUAL)[-1:],
            clip=None,
        )
    )
    right = _weights(without) - start
    return float((_weights(whole) - start) @ right / (right @ right))


def shortage(subject: Subject) -> float:
    """Memory for only 10 of 16 samples from the third batch on: relative error of all that was learned."""
    short, right = _job_of(LARGE, short_from=SHORT_FROM), _job_of(LARGE)
    before = _weights(short)

    def make(batch_size: int) -> Job:
        return Job(
            network=short.network,
            optimizer=short.optimizer,
            scheduler=short.scheduler,
            batches=_loader(batch_size),
            clip=None,
        )

    subject.train_in_little_memory(make, LARGE)
    BY_HAND.train(right)
    return _error(_weights(short) - before, _weights(right) - before)


def skipped(subject: Subject, *, fused: bool) -> float:
    """One gradient of six overflows under a scaler: steps of the scheduler beyond those of the optimizer."""
    job = _job(_one_bad(), fused=fused)
    taken = _counted_steps(job)
    subject.train_scaled(job, GradScaler("cpu", init_scale=1024.0))
    return job.scheduler.last_epoch - taken()


def ruined(subject: Subject) -> float:
    """One loss of six is infinite, without a scaler: share of the weights that are then not numbers."""
    job = _job(_one_bad())
    subject.train(job)
    return float((~torch.isfinite(_weights(job))).float().mean())


def saved(subject: Subject, folder: Path, *, die_after: int | None) -> list[float]:
    """The weights after two epochs with checkpoints; killed after so many samples, or resumed after that."""
    torch.manual_seed(7)
    network = Net(dropout=0.2)
    optimizer = SGD(network.parameters(), lr=RATE, momentum=0.9)
    items = Items(_split(_batches((SAVED_SAMPLES,))[0]), die_after=die_after)
    job = Job(
        network=network,
        optimizer=optimizer,
        scheduler=unchanging(optimizer),
        batches=DataLoader(items, batch_size=SAVED_BATCH, shuffle=True),
        epochs=SAVED_EPOCHS,
        clip=None,
    )
    subject.train_saving(job, folder, every=SAVED_EVERY)
    return [float(weight) for weight in _weights(job)]


def _job(batches: list[Batch], *, accumulate: int = 1, fused: bool = False) -> Job:
    torch.manual_seed(0)
    network = Net()
    optimizer = SGD(network.parameters(), lr=RATE, fused=fused)
    loader = DataLoader(Items(batches), batch_size=None)
    return Job(
        network=network,
        optimizer=optimizer,
        scheduler=unchanging(optimizer),
        batches=loader,
        accumulate=accumulate,
        clip=None,
    )


def _job_of(batch_size: int, *, short_from: int | None = None) -> Job:
    torch.manual_seed(0)
    network = Net(short_from=short_from)
    optimizer = SGD(network.parameters(), lr=RATE)
    return Job(
        network=network,
        optimizer=optimizer,
        scheduler=unchanging(optimizer),
        batches=_loader(batch_size),
        clip=None,
    )


def _loader(batch_size: int) -> DataLoader[Batch]:
    return DataLoader(Items(_split(_batches((4 * LARGE,))[0])), batch_size=batch_size)


def _batches(sizes: Sequence[int]) -> list[Batch]:
    """The first samples of always the same ones, cut into batches."""
    random = torch.Generator().manual_seed(2)
    x, y = torch.randn(POOL, INPUTS, generator=random), torch.randn(POOL, 1, generator=random)
    stops = list(accumulate(sizes))
    return [{"x": x[stop - size : stop], "y": y[stop - size : stop]} for size, stop in zip(sizes, stops, strict=True)]


def _split(batch: Batch) -> list[Batch]:
    return [{"x": x, "y": y} for x, y in zip(batch["x"], batch["y"], strict=True)]


def _one_bad() -> list[Batch]:
    batches = _batches((8,) * STEPS)
    batches[BAD - 1]["y"] = torch.full((8, 1), math.inf)
    return batches


def _counted_steps(job: Job) -> Callable[[], int]:
    """How often the optimizer has changed the weights, found by looking at them before every batch and at the end."""
    seen: list[Tensor] = []

    def look(network: nn.Module, inputs: object) -> None:  # noqa: ARG001  what torch hands to a hook
        seen.append(_weights(job))

    job.network.register_forward_pre_hook(look)

    def taken() -> int:
        moments = [*seen, _weights(job)]
        return sum(not torch.equal(before, after) for before, after in pairwise(moments))

    return taken


def _weights(job: Job) -> Tensor:
    return parameters_to_vector(job.network.parameters()).detach().clone()


def _error(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


PROBES: dict[str, Callable[[Subject], float]] = {
    "partition": partition,
    "tail": tail,
    "shortage": shortage,
    "skipped": lambda subject: skipped(subject, fused=False),
    "skipped, fused": lambda subject: skipped(subject, fused=True),
    "ruined": ruined,
}
