"""Training with the Lightning Trainer, without logging, progress and summaries."""

import logging
import warnings
from typing import final

from lightning import LightningModule, Trainer
from torch import Tensor

from benchmarks.training.job import Batch, Job

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


@final
class JobModule(LightningModule):
    """The job's network, optimizer and scheduler as a LightningModule."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.network = job.network
        self._job = [job]

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Mean loss of a batch."""
        return self.network(batch["x"], batch["y"])["loss"]

    def configure_optimizers(self) -> dict[str, object]:
        """Step the scheduler with the optimizer."""
        job = self._job[0]
        return {"optimizer": job.optimizer, "lr_scheduler": {"scheduler": job.scheduler, "interval": "step"}}


def train(job: Job) -> None:
    """Train with the Trainer's accumulation and clipping."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        accumulate_grad_batches=job.accumulate,
        gradient_clip_val=job.clip,
        **QUIET,
    )
    trainer.fit(JobModule(job), job.batches)
