"""Fits of the scale of targets: HAR by least squares, GARCH by maximum likelihood, or their mean.

One fit covers all symbols, on a bounded number of windows of the training split.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.networks import (
    HAR_SESSIONS,
    MIN_RANGE_VOLATILITY,
    TAPS,
    DailySeries,
    FittedLevel,
    FittedNormaliser,
    FittedScale,
    Garch,
    Har,
    Target,
    TargetKind,
    compute_pinball_loss,
    compute_window_mean,
    normalise,
)
from predictor.windows import Pipeline, extract_trailing_windows
from trainers.stock.data import TrainingWindows, make_missing_windows_error
from trainers.stock.splits import SplitPart, list_decisions

Steps = tuple[tuple[int, int], ...]
"""[H] first and last day of each horizon, the day after the decision being 1."""

MAX_WINDOWS: Final = 20_000
"""Most windows of a fit."""
MIN_WINDOWS: Final = 50
"""Windows with a known outcome that a fit needs: ten per parameter of HAR."""
SHARES: Final = tuple(k / 10 for k in range(11))
"""Shares of HAR in the mean to try."""
START: Final = (0.07, 0.92, 6.0)
"""Starting values of GARCH's alpha, beta and degrees of freedom: typical of daily returns."""
SEARCH_STEPS: Final = 60
NO_RANGE: Final = log(MIN_RANGE_VOLATILITY) + 1e-9
"""Log volatility of an outcome without any range, with a margin for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleSample:
    """N training windows and their outcomes, for H horizons."""

    kind: TargetKind
    windows: DailySeries
    """[N, W] each: daily log returns and range volatility; only the latter for a volatility target."""
    outcomes: FloatArray
    """[N, H] of the target, NaN where unknown."""
    volatility: FloatArray
    """[N, H] log of the daily range volatility over the horizon, NaN where unknown."""
    following: FloatArray
    """[N] log return of the session after the window, NaN where unknown."""
    steps: Steps
    spread: FloatArray
    """[H] how the target's scale grows with the horizon."""
    levels: tuple[float, ...]
    """[Q] quantiles whose loss selects the share of HAR."""


def fit_normaliser(sample: ScaleSample, scale: Literal["har", "garch", "mix"]) -> FittedNormaliser:
    """Fit location and scale with an econometric model.

    Raises:
        ConfigurationError: there are too few windows with a known outcome, or prices never move.
    """
    for (first, last), known in zip(sample.steps, np.isfinite(sample.outcomes).sum(axis=0), strict=True):
        if known < MIN_WINDOWS:
            raise ConfigurationError(
                f"the training part has {known} windows whose outcome at horizon {last - first + 1} is known, and "
                f"fitting the scale {scale} needs {MIN_WINDOWS}; give more bars, or use --scale window"
            )
    if sample.kind is TargetKind.LOG_VOLATILITY:
        har = fit_har(sample)  # and the root mean square error of its forecast of log volatility
        unscaled = FittedLevel(har=har, residuals=(1.0,) * len(sample.steps))
        residuals = sample.outcomes - unscaled.compute_levels(sample.windows).location
        sizes = np.sqrt(np.nanmean(residuals * residuals, axis=0))
        return FittedLevel(har=har, residuals=tuple(np.maximum(sizes, unscaled.floor).tolist()))
    relative = FittedScale(har=fit_har(sample)) if scale != "garch" else None
    garch = FittedScale(garch=fit_garch(sample), har_share=0.0) if scale != "har" else None
    if relative is None or garch is None:
        return relative or garch or FittedScale()
    # At either end, the mean is one of them.
    means = [FittedScale(har=relative.har, garch=garch.garch, har_share=share) for share in SHARES[1:-1]]
    return min((garch, *means, relative), key=lambda normaliser: _measure_loss(normaliser, sample))


# --- data


def sample_of(bars: BarPanel, draft: Pipeline, part: SplitPart, levels: tuple[float, ...]) -> ScaleSample:
    """Training windows and their outcomes; a few symbols are adjusted at a time.

    The bars are cut at the end of the training split, so that later bars have no effect.

    Raises:
        ConfigurationError: the part holds no window.
    """
    target = draft.target
    ranged = replace(target, kind=TargetKind.LOG_VOLATILITY)
    windows = _select_windows(bars, draft, part).subsample(MAX_WINDOWS)
    shape = (len(windows), len(target.horizons))
    sample = ScaleSample(
        kind=target.kind,
        windows=(np.empty((len(windows), TAPS)), np.empty((len(windows), TAPS))),
        outcomes=np.empty(shape),
        volatility=np.empty(shape),
        following=np.empty(len(windows)),
        steps=tuple((target.lag + 1, target.lag + horizon) for horizon in target.horizons),
        spread=target.spread,
        levels=levels,
    )
    for block, adjusted in bars.adjusted_blocks():
        rows = np.flatnonzero((windows.symbols >= block.start) & (windows.symbols < block.stop))
        s, t = windows.symbols[rows] - block.start, windows.positions[rows]
        returns = _RETURNS.daily(adjusted)
        sample.windows[0][rows] = extract_trailing_windows(returns, s, t, TAPS)
        sample.windows[1][rows] = extract_trailing_windows(target.range_volatility(adjusted), s, t, TAPS)
        sample.outcomes[rows] = target.labels(adjusted)[s, t]
        sample.volatility[rows] = ranged.labels(adjusted)[s, t]
        sample.following[rows] = returns[s, t + 1]
    return sample if target.kind is TargetKind.LOG_RETURN else replace(sample, windows=sample.windows[1:])


def _select_windows(bars: BarPanel, draft: Pipeline, part: SplitPart) -> TrainingWindows:
    """Windows of the part whose symbols have enough bars, by date."""
    positions = list_decisions(part, bars.sessions, draft.target)
    positions = positions[positions >= draft.bars_needed - 1]
    present = bars.present
    has_return = present.copy()
    if draft.target.kind is TargetKind.LOG_RETURN:
        has_return[:, 1:] &= present[:, :-1]
        has_return[:, 0] = False
    usable = present & draft.has_enough(draft.counts(present, (np.where(has_return, 0.0, np.nan),)))
    order, symbols = np.nonzero(usable[:, positions].T)
    if len(order) == 0:
        raise make_missing_windows_error(part, draft)
    return TrainingWindows(symbols=symbols.astype(np.int64), positions=positions[order])


_RETURNS: Final = Target()

# --- HAR


def fit_har(sample: ScaleSample) -> Har:
    """Least squares of the horizon's log volatility on the terms, both relative to the window's level.

    Windows with a session without a range, in them or in their outcome, are left out: logs near zero would bend the
    fit of all symbols. If fewer than `MIN_WINDOWS` remain, all weights are 0.

    For a return target, intercepts are set so that outcomes in units of the forecast have a mean square of 1, because
    range volatility and the volatility of closes are different measures.
    """
    ranges = sample.windows[-1][:, -TAPS:]
    plain = Har(intercepts=(0.0,), weights=((0.0,) * len(HAR_SESSIONS),))
    terms, level = plain.terms(ranges), np.log(compute_window_mean(ranges))
    ranged = ~(ranges <= MIN_RANGE_VOLATILITY).any(axis=1)
    solved = [
        _solve_least_squares(terms, column - level, ranged & (column > NO_RANGE)) for column in sample.volatility.T
    ]
    har = Har(intercepts=tuple(row[-1] for row in solved), weights=tuple(row[:-1] for row in solved))
    if sample.kind is TargetKind.LOG_VOLATILITY:
        return har
    scale = FittedScale(har=har).compute_levels(sample.windows).scale * sample.spread
    units = sample.outcomes / scale
    square = np.nanmean(units * units, axis=0)
    if not (np.isfinite(square) & (square > 0)).all():
        raise ConfigurationError("prices never move in the training part, so no volatility can be fitted")
    return replace(har, intercepts=tuple((np.array(har.intercepts) + np.log(square) / 2).tolist()))


def _solve_least_squares(terms: FloatArray, outcomes: FloatArray, ranged: BoolArray) -> tuple[float, ...]:
    """Weights of the terms [N, K], then a constant, from the rows with ranges; 0 if these are too few."""
    rows = ranged & np.isfinite(outcomes)
    if rows.sum() < MIN_WINDOWS:
        return (0.0,) * (terms.shape[1] + 1)
    columns = np.column_stack([terms[rows], np.ones(int(rows.sum()))])
    return tuple(np.linalg.lstsq(columns, outcomes[rows])[0].tolist())


# --- GARCH


def fit_garch(sample: ScaleSample) -> Garch:
    """Maximum likelihood of the next day's return with Student-t errors (Bollerslev 1987), over all windows.

    Raises:
        ConfigurationError: prices move in too few windows.
    """
    returns, outcome = sample.windows[0][:, -TAPS:], sample.following**2
    squares = returns * returns
    long_run = compute_window_mean(squares)
    rows = np.isfinite(outcome) & (long_run > 0)
    if rows.sum() < MIN_WINDOWS:
        raise ConfigurationError(
            f"{rows.sum()} windows of the training part have prices that move, and GARCH needs {MIN_WINDOWS}; give "
            "other bars, or use --scale window"
        )
    distance = np.where(np.isnan(squares), 0.0, squares - long_run[:, None])[rows, ::-1].copy()
    alpha, beta = _maximise_likelihood(*map(torch.from_numpy, (distance, long_run[rows], outcome[rows])))
    powers = [1.0]
    while len(powers) < sample.steps[-1][1]:
        powers.append(powers[-1] * (alpha + beta))
    # The mean of (alpha + beta)^(j - 1) over the days j of each horizon.
    reversion = tuple(sum(powers[first - 1 : last]) / (last - first + 1) for first, last in sample.steps)
    return Garch(alpha=alpha, beta=beta, reversion=reversion)


def _maximise_likelihood(distance: Tensor, long_run: Tensor, outcome: Tensor) -> tuple[float, float]:
    """Alpha and beta, estimated with L-BFGS on unconstrained parameters.

    Args:
        distance: [N, W] squared returns minus their mean, newest first.
        long_run: [N] that mean.
        outcome: [N] squared return of the next day.
    """
    start_alpha, start_beta, start_freedom = START
    total = start_alpha + start_beta
    sum_logit, share = (float(np.log(value / (1 - value))) for value in (total / _MAX_SUM, start_alpha / total))
    start = (sum_logit, share, float(np.log(start_freedom - 2)))
    unbound = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    powers = torch.arange(distance.shape[1], dtype=torch.float64)
    search = torch.optim.LBFGS([unbound], max_iter=SEARCH_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        alpha, beta, freedom = _bind_parameters(unbound)
        variance = (long_run + distance @ (alpha * beta**powers)).clamp(min=_MIN_VARIANCE)
        surprise = torch.log1p(outcome / (variance * (freedom - 2)))
        constant = torch.lgamma(freedom / 2) - torch.lgamma((freedom + 1) / 2) + torch.log(freedom - 2) / 2
        mean = constant + (torch.log(variance) / 2 + (freedom + 1) / 2 * surprise).mean()
        mean.backward()
        return mean

    search.step(loss)
    alpha, beta, _ = (float(part) for part in _bind_parameters(unbound.detach()))
    return alpha, beta


_MIN_VARIANCE: Final = 1e-12
"""Smallest variance."""
_MAX_SUM: Final = 0.9995
"""Largest sum of alpha and beta; at 1, variance would not return to a level."""


def _bind_parameters(unbound: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total, share = _MAX_SUM * unbound[0].sigmoid(), unbound[1].sigmoid()
    return total * share, total * (1 - share), 2 + unbound[2].exp()


# --- mean of HAR and GARCH


def _measure_loss(normaliser: FittedScale, sample: ScaleSample) -> float:
    """Mean pinball loss of pooled quantiles in these units, over horizons, divided by their spread."""
    location, scale = (torch.from_numpy(part) for part in normaliser.compute_levels(sample.windows))
    spread, outcomes = torch.from_numpy(sample.spread), torch.from_numpy(sample.outcomes)
    units = normalise(outcomes, location, scale, spread)
    levels = torch.tensor(sample.levels, dtype=torch.float64)
    quantiles = torch.nanquantile(units, levels, dim=0).T
    losses = compute_pinball_loss(quantiles.expand(*units.shape, -1), units, levels).mean(-1) * scale
    return float(losses.nanmean(0).mean())
