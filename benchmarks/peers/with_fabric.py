"""Training with Lightning Fabric, as its documentation shows it."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import final

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision
from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Job


@final
class WithFabric:
    """A hand-written loop around `Fabric`."""

    def train(self, job: Job) -> None:
        """`backward` and `clip_gradients`; how batches are weighted in accumulation is the caller's own line."""
        fabric = Fabric(accelerator="cpu", devices=1)
        network, optimizer = fabric.setup(job.network, job.optimizer)
        batches = fabric.setup_dataloaders(job.batches)
        total = torch.zeros(())
        for _ in range(job.epochs):
            for number, batch in enumerate(batches, start=1):
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

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """Its float16 plugin, with a scaler for the CPU."""
        plugin = MixedPrecision("16-mixed", device="cpu", scaler=scaler)
        fabric = Fabric(accelerator="cpu", devices=1, plugins=plugin)
        network, optimizer = fabric.setup(job.network, job.optimizer)
        for batch in fabric.setup_dataloaders(job.batches):
            fabric.backward(network(batch["x"], batch["y"])["loss"])
            optimizer.step()
            job.scheduler.step()
            optimizer.zero_grad()

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """It has nothing against it."""
        self.train(make(batch_size))

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """`save` and `load`; the batches that were seen are skipped by hand."""
        fabric = Fabric(accelerator="cpu", devices=1)
        network, optimizer = fabric.setup(job.network, job.optimizer)
        batches = fabric.setup_dataloaders(job.batches)
        state = {"network": network, "optimizer": optimizer, "scheduler": job.scheduler, "step": 0}
        file = folder / "checkpoint.ckpt"
        if file.exists():
            fabric.load(file, state)
        step = state["step"]
        for batch in islice((batch for _ in range(job.epochs) for batch in batches), step, None):
            optimizer.zero_grad()
            fabric.backward(network(batch["x"], batch["y"])["loss"])
            optimizer.step()
            job.scheduler.step()
            step += 1
            if step % every == 0:
                fabric.save(file, state | {"step": step})


SUBJECT = WithFabric()
