"""Training with Lightning Fabric, as in its documentation."""

import torch
from lightning.fabric import Fabric

from benchmarks.training.job import Job


def train(job: Job) -> None:
    """Train in a hand-written loop with `backward` and `clip_gradients`."""
    fabric = Fabric(accelerator="cpu", devices=1)
    network, optimizer = fabric.setup(job.network, job.optimizer)
    total = torch.zeros(())
    for number, batch in enumerate(fabric.setup_dataloaders(job.batches), start=1):
        loss = network(batch["x"], batch["y"])["loss"]
        fabric.backward(loss if job.accumulate == 1 else loss / job.accumulate)
        total += loss.detach()
        if number % job.accumulate:
            continue
        if job.clip is not None:
            fabric.clip_gradients(network, optimizer, max_norm=job.clip)
        optimizer.step()
        job.scheduler.step()
        optimizer.zero_grad()
