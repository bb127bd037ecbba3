"""Conformal offsets calibrate both tails."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from predictor.artifact import Conformal
from predictor.errors import ConfigurationError
from predictor.networks import OutputMap
from trainers.stock.network_forecasts import calibrate

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)
HORIZONS = (1, 5)


def too_narrow(count: int) -> FloatArray:
    """Forecasts [N, 2, 3] with too narrow a band."""
    return np.broadcast_to([[-0.4, 0.0, 0.9], [-1.0, 0.0, 0.2]], (count, 2, 3)).copy()


def outcomes(count: int, seed: int) -> FloatArray:
    """[N, 2] skewed outcomes around 0."""
    random = np.random.default_rng(seed)
    return np.stack([random.exponential(1.0, count) - 0.7, random.normal(0.0, 1.0, count)], axis=1)


def calibrated(units: FloatArray, offsets: Conformal) -> FloatArray:
    """Calibrated forecasts of a served model, in units of a volatility of 1."""
    output = OutputMap(
        spread=torch.ones(2, dtype=torch.float64), offsets=torch.tensor(offsets.offsets).double(), levels=LEVELS
    )
    location = torch.zeros(len(units), 2, dtype=torch.float64)
    return output.map_tensors(torch.from_numpy(units), location, torch.ones_like(location)).numpy()


def offsets_for(results: FloatArray, units: FloatArray | None = None, levels: tuple[float, ...] = LEVELS) -> FloatArray:
    given = too_narrow(len(results)) if units is None else units
    return np.array(calibrate(given, results, levels, sessions=len(results), horizons=HORIZONS).offsets)


def test_both_tails_hold_their_share_of_fresh_outcomes() -> None:
    learnt = calibrate(too_narrow(4000), outcomes(4000, seed=1), LEVELS, sessions=4000, horizons=HORIZONS)
    fresh = outcomes(4000, seed=2)
    below = (fresh[..., None] <= calibrated(too_narrow(4000), learnt)).mean(axis=0)
    np.testing.assert_allclose(below[:, [0, 2]], [[0.1, 0.9], [0.1, 0.9]], atol=0.02)


def heteroscedastic(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Outcomes [N, 2] with a volatility that swings between a half and three and drifts, and each day's volatility."""
    random = np.random.default_rng(seed)
    volatility = np.exp(0.6 * np.sin(np.arange(count) / 60) + np.cumsum(random.normal(0.0, 0.02, count)))
    return volatility[:, None] * random.standard_t(4, (count, 2)), volatility


@pytest.mark.parametrize("seed", range(4))
def test_bands_in_units_of_volatility_hold_their_share_where_volatility_changes(seed: int) -> None:
    everything, volatility = heteroscedastic(6000, seed)
    units = everything / volatility[:, None]
    seen, fresh = slice(0, 3000), slice(3000, None)
    learnt = calibrate(too_narrow(3000), units[seen], LEVELS, sessions=3000, horizons=HORIZONS)
    quantiles = volatility[fresh, None, None] * calibrated(too_narrow(3000), learnt)
    below = (everything[fresh, :, None] <= quantiles).mean(axis=0)
    np.testing.assert_allclose(below[:, [0, 2]], [[0.1, 0.9], [0.1, 0.9]], atol=0.025)
    flat = calibrate(too_narrow(3000), everything[seen], LEVELS, sessions=3000, horizons=HORIZONS)
    fixed = calibrated(too_narrow(3000), flat)
    calm = volatility[fresh] < np.quantile(volatility[fresh], 0.2)
    inside = (everything[fresh] >= fixed[..., 0]) & (everything[fresh] <= fixed[..., 2])
    assert inside[calm].mean() > 0.9  # without each window's own volatility the calm days' band is far too wide


def test_the_median_stays_where_it_is() -> None:
    assert offsets_for(outcomes(500, seed=3) + 0.8)[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("levels", [(0.1, 0.9), (0.05, 0.95), (0.9,)])
def test_where_no_level_is_the_median_every_tail_is_calibrated(levels: tuple[float, ...]) -> None:
    units = np.zeros((4000, 2, len(levels)))
    offsets = offsets_for(outcomes(4000, seed=1), units, levels)
    below = (outcomes(4000, seed=2)[..., None] <= units + offsets).mean(axis=0)
    np.testing.assert_allclose(below, [levels, levels], atol=0.02)


@pytest.mark.parametrize(
    ("count", "level", "rank"),
    [
        (10, 0.9, 10),  # 11 x 0.9 = 9.9, up; of 10 x 0.9 it were 9
        (10, 0.75, 9),  # 8.25, up; of 7.5 it were 8
        (19, 0.95, 19),  # 19 exactly
        (9, 0.2, 2),  # 2 exactly; of 1.8 it were 1
        (10, 0.25, 2),  # 2.75, down
        (11, 0.25, 3),  # 3 exactly; of 2.75 it were 2
        (10, 0.1, 1),  # 1.1, down
        (9, 0.95, 9),  # 9.5 would be the 10th of 9
        (9, 0.05, 1),  # 0.5 would be the one before the first
    ],
)
def test_the_rank_is_of_one_more_than_there_are_and_rounded_away_from_the_median(
    count: int, level: float, rank: int
) -> None:
    residuals = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    results = np.stack([residuals] * 2, axis=1)
    assert offsets_for(results, np.zeros((count, 2, 1)), (level,))[:, 0].tolist() == [rank, rank]


@pytest.mark.parametrize(("count", "level"), [(10, 0.75), (12, 0.8)])
def test_tails_of_exchangeable_residuals_hold_their_share_and_at_most_one_rank_more(count: int, level: float) -> None:
    random, draws = np.random.default_rng(count), 10000
    seen, fresh = random.standard_t(3, (count, draws)), random.standard_t(3, draws)
    each = tuple(range(1, draws + 1))  # a horizon stands for a draw
    made = calibrate(np.zeros((count, draws, 2)), seen, (1 - level, level), sessions=count, horizons=each)
    lower, upper = np.array(made.offsets).T
    for held in (float((fresh >= lower).mean()), float((fresh <= upper).mean())):
        assert level <= held <= level + 1 / (count + 1)


def test_a_rank_that_decimals_miss_by_a_hair_is_still_the_rank() -> None:
    assert 100 * 0.55 > 55
    results = np.stack([np.arange(1.0, 100.0)] * 2, axis=1)
    assert offsets_for(results, np.zeros((99, 2, 2)), (0.5, 0.55))[0, 1] == 55.0


def test_unknown_outcomes_are_left_out() -> None:
    known = outcomes(300, seed=4)
    mixed = np.concatenate([known, np.full((100, 2), np.nan)])
    np.testing.assert_array_equal(offsets_for(mixed), offsets_for(known))


def test_a_horizon_without_any_known_outcome_is_refused() -> None:
    results = outcomes(50, seed=5)
    results[:, 1] = np.nan
    with pytest.raises(ConfigurationError, match="has no known outcome 5 sessions ahead"):
        offsets_for(results)


def test_overlapping_windows_count_once_a_horizon_and_symbols_of_a_day_once() -> None:
    found = calibrate(too_narrow(400), outcomes(400, seed=6), LEVELS, sessions=100, horizons=HORIZONS)
    assert found.effective_samples == (100.0, 20.0)


def test_quantiles_stay_in_order_when_offsets_would_cross_them() -> None:
    inward = Conformal(offsets=((5.0, 0.0, -5.0), (5.0, 0.0, -5.0)), effective_samples=(1.0, 1.0))
    found = calibrated(too_narrow(3), inward)
    assert (np.diff(found, axis=-1) >= 0).all()
    np.testing.assert_array_equal(found[..., 1], too_narrow(3)[..., 1])
