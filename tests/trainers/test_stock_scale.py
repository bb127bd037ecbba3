"""Fitting HAR, GARCH and their mean: planted parameters are recovered, and the package arch agrees."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from arch import arch_model
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from predictor.networks import FittedLevel, FittedScale, TargetKind
from predictor.networks.econometric import HAR_SESSIONS, TAPS
from predictor.windows import extract_trailing_windows
from trainers.stock.scale import MIN_WINDOWS, ScaleSample, fit_garch, fit_har, fit_normaliser

FloatArray = NDArray[np.float64]

PLANTED = (0.12, 0.35, 0.25, 0.18)
"""HAR's weights of a day, a week, a month and a quarter."""
LEVELS = (0.1, 0.5, 0.9)


def learnt_from(
    returns: FloatArray, ranges: FloatArray, *, outcomes: FloatArray, volatility: FloatArray, following: FloatArray
) -> ScaleSample:
    """Scale samples for one horizon, the next day."""
    return ScaleSample(
        kind=TargetKind.LOG_RETURN,
        windows=(returns, ranges),
        outcomes=outcomes[:, None],
        volatility=volatility[:, None],
        following=following,
        steps=((1, 1),),
        spread=np.ones(1),
        levels=LEVELS,
    )


def with_planted_ranges(*, seed: int = 0, windows: int = 4000) -> ScaleSample:
    """Random ranges with the planted relation for the next day; returns are twice as large."""
    random = np.random.default_rng(seed)
    slow = 0.1 * np.cumsum(random.normal(size=(windows, TAPS)), axis=1)
    ranges = np.exp(slow - 4 + random.normal(0, 0.4, (windows, TAPS)))
    averages = [np.log(ranges[:, -k:].mean(axis=1) / ranges.mean(axis=1)) for k in HAR_SESSIONS]
    line = np.log(ranges.mean(axis=1)) - 0.03 + np.array(PLANTED) @ np.stack(averages)
    volatility = line + random.normal(0, 0.3, windows)
    returns = 2 * ranges * random.normal(size=ranges.shape)
    following = 2 * np.exp(line) * random.normal(size=windows)
    return learnt_from(returns, ranges, outcomes=following, volatility=volatility, following=following)


def of_windows(learnt: ScaleSample, rows: slice | NDArray[np.intp]) -> ScaleSample:
    """The samples at some positions."""
    return replace(
        learnt,
        windows=tuple(part[rows] for part in learnt.windows),
        outcomes=learnt.outcomes[rows],
        volatility=learnt.volatility[rows],
        following=learnt.following[rows],
    )


def simulated_returns(*, seed: int, days: int = 12_000, alpha: float = 0.08, beta: float = 0.9) -> FloatArray:
    """GARCH(1,1) with Student-t errors of 6 degrees of freedom; a daily volatility of 1.5 %."""
    random = np.random.default_rng(seed)
    errors = random.standard_t(6, days) * np.sqrt(4 / 6)
    returns, variance, long_run = np.empty(days), 0.015**2, 0.015**2
    for day in range(days):
        returns[day] = np.sqrt(variance) * errors[day]
        variance = (1 - alpha - beta) * long_run + alpha * returns[day] ** 2 + beta * variance
    return returns


def windows_of(returns: FloatArray) -> ScaleSample:
    """All windows of one series, with uninformative ranges."""
    positions = np.arange(TAPS - 1, len(returns) - 1)
    windows = extract_trailing_windows(returns[None], np.zeros_like(positions), positions, TAPS)
    following = returns[positions + 1]
    noise = np.random.default_rng(9).lognormal(-4, 0.3, (windows.shape[0] + 1, TAPS))
    return learnt_from(windows, noise[:-1], outcomes=following, volatility=np.log(noise[1:, -1]), following=following)


# --- HAR


def test_har_finds_the_planted_weights() -> None:
    found = fit_har(with_planted_ranges())
    assert found.sessions == HAR_SESSIONS
    assert found.weights[0] == pytest.approx(PLANTED, abs=0.05)
    assert sum(found.weights[0]) == pytest.approx(sum(PLANTED), abs=0.05)


def test_of_volatility_the_level_is_hars_and_the_scale_the_noise_that_was_planted() -> None:
    learnt = with_planted_ranges()
    of_volatility = replace(
        learnt, kind=TargetKind.LOG_VOLATILITY, windows=learnt.windows[1:], outcomes=learnt.volatility
    )
    found = fit_normaliser(of_volatility, "har")
    assert isinstance(found, FittedLevel)
    assert found.har.intercepts[0] == pytest.approx(-0.03, abs=0.02)
    assert found.residuals[0] == pytest.approx(0.3, abs=0.01)


def test_outcomes_in_units_of_the_fitted_scale_have_a_mean_square_of_one() -> None:
    learnt = with_planted_ranges()
    found = fit_normaliser(learnt, "har")
    units = learnt.outcomes / found.compute_levels(learnt.windows).scale
    assert np.mean(units**2) == pytest.approx(1, abs=1e-9)


def test_a_window_whose_outcome_is_unknown_counts_for_nothing() -> None:
    learnt = with_planted_ranges(windows=400)
    cut = of_windows(learnt, slice(300))
    hidden = replace(learnt, outcomes=learnt.outcomes.copy(), volatility=learnt.volatility.copy())
    hidden.outcomes[300:] = np.nan
    hidden.volatility[300:] = np.nan
    assert fit_har(hidden).weights[0] == pytest.approx(fit_har(cut).weights[0])
    assert fit_har(hidden).intercepts[0] == pytest.approx(fit_har(cut).intercepts[0])


def without_ranges(learnt: ScaleSample, *, symbols: int, share: float, seed: int = 7) -> ScaleSample:
    """The samples with missing ranges in a share of the sessions of some symbols."""
    random, smallest = np.random.default_rng(seed), 1e-5
    own = (np.arange(len(learnt.following)) % symbols == 0)[:, None]
    still = own & (random.random(learnt.windows[1].shape) < share)
    gone = own & (random.random(learnt.volatility.shape) < share)
    return replace(
        learnt,
        windows=(learnt.windows[0], np.where(still, smallest, learnt.windows[1])),
        volatility=np.where(gone, np.log(smallest), learnt.volatility),
    )


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_symbol_without_ranges_moves_nobodys_line(share: float) -> None:
    learnt = with_planted_ranges()
    rows = np.arange(len(learnt.following)) % 4 != 0
    others = of_windows(learnt, np.flatnonzero(rows))
    found = fit_har(without_ranges(learnt, symbols=4, share=share))
    assert found.weights == fit_har(others).weights


def test_where_no_bar_has_a_range_the_scale_is_the_windows_own_level() -> None:
    learnt = with_planted_ranges(windows=400)
    none = without_ranges(learnt, symbols=1, share=1.0)
    found = fit_normaliser(none, "har")
    assert isinstance(found, FittedScale)
    assert found.har is not None
    assert found.har.weights[0] == (0.0,) * 4
    scale = found.compute_levels(none.windows).scale[:, 0]
    ratio = scale / np.abs(none.windows[0]).mean(axis=1)
    np.testing.assert_allclose(ratio, ratio[0])
    assert np.mean((learnt.outcomes[:, 0] / scale) ** 2) == pytest.approx(1)


# --- GARCH


@pytest.mark.parametrize(("alpha", "beta"), [(0.08, 0.9), (0.15, 0.75)])
def test_garch_finds_the_simulated_persistence(alpha: float, beta: float) -> None:
    found = fit_garch(windows_of(simulated_returns(seed=1, alpha=alpha, beta=beta)))
    assert (found.alpha, found.beta) == (pytest.approx(alpha, abs=0.025), pytest.approx(beta, abs=0.035))


def test_garch_agrees_with_the_package_arch_where_nothing_is_cut() -> None:
    returns = simulated_returns(seed=2)
    oracle = arch_model(100 * returns, mean="Zero", vol="GARCH", p=1, q=1, dist="t").fit(disp="off").params
    found = fit_garch(windows_of(returns))
    assert found.alpha == pytest.approx(oracle["alpha[1]"], abs=0.01)
    assert found.beta == pytest.approx(oracle["beta[1]"], abs=0.03)


def test_garchs_variances_are_those_of_the_package_arch_for_the_same_numbers() -> None:
    returns = simulated_returns(seed=3, days=2000)
    alpha, beta, window = 0.08, 0.9, returns[-TAPS:]
    long_run = float(np.mean(window**2))
    model = arch_model(returns, mean="Zero", vol="GARCH", p=1, q=1, dist="t", rescale=False)
    fixed = model.fix(np.array([(1 - alpha - beta) * long_run, alpha, beta, 6.0]))
    oracle = fixed.forecast(horizon=20, reindex=False).variance.to_numpy()[0]
    learnt = replace(windows_of(returns), steps=((1, 1), (1, 5), (2, 21)))
    reversion = (1.0, *(np.mean(0.98 ** np.arange(first, last)) for first, last in ((0, 5), (1, 21))))
    made = fit_garch(learnt)
    same = FittedScale(garch=replace(made, alpha=alpha, beta=beta, reversion=reversion[:2]), har_share=0.0)
    variance = same.compute_levels((window[None],)).scale[0] ** 2
    assert variance[0] == pytest.approx(oracle[0], rel=0.03)  # values before the taps still have a small weight there
    assert variance[1] == pytest.approx(oracle[:5].mean(), rel=0.03)


def test_reversions_are_means_over_the_days_of_each_horizon() -> None:
    found = fit_garch(replace(windows_of(simulated_returns(seed=4, days=3000)), steps=((1, 1), (1, 2), (2, 3))))
    total = found.alpha + found.beta
    assert found.reversion == pytest.approx((1.0, (1 + total) / 2, (total + total**2) / 2))


# --- choosing between them


def test_the_mix_is_garch_where_ranges_say_nothing() -> None:
    found = fit_normaliser(windows_of(simulated_returns(seed=5)), "mix")
    assert isinstance(found, FittedScale)
    assert found.har_share <= 0.2


def test_the_mix_is_har_where_ranges_say_everything() -> None:
    found = fit_normaliser(with_planted_ranges(), "mix")
    assert isinstance(found, FittedScale)
    assert found.har_share >= 0.8


@pytest.mark.parametrize("scale", ["har", "garch"])
def test_one_that_is_asked_for_stands_alone(scale: Literal["har", "garch"]) -> None:
    found = fit_normaliser(with_planted_ranges(windows=400), scale)
    assert isinstance(found, FittedScale)
    assert (found.har is not None, found.garch is not None) == (scale == "har", scale == "garch")


# --- refusals


@pytest.mark.parametrize("scale", ["har", "garch", "mix"])
def test_too_few_windows_are_refused_by_their_number(scale: Literal["har", "garch", "mix"]) -> None:
    few = of_windows(with_planted_ranges(windows=60), slice(MIN_WINDOWS - 1))
    with pytest.raises(
        ConfigurationError, match=rf"49 windows whose outcome at horizon 1 is known.*scale {scale} needs 50"
    ):
        fit_normaliser(few, scale)


@pytest.mark.parametrize("scale", ["har", "garch", "mix"])
def test_prices_that_never_move_have_no_volatility_to_fit(scale: Literal["har", "garch", "mix"]) -> None:
    learnt = with_planted_ranges(windows=60)
    still = replace(
        learnt,
        windows=(np.zeros_like(learnt.windows[0]), learnt.windows[1]),
        outcomes=np.zeros_like(learnt.outcomes),
        following=np.zeros_like(learnt.following),
    )
    with pytest.raises(ConfigurationError, match=r"never move|prices that move"):
        fit_normaliser(still, scale)
