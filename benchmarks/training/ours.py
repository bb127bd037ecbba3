"""This project's loop with all its guards, on the same work as the others."""

from benchmarks.training.job import Batch, Job
from trainers.loop import IterableSource, Loop, Loss, Phase, StepReport


def train(job: Job) -> None:
    """Train one epoch with a running loss."""

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
    modules, total = {"network": job.network}, 0.0
    loop = Loop([phase], modules=modules, device="cpu", precision="fp32", accumulate=job.accumulate)
    with loop.running() as run:
        for report in run.epochs(IterableSource(job.batches), max_epochs=1):
            if isinstance(report, StepReport):
                total += report.loss
