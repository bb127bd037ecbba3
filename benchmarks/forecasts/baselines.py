"""Baseline forecasts of the test windows, which need no network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import lightgbm
import numpy as np
import torch
from arch import arch_model
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from benchmarks.forecasts.scales import forecast_levels, har_levels
from benchmarks.forecasts.task import LEVELS, Task, Windows
from predictor.networks import find_anchor_index, remove_crossings
from trainers.stock.evaluation.baselines import FitScope
from trainers.stock.evaluation.evaluation_set import ForecastUnits
from trainers.stock.network_forecasts import calibrate

Array = NDArray[np.float64]

LAGS: Final = (1, 2, 3, 5, 10, 20, 24)
AVERAGES: Final = (5, 20, 60)
RECENT: Final = 3
"""Last steps of every observed covariate that the ridge regression and the trees see, besides a mean over 20."""
RIDGE_PENALTY: Final = 10.0
HAR_STEPS: Final = (1, 5, 22)
"""A day, a week and a month (Corsi 2009)."""
LEVEL_STEPS: Final = 5
STEPS_A_WINDOW: Final = 4
"""Steps of each training window that the trees learn from; all 20 would be largely redundant."""
SEED: Final = 0


QuantileForecaster = Callable[[Windows], Array]
"""Maps windows to their quantiles [N, H, Q]."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The steps that a baseline is fitted on."""

    task: Task
    stop: int
    """The first step after the sample."""

    @property
    def windows(self) -> Windows:
        """The windows whose targets all lie in the sample."""
        return self.task.between(self.task.starts[0], self.stop)


def baselines(task: Task) -> Mapping[str, Array]:
    """Quantiles [N, H, Q] of the test windows by name, from the training and validation parts that our networks use.

    Each baseline comes twice: fitted on the training part and calibrated on the validation part, as our quantiles are,
    and fitted on both parts. The encoder's empirical quantiles need no fit and come with and without calibration.
    """
    ways: dict[str, Callable[[Sample], QuantileForecaster]] = {
        "unconditional quantiles": _unconditional,
        "last value": _last_value,
        "ridge": _ridge,
        "LightGBM, level": _trees,
        "LightGBM, change": _trees_of_change,
    }
    if task.ranges.shape[1]:
        ways["relative HAR"] = _relative_har
    if task.name == "vol":
        ways["HAR"] = _har
    if task.name == "ret":
        ways["GARCH(1,1)-t"] = _garch
    test = task.windows("test")
    empirical = f"{task.encoder}-value empirical quantiles"
    found = {empirical: _empirical(test), f"{empirical}, {FitScope.CALIBRATED}": _calibrated(task, _empirical)}
    for name, fit in ways.items():
        found[f"{name}, {FitScope.CALIBRATED}"] = _calibrated(task, fit(Sample(task=task, stop=task.learnt)))
        found[f"{name}, {FitScope.REFITTED}"] = fit(Sample(task=task, stop=task.seen))(test)
    return found


def _calibrated(task: Task, forecaster: QuantileForecaster) -> Array:
    """Quantiles of the test windows, shifted by offsets of the validation part in units of each window, as ours are."""
    held, test = task.windows("validation"), task.windows("test")
    units = _units(task, held)
    offsets = calibrate(
        units.normalise(forecaster(held)),
        units.normalise(held.future[..., None].astype(np.float64))[..., 0],
        LEVELS,
        sessions=len(np.unique(held.decisions)),
        horizons=tuple(range(1, task.horizon + 1)),
    ).offsets
    test_units = _units(task, test)
    moved = torch.from_numpy(test_units.normalise(forecaster(test)) + np.array(offsets))
    return test_units.restore(remove_crossings(moved, find_anchor_index(LEVELS)).numpy())


def _units(task: Task, windows: Windows) -> ForecastUnits:
    """Location and scale of each window at each step, the units of our forecasts."""
    location, scale = (level[..., None] for level in forecast_levels(task, windows))
    return ForecastUnits(location=location, scale=scale)


def _unconditional(sample: Sample) -> QuantileForecaster:
    """Quantiles of all targets."""
    quantiles = np.quantile(sample.windows.future.astype(np.float64), LEVELS)
    return lambda unseen: np.broadcast_to(quantiles, (*unseen.future.shape, len(LEVELS)))


def _last_value(sample: Sample) -> QuantileForecaster:
    """The last value plus the quantiles of the changes from it."""
    return _with_residuals(sample, lambda windows: _repeated(windows.past[:, -1:], windows))


def _empirical(unseen: Windows) -> Array:
    """Quantiles of the values in the encoder."""
    return _repeated(np.quantile(unseen.past, LEVELS, axis=1).T[:, None], unseen)


def _ridge(sample: Sample) -> QuantileForecaster:
    """Ridge regression on lags, averages and covariates, one per step, with the quantiles of its residuals."""
    windows = sample.windows
    fitted = Ridge(RIDGE_PENALTY).fit(_features(windows), windows.future)
    return _with_residuals(sample, lambda unseen: np.asarray(fitted.predict(_features(unseen)), np.float64))


def _har(sample: Sample) -> QuantileForecaster:
    """Least squares on averages over a day, a week and a month, one per step, with the quantiles of its residuals."""

    def averages(windows: Windows) -> Array:
        means = (windows.past[:, -steps:].mean(axis=1) for steps in HAR_STEPS)
        return np.stack([np.ones(len(windows)), *means], axis=-1)

    windows = sample.windows
    weights = np.linalg.lstsq(averages(windows), windows.future)[0]
    return _with_residuals(sample, lambda unseen: averages(unseen) @ weights)


def _relative_har(sample: Sample) -> QuantileForecaster:
    """Pooled quantiles in units that HAR forecasts for each window: the starting point of our networks."""
    task, learnt = sample.task, sample.windows
    location, scale = har_levels(task, learnt, learnt)
    units = np.quantile((learnt.future - location) / scale, LEVELS, axis=0).T

    def quantiles(unseen: Windows) -> Array:
        levels = har_levels(task, learnt, unseen)
        return levels.location[..., None] + levels.scale[..., None] * units

    return quantiles


def _trees(sample: Sample) -> QuantileForecaster:
    """Gradient-boosted trees, one forest per quantile, with the step as a feature."""
    return _boosted(sample, lambda windows: np.zeros(len(windows)))


def _trees_of_change(sample: Sample) -> QuantileForecaster:
    """The same for the change from the mean of the last 5 values, because trees cannot extrapolate levels."""
    return _boosted(sample, lambda windows: windows.past[:, -LEVEL_STEPS:].mean(axis=1).astype(np.float64))


def _boosted(sample: Sample, level_of: Callable[[Windows], Array]) -> QuantileForecaster:
    windows = sample.windows
    horizon, levels_learnt = windows.future.shape[1], level_of(windows)
    steps = np.random.default_rng(SEED).integers(0, horizon, (len(windows), STEPS_A_WINDOW))
    known = _relative(_features(windows), levels_learnt)
    rows = np.concatenate([np.c_[known, steps[:, k]] for k in range(STEPS_A_WINDOW)])
    changes = windows.future - levels_learnt[:, None]
    outcomes = np.concatenate([changes[np.arange(len(windows)), steps[:, k]] for k in range(STEPS_A_WINDOW)])
    forests = [_forest(level).fit(rows, outcomes) for level in LEVELS]

    def quantiles(unseen: Windows) -> Array:
        level = level_of(unseen)
        features = _relative(_features(unseen), level)
        cells = np.c_[np.repeat(features, horizon, axis=0), np.tile(np.arange(horizon), len(unseen))]
        found = np.stack([np.asarray(forest.predict(cells)) for forest in forests], axis=-1)
        return found.reshape(len(unseen), horizon, len(LEVELS)) + level[:, None, None]

    return quantiles


def _forest(level: float) -> lightgbm.LGBMRegressor:
    """The trees of one quantile."""
    return lightgbm.LGBMRegressor(
        objective="quantile",
        alpha=level,
        n_estimators=150,
        num_leaves=15,
        learning_rate=0.05,
        min_child_samples=100,
        verbose=-1,
        n_jobs=1,
    )


def _garch(sample: Sample) -> QuantileForecaster:
    """GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted once and filtered to each decision."""
    task = sample.task
    fitted = [_garch_of(returns, sample) for returns in task.target.astype(np.float64)]

    def quantiles(unseen: Windows) -> Array:
        found = np.empty((*unseen.future.shape, len(LEVELS)))
        for s, (mean, variance, units) in enumerate(fitted):
            rows = np.flatnonzero(unseen.series == s)
            found[rows] = mean + np.sqrt(variance[unseen.decisions[rows]])[..., None] * units
        return found

    return quantiles


def _garch_of(returns: Array, sample: Sample) -> tuple[float, Array, Array]:
    """Mean, variances [T, H] of the steps ahead, and quantiles [Q] of the t distribution for one series."""
    model = arch_model(returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fitted = model.fit(last_obs=sample.stop, disp="off")
    variance = fitted.forecast(horizon=sample.task.horizon, start=0, reindex=True).variance.to_numpy()
    mean, *_, freedom = np.asarray(fitted.params, np.float64).tolist()  # of the mean, the variance and the distribution
    units = model.distribution.ppf(np.array(LEVELS), np.array([freedom]))
    return mean, variance, np.asarray(units, np.float64)


def _features(windows: Windows) -> Array:
    """[N, …] lags, means and deviations of the target at its own level, then covariates."""
    past, length = windows.past, windows.past.shape[1]
    lags = [past[:, -min(k, length)] for k in LAGS]
    means = [past[:, -k:].mean(axis=1) for k in AVERAGES]
    deviations = [past[:, -k:].std(axis=1) for k in AVERAGES]
    recent = windows.observed[:, -RECENT:].reshape(len(windows), -1)
    averages = windows.observed[:, -AVERAGES[1] :].mean(axis=1)
    ahead = windows.known[:, length]
    return np.c_[
        np.stack([*lags, *means], axis=1), np.stack(deviations, axis=1), recent, averages, ahead, windows.static
    ]


def _relative(features: Array, level: Array) -> Array:
    """Features whose level columns are relative to a level [N]."""
    moved = features.copy()
    moved[:, : len(LAGS) + len(AVERAGES)] -= level[:, None]
    return moved


def _with_residuals(sample: Sample, points: Callable[[Windows], NDArray[np.floating]]) -> QuantileForecaster:
    """Points [N, H] plus the quantiles of their residuals in the sample, per step."""
    windows = sample.windows
    residuals = np.quantile(windows.future - points(windows), LEVELS, axis=0).T
    return lambda unseen: points(unseen)[..., None] + residuals


def _repeated(values: NDArray[np.floating], windows: Windows) -> Array:
    """Repeat values [N, 1] or [N, 1, Q] for every step of the horizon."""
    return np.repeat(values.astype(np.float64), windows.future.shape[1], axis=1)
