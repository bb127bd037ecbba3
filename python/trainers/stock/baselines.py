"""Forecasts that need no network: every score stands beside theirs.

All of them give quantiles [N, H, Q] of log returns for the same windows as the network, from what was known then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.networks import Target, TargetKind, restore
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
    shared = {
        "unconditional quantiles": unconditional,
        "volatility-scaled quantiles": _scaled(history, train, windows, levels),
    }
    last = _last_value(history, windows, levels)
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        har = _har(history, train, windows, levels)
        return Baselines(forecasts={"last value": last, **shared, "HAR (1, 5, 22 days)": har}, notes=())
    empirical = _empirical(history, windows, levels, unconditional)
    forecasts = {"zero return": last, **shared, f"{EMPIRICAL_SESSIONS}-day empirical quantiles": empirical}
    if find_spec("arch") is None:
        note = "GARCH(1,1)-t is left out, because the package arch is not installed: pip install 'quantra[baselines]'"
        return Baselines(forecasts=forecasts, notes=(note,))
    garch, notes = _garch(history, train, windows, levels, unconditional)
    return Baselines(forecasts=forecasts | {"GARCH(1,1)-t": garch}, notes=notes)


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


def _scaled(history: History, train: Part, windows: Windows, levels: tuple[float, ...]) -> FloatArray:
    """Quantiles of all training outcomes in units of their windows' volatility, times each window's own.

    This is what the network starts from: whatever it learns must show beside it. (RiskMetrics 1996; with empirical
    quantiles it is filtered historical simulation, Barone-Adesi et al. 1999.)
    """
    units = np.nanquantile(history.targets(history.windows(train)).double().numpy(), levels, axis=0).T
    location, scale = history.level(windows)
    every = torch.from_numpy(units).expand(len(windows), -1, -1)
    return restore(every, location, scale, torch.from_numpy(history.pipeline.target.spread)).numpy()


def _empirical(history: History, windows: Windows, levels: tuple[float, ...], unconditional: FloatArray) -> FloatArray:
    """Quantiles of the last 60 daily returns, times the square root of the horizon.

    A window without any return in these days has the forecast `unconditional`.
    """
    recent = _recent(history, windows, EMPIRICAL_SESSIONS)
    known = np.isfinite(recent).any(axis=1)
    quantiles = np.nanquantile(recent[known], levels, axis=1).T
    forecasts = unconditional.copy()
    forecasts[known] = history.pipeline.target.spread[None, :, None] * quantiles[:, None, :]
    return forecasts


def _recent(history: History, windows: Windows, sessions: int) -> FloatArray:
    """[N, sessions] the daily series up to each window's day; NaN where unknown or before the first bar."""
    daily = history.pipeline.target.daily(history.adjusted)
    before = np.full((daily.shape[0], sessions - 1), np.nan)
    places = windows.positions[:, None] + np.arange(sessions)
    return np.concatenate([before, daily], axis=1)[windows.symbols[:, None], places]


def _har(history: History, train: Part, windows: Windows, levels: tuple[float, ...]) -> FloatArray:
    """Log volatility by least squares on its averages over a day, a week and a month (Corsi 2009), all symbols as one.

    Quantiles are those of the training residuals.
    """
    learnt = history.windows(train)
    known, outcomes = _har_averages(history, learnt), history.outcomes(learnt)
    asked = _har_averages(history, windows)
    forecasts: list[FloatArray] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome) & np.isfinite(known).all(axis=1)
        weights = np.linalg.lstsq(known[rows], outcome[rows])[0]
        residuals = outcome[rows] - known[rows] @ weights
        forecasts.append((asked @ weights)[:, None] + np.quantile(residuals, levels))
    return np.stack(forecasts, axis=1)


def _har_averages(history: History, windows: Windows) -> FloatArray:
    """[N, 4] one, and the means of the last 1, 5 and 22 days' log volatility; missing days are left out."""
    recent = _recent(history, windows, 22)
    means = [np.nanmean(recent[:, -days:], axis=1) for days in (1, 5, 22)]
    return np.stack([np.ones(len(windows)), *means], axis=1)


def _garch(
    history: History, train: Part, windows: Windows, levels: tuple[float, ...], unconditional: FloatArray
) -> tuple[FloatArray, tuple[str, ...]]:
    """GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted a symbol on the training part, filtered onward.

    A symbol with less than a year in the training part, or whose fit does not converge, has the forecasts
    `unconditional`, and a note says so.
    """
    daily = history.pipeline.target.daily(history.adjusted)
    forecasts = unconditional.copy()
    notes: list[str] = []
    for symbol in np.unique(windows.symbols):
        name = history.bars.symbols[symbol]
        known = np.isfinite(daily[symbol])
        fitted_on = int((history.bars.sessions[known] <= train.last).sum())
        if fitted_on < GARCH_MIN_RETURNS:
            why = f"{fitted_on} daily returns in the training part, and it needs {GARCH_MIN_RETURNS}"
            notes.append(f"GARCH(1,1)-t of {name} is the unconditional quantiles instead: it has {why}")
            continue
        fitted = _garch_forecast(daily[symbol, known], fitted_on, history.pipeline.target, levels)
        if fitted is None:
            notes.append(f"GARCH(1,1)-t of {name} is the unconditional quantiles instead: its fit did not converge")
            continue
        rows = np.flatnonzero(windows.symbols == symbol)
        forecasts[rows] = fitted[(np.cumsum(known) - 1)[windows.positions[rows]]]
    return forecasts, tuple(notes)


def _garch_forecast(
    returns: FloatArray, fitted_on: int, target: Target, levels: tuple[float, ...]
) -> FloatArray | None:
    """[T, H, Q] after each of the returns [T]; the model is fitted on the first of them. None: it did not converge.

    The variance of h days is the sum of the h daily forecasts; its quantiles are those of the daily t distribution.
    """
    from arch import arch_model

    percent = 100.0  # the optimiser wants numbers of about 1
    model = arch_model(percent * returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fit = model.fit(last_obs=fitted_on, disp="off", show_warning=False)
    if fit.convergence_flag != 0:
        return None
    daily_variance = fit.forecast(horizon=target.reach, start=0, reindex=True).variance.to_numpy()
    units = model.distribution.ppf(np.array(levels), np.array([fit.params["nu"]]))
    horizons = [
        horizon * fit.params["mu"]
        + np.sqrt(daily_variance[:, target.lag : target.lag + horizon].sum(axis=1))[:, None] * units
        for horizon in target.horizons
    ]
    return np.stack(horizons, axis=1) / percent
