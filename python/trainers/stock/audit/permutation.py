"""Permutation check: a model trained on labels that are shuffled over days must have no skill.

If its forecasts still beat the yardstick, true outcomes leak through something other than labels: the window's level
and volatility, the calibration, the splits or the evaluation. Leaks in features need labels to have an effect, so noise
in later bars detects them, not this check.
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
from trainers.stock.audit.skill import SkillEstimate, estimate
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.data import History
from trainers.stock.splits import DataSplits, decisions

Retrain = Callable[[int], DailyForecasts]
"""From the seed of a shuffle to the forecasts of a model trained on the shuffled labels."""

MATERIAL = 0.01
"""Skill below this share is not a leak: chance correlations of inputs with outcomes can reach it."""

BLIND = 0.05
"""If the error could hide a leak worth this share of the loss, the verdict is undecided. A leak of outcomes is worth
more, but with few days even that may be within the error."""


@final
class ShuffledHistory(History):
    """A history with labels shuffled over days.

    Whole days are permuted within each part, in units of each window's scale, so that levels cannot be learned. Stocks
    of a day stay together, and every part keeps its outcomes.
    """

    def __init__(
        self, bars: BarPanel, pipeline: Pipeline, covariates: CovariateSource, *, splits: DataSplits, seed: int
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
    """Fail if the mean skill of models trained on shuffled labels is material and more than two errors above zero.

    The error is taken over days, because few trainings cannot give a small p-value. The verdict is undecided if a leak
    could hide within two errors.

    Args:
        judged: Forecasts of the model, and their outcomes.
        retrain: Trains on shuffled labels.
        count: Number of trainings.
        epochs: Maximum epochs of each training.
        lag: Lag of the outcomes: the model's own.
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


def _verdict(left: SkillEstimate) -> AuditVerdict:
    if left.value > leak_that_shows(left.error):
        return AuditVerdict.FAIL
    return AuditVerdict.PASS if leak_that_shows(left.error) <= BLIND else AuditVerdict.UNDECIDED


def leak_that_shows(error: float) -> float:
    """The skill above which shuffled labels reveal a leak: two errors, at least `MATERIAL`."""
    return max(MATERIAL, 2 * error)
