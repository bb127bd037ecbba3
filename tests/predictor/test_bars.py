"""Bar panels: validation, splits and dividends, price jumps, and slicing."""

import dataclasses
import re
from datetime import date

import numpy as np
import pandas as pd
import pytest
from market import bokeh_panel, scaled, without_bars

from predictor.bars import BarPanel, PriceJumps
from predictor.dates import DateLike
from predictor.errors import BarsError

SESSIONS = np.array([20240102, 20240103, 20240104, 20240105], dtype=np.int32)


def panel_of(**changes: object) -> BarPanel:
    """Two symbols, four sessions; `changes` replaces columns before the panel is made."""
    close = np.array([[10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]])
    columns = {
        "symbols": ("AAA", "BBB"),
        "sessions": SESSIONS,
        "open": close - 0.25,
        "high": close + 1,
        "low": close - 1,
        "close": close,
        "volume": np.full_like(close, 1000.0),
    }
    return BarPanel(**{**columns, **changes})  # pyright: ignore[reportArgumentType] (tests pass wrong values too)


def column(name: str, value: float) -> np.ndarray:
    """The column of `panel_of` with BBB's bar of 2024-01-04 replaced."""
    values = getattr(panel_of(), name).copy()
    values[1, 2] = value
    return values


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("close", np.nan, "other fields are numbers"),
        ("high", np.inf, "must be finite"),
        ("volume", np.inf, "must be finite"),
        ("low", 0.0, "must be positive"),
        ("open", -1.0, "must be positive"),
        ("volume", -1.0, "must not be negative"),
        ("open", 20.5, "below the low, 21"),
        ("close", 23.5, "above the high, 23"),
    ],
)
def test_a_broken_bar_is_named_by_symbol_date_field_and_value(field: str, value: float, rule: str) -> None:
    with pytest.raises(BarsError, match=rule) as caught:
        panel_of(**{field: column(field, value)})
    assert caught.value.metadata == {
        "symbol": "BBB",
        "date": "2024-01-04",
        "field": field,
        "value": repr(float(value)),
    }


def test_bars_that_break_a_rule_beside_the_first_are_named() -> None:
    low = panel_of().low.copy()
    low[0, 3] = low[1, 0] = low[1, 3] = 0.0
    with pytest.raises(BarsError, match="AAA 2024-01-05: low is 0, but a price must be positive; 2 more") as caught:
        panel_of(low=low)
    assert caught.value.message.endswith("2 more bars must be corrected: BBB 2024-01-02, BBB 2024-01-05")


def test_of_many_broken_bars_the_first_few_are_named_and_all_are_counted() -> None:
    with pytest.raises(BarsError, match=r"^AAA 2024-01-02: low .*; 7 more bars must be corrected") as caught:
        panel_of(low=np.zeros((2, 4)))
    assert caught.value.message.endswith("AAA 2024-01-05, BBB 2024-01-02, BBB 2024-01-03 and 2 more")


def test_further_broken_events_are_named() -> None:
    ratios = np.full((2, 4), np.nan)
    ratios[1, 2] = ratios[1, 3] = 0.0
    with pytest.raises(
        BarsError, match=r"BBB 2024-01-04: split_ratio .*; 1 more bar must be corrected: BBB 2024-01-05$"
    ):
        panel_of(split_ratio=ratios)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("split_ratio", 0.0, "positive and finite"),
        ("split_ratio", np.inf, "positive and finite"),
        ("cash_dividend", -0.1, "not negative"),
        ("cash_dividend", np.inf, "finite"),
        ("cash_dividend", 21.0, "less than the close before"),
    ],
)
def test_a_broken_split_or_dividend_is_named(field: str, value: float, rule: str) -> None:
    events = np.full((2, 4), np.nan)
    events[1, 2] = value
    with pytest.raises(BarsError, match=f"BBB 2024-01-04: {field} .*{rule}"):
        panel_of(**{field: events})


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_a_broken_adjusted_close_is_named(value: float) -> None:
    with pytest.raises(BarsError, match="BBB 2024-01-04: adj_close"):
        panel_of(adj_close=column("close", value))


@pytest.mark.parametrize(
    ("sessions", "problem"),
    [
        ([20240102, 20240102, 20240104, 20240105], "session 2024-01-02 appears twice"),
        ([20240102, 20240104, 20240103, 20240105], "session 2024-01-03 comes after 2024-01-04"),
        ([20230228, 20230229, 20230301, 20230302], "session 20230229 is not a date"),
        ([20240102, 20240103, 20240104, 20241301], "session 20241301 is not a date"),
        ([20240102, 20240103, 20240104, 20240431], "session 20240431 is not a date"),
        ([19000228, 19000229, 19000301, 19000302], "session 19000229 is not a date"),
        ([-20240102, 20240103, 20240104, 20240105], "session -20240102 is not a date"),
    ],
)
def test_sessions_are_real_dates_in_order(sessions: list[int], problem: str) -> None:
    with pytest.raises(BarsError, match=f"^AAA, BBB: {problem}") as caught:
        panel_of(sessions=np.array(sessions, dtype=np.int32))
    assert caught.value.metadata["field"] == "session"
    assert caught.value.metadata["date"] in problem


def test_leap_days_are_dates() -> None:
    sessions = np.array([20000228, 20000229, 20240228, 20240229], dtype=np.int32)
    assert panel_of(sessions=sessions).sessions[1] == 20000229


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"symbols": ()}, "at least one symbol"),
        ({"symbols": ("AAA", "AAA")}, "AAA appears twice"),
        ({"symbols": ("AAA", "B\nB")}, "printable"),
        ({"symbols": ("AAA", " ")}, "not only blanks"),
        ({"symbols": ("AAA", "B" * 65)}, "1 to 64"),
        ({"symbols": ("AAA",)}, r"open must have shape \[1, 4\]"),
        ({"sessions": SESSIONS.astype(np.float64)}, "integers yyyymmdd"),
        ({"sessions": SESSIONS[:0]}, "at least one session"),
        ({"close": np.ones((2, 4), dtype=np.float32)}, "close must be float64"),
        ({"volume": np.ones((2, 5))}, "volume must have shape"),
        ({"adj_close": np.ones((2, 4)), "split_ratio": np.ones((2, 4))}, "not both"),
        ({"currency": "U\tD"}, "currency"),
    ],
)
def test_a_panel_of_the_wrong_shape_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(BarsError, match=problem):
        panel_of(**changes)


def test_a_bar_without_any_field_is_a_missing_bar() -> None:
    gaps = {name: column(name, np.nan) for name in ("open", "high", "low", "close", "volume")}
    panel = panel_of(**gaps)
    assert not panel.present[1, 2]
    assert panel.present.sum() == 7


def test_a_panel_does_not_change_with_the_arrays_it_was_made_from() -> None:
    close = column("close", 22.5)
    panel = panel_of(close=close)
    close[:] = 1.0
    assert panel.close[1, 2] == 22.5
    with pytest.raises(ValueError, match="read-only"):
        panel.close[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        panel.last(2).close[0, 0] = 1.0


def test_whole_number_volumes_are_taken() -> None:
    assert panel_of(volume=np.full((2, 4), 7, dtype=np.int64)).volume.dtype == np.float64


def test_symbols_are_selected_in_the_order_asked_for() -> None:
    panel = panel_of().select(["BBB", "AAA"])
    assert panel.symbols == ("BBB", "AAA")
    assert panel.close[:, 0].tolist() == [20.0, 10.0]


def test_an_unknown_symbol_is_named() -> None:
    with pytest.raises(BarsError, match="no bars of CCC; the panel has AAA, BBB"):
        panel_of().select(["AAA", "CCC"])


def test_parts_of_a_panel_keep_every_column() -> None:
    panel = panel_of(split_ratio=np.full((2, 4), 1.0), calendar="XNYS", currency="USD")
    part = panel.between(20240103, 20240104)
    assert part.sessions.tolist() == [20240103, 20240104]
    assert part.close.tolist() == [[11.0, 12.0], [21.0, 22.0]]
    assert part.split_ratio is not None
    assert part.split_ratio.shape == (2, 2)
    assert (part.calendar, part.currency) == ("XNYS", "USD")


def test_until_includes_its_day_and_last_counts_from_the_end() -> None:
    panel = panel_of()
    assert panel.until(20240104).sessions.tolist() == [20240102, 20240103, 20240104]
    assert panel.last(2).sessions.tolist() == [20240104, 20240105]
    assert panel.last(99).sessions.size == 4


@pytest.mark.parametrize("dates", [(20250101, 20251231), (20240105, 20240102)])
def test_an_empty_part_is_refused(dates: tuple[int, int]) -> None:
    with pytest.raises(BarsError, match="it has 2024-01-02 to 2024-01-05"):
        panel_of().between(*dates)
    with pytest.raises(BarsError, match="at least one session"):
        panel_of().last(0)


def test_one_symbol_is_made_from_flat_arrays() -> None:
    whole = panel_of()
    panel = BarPanel.single(
        "BBB",
        sessions=SESSIONS,
        open=whole.open[1],
        high=whole.high[1],
        low=whole.low[1],
        close=whole.close[1],
        volume=whole.volume[1],
    )
    assert np.array_equal(panel.close, whole.select(["BBB"]).close)


def test_apples_crash_is_reported_as_a_question() -> None:
    raw = dataclasses.replace(bokeh_panel("AAPL", "IBM"), adj_close=None)
    questions = {jump.session: str(jump) for jump in raw.suspicious_jumps().shown}
    assert "AAPL 2000-09-29" in questions[20000929]
    assert "split or crash?" in questions[20000929]
    assert "2:1 split would look like this" in questions[20000621]
    assert "2:1 split" not in questions[20000929]
    assert set(questions) == {20000621, 20000929, 20050228}


def test_recorded_adjustments_raise_no_question() -> None:
    assert bokeh_panel("AAPL").suspicious_jumps() == PriceJumps()


RAW = ("open", "high", "low", "close")


def questions(bars: BarPanel) -> list[str]:
    return list(bars.suspicious_jumps().lines())


@pytest.mark.parametrize(
    ("days", "factor", "says"),
    [
        (slice(-1, None), 100, "IBM 2013-03-01: the close changes from 200.83 to 20291, the adjusted close from 173"),
        (slice(-1, None), 0.01, "IBM 2013-03-01: the close changes from 200.83 to 2.0291, the adjusted close from 173"),
        (slice(-3, None), 100, "IBM 2013-02-27: the close changes from 199.14 to 20233, the adjusted close from 172"),
        (
            slice(-50, -49),
            100,
            "IBM 2012-12-18: the close changes from 193.62 to 19569 and back on 2012-12-19, the",
        ),
        (
            slice(-50, -30),
            0.01,
            "IBM 2012-12-18: the close changes from 193.62 to 1.9569 and back on 2013-01-17, the",
        ),
    ],
    ids=["last, too high", "last, too low", "last days", "a day", "20 days"],
)
def test_a_wrong_close_beside_correct_adjusted_closes_is_a_question(days: slice, factor: float, says: str) -> None:
    (question,) = questions(scaled(bokeh_panel("AAPL", "IBM"), days, factor, RAW))
    assert question.startswith(says)
    assert question.endswith(
        "no split does that: a wrong close?"
        if "back on" in question
        else "a split, or a wrong close? Forecast prices start from the last close"
    )


def test_a_wrong_close_is_a_question_in_bars_that_end_before_later_splits() -> None:
    (question,) = questions(scaled(bokeh_panel("AAPL"), slice(-1, None), 0.01, RAW, symbol="AAPL"))
    assert question.startswith("AAPL 2013-03-01: the close changes from 441.4 to 4.3047, the adjusted close from 57.56")


@pytest.mark.parametrize(("symbol", "factor"), [("AAPL", 7), ("AAPL", 20), ("IBM", 20), ("IBM", 0.05)])
@pytest.mark.parametrize("days", [slice(-1), slice(-5), slice(-300)], ids=["last", "5 days ago", "300 days ago"])
def test_a_split_in_the_adjusted_closes_raises_no_question(symbol: str, days: slice, factor: float) -> None:
    assert questions(scaled(bokeh_panel("AAPL", "IBM"), days, factor, RAW, symbol=symbol)) == []


def test_a_split_that_is_reversed_a_month_later_raises_no_question() -> None:
    assert questions(scaled(bokeh_panel("IBM"), slice(-80, -59), 10, RAW)) == []


def test_a_wrong_adjusted_close_is_no_wrong_close() -> None:
    assert questions(scaled(bokeh_panel("IBM"), slice(-50, -49), 100, ("adj_close",))) == []


def test_a_wrong_close_is_seen_beside_a_missing_bar() -> None:
    halted = without_bars(scaled(bokeh_panel("IBM"), slice(-9, -8), 100, RAW), "IBM", slice(-10, -9))
    (question,) = questions(halted)
    assert question.startswith("IBM 2013-02-19: the close changes from 199.65 to 20032 and back on 2013-02-20")


def test_a_jump_is_seen_across_a_missing_bar() -> None:
    columns = {name: getattr(panel_of(), name).copy() for name in ("open", "high", "low", "close", "volume")}
    for name, values in columns.items():
        values[0, 1] = np.nan
        if name != "volume":
            values[0, 2:] *= 3
    (jump,) = panel_of(**columns).suspicious_jumps().shown
    assert (jump.symbol, jump.session) == ("AAA", 20240104)
    assert jump.ratio == pytest.approx(3 * 11.75 / 10)


# --- appending bars


def same(one: BarPanel, other: BarPanel) -> bool:
    names = ("sessions", *one.columns)
    return (one.symbols, one.columns) == (other.symbols, other.columns) and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name != "sessions") for name in names
    )


def test_a_panel_that_is_cut_and_followed_by_its_rest_is_the_same() -> None:
    whole = panel_of(split_ratio=np.ones((2, 4)), cash_dividend=np.full((2, 4), 0.5))
    joined = whole.last(4).until(20240103).followed_by(whole.between(20240104, 20240105))
    assert same(joined, whole)
    assert not joined.close.flags.writeable


@pytest.mark.parametrize(
    "later", [panel_of().select(["BBB", "AAA"]), panel_of(adj_close=panel_of().close), panel_of()], ids=str
)
def test_bars_of_other_symbols_columns_or_days_do_not_follow(later: BarPanel) -> None:
    with pytest.raises(BarsError, match="cannot follow"):
        panel_of().until(20240104).followed_by(later)


def test_a_dividend_above_the_close_of_the_panel_before_is_refused() -> None:
    paid = np.zeros((2, 4))
    whole = panel_of(cash_dividend=paid)
    paid[1, 3] = 30.0
    high = np.array([[40.0], [40.0]])
    last = dataclasses.replace(whole.last(1), cash_dividend=paid[:, 3:], high=high)
    with pytest.raises(BarsError, match="less than the close before"):
        whole.until(20240104).followed_by(last)


def test_bars_take_the_place_of_those_of_a_session_without_any() -> None:
    last = panel_of().last(1)
    empty = last.without_bars(20240105)
    assert not empty.present.any()
    second = empty.with_bars(last.select(["BBB"]), np.array([1]))
    assert second.present.tolist() == [[False], [True]]
    assert same(second.with_bars(last.select(["AAA"]), np.array([0])), last)


def test_a_jump_of_the_last_session_alone_is_one_that_the_columns_leave() -> None:
    whole = panel_of()
    half = {name: getattr(whole, name).copy() for name in ("open", "high", "low", "close")}
    for values in half.values():
        values[1, 1:] /= 2
        values[0, 3:] /= 2
    jumps = panel_of(**half).unexplained_jumps()
    assert [(jump.symbol, jump.session) for jump in jumps.shown] == [("AAA", 20240105)]
    split = np.ones((2, 4))
    split[0, 3] = 2.0
    assert panel_of(**half, split_ratio=split).unexplained_jumps() == PriceJumps()
    assert panel_of(split_ratio=split).unexplained_jumps().count == 1


@pytest.mark.parametrize(
    "day", [20120601, "2012-06-01", "20120601", date(2012, 6, 1), pd.Timestamp("2012-06-01 16:00")]
)
def test_days_are_given_as_dates_iso_dates_or_numbers(day: DateLike) -> None:
    panel = bokeh_panel("AAPL")
    assert panel.until(day).sessions[-1] == 20120601
    assert panel.between(day, day).sessions.tolist() == [20120601]


@pytest.mark.parametrize("day", [20120631, "June 1", 0])
def test_what_is_no_date_is_refused(day: DateLike) -> None:
    with pytest.raises(BarsError, match=re.escape(f'{day!r} is not a date; pass a date, "2012-06-01" or 20120601')):
        bokeh_panel("AAPL").until(day)


def test_an_empty_span_of_days_says_which_sessions_there_are() -> None:
    with pytest.raises(
        BarsError, match=r"no session from 1990-01-01 until 1990-12-31; it has 2000-03-01 to 2013-03-01"
    ):
        bokeh_panel("AAPL").between("1990-01-01", "1990-12-31")
