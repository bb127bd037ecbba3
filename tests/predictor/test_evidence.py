"""Evidence: capital that promises cannot lose, pooled dates, lamps and confidence sequences."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from predictor.arrays import FloatArray
from predictor.evidence import (
    ALPHA,
    POOLED_FROM,
    POOLED_STAKES,
    RESTART,
    SINGLE_STAKES,
    CoverageSide,
    DailyShares,
    Lamp,
    assess_coverage,
    bet_on_shares,
    bound_level_shares,
    compare_losses,
    compute_challenger_alpha,
    describe_notice,
    estimate_deviation,
    estimate_notice_days,
)
from trainers.stock.evaluation.evaluation_set import standard_error

SHARES = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 150)), elements=st.floats(0, 1))
PROMISES = st.floats(0.02, 0.98)
SIDES = st.sampled_from(CoverageSide)
HORIZONS = st.integers(1, 25)
SYMBOLS = st.sampled_from([1, 50])


def hits(seed: int, shape: tuple[int, ...], share: float) -> FloatArray:
    return (np.random.default_rng(seed).random(shape) < share).astype(np.float64)


def daily(shares: FloatArray, symbols: int = 1) -> DailyShares:
    dates = np.arange(20000101, 20000101 + shares.size, dtype=np.int32)
    inside = np.round(symbols * np.nan_to_num(shares)).astype(np.int32)
    return DailyShares(
        dates=dates,
        symbols=np.full(shares.size, symbols, np.int32),
        inside=inside,
        unknown=np.zeros_like(inside),
        is_due=np.isfinite(shares),
    )


# --- capital


@given(SHARES, PROMISES, SIDES, SYMBOLS, HORIZONS)
@settings(max_examples=150, deadline=None)
def test_capital_stays_positive_and_guarded_capital_is_never_larger(
    shares: FloatArray, promised: float, side: CoverageSide, symbols: int, horizon: int
) -> None:
    capital = bet_on_shares(shares, promised, side, symbols=symbols, horizon=horizon)
    assert (capital.guarded > 0).all()
    assert (capital.guarded <= capital.plain * (1 + 1e-12)).all()


def bet_date_by_date(
    shares: FloatArray, promised: float, side: CoverageSide, symbols: int, horizon: int
) -> list[tuple[float, float]]:
    """Plain and guarded capital of one stream, by the definition of the bets."""
    is_few = side is CoverageSide.TOO_FEW
    worst = promised - 1 if is_few else -promised
    stakes = np.minimum(POOLED_STAKES if symbols >= POOLED_FROM else SINGLE_STAKES, 0.95 / -worst)
    capital, is_open = np.zeros((horizon, len(stakes))), np.zeros(horizon, np.bool_)
    reserve, entered = np.ones(horizon), np.zeros(horizon, np.int64)
    found: list[tuple[float, float]] = []
    for date in range(shares.size + horizon):
        turn, due = date % horizon, date - horizon
        if due >= 0:
            capital[turn] *= 1 + stakes * (promised - shares[due] if is_few else shares[due] - promised)
        is_open[turn] = date < shares.size
        if is_open[turn]:
            while entered[turn] * RESTART <= date:
                part = 1 / ((entered[turn] + 1) * (entered[turn] + 2))
                capital[turn] += part
                reserve[turn] -= part
                entered[turn] += 1
        if due >= 0:
            left = capital * np.where(is_open[:, None], 1 + stakes * worst, 1.0)
            found.append((capital.mean() + reserve.mean(), left.mean() + reserve.mean()))
    return found


@given(SHARES, st.integers(0, 30), PROMISES, SIDES, SYMBOLS, st.sampled_from([1, 2, 5, 20, 61, 130]))
@settings(max_examples=100, deadline=None)
def test_the_capital_is_that_of_bets_date_by_date_to_the_last_bit(
    shares: FloatArray, waiting: int, promised: float, side: CoverageSide, symbols: int, horizon: int
) -> None:
    shares[:, max(0, shares.shape[1] - waiting) :] = np.nan
    capital = bet_on_shares(shares, promised, side, symbols=symbols, horizon=horizon)
    for row, stream in enumerate(shares):
        expected = np.array(bet_date_by_date(stream, promised, side, symbols, horizon)).T
        np.testing.assert_array_equal([capital.plain[row], capital.guarded[row]], expected)


@given(SHARES, SIDES, HORIZONS)
@settings(max_examples=50, deadline=None)
def test_capital_does_not_move_if_the_promise_is_met_exactly(
    shares: FloatArray, side: CoverageSide, horizon: int
) -> None:
    capital = bet_on_shares(np.full_like(shares, 0.8), 0.8, side, symbols=1, horizon=horizon)
    np.testing.assert_allclose(capital.plain, 1.0)


def test_the_mean_capital_of_a_calibrated_stream_is_one() -> None:
    capital = bet_on_shares(hits(1, (20000, 12), 0.8), 0.8, CoverageSide.TOO_FEW, symbols=1, horizon=1)
    assert capital.plain[:, -1].mean() == pytest.approx(1, abs=0.05)


def test_the_first_date_s_capital_by_hand() -> None:
    capital = bet_on_shares(np.array([[0.0, 0.0]]), 0.8, CoverageSide.TOO_FEW, symbols=1, horizon=2)
    stakes = np.array([0.4, 0.9, 1.6])
    account = 0.5 * (1 + 0.8 * stakes).mean() + 0.5
    assert capital.plain[0].tolist() == pytest.approx([(account + 1) / 2, account])
    worst = 0.5 * (1 - 0.2 * stakes).mean() + 0.5
    assert capital.guarded[0].tolist() == pytest.approx([(account + worst) / 2, account])


@pytest.mark.parametrize(("horizon", "symbols"), [(1, 1), (5, 1), (1, 50)])
def test_a_calibrated_stream_is_seldom_red_within_1000_dates(horizon: int, symbols: int) -> None:
    moves = np.random.default_rng(2).standard_normal((200, 1000 + horizon, symbols))
    sums = np.cumsum(np.pad(moves, ((0, 0), (1, 0), (0, 0))), axis=1)
    outcomes = (sums[:, horizon:] - sums[:, :-horizon]) / np.sqrt(horizon)
    inside = (np.abs(outcomes) < 1.2815515655446004).mean(axis=2)
    capital = bet_on_shares(inside, 0.8, CoverageSide.TOO_FEW, symbols=symbols, horizon=horizon)
    assert (capital.guarded.max(axis=1) >= 1 / ALPHA).mean() <= 0.05


@pytest.mark.parametrize(("side", "share"), [(CoverageSide.TOO_FEW, 0.65), (CoverageSide.TOO_MANY, 0.98)])
def test_a_broken_promise_is_found_on_its_side_only(side: CoverageSide, share: float) -> None:
    other = CoverageSide.TOO_MANY if side is CoverageSide.TOO_FEW else CoverageSide.TOO_FEW
    inside = hits(3, (50, 600), share)
    found, missed = (
        bet_on_shares(inside, 0.8, which, symbols=1, horizon=1).guarded.max(axis=1) >= 1 / ALPHA
        for which in (side, other)
    )
    assert found.mean() > 0.9
    assert missed.mean() == 0


def test_dates_that_are_not_due_have_no_capital() -> None:
    shares = np.array([[0.0, 1.0, np.nan, np.nan]])
    capital = bet_on_shares(shares, 0.8, CoverageSide.TOO_FEW, symbols=1, horizon=2)
    assert np.isnan(capital.guarded[0]).tolist() == [False, False, True, True]
    longer = bet_on_shares(np.array([[0.0, 1.0, 0.0, 0.0]]), 0.8, CoverageSide.TOO_FEW, symbols=1, horizon=2)
    np.testing.assert_array_equal(capital.guarded[0, :2], longer.guarded[0, :2])


def test_unknown_outcomes_count_inside_against_too_few_and_outside_against_too_many() -> None:
    counts = np.array([[1, 2, 3], [2, 2, 1], [1, 1, 0], [0, 1, 1]], np.int32)
    is_due = np.array([True, True, False])
    shares = DailyShares(dates=counts[0], symbols=counts[1], inside=counts[2], unknown=counts[3], is_due=is_due)
    np.testing.assert_array_equal(shares.compute_shares(CoverageSide.TOO_FEW), [0.5, 1.0, np.nan])
    np.testing.assert_array_equal(shares.compute_shares(CoverageSide.TOO_MANY), [0.5, 0.5, np.nan])


# --- lamps


def test_few_dates_are_learning_and_many_good_ones_green() -> None:
    shares = hits(4, (400,), 0.8)
    assert assess_coverage(daily(shares[:30]), 0.8, CoverageSide.TOO_FEW, horizon=1).lamp is Lamp.LEARNING
    assert assess_coverage(daily(shares), 0.8, CoverageSide.TOO_FEW, horizon=1).lamp is Lamp.GREEN
    assert assess_coverage(daily(shares[:0]), 0.8, CoverageSide.TOO_FEW, horizon=1).lamp is Lamp.LEARNING


def test_an_alarm_names_its_date_and_stays() -> None:
    shares = np.concatenate([np.zeros(30), np.ones(300)])
    found = assess_coverage(daily(shares), 0.8, CoverageSide.TOO_FEW, horizon=1)
    capital = bet_on_shares(shares[None], 0.8, CoverageSide.TOO_FEW, symbols=1, horizon=1)
    assert found.lamp is Lamp.RED
    assert found.red_since == 20000101 + int(np.argmax(capital.guarded[0] >= 1 / ALPHA))
    assert found.guarded < 1 / ALPHA


def test_a_crossing_that_open_bets_may_undo_is_amber() -> None:
    horizon, shares = 20, np.zeros(200)
    capital = bet_on_shares(shares[None], 0.8, CoverageSide.TOO_FEW, symbols=50, horizon=horizon)
    first = int(np.argmax(capital.plain[0] >= 1 / ALPHA))
    found = assess_coverage(
        daily(np.where(np.arange(200) <= first, shares, np.nan), 50), 0.8, CoverageSide.TOO_FEW, horizon=20
    )
    assert (found.lamp, found.red_since, found.days) == (Lamp.AMBER, 0, first + 1)


def test_many_symbols_are_noticed_sooner_than_one_and_both_near_the_truth() -> None:
    random = np.random.default_rng(5)
    pooled = random.binomial(50, 0.8, 300) / 50
    days = estimate_notice_days(pooled, 0.8, symbols=50, horizon=1)
    alone = estimate_notice_days(hits(5, (300,), 0.8), 0.8, symbols=1, horizon=1)
    drops = np.concatenate([np.repeat(pooled[None], 100, axis=0), random.binomial(50, 0.65, (100, 200)) / 50], axis=1)
    capital = bet_on_shares(drops, 0.8, CoverageSide.TOO_FEW, symbols=50, horizon=1)
    delays = np.argmax(capital.guarded >= 1 / ALPHA, axis=1) - 299
    assert days == pytest.approx(float(np.quantile(delays, 0.9)), abs=3)
    assert days < alone < 400


def test_a_drop_of_a_narrow_band_to_nothing_can_be_noticed() -> None:
    assert estimate_notice_days(hits(5, (300,), 0.05), 0.05, symbols=50, horizon=1) >= 0


def test_nothing_is_noticed_without_dates() -> None:
    assert estimate_notice_days(np.ones(19), 0.8, symbols=1, horizon=1) == 0
    assert estimate_notice_days(np.ones(59), 0.8, symbols=1, horizon=20) == 0


def test_what_can_be_noticed_is_a_sentence() -> None:
    assert describe_notice(0.8, 30) == "would notice 0.65 instead of 0.80 within 30 sessions, 9 times out of 10"
    assert describe_notice(0.8, 0) == "cannot tell yet when 0.65 instead of 0.80 would be noticed"


# --- skill


def test_the_long_run_deviation_is_that_of_the_evaluation() -> None:
    series = np.cumsum(np.random.default_rng(6).standard_normal(200)) / 10
    expected = standard_error(series, 8) * np.sqrt(200)
    assert estimate_deviation(series[None], 8)[0] == pytest.approx(expected)


def test_lower_losses_are_shown_and_equal_ones_are_not() -> None:
    random = np.random.default_rng(7)
    theirs, noise = random.random(400), random.standard_normal(400)
    better = compare_losses(theirs, theirs - 0.1 + 0.2 * noise, horizon=1)
    equal = compare_losses(theirs, theirs + 0.2 * noise, horizon=1)
    assert better.lower > 0
    assert equal.lower < 0 < equal.upper
    assert better.mean == pytest.approx((better.lower + better.upper) / 2)


@pytest.mark.parametrize(("horizon", "days"), [(1, 59), (20, 199)])
def test_too_few_dates_say_nothing(horizon: int, days: int) -> None:
    losses = np.random.default_rng(8).random(days + 1)
    few = compare_losses(losses[1:], losses[1:] / 2, horizon=horizon)
    assert (few.lower, few.upper) == (-inf, inf)
    assert compare_losses(losses, losses / 2, horizon=horizon).upper < inf


@pytest.mark.parametrize("horizon", [1, 20])
def test_the_width_of_the_sequence_by_hand(horizon: int) -> None:
    losses = np.random.default_rng(9).standard_normal(300)
    lag, scaled = 2 * horizon, 300 * (-2 * np.log(ALPHA) + np.log(-2 * np.log(ALPHA) + 1)) / 250
    width = np.sqrt(2 * (scaled + 1) / (300 * scaled) * np.log(1 + np.sqrt(scaled + 1) / (2 * ALPHA)))
    radius = standard_error(losses, lag) * np.sqrt(300) * width * np.sqrt(300 / (299 - lag))
    found = compare_losses(losses, np.zeros(300), horizon=horizon)
    assert found.upper - found.mean == pytest.approx(radius)


def test_all_challengers_together_spend_alpha() -> None:
    assert sum(compute_challenger_alpha(attempt) for attempt in range(1, 100000)) == pytest.approx(ALPHA, rel=1e-4)


# --- reliability


@pytest.mark.parametrize("horizon", [1, 5])
def test_a_calibrated_quantile_seldom_leaves_its_bounds(horizon: int) -> None:
    moves = np.random.default_rng(12).standard_normal((40, 400 + horizon))
    sums = np.cumsum(np.pad(moves, ((0, 0), (1, 0))), axis=1)
    below = (sums[:, horizon:] - sums[:, :-horizon] <= -1.2815515655446004 * np.sqrt(horizon)).astype(np.float64)
    wrong = [
        any(not seen.lower[0] <= 0.1 <= seen.upper[0] for seen in looks)
        for path in below
        for looks in [[bound_level_shares(path[:days, None], horizon=horizon) for days in range(60, 400, 10)]]
    ]
    assert np.mean(wrong) <= 0.1


def test_a_quantile_that_no_outcome_reached_has_bounds_above_it() -> None:
    seen = bound_level_shares(np.zeros((60, 1)), horizon=1)
    assert (seen.share[0], seen.lower[0]) == (0.0, 0.0)
    assert 0.02 < seen.upper[0] < 0.15


def test_too_few_dates_have_no_bounds() -> None:
    seen = bound_level_shares(np.ones((59, 2)), horizon=1)
    assert (seen.days, seen.share.tolist(), np.isnan(seen.lower).all()) == (59, [1.0, 1.0], True)
