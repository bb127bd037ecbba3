"""Training loops written by hand: the usual one, and the fastest that does the same."""

import math

import torch

from benchmarks.training.job import Job

CLIP_EPSILON = 1e-6


def train(job: Job) -> None:
    """The loop of the tutorials, with clipping, scheduler, running loss and accumulation."""
    parameters = list(job.network.parameters())
    total = torch.zeros(())
    job.optimizer.zero_grad()
    for number, batch in enumerate(job.batches, start=1):
        loss = job.network(batch["x"], batch["y"])["loss"]
        total += loss.detach()
        (loss if job.accumulate == 1 else loss / job.accumulate).backward()
        if number % job.accumulate:
            continue
        if job.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, job.clip)
        job.optimizer.step()
        job.scheduler.step()
        job.optimizer.zero_grad()


def train_leanly(job: Job) -> None:
    """As little as clipping, scheduler and running loss need, one batch a step, without checks."""
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
