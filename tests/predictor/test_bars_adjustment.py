"""Adjustment of prices for splits and dividends."""

import dataclasses

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import BarsError

FloatArray = NDArray[np.float64]
SESSIONS = np.array([20240102, 20240103, 20240104, 20240105, 20240108], dtype=np.int32)


def flat_range(
    close: list[float],
    *,
    adj_close: list[float] | None = None,
    split_ratio: list[float] | None = None,
    cash_dividend: list[float] | None = None,
) -> BarPanel:
    """One symbol whose four prices are equal each day, volume 100."""
    prices = np.array(close)
    return BarPanel.single(
        "AAA",
        sessions=SESSIONS[: len(close)],
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=np.where(np.isnan(prices), np.nan, 100.0),
        adj_close=None if adj_close is None else np.array(adj_close),
        split_ratio=None if split_ratio is None else np.array(split_ratio),
        cash_dividend=None if cash_dividend is None else np.array(cash_dividend),
    )


def test_without_recorded_events_prices_stay_as_they_are() -> None:
    panel = flat_range([10, 20, 30])
    bars = panel.adjusted()
    assert np.array_equal(bars.close, panel.close)
    assert bars.factor.tolist() == [[1, 1, 1]]
    assert bars.money.tolist() == [[1000, 2000, 3000]]


def test_a_split_divides_earlier_prices_and_multiplies_earlier_volumes() -> None:
    bars = flat_range([30, 30, 10, 10], split_ratio=[np.nan, 1, 3, np.nan]).adjusted()
    assert bars.close.tolist() == [[10, 10, 10, 10]]
    assert bars.volume.tolist() == [[300, 300, 100, 100]]
    assert bars.money.tolist() == [[3000, 3000, 1000, 1000]]


def test_a_dividend_lowers_earlier_prices_and_leaves_volumes() -> None:
    bars = flat_range([100, 98, 98], cash_dividend=[0, 2, np.nan]).adjusted()
    assert np.allclose(bars.close, [[98, 98, 98]], rtol=1e-15)
    assert bars.volume.tolist() == [[100, 100, 100]]


def test_a_dividend_on_the_day_of_a_split_is_paid_on_new_shares() -> None:
    together = flat_range([100, 49], split_ratio=[1, 2], cash_dividend=[0, 1]).adjusted()
    assert np.allclose(together.close, [[49, 49]], rtol=1e-15)


def test_events_on_a_day_without_a_bar_count() -> None:
    bars = flat_range([100, np.nan, 49], split_ratio=[1, 2, 1], cash_dividend=[0, 0, 1]).adjusted()
    assert np.allclose(bars.close, [[49, np.nan, 49]], rtol=1e-15, equal_nan=True)
    assert np.array_equal(bars.factor, [[0.49, np.nan, 1]], equal_nan=True)


def test_a_dividend_before_the_first_bar_changes_nothing() -> None:
    assert flat_range([50, 50], cash_dividend=[1, 0]).adjusted().close.tolist() == [[50, 50]]


def test_adjusted_closes_are_rebased_to_the_last_real_price() -> None:
    bars = flat_range([30, 30, 12], adj_close=[1, 1, 1.2]).adjusted()
    assert bars.close[0, -1] == 12
    assert np.allclose(bars.close, [[10, 10, 12]], rtol=1e-15)
    assert np.allclose(bars.volume, [[300, 300, 100]], rtol=1e-15)


def test_prices_are_in_the_money_of_the_symbols_own_last_bar() -> None:
    prices = [30, 10, 10, np.nan]
    for panel in (flat_range(prices, split_ratio=[1, 3, 1, 2]), flat_range(prices, adj_close=[1, 1, 1, np.nan])):
        bars = panel.adjusted()
        assert np.allclose(bars.close[0, :3], [10, 10, 10], rtol=1e-15)
        assert bars.factor[0, 2] == 1


def test_a_symbol_without_any_bar_stays_without() -> None:
    none = [np.nan, np.nan]
    for panel in (flat_range(none), flat_range(none, split_ratio=[1, 2]), flat_range(none, adj_close=none)):
        assert np.isnan(panel.adjusted().close).all()


def test_adjusted_arrays_are_locked() -> None:
    with pytest.raises(ValueError, match="read-only"):
        bokeh_panel("IBM").adjusted().volume[0, 0] = 1


def test_real_adjusted_closes_give_their_own_returns() -> None:
    panel = bokeh_panel("MSFT")
    assert panel.adj_close is not None
    ours = np.diff(np.log(panel.adjusted().close))
    assert np.allclose(ours, np.diff(np.log(panel.adj_close)), atol=1e-14)
    assert panel.adjusted().close[0, -1] == panel.close[0, -1]


@pytest.mark.parametrize("at", [1, 700, 3269])
def test_a_split_at_any_date_changes_no_return(at: int) -> None:
    plain = dataclasses.replace(bokeh_panel("IBM"), adj_close=None)
    ratio = np.ones_like(plain.close)
    ratio[0, at] = 3
    divisor = np.where(np.arange(plain.close.shape[1]) >= at, 3.0, 1.0)
    split = dataclasses.replace(
        plain,
        open=plain.open / divisor,
        high=plain.high / divisor,
        low=plain.low / divisor,
        close=plain.close / divisor,
        volume=plain.volume * divisor,
    )
    for recorded in (
        dataclasses.replace(split, split_ratio=ratio),
        dataclasses.replace(split, adj_close=plain.close.copy()),
    ):
        ours, theirs = recorded.adjusted(), plain.adjusted()
        assert np.allclose(np.diff(np.log(ours.close)), np.diff(np.log(theirs.close)), atol=1e-12)
        assert np.allclose(ours.money, theirs.money, rtol=1e-12)
        assert np.allclose(ours.volume / ours.volume[0, -1], theirs.volume / theirs.volume[0, -1], rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"split_ratio": [1.0, 1e300, 1e300, 1.0]},
            "2024-01-02: adjusted close is 0, but it must be within the range of a double",
        ),
        (
            {"split_ratio": [1.0, 1e-300, 1e-300, 1.0]},
            "2024-01-02: adjusted close is inf, but it must be within the range of a double",
        ),
        (
            {"volume": [1.0, 1e308, 1.0, 1.0]},
            "2024-01-03: close times volume is inf, but it must be within the range of a double",
        ),
    ],
)
def test_what_no_double_can_hold_is_refused_by_symbol_and_date(columns: dict[str, list[float]], problem: str) -> None:
    bars = dataclasses.replace(flat_range([50.0] * 4), **{name: np.array([values]) for name, values in columns.items()})
    with pytest.raises(BarsError, match=f"AAA {problem}"):
        bars.adjusted()
