"""Skill as a daily series: how much smaller a loss is than without a model, day by day."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars import AdjustedBars
from predictor.networks import Target, restore
from trainers.stock.backtest.forecasts import Forecasts
from trainers.stock.backtest.performance import mean_error
from trainers.stock.conformal import calibrate
from trainers.stock.data import History
from trainers.stock.evaluation.correlation import ranks
from trainers.stock.evaluation.hac import stretch
from trainers.stock.splits import Splits

FloatArray = NDArray[np.float64]

FEWEST_STOCKS = 3
"""Of a day whose ranks are correlated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over days and its standard error (Newey & West 1987), larger the fewer the days are."""

    value: float
    error: float

    @property
    def positive(self) -> bool:
        """Whether it lies more than two standard errors above zero."""
        return self.value > 2 * self.error


def outcomes(target: Target, bars: AdjustedBars, lag: int) -> FloatArray:
    """[T, S, H] what came after each session, counted from the close `lag` sessions later; NaN where unknown."""
    labels = Target(kind=target.kind, lag=0, horizons=target.horizons).labels(bars).transpose(1, 0, 2)
    moved = np.full_like(labels, np.nan)
    moved[: len(labels) - lag] = labels[lag:]
    return moved


def plain_quantiles(
    history: History, splits: Splits, levels: tuple[float, ...], positions: NDArray[np.int64]
) -> FloatArray:
    """[D, S, H, Q] quantiles without a model: the same for every window, in units of the window's scale.

    They are those of the training part's outcomes, with tails calibrated on the calibration part, which is all that a
    network can know that has found nothing in its inputs.
    """
    learnt = history.targets(history.windows(splits.train)).double().numpy()
    units = np.nanquantile(learnt, levels, axis=0).T
    windows = history.windows(splits.calibration)
    target = history.pipeline.target
    conformal = calibrate(
        np.broadcast_to(units, (len(windows), *units.shape)),
        history.targets(windows).double().numpy(),
        levels,
        sessions=len(np.unique(windows.positions)),
        horizons=target.horizons,
    )
    calibrated = np.sort(units + np.array(conformal.offsets), axis=1)
    location, scale = (level.transpose(0, 1) for level in history.level_of_days(positions))
    units = torch.from_numpy(calibrated).expand(*location.shape[:2], -1, -1)
    return restore(units, location, scale, torch.from_numpy(target.spread)).numpy()


def daily_losses(forecasts: Forecasts, values: FloatArray, outcome: FloatArray, spread: FloatArray) -> FloatArray:
    """[D] mean pinball loss of a day's stocks and horizons, each divided by its spread; NaN without any outcome.

    Args:
        forecasts: tell the levels, and by their NaN which cells are judged.
        values: [D, S, H, Q] what is judged.
        outcome: [D, S, H]
        spread: [H]
    """
    error = outcome[..., None] - values
    levels = np.array(forecasts.levels)
    losses = np.maximum(levels * error, (levels - 1) * error).mean(-1) / spread
    judged = np.isfinite(losses) & np.isfinite(forecasts.median)
    count = judged.sum(axis=(1, 2))
    total = np.where(judged, losses, 0.0).sum(axis=(1, 2))
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def relative_gain(ours: FloatArray, plain: FloatArray) -> FloatArray:
    """[D] how much smaller the loss of each day is than that without a model, as a share of the latter's mean."""
    known = np.isfinite(ours) & np.isfinite(plain)
    return (plain[known] - ours[known]) / plain[known].mean()


def estimate(daily: FloatArray, horizon: int) -> Estimate:
    """Mean of a daily series whose outcomes overlap over `horizon` sessions."""
    lag = min(2 * horizon, len(daily))
    return Estimate(value=float(daily.mean()), error=mean_error(daily, lag) * stretch(lag / len(daily)))


def rank_ic(scores: FloatArray, outcome: FloatArray) -> FloatArray:
    """Daily rank correlations of scores [D, S] with outcomes [D, S], of the days that have enough stocks."""
    found: list[float] = []
    for score, came in zip(scores, outcome, strict=True):
        known = np.isfinite(score) & np.isfinite(came)
        if known.sum() >= FEWEST_STOCKS and np.ptp(score[known]) > 0 and np.ptp(came[known]) > 0:
            found.append(float(np.corrcoef(ranks(score[known]), ranks(came[known]))[0, 1]))
    return np.array(found)
