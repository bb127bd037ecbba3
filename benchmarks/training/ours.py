"""This project's loop, given the same work as the others."""

from collections.abc import Callable
from pathlib import Path
from typing import final

from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Batch, Job
from trainers.loop import Checkpoints, IterableSource, Loop, Loss, Phase, Precision, WindowReport


@final
class Ours:
    """The loop with all its guards, on the CPU."""

    def train(self, job: Job) -> None:
        """Every epoch, with a running loss."""
        _train(job)

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """A scaler is part of a precision."""
        _train(job, Precision(name="fp16", dtype=None, scaler=lambda: scaler, reason="to compare scalers on the CPU"))

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """Nothing needs to be done about it."""
        _train(make(batch_size))

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """Checkpoints are given where the training starts."""
        with loop_of(job).running(Checkpoints(folder, every_windows=every, every_seconds=None)) as run:
            for _ in run.epochs(IterableSource(job.batches), max_epochs=job.epochs):
                pass


def _train(job: Job, precision: str | Precision = "fp32") -> None:
    total = 0.0
    with loop_of(job, precision).running() as run:
        for report in run.epochs(IterableSource(job.batches), max_epochs=job.epochs):
            if isinstance(report, WindowReport):
                total += report.loss


def loop_of(job: Job, precision: str | Precision = "fp32") -> Loop[Batch]:
    """A loop of one phase."""

    def loss(batch: Batch) -> Loss:
        return Loss(job.network(batch["x"], batch["y"])["loss"], batch["x"].shape[0])

    phase = Phase[Batch](
        name="main",
        loss=loss,
        parameters=job.network.parameters(),
        optimizer=job.optimizer,
        scheduler=job.scheduler,
        clip=job.clip,
    )
    return Loop([phase], modules={"network": job.network}, device="cpu", precision=precision, accumulate=job.accumulate)


SUBJECT = Ours()
