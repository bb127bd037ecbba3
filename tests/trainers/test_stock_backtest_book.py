"""Backtest book, strategies, benchmarks and statistics against values computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from predictor.networks import TargetKind
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts, join_folds
from trainers.stock.backtest.result import (
    create_track,
    drawdown,
    equity,
    measure_figures,
    measure_performance,
    sharpe,
    sharpe_lead,
)
from trainers.stock.backtest.strategies import (
    EQUAL_WEIGHT,
    MOMENTUM,
    REVERSAL,
    Strategy,
    StrategySettings,
    TradingTerms,
    compute_benchmark_weights,
    count_sessions_a_year,
    decide_weights,
    go_long_and_short,
    go_long_equally,
)
from trainers.stock.evaluation.evaluation_set import standard_error

FloatArray = NDArray[np.float64]
FREE = TradingTerms(horizon=1, cost_bps=0, borrow_bps=0)


def random_market(seed: int, *, sessions: int = 60, stocks: int = 4) -> tuple[FloatArray, FloatArray]:
    """Random target weights and closes."""
    random = np.random.default_rng(seed)
    wanted = random.uniform(-1, 1, (sessions, stocks)) / stocks
    return wanted, np.exp(np.cumsum(0.02 * random.standard_normal((sessions, stocks)), axis=0))


# --- the book


def test_two_tranches_with_costs_and_borrowing_are_the_hand_calculation() -> None:
    closes = np.array([[100, 50], [110, 50], [121, 40], [121, 44]], np.float64)
    wanted = np.array([[0.5, -0.5], [0, 0.5], [0, 0], [0, 0]])
    book = run_book(wanted, closes, TradingTerms(horizon=2, delay=1, cost_bps=20, borrow_bps=252))
    # Close 1: half of the first decision is bought and sold short: 0.25 + 0.25 traded.
    # Close 2: A rises 10 %, B falls 20 %.
    second = 0.25 * 0.10 + 0.25 * 0.20
    a, b = 0.25 * 1.1 / (1 + second), -0.25 * 0.8 / (1 + second)
    # The second tranche buys 0.25 of B. Close 3: B rises 10 %, and the first tranche is sold.
    third = (b + 0.25) * 0.10
    sold = (abs(a) + abs(b) * 1.1) / (1 + third)
    np.testing.assert_allclose(book.gross, [0, 0, second, third], rtol=1e-14)
    np.testing.assert_allclose(book.traded, [0, 0.5, 0.25, sold], rtol=1e-14)
    costs = [0, 0.002 * 0.5, 0.002 * 0.25 + 0.0001 * 0.25, 0.002 * sold]
    np.testing.assert_allclose(book.net, book.gross - costs, rtol=1e-14)
    np.testing.assert_allclose(book.weights[3], [0, 0.25 * 1.1 / (1 + third)], rtol=1e-14)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_position_earns_from_the_close_that_it_was_traded_at(delay: int) -> None:
    closes = np.array([[1.0], [2.0], [6.0], [24.0], [120.0]])
    book = run_book(np.ones_like(closes), closes, replace(FREE, delay=delay))
    assert book.gross.tolist() == [0, *([0] * delay), *[1, 2, 3, 4][delay:]]


def test_weights_drift_between_renewals_so_that_holding_is_holding_shares() -> None:
    _, closes = random_market(1)
    wanted = np.full_like(closes, 0.25)
    book = run_book(wanted, closes, TradingTerms(horizon=5, rebalance=1000, cost_bps=10))
    shares = (closes[1:] / closes[1]).mean(axis=1)
    np.testing.assert_allclose(equity(book.gross[1:]), shares, rtol=1e-12)
    assert book.traded[1] == 1
    assert (book.traded[2:] == 0).all()


def test_rebalancing_every_two_sessions_for_five_holds_three_tranches_for_six() -> None:
    terms = TradingTerms(horizon=5, rebalance=2, cost_bps=0, borrow_bps=0)
    closes = np.ones((14, 1))
    wanted = np.zeros((14, 1))
    wanted[2] = 0.9
    book = run_book(wanted, closes, terms)
    assert terms.tranches == 3
    np.testing.assert_allclose(book.weights[:, 0], [0] * 3 + [0.3] * 6 + [0] * 5)


def test_nothing_that_comes_later_changes_what_was_earned_and_traded_before() -> None:
    wanted, closes = random_market(2)
    terms = TradingTerms(horizon=5)
    later = closes.copy()
    later[41:] *= np.random.default_rng(0).uniform(0.5, 2, later[41:].shape)
    book, changed = run_book(wanted, closes, terms), run_book(wanted, later, terms)
    for name in ("gross", "net", "traded", "weights"):
        assert getattr(book, name)[:41].tobytes() == getattr(changed, name)[:41].tobytes()


def test_a_loss_of_everything_ends_the_backtest_with_an_error() -> None:
    closes = np.array([[1.0], [1], [3]])
    with pytest.raises(ConfigurationError, match="lost 200 % of its equity in one session"):
        run_book(-np.ones_like(closes), closes, FREE)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"horizon": 0}, "horizon is 0 sessions"),
        ({"horizon": 1, "rebalance": 0}, "rebalance is 0"),
        ({"horizon": 1, "cost_bps": -1}, "cost_bps is -1"),
        ({"horizon": 1, "borrow_bps": float("nan")}, "borrow_bps is nan"),
        ({"horizon": 1, "delisting_return": -1.01}, "delisting_return is -1.01, but must be at least -1 and finite"),
        ({"horizon": 1, "delisting_return": float("inf")}, "delisting_return is inf"),
        ({"horizon": 1, "delisting_return": float("nan")}, "delisting_return is nan"),
    ],
)
def test_terms_that_cannot_be_are_refused(settings: dict[str, float], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        TradingTerms(**settings)  # pyright: ignore[reportArgumentType] - numbers of either kind


# --- strategies


def forecasts_of(
    median: list[list[float]], *, width: float = 0.02, kind: TargetKind = TargetKind.LOG_RETURN
) -> DailyForecasts:
    """Forecasts with these medians and band width for one horizon of 4 sessions."""
    middle = np.array(median, np.float64)[..., None]
    return DailyForecasts(
        sessions=np.arange(20200101, 20200101 + len(median), dtype=np.int32),
        kind=kind,
        horizons=(4,),
        levels=(0.1, 0.5, 0.9),
        values=np.stack([middle - width / 2, middle, middle + width / 2], axis=-1),
    )


def test_rank_is_long_the_best_and_short_the_worst_with_half_of_the_book_each() -> None:
    weights = decide_weights(forecasts_of([[3, 1, 4, 2, np.nan]]), 4, StrategySettings(share=0.5))
    assert weights.tolist() == [[0.25, -0.25, 0.25, -0.25, 0]]


@pytest.mark.parametrize(
    ("share", "stocks", "count"), [(0.1, 9, 1), (0.1, 19, 1), (0.1, 20, 2), (0.4, 7, 2), (0.29, 100, 29), (0.5, 3, 1)]
)
def test_each_side_holds_its_share_of_the_stocks_that_are_known_rounded_down(
    share: float, stocks: int, count: int
) -> None:
    scores = np.concatenate([np.random.default_rng(0).permutation(stocks), np.full(5, np.nan)])
    (weights,) = go_long_and_short(scores[None], share)
    assert np.flatnonzero(weights > 0).tolist() == np.flatnonzero(scores >= stocks - count).tolist()
    assert np.flatnonzero(weights < 0).tolist() == np.flatnonzero(scores < count).tolist()
    assert np.abs(weights).sum() == pytest.approx(1)


def test_among_equal_scores_the_order_of_the_stocks_decides() -> None:
    (weights,) = go_long_and_short(np.repeat([1.0, 0.0], 50)[None], 0.02)
    assert np.flatnonzero(weights > 0).tolist() == [48, 49]
    assert np.flatnonzero(weights < 0).tolist() == [50, 51]


def test_rank_goes_by_a_ranking_models_score_and_not_by_the_median() -> None:
    told = replace(forecasts_of([[3, 1]]), scores=np.array([[[0.0], [1.0]]]))
    assert decide_weights(told, 4, StrategySettings()).tolist() == [[-0.5, 0.5]]


def test_days_with_one_stock_or_equal_scores_stay_flat() -> None:
    assert not go_long_and_short(np.array([[1.0, np.nan], [2, 2], [np.nan, np.nan]]), 0.1).any()


def test_sign_is_long_short_or_flat_within_the_threshold() -> None:
    weights = decide_weights(
        forecasts_of([[0.01, -0.01, 0.0005, np.nan]]), 4, StrategySettings(strategy=Strategy.SIGN, threshold_bps=5)
    )
    np.testing.assert_allclose(weights, [[1 / 3, -1 / 3, 0, 0]])


def test_vol_target_scales_each_stock_down_to_the_volatility_aimed_at() -> None:
    strategy_settings = StrategySettings(strategy=Strategy.VOL_TARGET, volatility=0.1)
    yearly = 0.02 / (2 * 1.2815515655) * (252 / 4) ** 0.5
    wide = decide_weights(forecasts_of([[0.0, 0.0]], width=0.04), 4, strategy_settings)
    np.testing.assert_allclose(wide, [[0.05 / (2 * yearly)] * 2])
    assert decide_weights(forecasts_of([[0.0, 0.0]], width=0.001), 4, strategy_settings).tolist() == [[0.5, 0.5]]


def test_vol_target_reads_forecasts_of_volatility_too() -> None:
    daily = 0.2 / 252**0.5
    told = forecasts_of([[float(np.log(daily))]], kind=TargetKind.LOG_VOLATILITY)
    np.testing.assert_allclose(
        decide_weights(told, 4, StrategySettings(strategy=Strategy.VOL_TARGET, volatility=0.1)), [[0.5]]
    )


@pytest.mark.parametrize("strategy", [Strategy.RANK, Strategy.SIGN])
def test_a_forecast_of_volatility_gives_no_direction(strategy: Strategy) -> None:
    told = forecasts_of([[-4.0, -5.0]], kind=TargetKind.LOG_VOLATILITY)
    with pytest.raises(ConfigurationError, match=f"strategy {strategy} needs forecasts of log-return"):
        decide_weights(told, 4, StrategySettings(strategy=strategy))


def test_a_horizon_that_is_not_forecast_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"horizon 5 is not forecast; the model has \[4\]"):
        decide_weights(forecasts_of([[1.0]]), 5, StrategySettings())


def test_forecasts_of_folds_are_joined_in_order() -> None:
    one, two = forecasts_of([[1.0]]), forecasts_of([[2.0], [3.0]])
    assert join_folds([one, two]).median[..., 0].tolist() == [[1], [2], [3]]


def test_a_fold_without_scores_ranks_no_stock_and_moves_no_other_day() -> None:
    one, two = forecasts_of([[1.0]]), forecasts_of([[2.0], [3.0]])
    scored = replace(two, scores=np.full(two.values.shape[:-1], 0.5))
    np.testing.assert_array_equal(join_folds([one, scored]).ranking[..., 0], [[np.nan], [0.5], [0.5]])


def test_a_backtest_of_no_session_after_the_delay_is_refused() -> None:
    book = run_book(np.zeros((2, 1)), np.ones((2, 1)), TradingTerms(horizon=1))
    with pytest.raises(ConfigurationError, match="traded 2 sessions later, but the backtest has 2 sessions"):
        create_track("model", np.array([20240102, 20240103], np.int32), book, TradingTerms(horizon=1, delay=2))


# --- benchmarks


def test_equal_weight_holds_every_stock_that_has_a_bar() -> None:
    assert go_long_equally(np.array([[True, True, False], [False, False, False]])).tolist() == [
        [0.5, 0.5, 0],
        [0, 0, 0],
    ]


def test_momentum_leaves_the_last_month_out_and_reversal_is_the_last_week_alone() -> None:
    closes = np.ones((300, 2))
    closes[100:, 0] = 2.0
    closes[297:, 1] = 2.0
    wanted = compute_benchmark_weights(closes, 299, 0.1)
    assert wanted[MOMENTUM].tolist() == [[0.5, -0.5]]
    assert wanted[REVERSAL].tolist() == [[0.5, -0.5]]
    assert wanted[EQUAL_WEIGHT].tolist() == [[0.5, 0.5]]


def test_a_benchmark_compares_the_closes_of_its_own_sessions_and_no_others() -> None:
    _, closes = random_market(5, sessions=330, stocks=6)
    wanted = compute_benchmark_weights(closes, 260, 0.5)
    logs = np.log(closes)
    np.testing.assert_array_equal(wanted[MOMENTUM], go_long_and_short(logs[239:309] - logs[8:78], 0.5))
    np.testing.assert_array_equal(wanted[REVERSAL], go_long_and_short(logs[255:325] - logs[260:], 0.5))


def test_momentum_leaves_out_a_stock_that_has_no_bar_today() -> None:
    _, closes = random_market(6, sessions=300, stocks=4)
    closes[299, 2] = np.nan
    (weights,) = compute_benchmark_weights(closes, 299, 0.5)[MOMENTUM]
    assert weights[2] == 0
    assert np.count_nonzero(weights) == 2


def test_momentum_is_flat_where_the_history_is_too_short() -> None:
    closes = np.exp(np.random.default_rng(0).standard_normal((30, 3)))
    wanted = compute_benchmark_weights(closes, 20, 0.1)
    assert not wanted[MOMENTUM].any()
    assert wanted[REVERSAL].any()


# --- figures


def test_the_sharpe_ratio_and_its_error_are_those_of_independent_returns() -> None:
    returns = 0.001 + 0.01 * np.random.default_rng(0).standard_normal(5000)
    ratio, error = sharpe(returns)
    daily = returns.mean() / returns.std()
    assert ratio == pytest.approx(daily * 252**0.5)
    assert error == pytest.approx(((1 + daily**2 / 2) / 5000 * 252) ** 0.5, rel=0.1)


SHORT = np.array([2.0, 4.0, 3.0, 7.0])
"""Its mean is 4; the deviations -2, 0, -1 and 3 have the autocovariances 3.5, -0.75, 0.5 and -1.5."""


@pytest.mark.parametrize(
    ("lag", "variance"),
    [
        (0, 3.5),
        (1, 3.5 + 2 * (1 / 2 * -0.75)),
        (2, 3.5 + 2 * (2 / 3 * -0.75 + 1 / 3 * 0.5)),
        (3, 3.5 + 2 * (3 / 4 * -0.75 + 2 / 4 * 0.5 + 1 / 4 * -1.5)),
    ],
)
def test_the_error_of_a_mean_of_four_days_is_newey_and_wests_by_hand(lag: int, variance: float) -> None:
    assert standard_error(SHORT, lag) == pytest.approx((variance / 4) ** 0.5)


@pytest.mark.parametrize(("sessions", "lag"), [(20, 2), (99, 3), (100, 4), (300, 5), (1000, 6)])
def test_neighbours_that_count_are_newey_and_wests_rule_where_nobody_says(sessions: int, lag: int) -> None:
    series = np.random.default_rng(0).standard_normal(sessions)
    assert standard_error(series) == standard_error(series, lag)


def test_the_error_of_a_sharpe_ratio_of_four_days_is_the_hand_calculation() -> None:
    # The ratio is s = 4 / sqrt(3.5); z - s (z^2 - 1) / 2 has no mean, and the rule counts one neighbour.
    z = np.array([-2.0, 0.0, -1.0, 3.0]) / 3.5**0.5
    daily = 4 / 3.5**0.5
    influence = z - daily / 2 * (z**2 - 1)
    variance = (influence @ influence + influence[1:] @ influence[:-1]) / 4
    assert sharpe(SHORT) == pytest.approx((daily * 252**0.5, (variance / 4 * 252) ** 0.5))


def test_the_error_of_a_lead_over_four_days_is_the_hand_calculation() -> None:
    other = np.array([1.0, -1.0, 1.0, 3.0])  # mean 1, variance 2
    mine, theirs = np.array([-2.0, 0.0, -1.0, 3.0]) / 3.5**0.5, np.array([0.0, -2.0, 0.0, 2.0]) / 2**0.5
    first, second = 4 / 3.5**0.5, 1 / 2**0.5
    influence = (mine - first / 2 * (mine**2 - 1)) - (theirs - second / 2 * (theirs**2 - 1))
    variance = (influence @ influence + influence[1:] @ influence[:-1]) / 4
    expected = ((first - second) * 252**0.5, (variance / 4 * 252) ** 0.5)
    assert sharpe_lead(SHORT, other) == pytest.approx(expected)


def pair_in_one_market(seed: int) -> tuple[FloatArray, FloatArray]:
    """Returns [500] of two books of the same market plus small differences."""
    random = np.random.default_rng(seed)
    market = random.standard_normal(500)
    return market + 0.3 * random.standard_normal(500), market + 0.3 * random.standard_normal(500)


def test_the_error_of_a_lead_is_how_far_it_scatters_over_pairs_that_move_alike() -> None:
    leads, errors = np.transpose([sharpe_lead(*pair_in_one_market(seed)) for seed in range(300)])
    assert errors.mean() < 0.5 * sharpe(pair_in_one_market(0)[0])[1]  # common moves cancel out
    assert errors.mean() == pytest.approx(leads.std(), rel=0.1)
    assert leads.mean() == pytest.approx(0, abs=0.05)


def test_returns_that_never_move_have_no_sharpe_ratio() -> None:
    found = measure_performance(np.zeros(10))
    assert np.isnan(found.sharpe)
    assert found.drawdown.depth == 0


def test_the_drawdown_is_the_largest_fall_and_tells_its_places() -> None:
    found = drawdown(np.array([0.1, -0.5, 0.2, 1.0, -0.1]))
    assert found.depth == pytest.approx(0.5)
    assert (found.peak, found.trough) == (0, 1)


def test_a_fall_from_the_start_begins_before_the_first_session() -> None:
    found = drawdown(np.array([-0.2, 0.1]))
    assert (found.peak, found.trough) == (-1, 0)


def test_annual_return_is_compounded() -> None:
    assert measure_performance(np.full(504, 0.001)).annual_return == pytest.approx(1.001**252 - 1)


def test_annual_volatility_grows_with_the_root_of_the_sessions() -> None:
    assert measure_performance(np.array([0.01, -0.01] * 50)).annual_volatility == pytest.approx(0.01 * 252**0.5)


def test_costs_that_take_more_than_there_is_leave_nothing() -> None:
    assert measure_performance(np.array([0.1, -1.2, 0.3, 0.0, 0.0])).annual_return == -1


def test_figures_tell_net_exposure_and_returns_before_and_after_costs() -> None:
    wanted, closes = random_market(7)
    book = run_book(wanted, closes, TradingTerms(horizon=3, cost_bps=30))
    figures = measure_figures(book)
    assert figures.net_exposure == pytest.approx(book.weights.sum() / 60)
    assert figures.exposure == pytest.approx(np.abs(book.weights).sum() / 60)
    assert figures.gross == measure_performance(book.gross)
    assert figures.net == measure_performance(book.net)


def test_the_hit_rate_counts_sessions_with_a_position_alone() -> None:
    closes = np.array([[1.0], [1], [2], [1], [2], [2]])
    wanted = np.array([[1.0], [1], [1], [0], [0], [0]])
    figures = measure_figures(run_book(wanted, closes, FREE))
    assert figures.hit_rate == pytest.approx(2 / 3)
    assert figures.exposure == pytest.approx(3 / 6)
    assert figures.turnover == pytest.approx(2 / 6)


# --- a year of every day of the week


def test_figures_of_what_trades_every_day_are_of_365_days() -> None:
    returns = np.random.default_rng(3).normal(0.001, 0.02, 400)
    found, (ratio, error) = measure_performance(returns, 365), sharpe(returns)
    assert found.annual_volatility == pytest.approx(returns.std() * 365**0.5)
    assert found.annual_return == pytest.approx(np.prod(1 + returns) ** (365 / 400) - 1)
    assert (found.sharpe, found.sharpe_error) == pytest.approx((ratio * (365 / 252) ** 0.5, error * (365 / 252) ** 0.5))
    lead = sharpe_lead(returns, returns[::-1])[0]
    assert sharpe_lead(returns, returns[::-1], 365)[0] == pytest.approx(lead * (365 / 252) ** 0.5)


def test_a_calendars_name_says_how_many_sessions_a_year_has() -> None:
    assert [count_sessions_a_year(name) for name in ("24/7", "XNYS", "weekdays", "")] == [365, 252, 252, 252]
    assert TradingTerms(horizon=1, borrow_bps=365, sessions_a_year=365).borrow == pytest.approx(1e-4)


def test_risk_aimed_at_is_that_of_the_calendars_year() -> None:
    told, strategy_settings = (
        forecasts_of([[0.0]], width=0.04),
        StrategySettings(strategy=Strategy.VOL_TARGET, volatility=0.1),
    )
    weights, daily = decide_weights(told, 4, strategy_settings), decide_weights(told, 4, strategy_settings, 365)
    np.testing.assert_allclose(daily, weights * (252 / 365) ** 0.5)


def test_momentum_looks_back_twelve_months_of_the_calendars_year() -> None:
    closes = np.exp(np.cumsum(np.random.default_rng(7).normal(0, 0.02, (400, 6)), axis=0))
    (wanted,) = compute_benchmark_weights(closes, 399, 0.5, 365)[MOMENTUM]
    rise = np.log(closes[399 - 30] / closes[399 - 365])
    assert (wanted > 0).tolist() == (rise >= np.sort(rise)[3]).tolist()
