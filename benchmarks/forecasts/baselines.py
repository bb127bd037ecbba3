"""Forecasts of the test windows that need no network; every trained system is shown beside them."""

from collections.abc import Callable, Mapping
from typing import Final

import lightgbm
import numpy as np
from arch import arch_model
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from benchmarks.forecasts.task import LEVELS, Task, Windows

Array = NDArray[np.float64]

LAGS: Final = (1, 2, 3, 5, 10, 20, 24)
AVERAGES: Final = (5, 20, 60)
RECENT: Final = 3
"""Steps of every observed covariate that the ridge regression and the trees see, beside a mean over 20."""
RIDGE_PENALTY: Final = 10.0
HAR_STEPS: Final = (1, 5, 22)
"""A day, a week and a month (Corsi 2009)."""
LEVEL_STEPS: Final = 5
STEPS_A_WINDOW: Final = 4
"""Steps of each training window that the trees learn from; all 20 would say the same again."""
SEED: Final = 0


def baselines(task: Task) -> Mapping[str, Array]:
    """Quantiles [N, H, Q] of the test windows by name; whatever is fitted saw the training part alone."""
    train, test = task.windows("train"), task.windows("test")
    ways: dict[str, Callable[[Windows, Windows], Array]] = {
        "unconditional quantiles": _unconditional,
        "last value": _last_value,
        f"{task.encoder}-value empirical quantiles": _empirical,
        "ridge": _ridge,
        "LightGBM, level": _trees,
        "LightGBM, change": _trees_of_change,
    }
    if task.name == "vol":
        ways["HAR"] = _har
    found = {name: way(train, test) for name, way in ways.items()}
    return found | ({"GARCH(1,1)-t": _garch(task, test)} if task.name == "ret" else {})


def _unconditional(train: Windows, test: Windows) -> Array:
    """Quantiles of all training targets."""
    return np.broadcast_to(np.quantile(train.future.astype(np.float64), LEVELS), (*test.future.shape, len(LEVELS)))


def _last_value(train: Windows, test: Windows) -> Array:
    """The last value, with the quantiles of what it changed by in the training part."""
    return _with_residuals(train, _repeated(train.past[:, -1:], train), _repeated(test.past[:, -1:], test))


def _empirical(_: Windows, test: Windows) -> Array:
    """Quantiles of the values in the encoder."""
    return _repeated(np.quantile(test.past, LEVELS, axis=1).T[:, None], test)


def _ridge(train: Windows, test: Windows) -> Array:
    """Ridge regression on lags, averages and covariates, one a step, with the quantiles of its residuals."""
    fitted = Ridge(RIDGE_PENALTY).fit(_features(train), train.future)
    return _with_residuals(train, fitted.predict(_features(train)), fitted.predict(_features(test)))


def _har(train: Windows, test: Windows) -> Array:
    """Least squares on averages over a day, a week and a month, one a step, with the quantiles of its residuals."""
    known, asked = (
        np.stack([np.ones(len(w)), *(w.past[:, -steps:].mean(axis=1) for steps in HAR_STEPS)], axis=-1)
        for w in (train, test)
    )
    weights = np.linalg.lstsq(known, train.future)[0]
    return _with_residuals(train, known @ weights, asked @ weights)


def _trees(train: Windows, test: Windows) -> Array:
    """Gradient-boosted trees, one forest a quantile, with the step as a feature."""
    return _boosted(train, test, np.zeros(len(train)), np.zeros(len(test)))


def _trees_of_change(train: Windows, test: Windows) -> Array:
    """The same for the change from the mean of the last 5 values, as trees cannot go beyond the levels they saw."""
    levels = (w.past[:, -LEVEL_STEPS:].mean(axis=1).astype(np.float64) for w in (train, test))
    return _boosted(train, test, *levels)


def _boosted(train: Windows, test: Windows, train_level: Array, test_level: Array) -> Array:
    horizon = train.future.shape[1]
    steps = np.random.default_rng(SEED).integers(0, horizon, (len(train), STEPS_A_WINDOW))
    known = _relative(_features(train), train_level)
    rows = np.concatenate([np.c_[known, steps[:, k]] for k in range(STEPS_A_WINDOW)])
    changes = train.future - train_level[:, None]
    outcomes = np.concatenate([changes[np.arange(len(train)), steps[:, k]] for k in range(STEPS_A_WINDOW)])
    features = _relative(_features(test), test_level)
    asked = np.c_[np.repeat(features, horizon, axis=0), np.tile(np.arange(horizon), len(test))]
    quantiles = [np.asarray(_forest(level).fit(rows, outcomes).predict(asked)) for level in LEVELS]
    return np.stack(quantiles, axis=-1).reshape(len(test), horizon, len(LEVELS)) + test_level[:, None, None]


def _forest(level: float) -> lightgbm.LGBMRegressor:
    """Trees for one quantile."""
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


def _garch(task: Task, test: Windows) -> Array:
    """GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted on the training part, filtered onward."""
    quantiles = np.empty((*test.future.shape, len(LEVELS)))
    for s, returns in enumerate(task.target.astype(np.float64)):
        model = arch_model(returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
        fitted = model.fit(last_obs=task.learnt, disp="off")
        variance = fitted.forecast(horizon=task.horizon, start=0, reindex=True).variance.to_numpy()
        units = model.distribution.ppf(np.array(LEVELS), np.array([fitted.params["nu"]]))
        rows = np.flatnonzero(test.series == s)
        quantiles[rows] = fitted.params["mu"] + np.sqrt(variance[test.decisions[rows]])[..., None] * units
    return quantiles


def _features(windows: Windows) -> Array:
    """[N, …] lags, means and deviations of the target first, in its own level; then covariates."""
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
    """Features whose columns that tell a level of the target are counted from another level [N]."""
    moved = features.copy()
    moved[:, : len(LAGS) + len(AVERAGES)] -= level[:, None]
    return moved


def _with_residuals(train: Windows, learnt: NDArray[np.floating], asked: NDArray[np.floating]) -> Array:
    """Points [N, H] with the quantiles, a step each, of what they missed in the training part."""
    residuals = np.quantile(train.future - learnt, LEVELS, axis=0).T
    return asked[..., None] + residuals


def _repeated(values: NDArray[np.floating], windows: Windows) -> Array:
    """Values [N, 1] or [N, 1, Q] for every step of the horizon."""
    return np.repeat(values.astype(np.float64), windows.future.shape[1], axis=1)
