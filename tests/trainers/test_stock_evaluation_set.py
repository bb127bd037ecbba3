"""Intervals of overlapping outcomes reflect the number of independent blocks."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import rankdata

from predictor.networks import Target
from trainers.stock.evaluation.comparison import mark_below
from trainers.stock.evaluation.evaluation_set import EvaluationSet, block_weights, interval, resampled_mean
from trainers.stock.evaluation.scores import correlate_forecasts

FloatArray = NDArray[np.float64]

HORIZON = 20
LEVELS = (0.1, 0.5, 0.9)
QUANTILES = np.array([-1.2816, 0.0, 1.2816])


def overlapping(seed: int, days: int) -> EvaluationSet:
    """Daily overlapping outcomes over 20 days of 2 symbols, with variance 1."""
    walk = np.cumsum(np.random.default_rng(seed).standard_normal((days + HORIZON, 2)), axis=0)
    outcomes = (walk[HORIZON:] - walk[:-HORIZON]) / np.sqrt(HORIZON)
    return EvaluationSet(
        outcomes=outcomes.reshape(-1, 1),
        sessions=np.arange(days, dtype=np.int32),
        positions=np.repeat(np.arange(days), 2),
        symbols=np.tile(np.arange(2), days),
        target=Target(horizons=(HORIZON,)),
        levels=LEVELS,
    )


def shares_held(seed: int) -> list[bool]:
    """Whether the coverage interval of each true quantile contains its level."""
    found = overlapping(seed, 200)
    means, resamples = resampled_mean(found, mark_below(found, np.broadcast_to(QUANTILES, (400, 1, 3))))
    intervals = [interval(float(means[0, q]), resamples[:, 0, q]) for q in range(3)]
    return [one.lower <= level <= one.upper for one, level in zip(intervals, LEVELS, strict=True)]


def test_the_coverage_of_true_quantiles_is_seldom_called_off_even_after_few_days() -> None:
    assert np.mean([shares_held(seed) for seed in range(150)]) > 0.77  # without stretching it is 0.72


def test_resamples_are_stretched_around_the_mean() -> None:
    found = overlapping(0, 200)
    mean, resamples = resampled_mean(found, found.outcomes)
    daily = found.outcomes.reshape(200, 2).mean(axis=1)
    plain = block_weights(200, found.block) @ daily / 200
    np.testing.assert_allclose(resamples[:, 0] - mean, found.widening_factor * (plain - mean), atol=1e-12)
    assert found.widening_factor > 1.2


@pytest.mark.parametrize(("days", "block"), [(12, 4), (10, 4), (7, 7), (5, 1)])
def test_a_resample_is_whole_blocks_around_the_circle_and_as_many_days_as_there_are(days: int, block: int) -> None:
    weights = block_weights(days, block)
    assert (weights.sum(axis=1) == days).all()
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=0.15)  # no day is drawn more often, the last ones included
    # Every day that is drawn oftener than the one before begins a block.
    begun = np.maximum(weights - np.roll(weights, 1, axis=1), 0).sum(axis=1)
    assert begun.max() <= -(-days // block)


def test_blocks_are_twice_as_long_as_the_longest_horizon() -> None:
    found = overlapping(0, 400)
    assert replace(found, target=Target(horizons=(1, 20))).block == 40
    assert replace(found, target=Target(horizons=(1, 5))).block == 20


@pytest.mark.parametrize("ranked", [False, True])
def test_the_interval_of_a_symbols_ic_is_that_of_its_series_with_days_drawn_again(ranked: bool) -> None:  # noqa: FBT001
    found = overlapping(3, 120)
    centres = found.outcomes + 3 * np.random.default_rng(1).standard_normal((240, 1))
    pairs = [(centres[symbol::2, 0], found.outcomes[symbol::2, 0]) for symbol in (0, 1)]
    if ranked:
        pairs = [(rankdata(x), rankdata(y)) for x, y in pairs]
    value = np.mean([np.corrcoef(x, y)[0, 1] for x, y in pairs])
    drawn = [np.repeat(np.arange(120), row.astype(int)) for row in block_weights(120, found.block)]
    means = np.array([np.mean([np.corrcoef(x[days], y[days])[0, 1] for x, y in pairs]) for days in drawn])
    (result,) = correlate_forecasts(found, centres)
    ic = result.rank_ic if ranked else result.ic
    expected = interval(float(value), np.clip(value + found.widening_factor * (means - value), -1, 1))
    assert ic is not None
    assert (ic.value, ic.lower, ic.upper) == pytest.approx((expected.value, expected.lower, expected.upper))


def test_the_interval_of_a_daily_ic_draws_blocks_of_days_and_is_stretched() -> None:
    random = np.random.default_rng(2)
    outcomes = random.standard_normal((120, 12))
    centres = outcomes + random.standard_normal((120, 1)) * random.standard_normal((120, 12))
    found = EvaluationSet(
        outcomes=outcomes.reshape(-1, 1),
        positions=np.repeat(np.arange(120), 12),
        symbols=np.tile(np.arange(12), 120),
        sessions=np.arange(120, dtype=np.int32),
        target=Target(horizons=(1,)),
        levels=LEVELS,
    )
    daily = np.array([np.corrcoef(x, y)[0, 1] for x, y in zip(centres, outcomes, strict=True)])
    means = block_weights(120, found.block) @ daily / 120
    expected = interval(daily.mean(), daily.mean() + found.widening_factor * (means - daily.mean()))
    ic = correlate_forecasts(found, centres.reshape(-1, 1))[0].ic
    assert ic is not None
    assert (ic.value, ic.lower, ic.upper) == pytest.approx((expected.value, expected.lower, expected.upper))


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
    ic = correlate_forecasts(found, once_wrong)[0].ic
    assert ic is not None
    assert ic.lower < ic.value < ic.upper == pytest.approx(1.0)
    assert ic.upper <= 1.0
