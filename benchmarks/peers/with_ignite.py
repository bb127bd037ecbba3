"""Training with PyTorch-Ignite: an `Engine` around a hand-written step."""

from collections.abc import Callable

import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch import Tensor

from benchmarks.training.job import Batch, Job


def train(job: Job) -> None:
    """Train with the library's accumulation, or with the tutorials' step and clipping without accumulation."""
    trainer = Engine(_step(job)) if job.accumulate == 1 else _accumulating(job)
    trainer.run(job.batches, max_epochs=1)


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


def _accumulating(job: Job) -> Engine:
    trainer = create_supervised_trainer(
        job.network,
        job.optimizer,
        lambda loss, _: loss,
        device="cpu",
        prepare_batch=lambda batch, *_, **__: (batch, batch["y"]),
        model_fn=lambda network, batch: network(batch["x"], batch["y"])["loss"],
        gradient_accumulation_steps=job.accumulate,
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=job.accumulate), lambda: job.scheduler.step())  # noqa: PLW0108 - Ignite passes the engine to a handler that takes an argument
    return trainer
