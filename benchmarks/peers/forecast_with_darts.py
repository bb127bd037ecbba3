"""Darts: TFTModel with QuantileRegression and reversible instance normalisation."""

import numpy as np
import pandas as pd
import torch
from darts import TimeSeries
from darts.models import TFTModel
from darts.utils.data.torch_datasets.utils import PLModuleInput
from darts.utils.likelihood_models.torch import QuantileRegression

from benchmarks.forecasts.protocol import BATCH, CLIP, DROPOUT, HEADS, HIDDEN, PEER_RATE, TrainingRequest, train_peer
from benchmarks.forecasts.task import LEVELS, Task, Windows


def series_of(values: np.ndarray, static: np.ndarray) -> TimeSeries:
    """A series [T] or [T, C] on a plain index."""
    covariates = pd.DataFrame([static], columns=[f"s{i}" for i in range(len(static))]) if len(static) else None
    return TimeSeries.from_times_and_values(
        pd.RangeIndex(len(values)), values.reshape(len(values), -1), static_covariates=covariates
    )


def model_of(request: TrainingRequest) -> TFTModel:
    """The model with the protocol's sizes and budget."""
    task = request.task
    per_epoch = -(-len(task.windows("train")) // BATCH)
    return TFTModel(
        input_chunk_length=task.encoder,
        output_chunk_length=task.horizon,
        hidden_size=HIDDEN,
        lstm_layers=1,
        num_attention_heads=HEADS,
        hidden_continuous_size=8,
        dropout=DROPOUT,
        batch_size=BATCH,
        n_epochs=-(-request.effort // per_epoch),
        optimizer_kwargs={"lr": PEER_RATE},
        use_reversible_instance_norm=True,
        likelihood=QuantileRegression(list(LEVELS)),
        random_state=request.seed,
        pl_trainer_kwargs={
            "accelerator": "cpu",
            "max_steps": request.effort,
            "gradient_clip_val": CLIP,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "enable_checkpointing": False,
        },
    )


def fit(model: TFTModel, task: Task) -> None:
    """Fit with the library, on the training part of every series."""
    none, learnt, rows = np.zeros(0), task.learnt, range(len(task.target))
    observed = [series_of(task.observed[s, :learnt], none) for s in rows] if task.observed.shape[-1] else None
    model.fit(
        [series_of(task.target[s, :learnt], task.static[s]) for s in rows],
        past_covariates=observed,
        future_covariates=[series_of(task.known[s, :learnt], none) for s in rows],
        verbose=False,
    )
    model.model.eval()


def quantiles(model: TFTModel, task: Task, windows: Windows) -> np.ndarray:
    """Quantiles [N, H, Q] of the trained module."""
    known = torch.from_numpy(windows.known)
    inputs = PLModuleInput(
        past_target=torch.from_numpy(windows.past[..., None]),
        past_covariates=torch.from_numpy(windows.observed) if windows.observed.shape[-1] else None,
        historic_future_covariates=known[:, : task.encoder],
        future_covariates=known[:, task.encoder :],
        static_covariates=torch.from_numpy(windows.static[:, None]) if windows.static.shape[-1] else None,
    )
    with torch.inference_mode():
        return model.model(inputs).prediction[:, :, 0, :].numpy()


def train(request: TrainingRequest) -> np.ndarray:
    """Quantiles [N, H, Q] of the test windows."""
    model = model_of(request)
    fit(model, request.task)
    batches = request.task.windows("test").batches(256)
    return np.concatenate([quantiles(model, request.task, batch) for batch in batches])


if __name__ == "__main__":
    train_peer(train, "darts", "pytorch_lightning")
