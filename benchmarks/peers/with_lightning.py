"""Training with the Lightning Trainer, as its documentation shows it."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import final

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Batch, Job

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


@final
class Wrapped(LightningModule):
    """The job's network, optimizer and scheduler in the form that the Trainer takes."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.network = job.network
        self._job = [job]

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """The mean loss of a batch."""
        return self.network(batch["x"], batch["y"])["loss"]

    def configure_optimizers(self) -> dict[str, object]:
        """The scheduler goes with every step."""
        job = self._job[0]
        return {"optimizer": job.optimizer, "lr_scheduler": {"scheduler": job.scheduler, "interval": "step"}}


@final
class WithLightning:
    """`Trainer.fit`, without logging, progress and summaries."""

    def train(self, job: Job) -> None:
        """Accumulation and clipping are the Trainer's."""
        _trainer(job, enable_checkpointing=False).fit(Wrapped(job), job.batches)

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """Its float16 plugin, with a scaler for the CPU."""
        plugin = MixedPrecision("16-mixed", device="cpu", scaler=scaler)
        _trainer(job, enable_checkpointing=False, plugins=plugin).fit(Wrapped(job), job.batches)

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """It has nothing against it in training (its batch size finder runs before)."""
        self.train(make(batch_size))

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """`ModelCheckpoint` and `ckpt_path`."""
        saving = ModelCheckpoint(dirpath=folder, filename="{step:04d}", every_n_train_steps=every, save_top_k=-1)
        saved = sorted(folder.glob("*.ckpt"))
        trainer = _trainer(job, callbacks=[saving])
        trainer.fit(Wrapped(job), job.batches, ckpt_path=str(saved[-1]) if saved else None)


def _trainer(job: Job, **settings: object) -> Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    return Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=job.epochs,
        accumulate_grad_batches=job.accumulate,
        gradient_clip_val=job.clip,
        **QUIET,
        **settings,
    )


SUBJECT = WithLightning()
