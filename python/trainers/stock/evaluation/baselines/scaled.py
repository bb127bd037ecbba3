"""Quantiles of past outcomes in units of what is forecast without a network, times the same of the window.

With empirical quantiles it is filtered historical simulation (Barone-Adesi et al. 1999). What differs is the unit.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from predictor.errors import ConfigurationError
from predictor.networks import Normaliser
from predictor.windows import back_from
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.baselines.asked import in_blocks
from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted, NoForecastError
from trainers.stock.evaluation.baselines.sample import Sample
from trainers.stock.evaluation.units import Units, units_of
from trainers.stock.recipe import window_normaliser
from trainers.stock.scale import fit_normaliser, learnt_of

LEARNT_FROM: Final = 200_000
"""Windows at most; more would not move a quantile by a hundredth of its unit."""

UnitsOf = Callable[[Windows], Units]


def scaled(sample: Sample) -> Fitted:
    """In units of each window's own volatility (RiskMetrics 1996), or of its level and deviation."""
    return _in_units(sample, _units_by(sample.history, window_normaliser(sample.target.kind)))


def relative_har(sample: Sample) -> Fitted:
    """In units that HAR forecasts from each window's own level, which is where a model of scale `har` starts."""
    try:
        learnt = learnt_of(sample.history.bars, sample.history.pipeline, sample.part, sample.levels)
        normaliser = fit_normaliser(learnt, "har")
    except ConfigurationError as error:
        raise NoForecastError(error.message) from error
    return _in_units(sample, _units_by(sample.history, normaliser))


def own_scale(sample: Sample) -> Fitted:
    """In the model's own units: all that a network can know that has found nothing in its inputs."""
    return _in_units(sample, lambda windows: units_of(sample.history, windows))


def _in_units(sample: Sample, units: UnitsOf) -> Fitted:
    outcomes, learnt = sample.history.outcomes, sample.at_most(LEARNT_FROM)
    told = in_blocks(learnt, lambda few: units(few).told(outcomes(few)[..., None])[..., 0])
    quantiles = np.nanquantile(told, sample.levels, axis=0).T
    return Fitted(quantiles=lambda asked: units(asked.windows).values(quantiles))


def _units_by(history: History, normaliser: Normaliser) -> UnitsOf:
    target = history.pipeline.target
    found = history.of_adjusted(lambda few: np.stack(normaliser.series(target, few), axis=1))
    series = [found[:, k] for k in range(found.shape[1])]

    def units(windows: Windows) -> Units:
        parts = tuple(back_from(one, windows.symbols, windows.positions, normaliser.window) for one in series)
        location, scale = normaliser.levels(parts)
        return Units(location=location[..., None], scale=(scale * target.spread)[..., None])

    return units


SCALED: Final = Baseline(name="volatility-scaled quantiles", estimator=scaled)
RELATIVE_HAR: Final = Baseline(name="relative HAR (1, 5, 22, 60 days)", estimator=relative_har)
OWN_SCALE: Final = Baseline(name="quantiles scaled by the model's own volatility", estimator=own_scale)
