"""Training with Hugging Face's Trainer, without logging and progress."""

import logging
import tempfile
from typing import final

import transformers
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from benchmarks.training.job import Batch, Job

QUIET = {"report_to": [], "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}


@final
class JobTrainer(Trainer):
    """A Trainer that reads the batches of a job."""

    job: Job

    def get_train_dataloader(self) -> DataLoader[Batch]:
        """The job's loader, prepared as the Trainer prepares its loaders."""
        return self.accelerator.prepare(self.job.batches)


def train(job: Job) -> None:
    """Train with the Trainer's accumulation and clipping."""
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            gradient_accumulation_steps=job.accumulate,
            max_grad_norm=job.clip or 0.0,
            remove_unused_columns=False,
            **QUIET,
        )
        trainer = JobTrainer(
            model=job.network,
            args=arguments,
            train_dataset=job.batches.dataset,
            optimizers=(job.optimizer, job.scheduler),
        )
        trainer.job = job
        trainer.train()
