"""Training with Hugging Face's Trainer, as its documentation shows it."""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import final

import transformers
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from benchmarks.training.job import Batch, Job

QUIET = {"report_to": [], "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}


@final
class JobTrainer(Trainer):
    """A Trainer that reads the batches of a job; `make` gives the job for a batch size."""

    make: Callable[[int], Job]

    def get_train_dataloader(self) -> DataLoader[Batch]:
        """The job's own loader, prepared as the Trainer prepares its loaders."""
        return self.accelerator.prepare(self.make(self._train_batch_size).batches)


@final
class WithTransformers:
    """`Trainer.train`, without logging and progress."""

    def train(self, job: Job) -> None:
        """Accumulation and clipping are the Trainer's."""
        with tempfile.TemporaryDirectory() as folder:
            _trainer(job, lambda _: job, folder).train()

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """Its float16 needs a GPU, so that a scaler for the CPU is put where its own would be."""
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(job, lambda _: job, folder)
            trainer.accelerator.scaler = scaler
            trainer.train()

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """`auto_find_batch_size`."""
        job = make(batch_size)

        def batches_of_the_same(size: int) -> Job:
            return make(size)

        with tempfile.TemporaryDirectory() as folder:
            _trainer(
                job, batches_of_the_same, folder, per_device_train_batch_size=batch_size, auto_find_batch_size=True
            ).train()

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """`save_steps` and `resume_from_checkpoint`, with the Trainer's own loader and order."""
        arguments = _arguments(job, str(folder), save_strategy="steps", save_steps=every, per_device_train_batch_size=8)
        trainer = Trainer(
            model=job.network,
            args=arguments,
            train_dataset=job.batches.dataset,
            optimizers=(job.optimizer, job.scheduler),
        )
        trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))


def _arguments(job: Job, folder: str, **settings: object) -> TrainingArguments:
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=job.epochs,
        gradient_accumulation_steps=job.accumulate,
        max_grad_norm=job.clip or 0.0,
        remove_unused_columns=False,
        **QUIET,
        **({"save_strategy": "no"} | settings),
    )


def _trainer(job: Job, make: Callable[[int], Job], folder: str, **settings: object) -> JobTrainer:
    trainer = JobTrainer(
        model=job.network,
        args=_arguments(job, folder, **settings),
        train_dataset=job.batches.dataset,
        optimizers=(job.optimizer, job.scheduler),
    )
    trainer.make = make
    return trainer


SUBJECT = WithTransformers()
