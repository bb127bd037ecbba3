"""Baselines by regression on lags, averages and features, pooled over symbols: ridge and boosted trees."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.networks import TargetKind, compute_window_mean
from predictor.windows import extract_trailing_windows
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    BaselineSample,
    FittedBaseline,
    MeasuredWindows,
    NoForecastError,
    in_blocks,
    recent,
)
from trainers.stock.evaluation.evaluation_set import ForecastUnits
from trainers.stock.scale import NO_RANGE

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


LAGS = (1, 2, 3, 4, 5, 10, 20)
"""Lags of the daily series, in days."""
MEANS = (5, 22, 60)
"""Lengths of its averages in days: HAR's week and month, and the window."""
FEW = 5
"""Days over which the features are averaged."""
FITTED_WINDOWS: Final = 50_000
"""Limit on windows, evenly spaced, which bounds time and memory."""
PENALTY: Final = 10.0
"""Of the ridge regression."""
ROUNDS: Final = 100
"""Of boosting."""
SETTINGS: Final = {
    "objective": "quantile",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 100,
    "max_bin": 63,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "verbosity": -1,
}


def regressors(history: History, measured_windows: MeasuredWindows) -> FloatArray:
    """[N, K] regressors of each window, relative to its level at the first horizon.

    Lags and averages of the target's daily series and of its size, the window's level and volatility, and the network's
    features: of the last session, and averaged over a week. 0 where unknown.
    """
    windows, pipeline = measured_windows.windows, history.pipeline
    location, scale = (
        measured_windows.units.location[:, 0],
        measured_windows.units.scale[:, 0] / pipeline.target.spread[0],
    )
    daily = (recent(history, windows, max(MEANS)) - location) / scale
    is_known = np.isfinite(daily)
    values, sizes = np.where(is_known, daily, 0.0), np.where(is_known, np.abs(daily), 0.0)
    lags = np.stack([values[:, -k] for k in LAGS], axis=1)
    means = [part[:, -days:].mean(axis=1) for part in (values, sizes) for days in MEANS]
    week = windows.positions[:, None] + np.arange(1 - min(FEW, pipeline.encoder_length), 1)
    observed = history.encoded.observed[windows.symbols[:, None], week].astype(np.float64)
    return np.concatenate(
        [lags, np.stack(means, axis=1), location, np.log(scale), observed[:, -1], observed.mean(axis=1)], axis=1
    )


def regression_units(history: History, measured_windows: MeasuredWindows) -> ForecastUnits:
    """The units of the regression.

    Returns are in units of the window's volatility, which gives calm and wild days the same weight. Log volatility is
    relative to the window's mean, because trees do not extrapolate.
    """
    units = measured_windows.units
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        return ForecastUnits(location=units.location, scale=np.ones_like(units.scale))
    return units


def _collect_regression(sample: BaselineSample) -> tuple[FloatArray, FloatArray]:
    """Regressors [N, K] of the fitted windows, and outcomes [N, H] in the regression's units; NaN where unknown."""
    history = sample.history
    sample_windows = MeasuredWindows.of(history, sample.at_most(FITTED_WINDOWS))
    outcomes = regression_units(history, sample_windows).normalise(history.outcomes(sample_windows.windows)[..., None])[
        ..., 0
    ]
    return sample_windows.in_blocks(lambda block: regressors(history, block)), outcomes


def ridge(sample: BaselineSample) -> FittedBaseline:
    """Ridge regression of the mean and quantiles of its residuals, per horizon."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    history, (features, outcomes) = sample.history, _collect_regression(sample)
    fits: list[Pipeline] = []
    residuals: list[FloatArray] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        fit = make_pipeline(StandardScaler(), Ridge(PENALTY)).fit(features[rows], outcome[rows])
        fits.append(fit)
        residuals.append(np.quantile(outcome[rows] - fit.predict(features[rows]), sample.levels))
    spreads = np.stack(residuals)

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        features = regressors(history, measured_windows)
        centres = np.stack([fit.predict(features) for fit in fits], axis=1)
        return regression_units(history, measured_windows).restore(centres[..., None] + spreads)

    return FittedBaseline(quantiles=quantiles)


RIDGE: Final = BaselineModel(name="ridge", estimator=ridge, package="scikit-learn", module="sklearn")


def boosted(sample: BaselineSample) -> FittedBaseline:
    """LightGBM (Ke et al. 2017), one deterministic model per horizon and quantile; crossings are sorted."""
    import lightgbm

    history, (features, outcomes) = sample.history, _collect_regression(sample)
    fits: list[lightgbm.Booster] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        data = lightgbm.Dataset(features[rows], label=outcome[rows], params=SETTINGS)  # binned once for all levels
        fits += [lightgbm.train({**SETTINGS, "alpha": level}, data, num_boost_round=ROUNDS) for level in sample.levels]
    shape = len(sample.target.horizons), len(sample.levels)

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        rows = regressors(history, measured_windows)
        columns = [np.asarray(fit.predict(rows, num_threads=1), np.float64) for fit in fits]
        normalised = np.stack(columns, axis=1).reshape(len(measured_windows), *shape)
        return regression_units(history, measured_windows).restore(np.sort(normalised, axis=-1))

    return FittedBaseline(quantiles=quantiles)


BOOSTED: Final = BaselineModel(name="LightGBM quantiles", estimator=boosted, package="lightgbm", max_quick_symbols=0)


# --- HAR


DAYS: Final = (1, 5, 22)
LEARNT_FROM: Final = 200_000
"""Limit on windows, which saves memory; more do not change four weights."""


def har(sample: BaselineSample) -> FittedBaseline:
    """Forecast log volatility by least squares on its three averages.

    Quantiles of volatility come from the residuals. Quantiles of returns come from past outcomes divided by the
    volatility that the regression forecast, times its current forecast.
    """
    history, windows = sample.history, sample.at_most(LEARNT_FROM)
    daily, labels = _measure_volatility(history, windows)
    averages = in_blocks(windows, lambda block: _average_days(daily, block))
    weights = np.stack([_solve_least_squares(averages, labels[:, h]) for h in range(labels.shape[1])], axis=1)
    centres, outcomes = averages @ weights, history.outcomes(windows)
    if sample.target.kind is TargetKind.LOG_VOLATILITY:
        residuals = np.nanquantile(outcomes - centres, sample.levels, axis=0).T
        return FittedBaseline(
            quantiles=lambda measured_windows: (
                (_average_days(daily, measured_windows.windows) @ weights)[..., None] + residuals
            )
        )
    root = np.sqrt(sample.target.horizons)
    units = np.nanquantile(outcomes / (root * np.exp(centres)), sample.levels, axis=0).T

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        return (root * np.exp(_average_days(daily, measured_windows.windows) @ weights))[..., None] * units

    return FittedBaseline(quantiles=quantiles)


def _measure_volatility(history: History, windows: TrainingWindows) -> tuple[FloatArray, FloatArray]:
    """Daily log volatility [S, T] and outcomes of the windows [N, H], adjusting a few symbols at a time."""
    target = replace(history.pipeline.target, kind=TargetKind.LOG_VOLATILITY)
    bars = history.bars
    daily, labels = np.empty(bars.close.shape), np.empty((len(windows), len(target.horizons)))
    for rows, adjusted in bars.adjusted_blocks():
        logs = target.daily(adjusted)
        daily[rows] = np.where(logs > NO_RANGE, logs, np.nan)
        in_block = (windows.symbols >= rows.start) & (windows.symbols < rows.stop)
        labels[in_block] = target.labels(adjusted)[windows.symbols[in_block] - rows.start, windows.positions[in_block]]
    return daily, labels


def _average_days(daily: FloatArray, windows: TrainingWindows) -> FloatArray:
    """[N, 4] one, and the means of log volatility over the last 1, 5 and 22 days, ignoring missing days.

    A mean without days is replaced by that of 22 days, or by the smallest value.
    """
    last = extract_trailing_windows(daily, windows.symbols, windows.positions, max(DAYS))
    longest = compute_window_mean(last)
    longest = np.where(np.isnan(longest), NO_RANGE, longest)
    means = [compute_window_mean(last[:, -days:]) for days in DAYS]
    filled = [np.where(np.isnan(mean), longest, mean) for mean in means]
    return np.stack([np.ones(len(windows)), *filled], axis=1)


def _solve_least_squares(averages: FloatArray, outcomes: FloatArray) -> FloatArray:
    rows = np.isfinite(outcomes) & (outcomes > NO_RANGE) & (averages[:, -1] > NO_RANGE)
    if not rows.any():
        raise NoForecastError("no window of the fit has ranges on all sessions of a horizon")
    return np.asarray(np.linalg.lstsq(averages[rows], outcomes[rows])[0], np.float64)


HAR: Final = BaselineModel(name="HAR (1, 5, 22 days)", estimator=har)
