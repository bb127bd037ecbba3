"""Baselines by regression on lags, averages and features, pooled over symbols: ridge and boosted trees."""

from typing import TYPE_CHECKING, Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.networks import TargetKind
from trainers.stock.data import History
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    BaselinePackage,
    BaselineSample,
    FittedBaseline,
    MeasuredWindows,
    recent,
)
from trainers.stock.evaluation.forecasts import ForecastUnits

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


LAGS = (1, 2, 3, 4, 5, 10, 20)
"""Lags of the daily series, in days."""
MEANS = (5, 22, 60)
"""Lengths of its averages in days: HAR's week and month, and the window."""
FEW = 5
"""Days over which the features are averaged."""

PENALTY: Final = 10.0
FITTED_WINDOWS: Final = 50_000
"""Limit on windows, evenly spaced, which bounds time and memory."""

ROUNDS: Final = 100
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


def regressors(history: History, asked: MeasuredWindows) -> FloatArray:
    """[N, K] regressors of each window, relative to its level at the first horizon.

    Lags and averages of the target's daily series and of its size, the window's level and volatility, and the network's
    features: of the last session, and averaged over a week. 0 where unknown.
    """
    windows, pipeline = asked.windows, history.pipeline
    location, scale = asked.units.location[:, 0], asked.units.scale[:, 0] / pipeline.target.spread[0]
    daily = (recent(history, windows, max(MEANS)) - location) / scale
    known = np.isfinite(daily)
    values, sizes = np.where(known, daily, 0.0), np.where(known, np.abs(daily), 0.0)
    lags = np.stack([values[:, -k] for k in LAGS], axis=1)
    means = [part[:, -days:].mean(axis=1) for part in (values, sizes) for days in MEANS]
    week = windows.positions[:, None] + np.arange(1 - min(FEW, pipeline.encoder_length), 1)
    observed = history.encoded.observed[windows.symbols[:, None], week].astype(np.float64)
    return np.concatenate(
        [lags, np.stack(means, axis=1), location, np.log(scale), observed[:, -1], observed.mean(axis=1)], axis=1
    )


def learnt_outcomes(history: History, asked: MeasuredWindows) -> FloatArray:
    """[N, H] outcomes in the regression's units; NaN where unknown."""
    return learnt_units(history, asked).normalise(history.outcomes(asked.windows)[..., None])[..., 0]


def learnt_units(history: History, asked: MeasuredWindows) -> ForecastUnits:
    """The units of the regression.

    Returns are in units of the window's volatility, which gives calm and wild days the same weight. Log volatility is
    relative to the window's mean, because trees do not extrapolate.
    """
    units = asked.units
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        return ForecastUnits(location=units.location, scale=np.ones_like(units.scale))
    return units


def ridge(sample: BaselineSample) -> FittedBaseline:
    """Ridge regression of the mean and quantiles of its residuals, per horizon."""
    history = sample.history
    fits, spreads = _fitted_ridge(sample)

    def quantiles(asked: MeasuredWindows) -> FloatArray:
        known = regressors(history, asked)
        centres = np.stack([fit.predict(known) for fit in fits], axis=1)
        return learnt_units(history, asked).restore(centres[..., None] + spreads)

    return FittedBaseline(quantiles=quantiles)


def _fitted_ridge(sample: BaselineSample) -> "tuple[list[Pipeline], FloatArray]":
    """A regression per horizon, and quantiles of its residuals [H, Q]."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    history = sample.history
    learnt = MeasuredWindows.of(history, sample.at_most(FITTED_WINDOWS))
    known, outcomes = learnt.in_blocks(lambda block: regressors(history, block)), learnt_outcomes(history, learnt)
    fits: list[Pipeline] = []
    spreads: list[FloatArray] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        fit = make_pipeline(StandardScaler(), Ridge(PENALTY)).fit(known[rows], outcome[rows])
        fits.append(fit)
        spreads.append(np.quantile(outcome[rows] - fit.predict(known[rows]), sample.levels))
    return fits, np.stack(spreads)


RIDGE: Final = BaselineModel(
    name="ridge", estimator=ridge, package=BaselinePackage(name="scikit-learn", module="sklearn")
)


def boosted(sample: BaselineSample) -> FittedBaseline:
    """LightGBM (Ke et al. 2017), one deterministic model per horizon and quantile; crossings are sorted."""
    import lightgbm

    history = sample.history
    learnt = MeasuredWindows.of(history, sample.at_most(FITTED_WINDOWS))
    known, outcomes = learnt.in_blocks(lambda block: regressors(history, block)), learnt_outcomes(history, learnt)
    fits: list[lightgbm.Booster] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        data = lightgbm.Dataset(known[rows], label=outcome[rows], params=SETTINGS)  # binned once for all levels
        fits += [lightgbm.train({**SETTINGS, "alpha": level}, data, num_boost_round=ROUNDS) for level in sample.levels]
    shape = len(sample.target.horizons), len(sample.levels)

    def quantiles(asked: MeasuredWindows) -> FloatArray:
        rows = regressors(history, asked)
        columns = [np.asarray(fit.predict(rows, num_threads=1), np.float64) for fit in fits]
        normalised = np.stack(columns, axis=1).reshape(len(asked), *shape)
        return learnt_units(history, asked).restore(np.sort(normalised, axis=-1))

    return FittedBaseline(quantiles=quantiles)


BOOSTED: Final = BaselineModel(
    name="LightGBM quantiles",
    estimator=boosted,
    package=BaselinePackage(name="lightgbm", module="lightgbm"),
    most_quick_symbols=0,
)
