"""AutoGluon: TimeSeriesPredictor within a time budget, without the pretrained models, whose weights it would download.

It learns from everything before the test part, selects its ensemble there, and forecasts each window from all steps
before it, because it scales a series by the mean of all that it is given.
"""

import tempfile
from typing import Final

import numpy as np
import pandas as pd
from autogluon.timeseries import TimeSeriesDataFrame, TimeSeriesPredictor

from benchmarks.forecasts.protocol import TrainingRequest, train_peer
from benchmarks.forecasts.task import LEVELS, Task, Windows

PRETRAINED: Final = ["Chronos", "Chronos2", "Toto", "Toto2"]
AT_ONCE: Final = 70
"""Windows that are in memory at the same time."""


def table_of(task: Task) -> list[pd.DataFrame]:
    """All steps of each series, as business days."""
    days = pd.bdate_range("1999-01-04", periods=task.target.shape[1], name="timestamp")
    kinds = {"o": task.observed, "k": task.known}
    return [
        pd.DataFrame({"target": target}, index=days).assign(
            **{f"{kind}{i}": values[s, :, i] for kind, values in kinds.items() for i in range(values.shape[-1])}
        )
        for s, target in enumerate(task.target)
    ]


def joined(parts: dict[str, pd.DataFrame], static: np.ndarray) -> TimeSeriesDataFrame:
    """Series by name, with their static covariates [len(parts), C]."""
    frame = TimeSeriesDataFrame(pd.concat(parts, names=["item_id", "timestamp"]))
    if static.shape[-1]:
        frame.static_features = pd.DataFrame(static, index=list(parts)).add_prefix("s")
    return frame


def quantiles(request: TrainingRequest) -> np.ndarray:
    """Quantiles [N, H, Q] of the test windows."""
    task, tables, windows = request.task, table_of(request.task), request.task.windows("test")
    known = [name for name in tables[0].columns if name.startswith("k")]
    learnt = {f"u{s}": table.iloc[: task.seen] for s, table in enumerate(tables)}
    with tempfile.TemporaryDirectory() as folder:
        predictor = TimeSeriesPredictor(
            prediction_length=task.horizon,
            freq="B",
            known_covariates_names=known,
            quantile_levels=list(LEVELS),
            path=folder,
            log_to_file=False,
        ).fit(
            joined(learnt, task.static),
            presets=request.model,
            time_limit=request.effort,
            random_seed=request.seed,
            excluded_model_types=PRETRAINED,
        )
        return np.concatenate([forecast(predictor, tables, known, batch) for batch in windows.batches(AT_ONCE)])


def forecast(
    predictor: TimeSeriesPredictor, tables: list[pd.DataFrame], known: list[str], windows: Windows
) -> np.ndarray:
    """Quantiles [N, H, Q] of some windows, each of which is an item."""
    horizon = windows.future.shape[1]
    places = [(f"{s}-{t}", tables[s], t + 1) for s, t in zip(windows.series, windows.decisions, strict=True)]
    asked = joined({name: table.iloc[:end] for name, table, end in places}, windows.static)
    ahead = joined({name: table.iloc[end : end + horizon][known] for name, table, end in places}, windows.static)
    found = predictor.predict(asked, known_covariates=ahead, use_cache=False)
    return np.stack([found.loc[name][[str(level) for level in LEVELS]].to_numpy() for name, *_ in places])


if __name__ == "__main__":
    train_peer(quantiles)
