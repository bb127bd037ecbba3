"""Hand-written training loops: the usual one, and the fastest equivalent."""

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
    """The minimum for clipping, scheduler and running loss, with one batch per step and without checks."""
    network, optimizer, scheduler = job.network, job.optimizer, job.scheduler
    parameters = list(network.parameters())
    total = 0.0
    for batch in job.batches:
        for parameter in parameters:
            parameter.grad = None
        loss = network(batch["x"], batch["y"])["loss"]
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch._foreach_norm(gradients)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  the fastest clipping
        norm = math.hypot(*[one.item() for one in norms])  # faster on a CPU than the norm of a stack
        if job.clip is not None and norm > job.clip:
            torch._foreach_mul_(gradients, job.clip / (norm + CLIP_EPSILON))  # pyright: ignore[reportPrivateImportUsage]
        optimizer.step()
        scheduler.step()
        total += loss.item()
