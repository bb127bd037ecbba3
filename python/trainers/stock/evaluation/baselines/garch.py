"""GARCH(1,1) with Student-t errors (Bollerslev 1987), fitted a symbol on the training part, filtered onward."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Target, TargetKind
from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case
from trainers.stock.evaluation.baselines.unconditional import unconditional

if TYPE_CHECKING:
    from arch.univariate.base import ARCHModelResult

FloatArray = NDArray[np.float64]

NAME = "GARCH(1,1)-t"
PERCENT = 100.0
"""The optimiser wants numbers of about 1."""
MIN_RETURNS = 250
"""Daily returns that a GARCH model is fitted on at least; a year."""


def is_installed() -> bool:
    """Whether the package arch is."""
    return find_spec("arch") is not None


def garch(case: Case) -> Baseline:
    """Quantiles of GARCH(1,1)-t.

    The variance of h days is the sum of the h daily forecasts. Returns have the quantiles of the daily t distribution
    times its root; of volatility, log sqrt of the daily mean is the regressor of a straight line with the quantiles of
    its training residuals, because the range of a day and the move between two closes are not the same measure.

    A symbol that cannot be fitted has the unconditional quantiles, and a note names it: with less than a year of
    returns in the training part, without any move, or where the fit does not converge.
    """
    otherwise = unconditional(case)
    daily = Target(kind=TargetKind.LOG_RETURN).daily(case.history.adjusted)
    forecasts = otherwise.forecasts
    notes: list[str] = []
    for symbol in np.unique(case.windows.symbols):
        found = _of_symbol(case, daily[symbol], int(symbol))
        rows = case.windows.symbols == symbol
        if isinstance(found, str):
            name = case.history.bars.symbols[symbol]
            notes.append(f"{NAME} of {name} is the {otherwise.name} instead: {found}")
        else:
            forecasts[rows] = found
    return Baseline(name=NAME, forecasts=forecasts, notes=tuple(notes))


def _of_symbol(case: Case, daily: FloatArray, symbol: int) -> FloatArray | str:
    """[n, H, Q] for the symbol's own windows, or why there is none."""
    known = np.isfinite(daily)
    fitted_on = int((case.history.bars.sessions[known] <= case.train.last).sum())
    if fitted_on < MIN_RETURNS:
        return f"it has {fitted_on} daily returns in the training part, and it needs {MIN_RETURNS}"
    returns = daily[known]
    if np.ptp(returns[:fitted_on]) == 0:
        return "its price never moves in the training part"
    filtered = _filtered(returns, fitted_on, case.target)
    if filtered is None:
        return "its fit did not converge"
    place = np.cumsum(known) - 1
    asked = place[_positions(case.windows, symbol)]
    if case.target.kind is TargetKind.LOG_RETURN:
        return _returns(filtered, asked, case)
    return _volatility(filtered, asked, place[_positions(case.learnt, symbol)], case, symbol)


def _positions(windows: Windows, symbol: int) -> NDArray[np.int64]:
    return windows.positions[windows.symbols == symbol]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Filtered:
    """What a fitted model says after each of T returns, all in percent."""

    mean: float
    """Of a day."""
    variances: FloatArray
    """[T, H] of the sum of the horizon's days."""
    freedom: float
    """Degrees of freedom of the t distribution."""

    def units(self, levels: tuple[float, ...]) -> FloatArray:
        """[Q] quantiles of the t distribution of variance 1."""
        from arch.univariate import StudentsT

        return np.asarray(StudentsT().ppf(np.array(levels), np.array([self.freedom])), np.float64)


def _filtered(returns: FloatArray, fitted_on: int, target: Target) -> _Filtered | None:
    """The model fitted on the first of the returns [T] and carried on; None: it did not converge."""
    from arch import arch_model

    model = arch_model(PERCENT * returns, mean="Constant", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fit: ARCHModelResult = model.fit(last_obs=fitted_on, disp="off", show_warning=False)
    if fit.convergence_flag != 0:
        return None
    daily = fit.forecast(horizon=target.reach, start=0, reindex=True).variance.to_numpy()
    sums = [daily[:, target.lag : target.lag + horizon].sum(axis=1) for horizon in target.horizons]
    mean, freedom = (float(np.asarray(fit.params[name])) for name in ("mu", "nu"))
    return _Filtered(mean=mean, variances=np.stack(sums, axis=1), freedom=freedom)


def _returns(filtered: _Filtered, asked: NDArray[np.int64], case: Case) -> FloatArray:
    drift = filtered.mean * np.array(case.target.horizons)[:, None]
    return (drift + np.sqrt(filtered.variances[asked])[..., None] * filtered.units(case.levels)) / PERCENT


def _volatility(
    filtered: _Filtered, asked: NDArray[np.int64], learnt: NDArray[np.int64], case: Case, symbol: int
) -> FloatArray | str:
    logs = np.log(filtered.variances / np.array(case.target.horizons)) / 2 - np.log(PERCENT)
    outcomes = case.history.outcomes(case.learnt)[case.learnt.symbols == symbol]
    known = np.isfinite(outcomes).all(axis=1)
    if known.sum() < MIN_RETURNS:
        return f"it has {known.sum()} windows in the training part, and it needs {MIN_RETURNS}"
    forecasts: list[FloatArray] = []
    for h in range(len(case.target.horizons)):
        slope, level = np.polyfit(logs[learnt[known], h], outcomes[known, h], 1)
        residuals = outcomes[known, h] - slope * logs[learnt[known], h] - level
        centre = slope * logs[asked, h] + level
        forecasts.append(centre[:, None] + np.quantile(residuals, case.levels))
    return np.stack(forecasts, axis=1)
