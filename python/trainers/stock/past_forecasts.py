"""Forecasts of past days with their outcomes, as DataFrames with the columns of neuralforecast."""

from typing import TYPE_CHECKING

import numpy as np

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.networks import Target
from trainers.stock.backtest.forecasts import DailyForecasts, forecast_daily, join_folds
from trainers.stock.backtest.refits import Fold, RefitMaterial
from trainers.stock.backtest.source import ModelSource, find_first_decision, refuse_in_sample
from trainers.stock.recipe import StockRecipe
from trainers.stock.training_data import TrainingMaterial

if TYPE_CHECKING:
    import polars as pl


def forecast_past(source: ModelSource, bars: BarPanel, start: int | None, end: int | None) -> "pl.DataFrame":
    """Forecast after every session from `start` to `end` with a trained model.

    Raises:
        InSampleError: The model has seen the days.
        QuantraError: The model cannot read these bars.
    """
    trained_model = source.require_trained_model()
    first = find_first_decision(source, bars, 0) if start is None else start
    refuse_in_sample(trained_model, bars.sessions, first)
    last = int(bars.sessions[-1]) if end is None else end
    days = bars.sessions[(bars.sessions >= first) & (bars.sessions <= last)]
    model = trained_model.model
    return tabulate(forecast_daily(model, bars, days, source.covariates), model.manifest.target, bars)


def cross_validate(material: TrainingMaterial, recipe: StockRecipe, *, windows: int, step: int) -> "pl.DataFrame":
    """Train a model before each of the last windows, and forecast after each of its `step` sessions.

    The last window ends where all outcomes are known.

    Raises:
        ConfigurationError: There are too few bars, or a number is not positive.
        LoopError: A training run failed.
    """
    for name, value in (("windows", windows), ("step", step)):
        if value < 1:
            raise ConfigurationError(f"{name} is {value}, but must be at least 1")
    refits = RefitMaterial(
        bars=material.bars,
        features=material.features,
        recipe=recipe,
        covariates=material.covariates,
        edges=material.edges,
        cache=material.cache,
    )
    days, reach = material.bars.sessions.tolist(), recipe.target.reach
    start = len(days) - reach - windows * step
    if start < 1:
        raise ConfigurationError(
            f"{windows} windows of {step} sessions leave no bars to train on: the bars have {len(days)} sessions, and "
            f"outcomes take {reach}; use fewer or shorter windows, or more bars"
        )
    parts: list[DailyForecasts] = []
    for number, first in enumerate(range(start, len(days) - reach, step), start=1):
        last = days[first + step - 1]
        fold = Fold(number=number, first=days[first], last=last, learn_first=days[0], learn_last=days[first - 1])
        parts.append(refits.forecast(fold))
    return tabulate(join_folds(parts), recipe.target, material.bars)


def tabulate(forecasts: DailyForecasts, target: Target, bars: BarPanel) -> "pl.DataFrame":
    """One row per symbol, day and horizon whose target session is in the bars, in this order.

    Columns: `unique_id`, the symbol; `ds`, the target session; `cutoff`, the last session that the forecast knew;
    `horizon`; `y`, the outcome in the target's unit, null if it is unknown; and one per quantile, such as `0.1`.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("polars", "data", "past forecasts as a DataFrame") from error
    positions = np.searchsorted(bars.sessions, forecasts.sessions)
    outcomes = np.concatenate([target.labels(adjusted) for _, adjusted in bars.adjusted_blocks()])  # [S, T, H]
    ends = positions[:, None] + target.lag + np.array(forecasts.horizons)
    is_known = np.isfinite(forecasts.values).all(axis=-1) & (ends < len(bars.sessions))[:, None]
    s, d, h = np.nonzero(is_known.transpose(1, 0, 2))
    frame = pl.DataFrame(
        {
            "unique_id": np.array(bars.symbols)[s],
            "ds": bars.sessions[ends[d, h]],
            "cutoff": forecasts.sessions[d],
            "horizon": np.array(forecasts.horizons)[h],
            "y": outcomes[s, positions[d], h],
        }
        | {f"{level:g}": forecasts.values[d, s, h, q] for q, level in enumerate(forecasts.levels)}
    )
    return frame.with_columns(pl.col("ds", "cutoff").cast(pl.String).str.to_date("%Y%m%d"), pl.col("y").fill_nan(None))
