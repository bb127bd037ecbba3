"""Intervals of overlapping outcomes are as wide as the few blocks behind them demand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from predictor.networks import Target
from trainers.stock.evaluation.correlation import correlations
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import below
from trainers.stock.evaluation.resampling import block_weights, interval, resampled_mean

FloatArray = NDArray[np.float64]

HORIZON = 20
LEVELS = (0.1, 0.5, 0.9)
QUANTILES = np.array([-1.2816, 0.0, 1.2816])


def overlapping(seed: int, days: int) -> Judged:
    """Outcomes of 20 normal days of 2 symbols, asked daily, with variance 1."""
    walk = np.cumsum(np.random.default_rng(seed).standard_normal((days + HORIZON, 2)), axis=0)
    outcomes = (walk[HORIZON:] - walk[:-HORIZON]) / np.sqrt(HORIZON)
    return Judged(
        outcomes=outcomes.reshape(-1, 1),
        positions=np.repeat(np.arange(days), 2),
        symbols=np.tile(np.arange(2), days),
        target=Target(horizons=(HORIZON,)),
        levels=LEVELS,
    )


def shares_held(seed: int) -> list[bool]:
    """Whether the interval of each quantile's coverage holds its level, where it is the true quantile."""
    found = overlapping(seed, 200)
    means, resamples = resampled_mean(found, below(found, np.broadcast_to(QUANTILES, (400, 1, 3))))
    intervals = [interval(float(means[0, q]), resamples[:, 0, q]) for q in range(3)]
    return [one.lower <= level <= one.upper for one, level in zip(intervals, LEVELS, strict=True)]


def test_the_coverage_of_true_quantiles_is_seldom_called_off_even_after_few_days() -> None:
    assert np.mean([shares_held(seed) for seed in range(150)]) > 0.77  # without stretching it is 0.72


def test_resamples_are_stretched_around_the_mean() -> None:
    found = overlapping(0, 200)
    mean, resamples = resampled_mean(found, found.outcomes)
    daily = found.outcomes.reshape(200, 2).mean(axis=1)
    plain = block_weights(200, found.block) @ daily / 200
    np.testing.assert_allclose(resamples[:, 0] - mean, found.stretch * (plain - mean), atol=1e-12)
    assert found.stretch > 1.2


def test_no_interval_of_a_share_goes_beyond_all_or_nothing() -> None:
    found = overlapping(1, 200)
    rare = np.zeros((400, 1))
    rare[:30] = 1.0
    _, resamples = resampled_mean(found, rare)
    assert resamples.min() == 0.0
    assert resamples.max() <= 1.0


def test_no_interval_of_a_correlation_goes_beyond_one() -> None:
    found = overlapping(2, 200)
    once_wrong = found.outcomes.copy()
    once_wrong[100:102] = -30.0  # resamples without this day agree wholly
    ic = correlations(found, once_wrong)[0].ic
    assert ic is not None
    assert ic.lower < ic.value < ic.upper == pytest.approx(1.0)
    assert ic.upper <= 1.0
