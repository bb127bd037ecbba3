"""Conformal offsets make both tails right."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from predictor.artifact import Conformal
from predictor.errors import ConfigurationError
from predictor.networks import OutputMap
from trainers.stock.conformal import calibrate

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)
HORIZONS = (1, 5)


def too_narrow(count: int) -> FloatArray:
    """[N, 2, 3] forecasts whose lower tail is too high and whose upper one is too low."""
    return np.broadcast_to([[-0.4, 0.0, 0.9], [-1.0, 0.0, 0.2]], (count, 2, 3)).copy()


def outcomes(count: int, seed: int) -> FloatArray:
    """[N, 2] skewed outcomes around 0."""
    random = np.random.default_rng(seed)
    return np.stack([random.exponential(1.0, count) - 0.7, random.normal(0.0, 1.0, count)], axis=1)


def calibrated(units: FloatArray, offsets: Conformal) -> FloatArray:
    """What a served model makes of them, in units of a volatility of 1."""
    output = OutputMap(
        spread=torch.ones(2, dtype=torch.float64), offsets=torch.tensor(offsets.offsets).double(), levels=LEVELS
    )
    rows = len(units)
    return output.values(torch.from_numpy(units), torch.zeros(rows).double(), torch.ones(rows).double()).numpy()


def offsets_for(results: FloatArray, units: FloatArray | None = None, levels: tuple[float, ...] = LEVELS) -> FloatArray:
    given = too_narrow(len(results)) if units is None else units
    return np.array(calibrate(given, results, levels, sessions=len(results), horizons=HORIZONS).offsets)


def test_both_tails_hold_their_share_of_fresh_outcomes() -> None:
    learnt = calibrate(too_narrow(4000), outcomes(4000, seed=1), LEVELS, sessions=4000, horizons=HORIZONS)
    fresh = outcomes(4000, seed=2)
    below = (fresh[..., None] <= calibrated(too_narrow(4000), learnt)).mean(axis=0)
    np.testing.assert_allclose(below[:, [0, 2]], [[0.1, 0.9], [0.1, 0.9]], atol=0.02)


def heteroscedastic(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Outcomes [N, 2] whose volatility swings between a half and three and drifts slowly, and each day's volatility."""
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


def test_without_the_offsets_the_same_tails_are_wrong() -> None:
    below = (outcomes(4000, seed=2)[..., None] <= too_narrow(4000)).mean(axis=0)
    assert np.abs(below[:, [0, 2]] - [0.1, 0.9]).min() > 0.02


def test_the_median_stays_where_it_is() -> None:
    assert offsets_for(outcomes(500, seed=3) + 0.8)[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("levels", [(0.1, 0.9), (0.05, 0.95), (0.9,)])
def test_where_no_level_is_the_median_every_tail_is_calibrated(levels: tuple[float, ...]) -> None:
    units = np.zeros((4000, 2, len(levels)))
    offsets = offsets_for(outcomes(4000, seed=1), units, levels)
    below = (outcomes(4000, seed=2)[..., None] <= units + offsets).mean(axis=0)
    np.testing.assert_allclose(below, [levels, levels], atol=0.02)


def test_the_offset_is_the_corrected_order_statistic() -> None:
    results = np.stack([np.arange(1.0, 20.0)] * 2, axis=1)
    found = offsets_for(results, np.zeros((19, 2, 3)))
    assert found[0].tolist() == [2.0, 0.0, 18.0]


def test_a_rank_that_decimals_miss_by_a_hair_is_still_the_rank() -> None:
    assert 100 * 0.55 > 55
    results = np.stack([np.arange(1.0, 100.0)] * 2, axis=1)
    assert offsets_for(results, np.zeros((99, 2, 2)), (0.5, 0.55))[0, 1] == 55.0


def test_three_samples_give_their_extremes() -> None:
    results = np.array([[-1.0, 0.0], [3.0, 1.0], [0.5, 2.0]])
    assert offsets_for(results, np.zeros((3, 2, 3))).tolist() == [[-1.0, 0.0, 3.0], [0.0, 0.0, 2.0]]


def test_ties_give_the_tied_value() -> None:
    assert offsets_for(np.full((50, 2), 0.25), np.zeros((50, 2, 3))).tolist() == [[0.25, 0.0, 0.25]] * 2


def test_unknown_outcomes_are_left_out() -> None:
    known = outcomes(300, seed=4)
    mixed = np.concatenate([known, np.full((100, 2), np.nan)])
    np.testing.assert_array_equal(offsets_for(mixed), offsets_for(known))


def test_a_horizon_without_any_known_outcome_is_refused() -> None:
    results = outcomes(50, seed=5)
    results[:, 1] = np.nan
    with pytest.raises(ConfigurationError, match="knows no outcome 5 sessions ahead"):
        offsets_for(results)


def test_overlapping_windows_count_once_a_horizon_and_symbols_of_a_day_once() -> None:
    found = calibrate(too_narrow(400), outcomes(400, seed=6), LEVELS, sessions=100, horizons=HORIZONS)
    assert found.effective_samples == (100.0, 20.0)


def test_quantiles_stay_in_order_when_offsets_would_cross_them() -> None:
    inward = Conformal(offsets=((5.0, 0.0, -5.0), (5.0, 0.0, -5.0)), effective_samples=(1.0, 1.0))
    found = calibrated(too_narrow(3), inward)
    assert (np.diff(found, axis=-1) >= 0).all()
    np.testing.assert_array_equal(found[..., 1], too_narrow(3)[..., 1])
