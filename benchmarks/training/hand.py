"""Training loops as they are written by hand: the usual one, and the fastest that does the same."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import final

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Batch, Job

CLIP_EPSILON = 1e-6


@final
class ByHand:
    """The loop of the tutorials, with clipping, scheduler, running loss and accumulation as they show them."""

    def train(self, job: Job) -> None:
        """Every batch forward and backward; after every `accumulate` of them a step."""
        parameters = list(job.network.parameters())
        total = torch.zeros(())
        job.optimizer.zero_grad()
        for number, batch in enumerate(_all_batches(job), start=1):
            loss = _loss(job, batch)
            total += loss.detach()
            (loss if job.accumulate == 1 else loss / job.accumulate).backward()
            if number % job.accumulate:
                continue
            if job.clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, job.clip)
            job.optimizer.step()
            job.scheduler.step()
            job.optimizer.zero_grad()

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """As the documentation of torch shows it."""
        for batch in _all_batches(job):
            job.optimizer.zero_grad()
            scaler.scale(_loss(job, batch)).backward()
            scaler.step(job.optimizer)
            scaler.update()
            job.scheduler.step()

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """Nothing is usually written against it."""
        self.train(make(batch_size))

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """Weights, optimizer, scheduler and step number; the batches that were seen are skipped."""
        file = folder / "checkpoint.pt"
        step = _restore(job, file) if file.is_file() else 0
        for batch in islice(_all_batches(job), step, None):
            job.optimizer.zero_grad()
            _loss(job, batch).backward()
            job.optimizer.step()
            job.scheduler.step()
            step += 1
            if step % every == 0:
                parts = (job.network.state_dict(), job.optimizer.state_dict(), job.scheduler.state_dict(), step)
                torch.save(parts, file)


def train_leanly(job: Job) -> None:
    """As little as clipping, scheduler and running loss need, one batch a step; no check of anything."""
    network, optimizer, scheduler = job.network, job.optimizer, job.scheduler
    parameters = list(network.parameters())
    total = 0.0
    for batch in job.batches:
        for parameter in parameters:
            parameter.grad = None
        loss = network(batch["x"], batch["y"])["loss"]
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch._foreach_norm(gradients)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  as the leanest clip needs it
        norm = math.hypot(*[one.item() for one in norms])  # on a CPU faster than the norm of a stack
        if job.clip is not None and norm > job.clip:
            torch._foreach_mul_(gradients, job.clip / (norm + CLIP_EPSILON))  # pyright: ignore[reportPrivateImportUsage]
        optimizer.step()
        scheduler.step()
        total += loss.item()


def _all_batches(job: Job) -> Iterator[Batch]:
    return (batch for _ in range(job.epochs) for batch in job.batches)


def _loss(job: Job, batch: Batch) -> Tensor:
    return job.network(batch["x"], batch["y"])["loss"]


def _restore(job: Job, file: Path) -> int:
    network, optimizer, scheduler, step = torch.load(file, weights_only=True)
    job.network.load_state_dict(network)
    job.optimizer.load_state_dict(optimizer)
    job.scheduler.load_state_dict(scheduler)
    return int(step)


SUBJECT = ByHand()
