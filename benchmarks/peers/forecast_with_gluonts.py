"""GluonTS: TemporalFusionTransformerEstimator, which always scales each window by its mean and standard deviation."""

import tempfile

import lightning.pytorch as pl
import numpy as np
import torch
from gluonts.dataset.common import ListDataset
from gluonts.torch.model.tft import TemporalFusionTransformerEstimator
from torch import Tensor, nn

from benchmarks.forecasts.protocol import BATCH, CLIP, DROPOUT, HEADS, HIDDEN, PEER_RATE, TrainingRequest, train_peer
from benchmarks.forecasts.task import LEVELS, Task, Windows


def estimator_of(request: TrainingRequest, folder: str) -> TemporalFusionTransformerEstimator:
    """The estimator with the protocol's sizes and budget; it writes a checkpoint into the folder."""
    task = request.task
    return TemporalFusionTransformerEstimator(
        freq="D",
        prediction_length=task.horizon,
        context_length=task.encoder,
        quantiles=list(LEVELS),
        num_heads=HEADS,
        hidden_dim=HIDDEN,
        variable_dim=HIDDEN,
        static_dims=[1] * max(1, task.static.shape[-1]),
        dynamic_dims=[1] * task.known.shape[-1],
        past_dynamic_dims=[1] * task.observed.shape[-1],
        time_features=[],
        lr=PEER_RATE,
        dropout_rate=DROPOUT,
        batch_size=BATCH,
        num_batches_per_epoch=request.effort,
        trainer_kwargs={
            "max_epochs": 1,
            "accelerator": "cpu",
            "gradient_clip_val": CLIP,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
        },
    )


def fit(estimator: TemporalFusionTransformerEstimator, task: Task) -> nn.Module:
    """Fit with the library, on the training part of every series; returns the trained network."""
    rows = []
    for s in range(len(task.target)):
        row = {
            "start": "2000-01-01",
            "target": task.target[s, : task.learnt],
            "feat_static_real": static_or_one(task.static[s : s + 1])[0],
            "feat_dynamic_real": task.known[s, : task.learnt].T,
        }
        if task.observed.shape[-1]:
            row["past_feat_dynamic_real"] = task.observed[s, : task.learnt].T
        rows.append(row)
    return estimator.train_model(ListDataset(rows, freq="D")).trained_net.model.eval()


def static_or_one(static: np.ndarray) -> np.ndarray:
    """Static covariates [N, C]; a constant if there are none, because the network needs one."""
    return static if static.shape[-1] else np.ones((len(static), 1), np.float32)


def quantiles(network: nn.Module, windows: Windows) -> np.ndarray:
    """Quantiles [N, H, Q] of the trained network, in the unit of the task."""
    count, encoder = windows.past.shape
    steps = windows.known.shape[1]
    # without time features, the library prepends a constant one to the known covariates
    known = torch.cat([torch.zeros(count, steps, 1), torch.from_numpy(windows.known)], dim=-1)
    observed = torch.from_numpy(windows.observed) if windows.observed.shape[-1] else None
    outputs: tuple[tuple[Tensor, ...], Tensor, Tensor]
    with torch.inference_mode():
        outputs = network(
            past_target=torch.from_numpy(windows.past),
            past_observed_values=torch.ones(count, encoder),
            feat_static_real=torch.from_numpy(static_or_one(windows.static)),
            feat_static_cat=torch.zeros(count, 1, dtype=torch.long),
            feat_dynamic_real=known,
            past_feat_dynamic_real=observed,
        )
    (units,), location, scale = outputs
    units = units if units.shape[-1] == len(LEVELS) else units.transpose(1, 2)
    return (units * scale.reshape(count, 1, 1) + location.reshape(count, 1, 1)).numpy()


def train(request: TrainingRequest) -> np.ndarray:
    """Quantiles [N, H, Q] of the test windows."""
    pl.seed_everything(request.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        network = fit(estimator_of(request, folder), request.task)
    return np.concatenate([quantiles(network, batch) for batch in request.task.windows("test").batches(256)])


if __name__ == "__main__":
    train_peer(train, "lightning.pytorch")
