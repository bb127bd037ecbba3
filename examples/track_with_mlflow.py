"""Log a training run to MLflow: python examples/track_with_mlflow.py BARS.csv."""

import sys

import mlflow

from quantra import StockTrainer
from trainers.loop import EpochReport, Report


def log(report: Report) -> None:
    """Log the losses of every epoch."""
    if isinstance(report, EpochReport):
        mlflow.log_metrics({"loss": report.loss, "validation": report.monitored}, step=report.epoch + 1)


trainer = StockTrainer(model="gru", horizons=[1, 5], epochs=3, on_report=log)
with mlflow.start_run():
    mlflow.log_params({"model": trainer.model, "epochs": trainer.epochs})
    trainer.fit(sys.argv[1]).close()
