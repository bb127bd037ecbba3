"""Training with PyTorch-Ignite, as its documentation shows it."""

from collections.abc import Callable
from pathlib import Path
from typing import final

import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Batch, Job


@final
class WithIgnite:
    """An `Engine` around a hand-written step; where the library has a step of its own for the purpose, that one."""

    def train(self, job: Job) -> None:
        """Accumulation is the library's; without it, the step of the tutorials with clipping."""
        if job.accumulate == 1:
            Engine(_step(job)).run(job.batches, max_epochs=job.epochs)
        else:
            _supervised(job, gradient_accumulation_steps=job.accumulate).run(job.batches, max_epochs=job.epochs)

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """The library's step for mixed precision."""
        _supervised(job, amp_mode="amp", scaler=scaler).run(job.batches)

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """It has nothing against it."""
        self.train(make(batch_size))

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """The `Checkpoint` handler and `load_objects`, with the engine that promises to repeat itself."""
        trainer = _supervised(job, deterministic=True)
        parts = {"trainer": trainer, "network": job.network, "optimizer": job.optimizer, "scheduler": job.scheduler}
        saving = Checkpoint(parts, DiskSaver(str(folder), require_empty=False), n_saved=None)
        trainer.add_event_handler(Events.ITERATION_COMPLETED(every=every), saving)
        saved = sorted(folder.glob("*.pt"), key=lambda file: int(file.stem.rsplit("_", 1)[1]))
        if saved:
            Checkpoint.load_objects(parts, torch.load(saved[-1], weights_only=False))
        trainer.run(job.batches, max_epochs=job.epochs)


def _step(job: Job) -> Callable[[Engine, Batch], Tensor]:
    parameters = list(job.network.parameters())

    def step(_: Engine, batch: Batch) -> Tensor:
        job.optimizer.zero_grad()
        loss = job.network(batch["x"], batch["y"])["loss"]
        loss.backward()
        if job.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, job.clip)
        job.optimizer.step()
        job.scheduler.step()
        return loss.detach()

    return step


def _stepper(job: Job) -> Callable[[], None]:
    def step() -> None:
        job.scheduler.step()

    return step


def _supervised(job: Job, **settings: object) -> Engine:
    def prepared(batch: Batch, *_: object, **__: object) -> tuple[Batch, Tensor]:
        return batch, batch["y"]

    trainer = create_supervised_trainer(
        job.network,
        job.optimizer,
        lambda loss, _: loss,
        device="cpu",
        prepare_batch=prepared,
        model_fn=lambda network, batch: network(batch["x"], batch["y"])["loss"],
        **settings,
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=job.accumulate), _stepper(job))
    return trainer


SUBJECT = WithIgnite()
