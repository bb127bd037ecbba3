"""Training with Hugging Face's Accelerate, as its documentation shows it."""

from collections.abc import Callable
from pathlib import Path
from typing import final

import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size
from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Job


@final
class WithAccelerate:
    """The loop of the tutorials around `Accelerator`."""

    def train(self, job: Job) -> None:
        """`accumulate`, `backward`, `clip_grad_norm_`."""
        _train(Accelerator(cpu=True, gradient_accumulation_steps=job.accumulate), job)

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """Accelerate has no scaler on the CPU, so that one is put in its place."""
        accelerator = Accelerator(cpu=True)
        accelerator.scaler = scaler
        _train(accelerator, job)

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """The decorator that calls the training function again with smaller batches."""

        @find_executable_batch_size(starting_batch_size=batch_size)
        def run(size: int) -> None:
            self.train(make(size))

        run()

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """`save_state`, `load_state` and `skip_first_batches`."""
        accelerator = Accelerator(cpu=True)
        network, optimizer, batches, scheduler = accelerator.prepare(
            job.network, job.optimizer, job.batches, job.scheduler
        )
        saved = sorted(folder.glob("step-*"))
        step = 0
        if saved:
            accelerator.load_state(str(saved[-1]))
            step = int(saved[-1].name.removeprefix("step-"))
        first, seen = divmod(step, len(batches))
        for epoch in range(first, job.epochs):
            remaining = accelerator.skip_first_batches(batches, seen) if epoch == first and seen else batches
            for batch in remaining:
                accelerator.backward(network(batch["x"], batch["y"])["loss"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
                if step % every == 0:
                    accelerator.save_state(str(folder / f"step-{step:04}"))


def _train(accelerator: Accelerator, job: Job) -> None:
    network, optimizer, batches, scheduler = accelerator.prepare(job.network, job.optimizer, job.batches, job.scheduler)
    total = torch.zeros(())
    for _ in range(job.epochs):
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


SUBJECT = WithAccelerate()
