"""Subscriptions: the panel history that they keep, and accepted and refused pushes."""

from dataclasses import replace

import numpy as np
import pytest
from artifacts import recent_bars
from hypothesis import given, settings
from hypothesis import strategies as st
from market import bokeh_panel
from pushing import SentBars, day_of, no_bar, push_of, scaled

from predictor.bars import BarPanel
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import (
    BarsError,
    CovariateMissingError,
    CovariatesError,
    MalformedRequestError,
    NoUsableSymbolError,
    QuantraError,
    QueueFullError,
    ResubscribeError,
    SessionGapError,
    UnknownCovariateError,
    format_date,
)
from predictor.instance import GapPolicy, Instance
from predictor.subscription import AcceptedPush, Push, Subscription

NEED = 12
"""Number of bars that the model reads."""
SYMBOLS = ("AAPL", "GOOG", "IBM")
PANEL = recent_bars(*SYMBOLS)
DAYS = tuple(int(day) for day in PANEL.sessions)
BEGUN = 100
"""Number of sessions that the subscription sends."""


def subscribed(
    panel: BarPanel = PANEL, *, sessions: int = BEGUN, covariates: Covariates = NO_COVARIATES
) -> Subscription:
    return Subscription.of(Instance(input=panel.until(DAYS[sessions - 1]), covariates=covariates), NEED)


def after(subscription: Subscription, *pushes: Push, need: int = NEED) -> Subscription:
    """The subscription after all these pushes."""
    for push in pushes:
        subscription = subscription.pushed(push, need).after
    return subscription


def bars_of(subscription: Subscription) -> BarPanel:
    bars = subscription.instance().input
    assert isinstance(bars, BarPanel)
    return bars


def same(one: BarPanel, other: BarPanel) -> bool:
    columns = ("sessions", *one.columns)
    return (one.symbols, one.columns) == (other.symbols, other.columns) and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name != "sessions") for name in columns
    )


# --- retention


def test_only_the_bars_that_a_forecast_depends_on_are_kept() -> None:
    assert same(bars_of(subscribed()), PANEL.until(DAYS[BEGUN - 1]).last(NEED))
    taken = after(subscribed(), *(push_of(PANEL, day) for day in DAYS[BEGUN:]))
    assert same(bars_of(taken), PANEL.last(NEED))


def test_a_shorter_history_is_kept_whole_until_it_is_long_enough() -> None:
    short = replace(PANEL.between(DAYS[0], DAYS[4]))
    subscription = Subscription.of(Instance(input=short), NEED)
    for k, day in enumerate(DAYS[5:30]):
        subscription = after(subscription, push_of(PANEL, day))
        assert same(bars_of(subscription), PANEL.until(DAYS[5 + k]).last(NEED))


def test_what_is_kept_does_not_hold_on_to_the_history_that_was_sent() -> None:
    single = bokeh_panel("AAPL")
    kept = Subscription.of(Instance(input=single), NEED)
    for _ in range(3):
        held = [
            getattr(panel, name) for panel in (kept.history, kept.day.bars) for name in (*panel.columns, "sessions")
        ]
        owners = [values if values.base is None else values.base for values in held]
        assert max(owner.nbytes for owner in owners) <= 8 * (NEED + 1)
        kept = after(kept, push_of(PANEL, DAYS[-1], "AAPL"))


def test_what_is_asked_after_a_push_has_not_the_name_of_the_first_question() -> None:
    kept = Subscription.of(Instance(input=PANEL.until(DAYS[-2]), request_id="the first"), NEED)
    assert after(kept, push_of(PANEL, DAYS[-1])).instance().request_id == ""


def test_the_size_counts_bars_and_covariates() -> None:
    plain, covered = subscribed(), subscribed_with_covariates()
    cells = len(SYMBOLS) * NEED * 8
    assert cells * len(PANEL.columns) < plain.size < cells * len(PANEL.columns) + 2000
    assert covered.size > plain.size + 2 * cells


# --- the days


def test_a_panel_is_due_when_the_last_of_its_symbols_has_come() -> None:
    waiting = subscribed().pushed(push_of(PANEL, DAYS[BEGUN], "IBM"), NEED)
    assert (waiting.is_due, waiting.after.waits_for) == (False, ("AAPL", "GOOG"))
    waiting = waiting.after.pushed(push_of(PANEL, DAYS[BEGUN], "AAPL"), NEED)
    assert (waiting.is_due, waiting.after.waits_for) == (False, ("GOOG",))
    whole = waiting.after.pushed(push_of(PANEL, DAYS[BEGUN], "GOOG"), NEED)
    assert (whole.is_due, whole.after.waits_for) == (True, ())
    assert same(bars_of(whole.after), PANEL.until(DAYS[BEGUN]).last(NEED))


def test_a_model_is_asked_about_the_first_bar_of_a_day_and_about_a_day_that_is_due() -> None:
    first = subscribed().pushed(push_of(PANEL, DAYS[BEGUN], "IBM"), NEED)
    second = first.after.pushed(push_of(PANEL, DAYS[BEGUN], "AAPL"), NEED)
    third = second.after.pushed(push_of(PANEL, DAYS[BEGUN], "GOOG"), NEED)
    assert [push.needs_model for push in (first, second, third)] == [True, False, True]


def test_symbols_may_come_in_any_order() -> None:
    taken = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "IBM", "AAPL", "GOOG"))
    assert same(bars_of(taken), PANEL.until(DAYS[BEGUN]).last(NEED))


def test_a_flushed_day_has_no_bar_of_those_that_did_not_come() -> None:
    flushed = subscribed().pushed(push_of(PANEL, DAYS[BEGUN], "IBM", flush=True), NEED)
    assert flushed.is_due
    last = bars_of(flushed.after).last(1)
    assert np.isnan(last.close[:2]).all()
    assert last.close[2] == day_of(PANEL, DAYS[BEGUN], "IBM").close


def test_a_flush_alone_answers_a_day_that_waits() -> None:
    waiting = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "IBM"))
    flushed = waiting.pushed(Push(flush=True), NEED)
    assert flushed.is_due
    assert same(bars_of(flushed.after), bars_of(waiting))
    assert not after(flushed.after, push_of(PANEL, DAYS[BEGUN + 1])).waits_for


def test_after_a_flush_each_bar_of_the_day_is_answered() -> None:
    flushed = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "IBM", flush=True))
    late = flushed.pushed(push_of(PANEL, DAYS[BEGUN], "GOOG"), NEED)
    assert late.is_due
    assert np.isnan(bars_of(late.after).close[:, -1]).tolist() == [True, False, False]


def test_a_bar_of_the_last_day_replaces_it() -> None:
    other = scaled(day_of(PANEL, DAYS[BEGUN - 1], "GOOG"), 1.01)
    replaced = subscribed().pushed(Push(bars=other), NEED)
    assert replaced.is_due
    closes = bars_of(replaced.after).close
    assert closes[1, -1] == other.close
    assert np.array_equal(closes[:, :-1], PANEL.until(DAYS[BEGUN - 1]).last(NEED).close[:, :-1])


def test_a_bar_without_numbers_is_reported_as_empty() -> None:
    waiting = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "AAPL", "GOOG"))
    told = waiting.pushed(Push(bars=no_bar(PANEL, DAYS[BEGUN], "IBM")), NEED)
    assert told.is_due
    assert np.isnan(bars_of(told.after).close[:, -1]).tolist() == [False, False, True]


# --- refusals without effect


def push_error(push: Push, subscription: Subscription | None = None, *, need: int = NEED) -> QuantraError:
    """Error message of a refused push."""
    with pytest.raises(QuantraError) as caught:
        (subscription or subscribed()).pushed(push, need)
    return caught.value


def test_an_older_day_is_refused() -> None:
    error = push_error(push_of(PANEL, DAYS[BEGUN - 2]))
    assert isinstance(error, BarsError)
    assert error.metadata == {"date": format_date(DAYS[BEGUN - 2]), "last": format_date(DAYS[BEGUN - 1])}


def test_a_later_day_is_refused_while_one_waits_and_the_error_names_whom_for() -> None:
    waiting = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "IBM"))
    error = push_error(push_of(PANEL, DAYS[BEGUN + 1]), waiting)
    assert isinstance(error, BarsError)
    assert "still waits for AAPL, GOOG" in error.message


def test_a_day_that_waits_can_be_replaced_and_an_older_one_not() -> None:
    waiting = after(subscribed(), push_of(PANEL, DAYS[BEGUN], "IBM"))
    assert isinstance(push_error(push_of(PANEL, DAYS[BEGUN - 1]), waiting), BarsError)
    again = after(waiting, Push(bars=scaled(day_of(PANEL, DAYS[BEGUN], "IBM"), 1.01)))
    assert again.waits_for == ("AAPL", "GOOG")


def test_two_days_in_one_push_are_refused() -> None:
    error = push_error(Push(bars=PANEL.between(DAYS[BEGUN], DAYS[BEGUN + 1])))
    assert isinstance(error, BarsError)
    assert "bars of one session, but has 2" in error.message


def test_a_symbol_that_was_not_subscribed_is_refused() -> None:
    error = push_error(Push(bars=day_of(recent_bars("MSFT"), DAYS[BEGUN])))
    assert isinstance(error, BarsError)
    assert error.metadata["symbol"] == "MSFT"


@pytest.mark.parametrize(
    "columns", [{"adj_close": None}, {"adj_close": None, "split_ratio": np.ones((3, 1))}], ids=["fewer", "others"]
)
def test_other_columns_than_the_subscriptions_are_refused(columns: dict[str, None]) -> None:
    error = push_error(Push(bars=replace(day_of(PANEL, DAYS[BEGUN]), **columns)))
    assert isinstance(error, BarsError)
    assert "must have the columns of the subscription" in error.message


def test_an_adj_close_that_the_history_lacks_is_refused() -> None:
    plain = subscribed(replace(PANEL, adj_close=None))
    assert "adj_close" in push_error(push_of(PANEL, DAYS[BEGUN]), plain).message


@pytest.mark.parametrize("label", ["calendar", "currency"])
def test_another_calendar_or_currency_is_refused(label: str) -> None:
    error = push_error(Push(bars=replace(day_of(PANEL, DAYS[BEGUN]), **{label: "else"})))
    assert isinstance(error, BarsError)
    assert label in error.message


@pytest.mark.parametrize(
    "how", [{"gap_policy": GapPolicy.MASK}, {"allow_incomplete_last_bar": True}], ids=["gaps", "incomplete"]
)
def test_another_reading_than_the_subscriptions_is_refused(how: dict[str, GapPolicy]) -> None:
    push = push_of(PANEL, DAYS[BEGUN])
    assert isinstance(push_error(replace(push, **how)), BarsError)
    same_reading = Subscription.of(replace(Instance(input=PANEL.until(DAYS[BEGUN - 1])), **how), NEED)
    assert same_reading.pushed(replace(push, **how), NEED).is_due


@pytest.mark.parametrize("push", [Push(), Push(flush=True)], ids=["nothing", "nothing to flush"])
def test_a_push_of_nothing_is_refused(push: Push) -> None:
    assert isinstance(push_error(push), MalformedRequestError)


def test_a_session_begins_with_a_history() -> None:
    with pytest.raises(MalformedRequestError):
        Subscription.of(Instance(input=PANEL.last(1)), NEED)


# --- prices that jump


@pytest.mark.parametrize("factor", [0.5, 1.5], ids=["down", "up"])
def test_a_price_that_jumps_asks_for_a_new_subscription(factor: float) -> None:
    plain = replace(PANEL, adj_close=None)
    error = push_error(Push(bars=scaled(day_of(plain, DAYS[BEGUN], "IBM"), factor)), subscribed(plain))
    assert isinstance(error, ResubscribeError)
    assert error.metadata["symbol"] == "IBM"


def test_an_adjusted_close_off_the_scale_of_the_history_asks_for_a_new_subscription() -> None:
    day = day_of(PANEL, DAYS[BEGUN], "IBM")
    assert day.adj_close is not None
    error = push_error(Push(bars=replace(day, adj_close=day.adj_close * 2)))
    assert isinstance(error, ResubscribeError)


def with_events(panel: BarPanel) -> BarPanel:
    """The panel with empty columns for splits and dividends."""
    nothing = np.full_like(panel.close, np.nan)
    return replace(panel, adj_close=None, split_ratio=nothing, cash_dividend=nothing)


@pytest.mark.parametrize(
    ("factor", "event"),
    [(0.5, {"split_ratio": 2.0}), (0.25, {"split_ratio": 4.0}), (0.5, {"cash_dividend": 0.5})],
    ids=["2:1", "4:1", "dividend"],
)
def test_a_jump_explained_by_the_pushed_columns_is_accepted(factor: float, event: dict[str, float]) -> None:
    panel = with_events(PANEL)
    close = float(day_of(panel, DAYS[BEGUN - 1], "IBM").close[0, 0])
    amounts = {name: np.array([[value * (close if name == "cash_dividend" else 1)]]) for name, value in event.items()}
    bars = replace(scaled(day_of(panel, DAYS[BEGUN], "IBM"), factor), **amounts)
    assert subscribed(panel).pushed(Push(bars=bars), NEED).after.waits_for == ("AAPL", "GOOG")


def test_a_split_that_prices_do_not_follow_asks_for_a_new_subscription() -> None:
    panel = with_events(PANEL)
    bars = replace(day_of(panel, DAYS[BEGUN], "IBM"), split_ratio=np.array([[2.0]]))
    assert isinstance(push_error(Push(bars=bars), subscribed(panel)), ResubscribeError)


def test_a_jump_is_seen_across_days_without_a_bar() -> None:
    plain = replace(PANEL, adj_close=None)
    halted = after(subscribed(plain), push_of(plain, DAYS[BEGUN], "AAPL", "GOOG", flush=True))
    half = scaled(day_of(plain, DAYS[BEGUN + 1], "IBM"), 0.5)
    assert isinstance(push_error(Push(bars=half), halted), ResubscribeError)
    assert after(halted, push_of(plain, DAYS[BEGUN + 1])).waits_for == ()


def test_a_dividend_above_the_close_before_is_refused() -> None:
    panel = with_events(PANEL)
    bars = replace(day_of(panel, DAYS[BEGUN], "IBM"), cash_dividend=np.array([[1e4]]))
    assert isinstance(push_error(Push(bars=bars), subscribed(panel)), BarsError)


# --- a model that needs more bars


def test_a_model_that_reads_more_than_is_kept_asks_for_a_new_subscription() -> None:
    error = push_error(push_of(PANEL, DAYS[BEGUN]), need=NEED + 2)
    assert isinstance(error, ResubscribeError)
    assert error.metadata == {"have": str(NEED + 1), "need": str(NEED + 2)}


def test_a_model_that_reads_one_bar_more_is_no_matter_where_that_bar_comes() -> None:
    subscription = after(subscribed(), push_of(PANEL, DAYS[BEGUN]), need=NEED + 1)
    assert same(bars_of(subscription), PANEL.until(DAYS[BEGUN]).last(NEED + 1))


def test_a_model_that_reads_more_is_no_matter_where_all_that_was_sent_is_kept() -> None:
    short = subscribed(sessions=5)
    taken = after(short, *(push_of(PANEL, day) for day in DAYS[5:40]), need=30)
    assert same(bars_of(taken), PANEL.until(DAYS[39]).last(30))


def test_bars_that_were_dropped_on_the_way_cannot_be_read_again() -> None:
    short = subscribed(sessions=5)
    grown = after(short, *(push_of(PANEL, day) for day in DAYS[5:20]))
    assert isinstance(push_error(push_of(PANEL, DAYS[20]), grown, need=NEED + 2), ResubscribeError)


def test_a_model_that_reads_less_leaves_what_the_one_before_needs() -> None:
    less = after(subscribed(), push_of(PANEL, DAYS[BEGUN]), need=5)
    assert same(bars_of(after(less, push_of(PANEL, DAYS[BEGUN + 1]))), PANEL.until(DAYS[BEGUN + 1]).last(NEED))


# --- a model's response to a push


def answer(push: AcceptedPush, outcome: QuantraError) -> object:
    return push.answer(outcome)


def test_what_a_model_refuses_is_not_taken() -> None:
    for push in (push_of(PANEL, DAYS[BEGUN], "IBM"), push_of(PANEL, DAYS[BEGUN])):
        pushed = subscribed().pushed(push, NEED)
        for error in (SessionGapError("gap"), QueueFullError("full")):
            assert answer(pushed, error) is error


def test_that_no_symbol_can_be_forecast_yet_is_no_error_while_the_day_waits() -> None:
    pushed = subscribed().pushed(push_of(PANEL, DAYS[BEGUN], "IBM"), NEED)
    assert answer(pushed, NoUsableSymbolError("none yet")) is None


def test_that_no_symbol_can_be_forecast_is_an_error_once_the_day_is_due() -> None:
    pushed = subscribed().pushed(push_of(PANEL, DAYS[BEGUN]), NEED)
    error = NoUsableSymbolError("none")
    assert answer(pushed, error) is error


def test_a_day_on_which_nothing_traded_is_taken_without_a_forecast() -> None:
    pushed = subscribed().pushed(Push(bars=no_bar(PANEL, DAYS[BEGUN])), NEED)
    assert pushed.is_due
    assert answer(pushed, NoUsableSymbolError("none")) is None


# --- covariates


def given_covariates(sessions: int, *, ahead: int = 3) -> Covariates:
    """Covariates of each group for the first sessions of the panel."""
    rng = np.random.default_rng(5)
    every = rng.normal(size=(3, len(DAYS)))
    return Covariates(
        observed={"short_interest": every[:, :sessions].copy()},
        known={"earnings": (every * 7)[:, : sessions + ahead].copy()},
        future_sessions=np.array(DAYS[sessions : sessions + ahead], np.int32),
        numbers={"size": every[:, 0].copy()},
        categories={"sector": ("a", "b", "a")},
    )


def subscribed_with_covariates() -> Subscription:
    return subscribed(covariates=given_covariates(BEGUN))


def day_covariates(session: int, *rows: int, ahead: int = 3) -> Covariates:
    """Covariates pushed with the bars of a day."""
    every = given_covariates(session + 1, ahead=ahead)
    at = list(rows or range(3))
    return Covariates(
        observed={"short_interest": every.observed["short_interest"][at, -1:]},
        known={"earnings": every.known["earnings"][at, session:]},
        future_sessions=every.future_sessions,
    )


def same_covariates(one: Covariates, other: Covariates) -> bool:
    pairs = zip(
        (*one.observed.values(), *one.known.values(), *one.numbers.values(), one.future_sessions),
        (*other.observed.values(), *other.known.values(), *other.numbers.values(), other.future_sessions),
        strict=True,
    )
    return one.categories == other.categories and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def test_covariates_of_each_day_follow_those_of_the_subscription() -> None:
    subscription = subscribed_with_covariates()
    for place in range(BEGUN, BEGUN + 20):
        push = Push(bars=day_of(PANEL, DAYS[place]), covariates=day_covariates(place))
        subscription = after(subscription, push)
        assert same_covariates(subscription.instance().covariates, given_covariates(place + 1).last(NEED))


def test_covariates_of_symbols_that_come_apart_make_the_same_day() -> None:
    pushes = [
        Push(bars=day_of(PANEL, DAYS[BEGUN], SYMBOLS[row]), covariates=day_covariates(BEGUN, row)) for row in (2, 0, 1)
    ]
    together = after(subscribed_with_covariates(), *pushes).instance().covariates
    assert same_covariates(together, given_covariates(BEGUN + 1).last(NEED))


def test_known_values_that_were_sent_ahead_hold_for_a_symbol_that_does_not_come() -> None:
    push = Push(bars=day_of(PANEL, DAYS[BEGUN], "AAPL"), covariates=day_covariates(BEGUN, 0, ahead=4), flush=True)
    known = after(subscribed_with_covariates(), push).instance().covariates.known["earnings"]
    want = given_covariates(BEGUN + 1, ahead=4).last(NEED).known["earnings"]
    assert np.array_equal(known[0], want[0])
    assert np.array_equal(known[1:, :-2], want[1:, :-2])
    assert np.isnan(known[1:, -2:]).all()  # they were not sent that far ahead


def test_the_observed_value_of_a_symbol_that_does_not_come_is_unknown() -> None:
    push = Push(bars=day_of(PANEL, DAYS[BEGUN], "AAPL"), covariates=day_covariates(BEGUN, 0), flush=True)
    observed = after(subscribed_with_covariates(), push).instance().covariates.observed["short_interest"]
    assert np.isnan(observed[:, -1]).tolist() == [False, True, True]


def test_symbols_of_one_day_share_the_days_ahead() -> None:
    first = after(
        subscribed_with_covariates(),
        Push(bars=day_of(PANEL, DAYS[BEGUN], "AAPL"), covariates=day_covariates(BEGUN, 0)),
    )
    other = Push(bars=day_of(PANEL, DAYS[BEGUN], "IBM"), covariates=day_covariates(BEGUN, 2, ahead=5))
    error = push_error(other, first)
    assert isinstance(error, CovariatesError)
    assert "AAPL" in error.message
    again = Push(bars=day_of(PANEL, DAYS[BEGUN], "AAPL"), covariates=day_covariates(BEGUN, 0, ahead=5))
    assert after(first, again, other).waits_for == ("GOOG",)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"observed": {}}, CovariateMissingError),
        ({"known": {}, "future_sessions": np.zeros(0, np.int32)}, CovariateMissingError),
        ({"observed": {"short_interest": np.ones((3, 1)), "else": np.ones((3, 1))}}, UnknownCovariateError),
        ({"observed": {"short_interest": np.ones((3, 2))}}, CovariatesError),
        ({"numbers": {"size": np.ones(3)}}, CovariatesError),
        ({"categories": {"sector": ("a", "b", "c")}}, CovariatesError),
        ({"future_sessions": np.array(DAYS[BEGUN : BEGUN + 3], np.int32)}, CovariatesError),
    ],
    ids=["no observed", "no known", "another", "two days", "other number", "other text", "past days"],
)
def test_other_covariates_than_the_subscriptions_are_refused(
    changed: dict[str, dict[str, object]], kind: type[QuantraError]
) -> None:
    push = Push(bars=day_of(PANEL, DAYS[BEGUN]), covariates=replace(day_covariates(BEGUN), **changed))
    assert type(push_error(push, subscribed_with_covariates())) is kind


@pytest.mark.parametrize("rows", [(0, 1, 2), (2,), (1, 2)])
def test_static_covariates_may_be_pushed_as_they_are(rows: tuple[int, ...]) -> None:
    own = given_covariates(BEGUN)
    beside = replace(
        day_covariates(BEGUN, *rows),
        numbers={"size": own.numbers["size"][list(rows)]},
        categories={"sector": tuple(own.categories["sector"][row] for row in rows)},
    )
    push = Push(bars=day_of(PANEL, DAYS[BEGUN], *(SYMBOLS[row] for row in rows)), covariates=beside)
    assert len(after(subscribed_with_covariates(), push).waits_for) == 3 - len(rows)


def test_days_ahead_without_known_covariates_do_no_harm() -> None:
    observed = Covariates(observed=given_covariates(BEGUN).observed)
    subscription = subscribed(covariates=observed)
    for row, ahead in ((0, 0), (2, 3), (1, 1)):
        beside = Covariates(
            observed=day_covariates(BEGUN, row).observed,
            future_sessions=day_covariates(BEGUN, row).future_sessions[:ahead],
        )
        push = Push(bars=day_of(PANEL, DAYS[BEGUN], SYMBOLS[row]), covariates=beside)
        subscription = after(subscription, push)
    last = subscription.instance().covariates.observed["short_interest"][:, -1]
    assert np.array_equal(last, given_covariates(BEGUN + 1).observed["short_interest"][:, -1])


# --- random pushes

PUSHES = st.lists(
    st.tuples(
        st.integers(-2, 2),  # the day, from the last one
        st.sets(st.sampled_from(SYMBOLS), min_size=1),
        st.booleans(),  # whether to flush
        st.sampled_from(["bars", "bars", "bars", "none", "split", "alone"]),
        st.integers(4, 16),  # bars that the model needs
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(pushes=PUSHES, begun=st.integers(2, 20))
def test_whatever_is_pushed_the_instance_has_the_last_of_all_bars_that_were_taken(
    pushes: list[tuple[int, set[str], bool, str, int]], begun: int
) -> None:
    plain = replace(PANEL, adj_close=None)
    first = plain.until(DAYS[begun - 1])
    sent, held = SentBars.of(first), Subscription.of(Instance(input=first), 8)
    last = begun - 1
    for step, symbols, flush, kind, need in pushes:
        place = max(0, last + step)
        bars = day_of(plain, DAYS[place], *sorted(symbols))
        if kind == "none":
            bars = bars.without_bars(DAYS[place])
        push = Push(bars=scaled(bars, 0.5) if kind == "split" else bars, flush=flush)
        try:
            pushed = held.pushed(Push(flush=True) if kind == "alone" else push, need)
        except QuantraError:
            continue
        held = pushed.after
        if kind != "alone":
            sent.add(bars)
            last = place
        whole = sent.panel()
        assert same(bars_of(held), whole.last(held.sessions))
        assert held.sessions >= min(need, len(whole.sessions))
        assert held.waits_for == () or not flush
