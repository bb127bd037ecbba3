"""GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted per symbol."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.networks import Target, TargetKind
from trainers.stock.data import TrainingWindows
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    BaselineSample,
    FittedBaseline,
    MeasuredWindows,
    ReplacedSymbols,
)
from trainers.stock.evaluation.baselines.quantiles import UNCONDITIONAL

if TYPE_CHECKING:
    from arch.univariate.base import ARCHModelResult

PERCENT: Final = 100.0
"""Returns are in percent, because the optimiser needs numbers of about 1."""
MIN_RETURNS: Final = 250
"""Minimum of daily returns for a fit: a year."""

SymbolQuantiles = Callable[[NDArray[np.int64], FloatArray], FloatArray]
"""From symbols [n] and variances [n, H] over the horizons to quantiles [n, H, Q]."""


def garch(sample: BaselineSample) -> FittedBaseline:
    """Quantiles of GARCH(1,1)-t.

    The variance of h days is the sum of h daily forecasts. Quantiles of returns are those of the daily t distribution
    times its root. For volatility, the log of the root mean daily variance is the regressor of a straight line, because
    the range of a day and the move between closes measure different things; quantiles come from its residuals.

    A symbol uses the unconditional quantiles if it has less than a year of returns, never moves, or does not converge.
    """
    otherwise = UNCONDITIONAL.estimator(sample)
    daily = sample.history.compute_by_symbol(Target(kind=TargetKind.LOG_RETURN).daily)
    fits = {symbol: _fit_symbol(returns, symbol, sample) for symbol, returns in enumerate(daily)}
    models = {symbol: fit for symbol, fit in fits.items() if isinstance(fit, _Model)}
    filters = _VarianceForecasts.of(models, sample)
    compute = (
        _fit_returns(models, sample)
        if sample.target.kind is TargetKind.LOG_RETURN
        else _fit_volatility(models, filters, sample)
    )

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        values = compute(measured_windows.windows.symbols, filters.variances(measured_windows.windows))
        return np.where(np.isnan(values), otherwise.quantiles(measured_windows), values)

    why = {symbol: fit for symbol, fit in fits.items() if isinstance(fit, str)}
    return FittedBaseline(quantiles=quantiles, replaced=ReplacedSymbols(by=UNCONDITIONAL.name, why=why))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Model:
    """The model of a symbol, in percent."""

    mean: float
    """Daily mean."""
    freedom: float
    """Degrees of freedom of the t distribution."""
    omega: float
    persistence: float
    """alpha + beta"""
    ahead: FloatArray
    """[T] forecast variance of the next day; NaN before the first return."""


def _fit_symbol(returns: FloatArray, symbol: int, sample: BaselineSample) -> _Model | str:
    """The model of a symbol with daily returns [T], or the reason why it cannot be fitted."""
    history, is_known = sample.history, np.isfinite(returns)
    count = int((history.bars.sessions[is_known] <= sample.part.last).sum())
    if count < MIN_RETURNS:
        return f"it has {count} daily returns to fit, but needs {MIN_RETURNS}"
    if np.ptp(returns[is_known][:count]) == 0:
        return "its price never moves where it is fitted"
    if sample.target.kind is TargetKind.LOG_VOLATILITY:
        windows = int(np.isfinite(history.labels[symbol, sample.mask[symbol]]).all(axis=1).sum())
        if windows < MIN_RETURNS:
            return f"it has {windows} windows to fit, but needs {MIN_RETURNS}"
    fit = _fit(PERCENT * returns[is_known], count)
    if fit is None:
        return "its fit did not converge"
    daily = fit.forecast(horizon=1, start=0, reindex=True).variance.to_numpy()[:, 0]
    last_known = np.cumsum(is_known) - 1  # a missing return keeps the previous forecast
    mean, freedom, omega, alpha, beta = (
        float(np.asarray(fit.params[name])) for name in ("mu", "nu", "omega", "alpha[1]", "beta[1]")
    )
    ahead = np.where(last_known >= 0, daily[last_known], np.nan)
    return _Model(mean=mean, freedom=freedom, omega=omega, persistence=alpha + beta, ahead=ahead)


def _fit(returns: FloatArray, count: int) -> "ARCHModelResult | None":
    """Fit the first `count` returns, in percent; None if the fit does not converge."""
    from arch import arch_model

    model = arch_model(returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fit = model.fit(last_obs=count, disp="off", show_warning=False)
    return fit if fit.convergence_flag == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _VarianceForecasts:
    """Variance forecasts of all symbols, in percent; NaN for symbols without a model."""

    ahead: FloatArray
    """[S, T] forecast for the next day after each session."""
    fixed: FloatArray
    """[S, H] constant part of the summed variance."""
    share: FloatArray
    """[S, H] factor of the next day's variance in the sum."""

    @classmethod
    def of(cls, models: Mapping[int, _Model], sample: BaselineSample) -> Self:
        """Compute them; the variance of day k is omega + persistence times that of day k - 1."""
        symbols, sessions = sample.history.bars.close.shape
        ahead = np.full((symbols, sessions), np.nan)
        fixed, share = np.full((2, symbols, len(sample.target.horizons)), np.nan)
        for symbol, model in models.items():
            ahead[symbol] = model.ahead
            fixed[symbol], share[symbol] = _sum_variances(model, sample.target)
        return cls(ahead=ahead, fixed=fixed, share=share)

    def variances(self, windows: TrainingWindows) -> FloatArray:
        """[n, H] variance of the sum of the horizon's days."""
        ahead = self.ahead[windows.symbols, windows.positions, None]
        return self.fixed[windows.symbols] + self.share[windows.symbols] * ahead


def _sum_variances(model: _Model, target: Target) -> tuple[FloatArray, FloatArray]:
    """Constant part of the summed variance and factor of the next day's variance, both [H]."""
    days = np.empty((target.reach, 2))
    days[0] = 0.0, 1.0
    for k in range(1, target.reach):
        days[k] = model.persistence * days[k - 1] + (model.omega, 0.0)
    fixed, share = np.stack([days[target.lag : target.lag + h].sum(axis=0) for h in target.horizons], axis=1)
    return fixed, share


def _fit_returns(models: Mapping[int, _Model], sample: BaselineSample) -> SymbolQuantiles:
    from arch.univariate import StudentsT

    symbols, levels = len(sample.history.bars.symbols), np.array(sample.levels)
    mean, units = np.full(symbols, np.nan), np.full((symbols, len(levels)), np.nan)
    for symbol, model in models.items():
        mean[symbol] = model.mean
        units[symbol] = StudentsT().ppf(levels, np.array([model.freedom]))
    days = np.array(sample.target.horizons)

    def compute(symbols: NDArray[np.int64], variances: FloatArray) -> FloatArray:
        drift = mean[symbols, None] * days
        return (drift[..., None] + np.sqrt(variances)[..., None] * units[symbols, None]) / PERCENT

    return compute


def _fit_volatility(
    models: Mapping[int, _Model], filters: _VarianceForecasts, sample: BaselineSample
) -> SymbolQuantiles:
    history, symbols, days = sample.history, len(sample.history.bars.symbols), np.array(sample.target.horizons)
    lines = np.full((symbols, len(days), 2), np.nan)
    residuals = np.full((symbols, len(days), len(sample.levels)), np.nan)

    def take_logs(variances: FloatArray) -> FloatArray:
        return np.log(variances / days) / 2 - np.log(PERCENT)

    for symbol in models:
        positions = np.flatnonzero(sample.mask[symbol])
        windows = TrainingWindows(symbols=np.full(len(positions), symbol), positions=positions)
        forecasts, outcomes = take_logs(filters.variances(windows)), history.outcomes(windows)
        for h in range(len(days)):
            rows = np.isfinite(forecasts[:, h]) & np.isfinite(outcomes[:, h])
            lines[symbol, h] = np.polyfit(forecasts[rows, h], outcomes[rows, h], 1)
            missed = outcomes[rows, h] - np.polyval(lines[symbol, h], forecasts[rows, h])
            residuals[symbol, h] = np.quantile(missed, sample.levels)

    def compute(symbols: NDArray[np.int64], variances: FloatArray) -> FloatArray:
        slope, level = np.moveaxis(lines[symbols], -1, 0)
        return (slope * take_logs(variances) + level)[..., None] + residuals[symbols]

    return compute


GARCH: Final = BaselineModel(
    name="GARCH(1,1)-t",
    estimator=garch,
    package="arch",
    max_quick_symbols=20,  # one model is fitted per symbol
)
