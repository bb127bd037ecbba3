"""neuralforecast: TFT and LSTM with MQLoss and robust scaling of each window, through its cross-validation."""

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MQLoss
from neuralforecast.models import LSTM, TFT

from benchmarks.forecasts.protocol import (
    BATCH,
    CLIP,
    DROPOUT,
    HEADS,
    HIDDEN,
    LSTM_HIDDEN,
    LSTM_LAYERS,
    PEER_RATE,
    TrainingRequest,
    train_peer,
)
from benchmarks.forecasts.task import LEVELS, Task


def names(prefix: str, count: int) -> list[str]:
    """Column names of a kind of covariate."""
    return [f"{prefix}{i}" for i in range(count)]


def model_of(request: TrainingRequest) -> TFT | LSTM:
    """The model with the protocol's sizes and budget."""
    task = request.task
    common = {
        "h": task.horizon,
        "input_size": task.encoder,
        "hist_exog_list": names("o", task.observed.shape[-1]) or None,
        "futr_exog_list": names("k", task.known.shape[-1]),
        "stat_exog_list": names("s", task.static.shape[-1]) or None,
        "loss": MQLoss(quantiles=list(LEVELS)),
        "learning_rate": PEER_RATE,
        "max_steps": request.effort,
        "num_lr_decays": -1,
        "batch_size": len(task.target),
        "windows_batch_size": BATCH,
        "inference_windows_batch_size": 256,
        "scaler_type": "robust",
        "random_seed": request.seed,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
        "accelerator": "cpu",
        "gradient_clip_val": CLIP,
    }
    if request.model == "tft":
        return TFT(hidden_size=HIDDEN, n_head=HEADS, dropout=DROPOUT, attn_dropout=0.0, **common)
    return LSTM(
        encoder_hidden_size=LSTM_HIDDEN,
        encoder_n_layers=LSTM_LAYERS,
        encoder_dropout=DROPOUT,
        decoder_hidden_size=LSTM_HIDDEN,
        decoder_layers=2,
        **common,
    )


def frames_of(task: Task) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """All series in long format, and their static covariates."""
    steps = np.arange(task.target.shape[1])
    frames = []
    for s, target in enumerate(task.target):
        columns = {"unique_id": f"u{s}", "ds": steps, "y": target}
        for prefix, values in (("o", task.observed), ("k", task.known)):
            for i, name in enumerate(names(prefix, values.shape[-1])):
                columns[name] = values[s, :, i]
        frames.append(pd.DataFrame(columns))
    static = names("s", task.static.shape[-1])
    ids = [f"u{s}" for s in range(len(task.target))]
    table = pd.DataFrame({"unique_id": ids, **dict(zip(static, task.static.T, strict=True))}) if static else None
    return pd.concat(frames), table


def quantiles(request: TrainingRequest) -> np.ndarray:
    """Quantiles [N, H, Q] of the test windows, fitted once on the training part."""
    task = request.task
    frame, static = frames_of(task)
    found = NeuralForecast(models=[model_of(request)], freq=1).cross_validation(
        frame,
        static_df=static,
        n_windows=None,
        test_size=task.target.shape[1] - task.learnt,
        step_size=1,
        val_size=0,
        refit=False,
    )
    found = found.sort_values(["unique_id", "cutoff", "ds"])
    columns = [column for column in found.columns if column not in ("unique_id", "ds", "cutoff", "y")]
    order = sorted(columns, key=lambda name: 0 if "lo" in name else 2 if "hi" in name else 1)
    values = found[order].to_numpy().reshape(-1, task.horizon, len(LEVELS))
    first = found.iloc[:: task.horizon]
    place = {key: i for i, key in enumerate(zip(first["unique_id"], first["cutoff"], strict=True))}
    windows = task.windows("test")
    return values[[place[f"u{s}", t] for s, t in zip(windows.series, windows.decisions, strict=True)]]


if __name__ == "__main__":
    train_peer(quantiles, "pytorch_lightning", "lightning", "lightning.pytorch", "lightning.fabric", "neuralforecast")
