"""Training with Hugging Face's Accelerate, as in its tutorials."""

import torch
from accelerate import Accelerator

from benchmarks.training.job import Job


def train(job: Job) -> None:
    """Train with `accumulate`, `backward` and `clip_grad_norm_`."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job.accumulate)
    network, optimizer, batches, scheduler = accelerator.prepare(job.network, job.optimizer, job.batches, job.scheduler)
    total = torch.zeros(())
    for batch in batches:
        with accelerator.accumulate(network):
            loss = network(batch["x"], batch["y"])["loss"]
            accelerator.backward(loss)
            if accelerator.sync_gradients and job.clip is not None:
                accelerator.clip_grad_norm_(network.parameters(), job.clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        total += loss.detach()
