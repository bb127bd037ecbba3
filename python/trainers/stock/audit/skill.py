"""Skill as a daily series: the improvement of a loss over that of a yardstick."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.networks import Target
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.baselines import OWN_SCALE, FitScope, InformationSet, MeasuredWindows
from trainers.stock.evaluation.correlation import ranks
from trainers.stock.evaluation.seen import seen_until
from trainers.stock.evaluation.standard_errors import mean_error, stretch
from trainers.stock.splits import DataSplits

FEWEST_STOCKS = 3
"""Minimum of stocks for a day's rank correlation."""

YARDSTICK: Final = OWN_SCALE
YARDSTICK_FIT: Final = FitScope.CALIBRATED
YARDSTICK_NAME: Final = YARDSTICK.named(YARDSTICK_FIT)
"""The baseline for an audit's skill, which shows whether skill comes from inputs. The scores of a training compare with
the best of all baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEstimate:
    """A mean over days and its standard error (Newey & West 1987), widened for few days."""

    value: float
    error: float

    @property
    def positive(self) -> bool:
        """Whether it is more than two standard errors above zero."""
        return self.value > 2 * self.error


def outcomes(target: Target, bars: AdjustedBars, lag: int) -> FloatArray:
    """[T, S, H] outcomes that start at the close `lag` sessions after each session; NaN where unknown."""
    labels = Target(kind=target.kind, lag=0, horizons=target.horizons).labels(bars).transpose(1, 0, 2)
    moved = np.full_like(labels, np.nan)
    moved[: len(labels) - lag] = labels[lag:]
    return moved


def plain_quantiles(
    history: History, splits: DataSplits, levels: tuple[float, ...], positions: NDArray[np.int64]
) -> FloatArray:
    """[D, S, H, Q] forecasts of the yardstick; NaN for windows without volatility.

    They are quantiles of the training part's outcomes in units of the window's volatility, calibrated on the
    calibration part: what a network knows that has learned nothing from its inputs.
    """
    fitted = InformationSet.of(history, splits, seen_until(splits), levels).fitted(YARDSTICK, YARDSTICK_FIT)
    stocks = len(history.bars.symbols)
    cells = TrainingWindows(symbols=np.tile(np.arange(stocks), len(positions)), positions=np.repeat(positions, stocks))
    forecasts = MeasuredWindows.of(history, cells).in_blocks(fitted.quantiles)
    return forecasts.reshape(len(positions), stocks, *forecasts.shape[1:])


def daily_losses(forecasts: DailyForecasts, values: FloatArray, outcome: FloatArray, spread: FloatArray) -> FloatArray:
    """[D] mean pinball loss over stocks and horizons, each divided by its spread; NaN without outcomes.

    Args:
        forecasts: Give the levels; their NaN exclude cells.
        values: [D, S, H, Q] quantiles to score.
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
    """[D] improvement of each day's loss over the yardstick's, relative to the yardstick's mean."""
    known = np.isfinite(ours) & np.isfinite(plain)
    return (plain[known] - ours[known]) / plain[known].mean()


def estimate(daily: FloatArray, horizon: int) -> SkillEstimate:
    """Estimate the mean of a daily series [D] whose outcomes overlap over `horizon` sessions."""
    lag = min(2 * horizon, len(daily))
    return SkillEstimate(value=float(daily.mean()), error=mean_error(daily, lag) * stretch(lag / len(daily)))


def rank_ic(scores: FloatArray, outcome: FloatArray) -> FloatArray:
    """Daily rank correlations of scores [D, S] with outcomes [D, S], for days with enough stocks."""
    correlations: list[float] = []
    for score, came in zip(scores, outcome, strict=True):
        known = np.isfinite(score) & np.isfinite(came)
        if known.sum() >= FEWEST_STOCKS and np.ptp(score[known]) > 0 and np.ptp(came[known]) > 0:
            correlations.append(float(np.corrcoef(ranks(score[known]), ranks(came[known]))[0, 1]))
    return np.array(correlations)
