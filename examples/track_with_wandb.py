"""Log a training run to Weights & Biases: python examples/track_with_wandb.py BARS.csv."""

import sys

import wandb

from quantra import StockTrainer
from trainers.loop import EpochReport, Report

with wandb.init(project="stocks", config={"model": "gru", "epochs": 3}) as run:

    def log(report: Report) -> None:
        """Log the losses of every epoch."""
        if isinstance(report, EpochReport):
            run.log({"loss": report.loss, "validation": report.monitored}, step=report.epoch + 1)

    StockTrainer(model="gru", horizons=[1, 5], epochs=3, on_report=log).fit(sys.argv[1]).close()
