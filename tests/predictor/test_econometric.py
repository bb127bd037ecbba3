"""HAR and GARCH location and scale: values by hand and invariants of any window."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.networks import FittedLevel, FittedNormaliser, FittedScale, Garch, Har, Target, TargetKind
from predictor.windows import extract_trailing_windows

FloatArray = NDArray[np.float64]

TWO = Har(sessions=(1, 2), intercepts=(0.5, -0.25), weights=((0.25, 0.5), (0.0, 2.0)))
"""Horizons of one and two days."""
SLOW = Garch(alpha=0.1, beta=0.8, reversion=(1.0, 0.5))
RANGES = np.array([[0.01, 0.03, 0.02, 0.04]])
RETURNS = np.array([[0.01, -0.02, 0.0, 0.03]])
VOLATILITY = Target(kind=TargetKind.LOG_VOLATILITY)

SCALES = {
    "har": FittedScale(har=TWO, window=4),
    "garch": FittedScale(garch=SLOW, har_share=0.0, window=4),
    "mix": FittedScale(har=TWO, garch=SLOW, har_share=0.25, window=4),
}
each_scale = pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))


# --- by hand


def test_terms_are_logs_of_averages_over_the_windows_own() -> None:
    assert TWO.terms(RANGES)[0].tolist() == pytest.approx([log(0.04 / 0.025), log(0.03 / 0.025)])


def test_a_line_is_its_intercept_and_its_weighted_terms() -> None:
    terms = np.array([[2.0, -1.0]])
    assert TWO.lines(terms)[0].tolist() == pytest.approx([0.5 + 0.25 * 2 - 0.5, -0.25 - 2.0])


def test_an_average_leaves_out_sessions_that_are_unknown() -> None:
    terms = TWO.terms(np.array([[nan, 0.02, nan, 0.04]]))
    assert terms[0].tolist() == pytest.approx([log(0.04 / 0.03), log(0.04 / 0.03)])


def test_an_average_leaves_out_sessions_whose_bar_has_no_range() -> None:
    terms = TWO.terms(np.array([[1e-5, 0.02, 1e-5, 0.04]]))
    assert terms[0].tolist() == pytest.approx([log(0.04 / 0.03), log(0.04 / 0.03)])


@pytest.mark.parametrize("nothing", [1e-5, nan])
def test_an_average_of_no_range_at_all_counts_as_the_windows_own(nothing: float) -> None:
    terms = TWO.terms(np.array([[0.01, 0.02, 0.06, nothing], [nothing] * 4]))
    assert terms[0].tolist() == pytest.approx([0.0, log(0.06 / 0.03)])
    assert terms[1].tolist() == [0.0, 0.0]


def test_hars_scale_is_the_mean_absolute_return_times_the_lines_exponential() -> None:
    lines = TWO.lines(TWO.terms(RANGES))[0]
    scale = SCALES["har"].compute_levels((RETURNS, RANGES)).scale[0]
    assert scale.tolist() == pytest.approx([0.015 * exp(line) for line in lines])


def test_garch_moves_from_the_windows_mean_square_by_each_days_distance_from_it() -> None:
    long_run = (0.01**2 + 0.02**2 + 0.03**2) / 4
    distances = [square - long_run for square in (0.03**2, 0.0, 0.02**2, 0.01**2)]
    following = long_run + sum(0.1 * 0.8**k * distance for k, distance in enumerate(distances))
    scale = SCALES["garch"].compute_levels((RETURNS,)).scale[0]
    assert scale.tolist() == pytest.approx([sqrt(following), sqrt(long_run + 0.5 * (following - long_run))])


def test_a_day_without_a_return_moves_garch_nowhere() -> None:
    returns = np.array([[nan, -0.02, nan, 0.03]])
    long_run = (0.02**2 + 0.03**2) / 2
    following = long_run + 0.1 * (0.03**2 - long_run) + 0.1 * 0.8**2 * (0.02**2 - long_run)
    assert SCALES["garch"].compute_levels((returns,)).scale[0, 0] == pytest.approx(sqrt(following))


def test_the_taps_are_the_recursion_that_starts_at_the_long_run_variance() -> None:
    returns = np.random.default_rng(0).normal(0, 0.02, 139)
    long_run = float(np.mean(returns**2))
    variance = long_run
    for value in returns:
        variance = (1 - 0.07 - 0.91) * long_run + 0.07 * value**2 + 0.91 * variance
    found = FittedScale(garch=Garch(alpha=0.07, beta=0.91, reversion=(1.0,)), har_share=0.0)
    assert found.compute_levels((returns[None],)).scale[0, 0] == pytest.approx(sqrt(variance), rel=1e-12)


def test_the_mix_is_the_weighted_mean_of_the_logs() -> None:
    har, garch, mix = (SCALES[name].compute_levels((RETURNS, RANGES)).scale for name in ("har", "garch", "mix"))
    np.testing.assert_allclose(mix, har**0.25 * garch**0.75)


def test_the_level_of_volatility_is_hars_and_its_scale_that_of_the_residuals() -> None:
    found = FittedLevel(har=TWO, residuals=(0.3, 0.2), window=4).compute_levels((RANGES,))
    lines = TWO.lines(TWO.terms(RANGES))[0]
    assert found.location[0].tolist() == pytest.approx([log(0.025) + line for line in lines])
    assert found.scale[0].tolist() == [0.3, 0.2]


def test_stages_are_what_the_levels_are_made_of() -> None:
    stages = SCALES["mix"].stages((RETURNS, RANGES))
    assert sorted(stages) == ["garch", "garch_level", "garch_next", "har", "har_level", "har_terms"]
    scale = np.exp(0.25 * stages["har"] + 0.75 * stages["garch"])
    np.testing.assert_array_equal(SCALES["mix"].compute_levels((RETURNS, RANGES)).scale, scale)


# --- any window


@each_scale
def test_returns_are_forecast_around_zero(scale: FittedScale) -> None:
    assert not scale.compute_levels((RETURNS, RANGES)).location.any()


@each_scale
@given(factor=st.floats(0.01, 100))
def test_returns_of_twice_the_size_have_twice_the_scale(scale: FittedScale, factor: float) -> None:
    plain, larger = (scale.compute_levels((RETURNS * by, RANGES)).scale for by in (1.0, factor))
    np.testing.assert_allclose(np.maximum(plain * factor, scale.floor), larger, rtol=1e-9)


@each_scale
@given(factor=st.floats(0.01, 100))
def test_ranges_in_another_unit_leave_the_scale_of_returns_as_it_is(scale: FittedScale, factor: float) -> None:
    plain, other = (scale.compute_levels((RETURNS, RANGES * by)).scale for by in (1.0, factor))
    np.testing.assert_allclose(plain, other, rtol=1e-9)


@each_scale
def test_a_window_alone_has_the_levels_that_it_has_among_others(scale: FittedScale) -> None:
    returns = np.random.default_rng(1).normal(0, 0.02, (50, 4))
    ranges = np.random.default_rng(2).lognormal(-4, 0.5, (50, 4))
    together = scale.compute_levels((returns, ranges)).scale
    alone = [scale.compute_levels((returns[k : k + 1], ranges[k : k + 1])).scale[0] for k in range(50)]
    np.testing.assert_array_equal(together, alone)


@each_scale
def test_sessions_before_the_window_change_nothing(scale: FittedScale) -> None:
    longer = tuple(np.concatenate([np.full((1, 9), 7.0), part], axis=1) for part in (RETURNS, RANGES))
    np.testing.assert_array_equal(scale.compute_levels(longer).scale, scale.compute_levels((RETURNS, RANGES)).scale)


@each_scale
def test_prices_that_do_not_move_have_the_smallest_scale(scale: FittedScale) -> None:
    assert (scale.compute_levels((np.zeros((1, 4)), np.full((1, 4), 1e-5))).scale == scale.floor).all()


@each_scale
def test_a_window_without_a_return_has_no_scale(scale: FittedScale) -> None:
    assert np.isnan(scale.compute_levels((np.full((1, 4), nan), RANGES)).scale).all()


def test_garch_never_forecasts_less_than_no_variance() -> None:
    quiet = np.array([[0.5, *[0.0] * 138]])
    scale = (
        FittedScale(garch=Garch(alpha=0.3, beta=0.69, reversion=(1.0, 0.2)), har_share=0.0)
        .compute_levels((quiet,))
        .scale
    )
    assert np.isfinite(scale).all()
    assert (scale > 0).all()


# --- from bars


def windows_of(normaliser: FittedNormaliser, target: Target, panel: BarPanel) -> tuple[FloatArray, ...]:
    """The last window of each symbol."""
    rows = np.arange(len(panel.symbols))
    last = np.full(len(rows), len(panel.sessions) - 1)
    return tuple(
        extract_trailing_windows(one, rows, last, normaliser.window)
        for one in normaliser.series(target, panel.adjusted())
    )


def shipped(target: Target) -> FittedNormaliser:
    har = Har(intercepts=(0.1,) * 4, weights=((0.1, 0.3, 0.3, 0.2),) * 4)
    if target.kind is TargetKind.LOG_VOLATILITY:
        return FittedLevel(har=har, residuals=(0.4,) * 4)
    return FittedScale(har=har, garch=Garch(alpha=0.07, beta=0.91, reversion=(1.0,) * 4), har_share=0.5)


@pytest.mark.parametrize("target", [Target(), VOLATILITY], ids=["returns", "volatility"])
def test_prices_in_another_currency_have_the_same_levels(target: Target) -> None:
    panel = bokeh_panel("AAPL", "IBM").last(200)
    names = ("open", "high", "low", "close", "adj_close")
    dearer = replace(panel, **{name: 1000 * getattr(panel, name) for name in names})
    normaliser = shipped(target)
    mine, other = (normaliser.compute_levels(windows_of(normaliser, target, bars)) for bars in (panel, dearer))
    np.testing.assert_allclose(mine.location, other.location, rtol=1e-9)
    np.testing.assert_allclose(mine.scale, other.scale, rtol=1e-9)


def test_garch_alone_reads_no_ranges() -> None:
    panel = bokeh_panel("AAPL").last(200)
    assert len(FittedScale(garch=SLOW, har_share=0.0).series(Target(), panel.adjusted())) == 1


def test_sessions_whose_bars_have_no_range_have_levels() -> None:
    panel = bokeh_panel("AAPL").last(200)
    flat = replace(panel, open=panel.close, high=panel.close, low=panel.close)
    for target in (Target(), VOLATILITY):
        normaliser = shipped(target)
        found = normaliser.compute_levels(windows_of(normaliser, target, flat))
        assert np.isfinite(found.location).all()
        assert (found.scale > 0).all()


# --- refusals


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: replace(TWO, sessions=(2, 1)), r"sessions are \[2, 1\], but must ascend"),
        (lambda: replace(TWO, sessions=()), "must ascend"),
        (lambda: replace(TWO, weights=((0.1,), (0.2, 0.3))), "one weight for each"),
        (lambda: replace(TWO, intercepts=(0.0,)), "1 intercepts for 2 horizons"),
        (lambda: replace(SLOW, alpha=0.3), "their sum below 1"),
        (lambda: replace(SLOW, alpha=0.0), "alpha must be above 0"),
        (lambda: replace(SLOW, reversion=(1.2,)), r"\[1.2\], but must be between 0 and 1"),
        (FittedScale, "neither HAR nor GARCH"),
        (lambda: FittedScale(har=TWO, har_share=0.5), "share of HAR is 0.5"),
        (lambda: FittedScale(garch=SLOW), "share of HAR is 1"),
        (lambda: FittedScale(har=TWO, garch=SLOW), "share of HAR is 1"),
        (lambda: FittedScale(har=TWO, window=1), "window is 1 sessions, but must be 2 to 2500"),
        (lambda: FittedScale(har=TWO, floor=0.0), "floor is 0"),
        (lambda: FittedLevel(har=TWO, residuals=(0.3,)), "one per horizon"),
        (lambda: FittedLevel(har=TWO, residuals=(0.3, nan)), "none below the floor"),
    ],
)
def test_what_cannot_be_is_refused_by_its_value(build: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        build()
