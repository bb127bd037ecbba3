"""Forecasts that need no network: every score stands beside theirs.

All of them give quantiles [N, H, Q] of log returns for the same windows as the network, from what was known then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Target, TargetKind
from trainers.stock.data import History, Windows
from trainers.stock.splits import Part

FloatArray = NDArray[np.float64]

EMPIRICAL_SESSIONS = 60

GARCH_MIN_RETURNS = 250
"""Daily returns that a GARCH model is fitted on at least; a year."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baselines:
    """Forecasts by name, and what had to be left out and why."""

    forecasts: Mapping[str, FloatArray]
    notes: tuple[str, ...]


def all_baselines(history: History, train: Part, windows: Windows, levels: tuple[float, ...]) -> Baselines:
    """Every baseline that the target and the installed packages allow.

    Args:
        history: inputs and labels.
        train: the part that fitted numbers may come from.
        windows: [N] what to forecast.
        levels: [Q]
    """
    unconditional = _unconditional(history, train, windows, levels)
    last = _last_value(history, windows, levels)
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        return Baselines(forecasts={"last value": last, "unconditional quantiles": unconditional}, notes=())
    forecasts = {
        "zero return": last,
        "unconditional quantiles": unconditional,
        f"{EMPIRICAL_SESSIONS}-day empirical quantiles": _empirical(history, windows, levels),
    }
    if find_spec("arch") is None:
        note = "GARCH(1,1)-t is left out, because the package arch is not installed: pip install 'quantra[baselines]'"
        return Baselines(forecasts=forecasts, notes=(note,))
    garch = _garch(history, train, windows, levels, forecasts["unconditional quantiles"])
    return Baselines(forecasts=forecasts | {"GARCH(1,1)-t": garch}, notes=())


def _last_value(history: History, windows: Windows, levels: tuple[float, ...]) -> FloatArray:
    """A point forecast at every level: no change of the price, or the last session's volatility."""
    shape = (len(windows), len(history.pipeline.target.horizons), len(levels))
    if history.pipeline.target.kind is TargetKind.LOG_RETURN:
        return np.zeros(shape)
    daily = history.pipeline.target.daily(history.adjusted)
    return np.broadcast_to(daily[windows.symbols, windows.positions][:, None, None], shape)


def _unconditional(history: History, train: Part, windows: Windows, levels: tuple[float, ...]) -> FloatArray:
    """Quantiles of each symbol's own outcomes in the training part; of all symbols' if it has none there."""
    learnt = history.windows(train)
    outcomes = history.outcomes(learnt)
    pooled = np.nanquantile(outcomes, levels, axis=0).T
    forecasts = np.empty((len(windows), *pooled.shape))
    for symbol in np.unique(windows.symbols):
        own = outcomes[learnt.symbols == symbol]
        quantiles = np.nanquantile(own, levels, axis=0).T if len(own) else pooled
        forecasts[windows.symbols == symbol] = quantiles
    return forecasts


def _empirical(history: History, windows: Windows, levels: tuple[float, ...]) -> FloatArray:
    """Quantiles of the last 60 daily returns, times the square root of the horizon."""
    daily = history.pipeline.target.daily(history.adjusted)
    places = windows.positions[:, None] + np.arange(1 - EMPIRICAL_SESSIONS, 1)
    quantiles = np.nanquantile(daily[windows.symbols[:, None], places], levels, axis=1).T
    return history.pipeline.target.spread[None, :, None] * quantiles[:, None, :]


def _garch(history: History, train: Part, windows: Windows, levels: tuple[float, ...], young: FloatArray) -> FloatArray:
    """GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted a symbol on the training part, filtered onward.

    A symbol with less than a year in the training part has the forecasts `young`.
    """
    daily = history.pipeline.target.daily(history.adjusted)
    forecasts = young.copy()
    for symbol in np.unique(windows.symbols):
        known = np.isfinite(daily[symbol])
        fitted_on = int((history.bars.sessions[known] <= train.last).sum())
        if fitted_on >= GARCH_MIN_RETURNS:
            rows = np.flatnonzero(windows.symbols == symbol)
            at = (np.cumsum(known) - 1)[windows.positions[rows]]
            forecasts[rows] = _garch_forecast(daily[symbol, known], fitted_on, history.pipeline.target, levels)[at]
    return forecasts


def _garch_forecast(returns: FloatArray, fitted_on: int, target: Target, levels: tuple[float, ...]) -> FloatArray:
    """[T, H, Q] after each of the returns [T]; the model is fitted on the first of them.

    The variance of h days is the sum of the h daily forecasts; its quantiles are those of the daily t distribution.
    """
    from arch import arch_model

    percent = 100.0  # the optimiser wants numbers of about 1
    model = arch_model(percent * returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fit = model.fit(last_obs=fitted_on, disp="off", show_warning=False)
    daily_variance = fit.forecast(horizon=target.reach, start=0, reindex=True).variance.to_numpy()
    units = model.distribution.ppf(np.array(levels), np.array([fit.params["nu"]]))
    horizons = [
        horizon * fit.params["mu"]
        + np.sqrt(daily_variance[:, target.lag : target.lag + horizon].sum(axis=1))[:, None] * units
        for horizon in target.horizons
    ]
    return np.stack(horizons, axis=1) / percent
