"""Adaptive conformal offsets: coverage recovers after a shift, from known outcomes only."""

from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.features import load_default_features
from predictor.networks import Target
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.calibration import (
    ForecastWindows,
    QuantileResiduals,
    adapt_offsets,
    forecast_adaptively,
    shift_quantiles,
)
from trainers.stock.evaluation.evaluation_set import ModelForecasts
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, SplitPart

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)
BAND = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
DAILY = Target(lag=0, horizons=(1,))


def residuals(outcomes: FloatArray, days: int | None = None, first: int = 0) -> QuantileResiduals:
    """Residuals of the quantiles of a standard normal distribution, for outcomes [N, H]."""
    count = len(outcomes) if days is None else days
    positions = np.repeat(np.arange(first, first + count), len(outcomes) // count)
    return QuantileResiduals(positions=positions, values=outcomes[..., None] - BAND)


def normal(days: int, scale: float, seed: int) -> FloatArray:
    return np.random.default_rng(seed).normal(0.0, scale, (days, 1))


def share_below(test: FloatArray, offsets: FloatArray) -> FloatArray:
    """Share [Q] of outcomes [N, 1] below each quantile."""
    return (test <= shift_quantiles(BAND + 0 * offsets, offsets, LEVELS)[:, 0]).mean(axis=0)


def test_after_the_volatility_doubles_both_tails_come_back_while_fixed_offsets_stay_wrong() -> None:
    seen, test = normal(1000, 1.0, seed=0), normal(3000, 2.0, seed=1)
    offsets = adapt_offsets(residuals(seen), residuals(test, first=1000), LEVELS, DAILY)
    fixed = share_below(test, np.zeros_like(offsets))
    assert fixed[0] > 0.2
    assert fixed[2] < 0.8
    moved = share_below(test[1000:], offsets[1000:])
    np.testing.assert_allclose(moved[[0, 2]], [0.1, 0.9], atol=0.02)


def test_without_a_median_among_the_levels_both_tails_move() -> None:
    band = BAND[[0, 2]]
    seen, test = (
        QuantileResiduals(positions=np.arange(first, first + 300), values=normal(300, scale, seed)[..., None] - band)
        for first, scale, seed in ((0, 1.0, 14), (300, 3.0, 15))
    )
    last = adapt_offsets(seen, test, (0.1, 0.9), DAILY)[-1, 0]
    assert last[0] < -0.5
    assert last[1] > 0.5


def test_the_median_stays_where_it_is() -> None:
    offsets = adapt_offsets(residuals(normal(300, 1.0, 6)), residuals(normal(300, 3.0, 7), first=300), LEVELS, DAILY)
    assert (offsets[:, 0, 1] == 0).all()


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("horizon", [1, 5])
def test_a_days_offset_depends_on_outcomes_that_are_known_by_that_day_alone(lag: int, horizon: int) -> None:
    seen, test = residuals(normal(200, 1.0, seed=8)), normal(100, 1.0, seed=9)
    delay = Target(lag=lag, horizons=(horizon,))
    before = adapt_offsets(seen, residuals(test, first=200), LEVELS, delay)
    changed = test.copy()
    changed[40] = 50.0
    after = adapt_offsets(seen, residuals(changed, first=200), LEVELS, delay)
    differs = np.flatnonzero((before != after).any(axis=(1, 2)))
    assert differs[0] == 40 + lag + horizon


def test_symbols_of_a_day_share_its_offset_and_move_it_by_their_share_of_misses() -> None:
    seen = residuals(np.linspace(-3, 3, 61)[:, None])
    test = residuals(np.array([[9.0], [-9.0], [0.0], [0.0]]).repeat(2, axis=1)[:, :1], days=2, first=61)
    offsets = adapt_offsets(seen, test, LEVELS, DAILY, gamma=0.5)
    assert (offsets[0] == offsets[1]).all()
    # On the first day half of the outcomes fell below the lowest quantile, so its level moves by 0.5 x (0.1 - 0.5) to
    # below 0, and the offset is the least residual known: that of the outcome -9.
    assert offsets[2, 0, 0] == pytest.approx(-9.0 - BAND[0])


def walked_by_hand(missed: list[float], delay: Target, gamma: float = 0.1) -> list[float]:
    """Offsets of the quantile 0.9 after residuals 0 to 100 and then these, one per day."""
    seen = QuantileResiduals(positions=np.arange(101), values=np.arange(101.0)[:, None, None])
    test = QuantileResiduals(positions=np.arange(200, 200 + len(missed)), values=np.array(missed)[:, None, None])
    return adapt_offsets(seen, test, (0.9,), delay, gamma=gamma)[:, 0, 0].tolist()


def test_a_miss_moves_the_level_by_its_share_of_the_step_and_the_residual_joins_the_known_ones() -> None:
    # Of 101 residuals the place 0.9 x 100 holds 90. A miss moves the level to 0.9 + 0.1 x 0.9 = 0.99, and the place
    # round(0.99 x 101) of 102 residuals holds 100; a hit to 0.9 - 0.1 x 0.1 = 0.89, and the place 90 holds 89.
    assert walked_by_hand([200, 0], DAILY) == [90, 100]
    assert walked_by_hand([-200, 0], DAILY) == [90, 89]


def test_an_outcome_of_five_days_moves_the_level_by_a_fifth_of_the_step_five_days_later() -> None:
    # To 0.9 + 0.02 x 0.9 = 0.918, and the place round(0.918 x 101) of 102 residuals holds 93.
    assert walked_by_hand([200, 0, 0, 0, 0, 0], Target(lag=0, horizons=(5,))) == [90, 90, 90, 90, 90, 93]


def test_an_outcome_that_falls_on_its_quantile_counts_as_below_it() -> None:
    # As a hit does, to 0.89, and the place 90 of 102 residuals, among which 90 is twice, holds 90.
    assert walked_by_hand([90, 0], DAILY) == [90, 90]


def test_a_day_is_judged_by_the_offset_that_it_was_forecast_with() -> None:
    # The first two days are forecast with 90. Once the first is known, which missed by far, the offset is 100; the
    # second, of 95, missed its own 90 all the same: to 0.9 + 2 x 0.1 x 0.9 > 1, where the largest residual stands.
    assert walked_by_hand([200, 95, 0, 0], Target(lag=1, horizons=(1,))) == [90, 90, 100, 200]


def test_unknown_outcomes_teach_nothing() -> None:
    seen, test = residuals(normal(200, 1.0, seed=12)), normal(100, 2.0, seed=13)
    twice = np.concatenate([test, np.full_like(test, np.nan)], axis=1).reshape(-1, 1)
    alone = adapt_offsets(seen, residuals(test, first=200), LEVELS, DAILY)
    mixed = adapt_offsets(seen, residuals(twice, days=100, first=200), LEVELS, DAILY)
    np.testing.assert_array_equal(mixed[::2], alone)


def test_quantiles_that_offsets_would_cross_are_put_level() -> None:
    crossed = shift_quantiles(np.array([[[-1.0, 0.0, 1.0]]]), np.array([[[5.0, 0.0, -5.0]]]), LEVELS)
    assert crossed.tolist() == [[[0.0, 0.0, 0.0]]]


# --- of a model's forecasts

SPLITS = DataSplits(
    train=SplitPart("train", 20080102, 20090331),
    selection=SplitPart("selection", 20090401, 20090630),
    calibration=SplitPart("calibration", 20090701, 20091130),
    test=SplitPart("test", 20091201, 20100331),
)


@cache
def history(lag: int) -> History:
    bars = bokeh_panel("AAPL", "GOOG").between(20080102, 20100331)
    recipe = StockRecipe(calendar="XNYS", target=Target(horizons=(1, 5), lag=lag))
    return History(bars, fit_pipeline(bars, load_default_features(), recipe, SPLITS))


def units(found: History, windows: TrainingWindows) -> FloatArray:
    """Volatility of each window, scaled to the horizon, [N, H, 1]."""
    return (found.location_and_scale(windows)[1].numpy() * np.array([1, 5**0.5]))[..., None]


def forecast(found: History, part: SplitPart) -> ForecastWindows:
    """Normal quantiles with each window's volatility and badly wrong fixed offsets."""
    windows = found.windows(part)
    raw = BAND * units(found, windows)
    return ForecastWindows(windows=windows, forecasts=ModelForecasts(raw=raw, calibrated=9 * raw, scores=None))


@pytest.mark.parametrize("lag", [0, 1])
def test_a_models_forecasts_learn_from_a_day_once_its_lag_and_horizon_are_over(lag: int) -> None:
    found = history(lag)
    seen, test = forecast(found, SPLITS.calibration), forecast(found, SPLITS.require_test())
    positions = test.windows.positions
    day = positions[0] + 20
    missed = test.forecasts.raw - np.where(positions == day, 1.0, 0.0)[:, None, None]
    other = replace(test, forecasts=replace(test.forecasts, raw=missed))
    before, after = (forecast_adaptively(found, seen, each, LEVELS) for each in (test, other))
    for h, horizon in enumerate((1, 5)):
        moved = positions[(before[:, h] != after[:, h]).any(axis=1) & (positions != day)]
        assert moved[0] == day + lag + horizon


def test_a_models_first_forecasts_are_moved_by_what_the_calibration_part_missed_in_units_of_volatility() -> None:
    found = history(0)
    seen, test = forecast(found, SPLITS.calibration), forecast(found, SPLITS.require_test())
    missed = (found.outcomes(seen.windows)[..., None] - seen.forecasts.raw) / units(found, seen.windows)
    ordered = np.sort(missed, axis=0)
    first = test.windows.positions == test.windows.positions[0]
    moved = (forecast_adaptively(found, seen, test, LEVELS) - test.forecasts.raw) / units(found, test.windows)
    for q, level in ((0, 0.1), (2, 0.9)):
        expected = np.broadcast_to(ordered[round(level * (len(ordered) - 1)), :, q], (2, 2))
        np.testing.assert_allclose(moved[first][..., q], expected, rtol=1e-9)
