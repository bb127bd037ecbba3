"""pytorch-forecasting: TemporalFusionTransformer with EncoderNormalizer, trained by Lightning."""

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import EncoderNormalizer, NaNLabelEncoder

from benchmarks.forecasts.protocol import BATCH, CLIP, DROPOUT, HEADS, HIDDEN, PEER_RATE, TrainingRequest, train_peer
from benchmarks.forecasts.task import LEVELS, Task, Windows

MIN_SCALE = 1e-7
"""As in the library's normaliser."""


def names(prefix: str, count: int) -> list[str]:
    """Column names of a kind of covariate."""
    return [f"{prefix}{i}" for i in range(count)]


def frame_of(task: Task, series: int) -> pd.DataFrame:
    """The training part of a series, one column per variable."""
    columns = {"series": f"u{series}", "step": np.arange(task.learnt), "target": task.target[series, : task.learnt]}
    for prefix, values in (("o", task.observed), ("k", task.known)):
        for i, name in enumerate(names(prefix, values.shape[-1])):
            columns[name] = values[series, : task.learnt, i]
    for i, name in enumerate(names("s", task.static.shape[-1])):
        columns[name] = np.float32(task.static[series, i])
    return pd.DataFrame(columns)


def data_of(task: Task) -> TimeSeriesDataSet:
    """The library's dataset of all training windows."""
    frame = pd.concat([frame_of(task, s) for s in range(len(task.target))], ignore_index=True)
    observed, known = names("o", task.observed.shape[-1]), names("k", task.known.shape[-1])
    static = names("s", task.static.shape[-1])
    return TimeSeriesDataSet(
        frame,
        time_idx="step",
        target="target",
        group_ids=["series"],
        min_encoder_length=task.encoder,
        max_encoder_length=task.encoder,
        min_prediction_length=task.horizon,
        max_prediction_length=task.horizon,
        static_reals=static,
        time_varying_known_reals=known,
        time_varying_unknown_reals=["target", *observed],
        target_normalizer=EncoderNormalizer(),
        scalers=dict.fromkeys([*observed, *known, *static]),
        categorical_encoders={"series": NaNLabelEncoder().fit(frame.series)},
    )


def fit(request: TrainingRequest) -> TemporalFusionTransformer:
    """Fit the library's model."""
    data = data_of(request.task)
    model = TemporalFusionTransformer.from_dataset(
        data,
        learning_rate=PEER_RATE,
        hidden_size=HIDDEN,
        attention_head_size=HEADS,
        dropout=DROPOUT,
        hidden_continuous_size=8,
        output_size=len(LEVELS),
        loss=QuantileLoss(list(LEVELS)),
        log_interval=0,
        optimizer="adam",
        reduce_on_plateau_patience=1000,
    )
    trainer = pl.Trainer(
        max_steps=request.effort,
        accelerator="cpu",
        gradient_clip_val=CLIP,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data.to_dataloader(train=True, batch_size=BATCH, num_workers=0))
    return model.eval()


def quantiles(model: TemporalFusionTransformer, task: Task, windows: Windows) -> np.ndarray:
    """Quantiles [N, H, Q] of the trained model, in the unit of the task."""
    count, steps = len(windows), task.encoder + task.horizon
    past = torch.from_numpy(windows.past)
    location, scale = past.mean(1, keepdim=True), past.std(1, keepdim=True) + MIN_SCALE
    blank = torch.zeros(count, task.horizon)
    columns = {"target": torch.cat([(past - location) / scale, blank], dim=1)}
    for i in range(task.observed.shape[-1]):
        columns[f"o{i}"] = torch.cat([torch.from_numpy(windows.observed[..., i]), blank], dim=1)
    for i in range(task.known.shape[-1]):
        columns[f"k{i}"] = torch.from_numpy(windows.known[..., i])
    for i in range(task.static.shape[-1]):
        columns[f"s{i}"] = torch.from_numpy(windows.static[:, i : i + 1]).expand(count, steps)
    # the dataset adds no columns here, but it decides their order
    inputs = torch.stack([columns[name] for name in model.hparams.x_reals], dim=-1)
    none = torch.zeros(count, 0, dtype=torch.long)
    batch = {
        "encoder_cat": none[:, None].expand(count, task.encoder, 0),
        "decoder_cat": none[:, None].expand(count, task.horizon, 0),
        "encoder_cont": inputs[:, : task.encoder],
        "decoder_cont": inputs[:, task.encoder :],
        "encoder_lengths": torch.full((count,), task.encoder),
        "decoder_lengths": torch.full((count,), task.horizon),
        "target_scale": torch.cat([location, scale], dim=1),
    }
    with torch.inference_mode():
        return model(batch)["prediction"].numpy()


def train(request: TrainingRequest) -> np.ndarray:
    """Quantiles [N, H, Q] of the test windows."""
    pl.seed_everything(request.seed, verbose=False)
    model = fit(request)
    batches = request.task.windows("test").batches(256)
    return np.concatenate([quantiles(model, request.task, batch) for batch in batches])


if __name__ == "__main__":
    train_peer(train, "lightning.pytorch")
