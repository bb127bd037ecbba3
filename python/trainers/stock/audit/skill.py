"""Skill as a daily series: how much smaller a loss is than that of one yardstick, day by day."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.networks import Target
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.baselines import OWN_SCALE, Fit, InformationSet, MeasuredWindows
from trainers.stock.evaluation.correlation import ranks
from trainers.stock.evaluation.seen import seen_until
from trainers.stock.evaluation.standard_errors import mean_error, stretch
from trainers.stock.splits import Splits

FEWEST_STOCKS = 3
"""Of a day whose ranks are correlated."""

YARDSTICK: Final = OWN_SCALE
YARDSTICK_FIT: Final = Fit.CALIBRATED
YARDSTICK_NAME: Final = YARDSTICK.named(YARDSTICK_FIT)
"""The one baseline that an audit measures skill against. It shows whether any comes from inputs, and how much
is left of it; whether it is worth a network is shown by the best of all baselines, in a training's scores."""


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
    """[T, S, H] outcome after each session, counted from the close `lag` sessions later; NaN where unknown."""
    labels = Target(kind=target.kind, lag=0, horizons=target.horizons).labels(bars).transpose(1, 0, 2)
    moved = np.full_like(labels, np.nan)
    moved[: len(labels) - lag] = labels[lag:]
    return moved


def plain_quantiles(
    history: History, splits: Splits, levels: tuple[float, ...], positions: NDArray[np.int64]
) -> FloatArray:
    """[D, S, H, Q] forecasts of the yardstick: the same for every window, in units of the window's own volatility.

    They are quantiles of the training part's outcomes, moved on the calibration part, which is all that a network can
    know that has learnt nothing from its inputs. NaN where a window has no volatility.
    """
    fitted = InformationSet.of(history, splits, seen_until(splits), levels).fitted(YARDSTICK, YARDSTICK_FIT)
    stocks = len(history.bars.symbols)
    cells = Windows(symbols=np.tile(np.arange(stocks), len(positions)), positions=np.repeat(positions, stocks))
    forecasts = MeasuredWindows.of(history, cells).in_blocks(fitted.quantiles)
    return forecasts.reshape(len(positions), stocks, *forecasts.shape[1:])


def daily_losses(forecasts: DailyForecasts, values: FloatArray, outcome: FloatArray, spread: FloatArray) -> FloatArray:
    """[D] mean pinball loss of a day's stocks and horizons, each divided by its spread; NaN without any outcome.

    Args:
        forecasts: give the levels, and by their NaN which cells are judged.
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
    """[D] how much smaller the loss of each day is than the yardstick's, as a share of the latter's mean."""
    known = np.isfinite(ours) & np.isfinite(plain)
    return (plain[known] - ours[known]) / plain[known].mean()


def estimate(daily: FloatArray, horizon: int) -> Estimate:
    """Mean of a daily series [D] whose outcomes overlap over `horizon` sessions."""
    lag = min(2 * horizon, len(daily))
    return Estimate(value=float(daily.mean()), error=mean_error(daily, lag) * stretch(lag / len(daily)))


def rank_ic(scores: FloatArray, outcome: FloatArray) -> FloatArray:
    """Daily rank correlations of scores [D, S] with outcomes [D, S], of the days that have enough stocks."""
    correlations: list[float] = []
    for score, came in zip(scores, outcome, strict=True):
        known = np.isfinite(score) & np.isfinite(came)
        if known.sum() >= FEWEST_STOCKS and np.ptp(score[known]) > 0 and np.ptp(came[known]) > 0:
            correlations.append(float(np.corrcoef(ranks(score[known]), ranks(came[known]))[0, 1]))
    return np.array(correlations)
