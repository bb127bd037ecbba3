"""Backtest with missing bars: values by hand, and a book kept in cash and shares."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from trainers.stock.backtest.book import Book, run_book
from trainers.stock.backtest.strategies import MAX_HALT, TradingTerms

FloatArray = NDArray[np.float64]
GONE = float("nan")
FREE = TradingTerms(horizon=1, cost_bps=0, borrow_bps=0)
ONCE = TradingTerms(horizon=100, rebalance=100, cost_bps=0, borrow_bps=0)
"""One tranche, filled by the first decision for the whole test."""


def always(*weights: float, sessions: int) -> FloatArray:
    """The same decision after every close."""
    return np.tile(weights, (sessions, 1))


def single_stock(*closes: float) -> FloatArray:
    """Closes of a single stock."""
    return np.array(closes)[:, None]


# --- by hand


@pytest.mark.parametrize("terms", [FREE, ONCE])
def test_the_whole_move_is_earned_on_the_session_on_which_bars_come_back(terms: TradingTerms) -> None:
    closes = np.array([[100, 50], [100, 50], [GONE, 50], [GONE, 50], [40, 50]])
    book = run_book(always(0.5, 0.5, sessions=5), closes, terms)
    np.testing.assert_allclose(book.gross, [0, 0, 0, 0, -0.3], rtol=1e-15)
    assert not book.closed.any()


def test_a_halted_position_is_neither_bought_nor_sold_and_the_others_share_the_room_that_it_leaves() -> None:
    closes = np.array([[1.0, 1, 1], [1, 1, 1], [GONE, 1, 1], [GONE, 1, 1], [2, 1, 1]])
    wanted = np.array([[0.4, 0.6, 0], [0, 0.3, -0.7], [0, 0, -0.2], [0, 0, 0], [0, 0, 0]])
    book = run_book(wanted, closes, FREE)
    # Close 2: 0.4 of 1 is locked up, and 0.6 is left for 0.3 + 0.7. Close 3: less was decided than is locked up.
    np.testing.assert_allclose(book.weights, [[0, 0, 0], [0.4, 0.6, 0], [0.4, 0.18, -0.42], [0.4, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(book.gross, [0, 0, 0, 0, 0.4])
    np.testing.assert_allclose(book.traded, [0, 1, 0.42 + 0.42, 0.18 + 0.42, 0.8 / 1.4])


def test_a_halted_stock_that_is_not_held_is_not_bought_and_leaves_the_others_as_decided() -> None:
    closes = np.array([[1.0, 1, 1], [GONE, 1, 1], [GONE, 1, 1], [1, 1, 1]])
    wanted = np.array([[0.5, 0.25, 0.25], [0, 0.2, -0.4], [0.5, 0, 0], [0, 0, 0]])
    book = run_book(wanted, closes, FREE)
    np.testing.assert_allclose(book.weights, [[0, 0, 0], [0, 0.25, 0.25], [0, 0.2, -0.4], [0.5, 0, 0]])
    assert not book.closed.any()


def test_borrowing_is_paid_for_while_a_short_is_halted() -> None:
    closes = single_stock(1, 1, GONE, GONE, 1)
    book = run_book(always(-0.5, sessions=5), closes, replace(ONCE, borrow_bps=252))
    np.testing.assert_allclose(book.net, [0, 0, -0.00005, -0.00005, -0.00005])


@pytest.mark.parametrize(("missing", "closed"), [(MAX_HALT - 1, 0), (MAX_HALT, 1), (MAX_HALT + 1, 1)])
def test_a_halt_of_twenty_sessions_is_the_first_that_closes_a_position(missing: int, closed: int) -> None:
    assert MAX_HALT == 20
    closes = single_stock(1, 1, *[GONE] * missing, 3, 3)
    book = run_book(always(1, sessions=len(closes)), closes, ONCE)
    assert book.closed.sum() == closed
    assert book.closed[1 + MAX_HALT] == closed
    assert book.gross[-2] == (0 if closed else 2)


def test_a_position_whose_bars_end_is_closed_once_at_the_delisting_return_and_charged_on_what_is_left() -> None:
    closes = np.array([[1.0, 1], [1, 1], [1.1, 1], *[[GONE, 1]] * 22])
    wanted = always(0.5, 0, sessions=25)
    book = run_book(wanted, closes, replace(ONCE, cost_bps=100, delisting_return=-0.4))
    held = 0.5 * 1.1 / 1.05
    lost = -0.4 * held
    left = 0.6 * held / (1 + lost)
    last = 2 + MAX_HALT
    assert np.flatnonzero(book.closed).tolist() == [last]
    np.testing.assert_allclose(book.gross[[2, last]], [0.05, lost])
    np.testing.assert_allclose(book.traded[[1, last]], [0.5, left])
    np.testing.assert_allclose(book.net[[1, last]], [-0.005, lost - 0.01 * left])
    assert not book.gross[3:last].any()
    assert not book.traded[2:last].any()
    assert not book.weights[last:].any()
    assert not book.net[last + 1 :].any()


def test_what_a_price_does_after_its_position_was_closed_is_not_earned_and_the_stock_may_be_bought_again() -> None:
    closes = single_stock(1, 1, *[GONE] * MAX_HALT, 5, 10)
    book = run_book(always(1, sessions=len(closes)), closes, FREE)
    assert book.gross.tolist() == [0] * (3 + MAX_HALT) + [1]
    assert book.weights[-4:, 0].tolist() == [1, 0, 1, 1]


def test_a_renewal_on_the_session_of_the_closing_has_the_whole_room() -> None:
    closes = np.array([[1.0, 1], [1, 1], *[[GONE, 1]] * MAX_HALT, [GONE, 1]])
    wanted = np.array([[1.0, 0], *[[0, 1]] * (2 + MAX_HALT)])
    book = run_book(wanted, closes, FREE)
    assert book.weights[-3:].tolist() == [[1, 0], [0, 1], [0, 1]]


def test_a_book_that_ends_within_a_halt_closes_the_position_on_its_last_session() -> None:
    book = run_book(always(1, sessions=4), single_stock(1, 1, GONE, GONE), replace(FREE, delisting_return=-0.25))
    assert book.gross.tolist() == [0, 0, 0, -0.25]
    assert book.closed.tolist() == [0, 0, 0, 1]
    assert book.weights[:, 0].tolist() == [0, 1, 1, 0]


def test_a_book_that_begins_within_a_halt_buys_when_bars_come_and_closes_nothing() -> None:
    closes = single_stock(*[GONE] * (MAX_HALT + 5), 2, 3)
    book = run_book(always(1, sessions=len(closes)), closes, replace(FREE, delisting_return=-1))
    assert book.gross.tolist() == [0] * (MAX_HALT + 6) + [0.5]
    assert not book.closed.any()


def test_a_short_earns_what_a_delisting_takes_and_has_nothing_to_buy_back() -> None:
    terms = replace(ONCE, cost_bps=100, delisting_return=-1)
    book = run_book(always(-0.5, sessions=4), single_stock(1, 1, GONE, GONE), terms)
    assert book.gross.tolist() == [0, 0, 0, 0.5]
    assert book.traded.tolist() == [0, 0.5, 0, 0]
    assert book.closed.tolist() == [0, 0, 0, 1]


def test_a_book_from_a_later_session_reports_all_events_since() -> None:
    book = run_book(always(1, sessions=5), single_stock(1, 1, 2, GONE, GONE), replace(FREE, cost_bps=100))
    later = book.since(2)
    assert later.gross.tolist() == [1, 0, 0]
    assert later.net.tolist() == [1, 0, -0.01]
    assert later.traded.tolist() == [0, 0, 1]
    assert later.closed.tolist() == [0, 0, 1]
    assert later.exposure.tolist() == [1, 1, 0]


def test_a_delisting_that_takes_everything_ends_the_backtest_with_an_error() -> None:
    with pytest.raises(ConfigurationError, match="lost 100 % of its equity in one session"):
        run_book(always(1, sessions=4), single_stock(1, 1, GONE, GONE), replace(FREE, delisting_return=-1))


# --- in cash and shares


def in_cash_and_shares(wanted: FloatArray, closes: FloatArray, terms: TradingTerms) -> Book:
    """The same book kept per stock in cash and shares, with last prices."""
    sessions, stocks = closes.shape
    shares, price, missing = np.zeros((terms.tranches, stocks)), np.zeros(stocks), np.zeros(stocks, int)
    gross, net, traded = np.zeros(sessions), np.zeros(sessions), np.zeros(sessions)
    weights, closed = np.zeros((sessions, stocks)), np.zeros(sessions, np.int64)
    cash = equity = 1.0
    for t in range(sessions):
        borrowed = sum(max(-shares[:, s].sum() * price[s], 0) for s in range(stocks)) / equity
        ended: list[int] = []
        for s in range(stocks):
            missing[s] = missing[s] + 1 if np.isnan(closes[t, s]) else 0
            if missing[s] == 0:
                price[s] = closes[t, s]
            elif shares[:, s].any() and (missing[s] == 20 or t == sessions - 1):
                price[s] *= 1 + terms.delisting_return
                ended.append(s)
        before, equity = equity, cash + float((shares * price).sum())
        turned_over = 0.0
        for s in ended:
            turned_over += float(np.abs(shares[:, s] * price[s]).sum())
            cash += float(shares[:, s].sum() * price[s])
            shares[:, s] = 0
        if t >= terms.delay and (t - terms.delay) % terms.rebalance == 0:
            own = shares[(t - terms.delay) // terms.rebalance % terms.tranches]
            decided = wanted[t - terms.delay] * equity / terms.tranches
            locked = sum(abs(own[s] * price[s]) for s in range(stocks) if missing[s])
            asked = sum(abs(decided[s]) for s in range(stocks) if not missing[s])
            granted = min(asked, max(0.0, float(np.abs(decided).sum()) - locked))
            for s in range(stocks):
                if not missing[s]:
                    bought = (decided[s] * granted / asked if asked else 0.0) - own[s] * price[s]
                    own[s] = (own[s] * price[s] + bought) / price[s]
                    cash -= bought
                    turned_over += abs(bought)
        gross[t] = equity / before - 1
        traded[t] = turned_over / equity
        net[t] = gross[t] - terms.cost * traded[t] - terms.borrow * borrowed
        weights[t] = shares.sum(axis=0) * price / equity
        closed[t] = len(ended)
    return Book(gross=gross, net=net, traded=traded, weights=weights, closed=closed)


def market_with_halts(seed: int) -> tuple[FloatArray, FloatArray]:
    """Target weights [90, 5], some of them undecided, and closes with halts and delistings."""
    random = np.random.default_rng(seed)
    wanted = random.uniform(-1, 1, (90, 5)) / 5 * random.choice([0, 0.3, 1], (90, 1))
    closes = np.exp(np.cumsum(0.03 * random.standard_normal((90, 5)), axis=0))
    for _ in range(random.integers(3, 15)):
        first, stock = random.integers(0, 90), random.integers(0, 5)
        closes[first : first + random.choice([1, 2, 5, 19, 20, 21, 40]), stock] = GONE
    return wanted, closes


@pytest.mark.parametrize("delisting_return", [0, -1, -0.3, 0.4])
@pytest.mark.parametrize(("horizon", "rebalance", "delay"), [(1, 1, 1), (5, 1, 1), (5, 2, 0), (7, 3, 2), (90, 90, 0)])
def test_the_book_is_what_cash_and_shares_come_to(
    horizon: int, rebalance: int, delay: int, delisting_return: float
) -> None:
    terms = TradingTerms(
        horizon=horizon,
        rebalance=rebalance,
        delay=delay,
        cost_bps=12,
        borrow_bps=80,
        delisting_return=delisting_return,
    )
    closed = 0
    for seed in range(8):
        wanted, closes = market_with_halts(seed)
        book, kept = run_book(wanted, closes, terms), in_cash_and_shares(wanted, closes, terms)
        for name in ("gross", "net", "traded", "weights"):
            np.testing.assert_allclose(getattr(book, name), getattr(kept, name), rtol=0, atol=1e-12, err_msg=name)
        assert book.closed.tolist() == kept.closed.tolist()
        closed += int(book.closed.sum())
    assert closed > 0


@pytest.mark.parametrize("horizon", [1, 5])
def test_exposure_stays_within_what_is_decided_while_prices_stand_still(horizon: int) -> None:
    for seed in range(8):
        wanted, closes = market_with_halts(seed)
        book = run_book(wanted, np.where(np.isnan(closes), GONE, 1.0), replace(FREE, horizon=horizon))
        assert book.exposure.max() <= np.abs(wanted).sum(axis=1).max() + 1e-12
