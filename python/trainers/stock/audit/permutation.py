"""Whether skill needs the labels: they are shuffled over days, the model is trained on them, and skill must vanish.

A model that learns from shuffled labels can know no more of the future than the yardstick does. If its
forecasts are still better, true outcomes reach them by another way than the labels: through the window's level and
volatility, the calibration, the splits or the evaluation. What a network reads off its features it must learn from
labels, so a leak in features is detected by noise in later bars, not here.
"""

from collections.abc import Callable
from typing import final

import numpy as np
import torch

from predictor.audit_record import AuditVerdict, PermutationCheck
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.networks import normalise, restore
from predictor.windows import Pipeline
from trainers.stock.audit.lags import AuditedForecasts, gains
from trainers.stock.audit.skill import Estimate, estimate
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.data import History
from trainers.stock.splits import Splits, decisions

Retrain = Callable[[int], DailyForecasts]
"""From the seed of a shuffle to the forecasts, of the judged sessions, of a model trained on it."""

MATERIAL = 0.01
"""Skill below this share is not called a leak: chance correlations of inputs with outcomes can reach it."""

BLIND = 0.05
"""A leak that is worth this share of the loss must show, or nothing is decided. One that reads the outcome is worth
more; with few days the error is so large that even that could be luck."""


@final
class ShuffledHistory(History):
    """A history whose labels belong to other days.

    In units of each window's scale, so that no level is left to be learnt, whole days change places within each
    part: stocks of a day stay together, and every part keeps its own outcomes.
    """

    def __init__(
        self, bars: BarPanel, pipeline: Pipeline, covariates: CovariateSource, *, splits: Splits, seed: int
    ) -> None:
        super().__init__(bars, pipeline, covariates)
        random, spread = np.random.default_rng(seed), torch.from_numpy(pipeline.target.spread)
        for part in (splits.train, splits.selection, splits.calibration):
            days = decisions(part, bars.sessions, pipeline.target)
            location, scale = self.level_of_days(days)
            units = normalise(torch.from_numpy(self.labels[:, days]), location, scale, spread)
            moved = units[:, torch.from_numpy(random.permutation(len(days)))]
            self.labels[:, days] = restore(moved[..., None], location, scale, spread)[..., 0].numpy()


def check_permutations(
    judged: AuditedForecasts, retrain: Retrain, *, count: int, epochs: int, lag: int
) -> PermutationCheck:
    """Fail where the mean skill of models trained on shuffled labels is material and more than two errors above zero.

    The days decide, not the number of trainings: so few of them could give no small p-value. Nothing is decided where
    two errors are so large that a leak would not show.

    Args:
        judged: the model's own forecasts and what they are judged by.
        retrain: trains on shuffled labels.
        count: trainings.
        epochs: of each, at most.
        lag: of the outcomes that are judged: the model's own.
    """
    own = gains(judged, judged.forecasts.values, lag)
    shuffled = [gains(judged, retrain(seed).values, lag) for seed in range(count)]
    mean = estimate(np.mean(shuffled, axis=0), judged.reach)
    return PermutationCheck(
        verdict=_verdict(mean),
        epochs=epochs,
        yardstick=judged.yardstick,
        skill=float(own.mean()),
        permuted=tuple(float(daily.mean()) for daily in shuffled),
        error=mean.error,
    )


def _verdict(left: Estimate) -> AuditVerdict:
    if left.value > leak_that_shows(left.error):
        return AuditVerdict.FAIL
    return AuditVerdict.PASS if leak_that_shows(left.error) <= BLIND else AuditVerdict.UNDECIDED


def leak_that_shows(error: float) -> float:
    """The skill, as a share, above which shuffled labels reveal a leak: two errors, and no less than is material."""
    return max(MATERIAL, 2 * error)
