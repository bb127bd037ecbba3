"""Model predictions from bars and windows, and refused inputs."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
import torch
from artifacts import constant_artifact, constant_rows, recent_bars, small_artifact, small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from market import without_bars
from numpy.typing import NDArray
from torch import nn
from window_levels import levels_at

from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.dates import to_date
from predictor.errors import (
    BarIncompleteError,
    BarsError,
    CalendarEndedError,
    ConfigurationError,
    ExplainUnsupportedError,
    FeatureMismatchError,
    InvalidInputError,
    NoUsableSymbolError,
    RequestTooLargeError,
    SessionGapError,
    TooFewBarsError,
    UnknownFeatureError,
    UnknownHorizonError,
    WindowShapeError,
)
from predictor.explain import NODE_COUNTS, ExplanationCost
from predictor.forecast import Detail, Forecast, TargetPoint
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, FeatureWindow, GapPolicy, Instance
from predictor.model import Model
from predictor.model.prepared_instance import PreparedInstance
from predictor.model.window_inputs import MAX_VALUES
from predictor.networks import GraphForecaster, Inputs, Target, TargetKind
from predictor.sessions import SessionCalendar

COLUMNS = ("open", "high", "low", "close", "volume", "adj_close")
LAST = 20130301
QUESTION = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM")))


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


# --- forecasts


def test_a_forecast_can_be_pickled(model: Model) -> None:
    forecast = model.predict([QUESTION.instance], AFTER_ALL_SESSIONS, NEVER)[0]
    assert isinstance(forecast, Forecast)
    copy = pickle.loads(pickle.dumps(forecast))  # noqa: S301  what the test itself has written
    np.testing.assert_array_equal(copy.values, forecast.values)
    assert (copy.symbols, copy.refusals) == (forecast.symbols, {})


def test_a_forecast_says_what_it_is_of(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    forecast = _forecast(model, bars)
    assert (forecast.symbols, forecast.as_of_session, forecast.lag) == (("AAPL", "IBM"), to_date(LAST), 0)
    assert forecast.target_sessions == (date(2013, 3, 4), date(2013, 3, 8), date(2013, 3, 15), date(2013, 4, 1))
    assert (forecast.horizons, forecast.quantiles) == ((1, 5, 10, 20), (0.1, 0.5, 0.9))
    assert forecast.values.shape == (2, 4, 3)
    assert np.isfinite(forecast.values).all()
    assert (np.diff(forecast.values, axis=-1) >= 0).all()
    assert forecast.warnings == ()


def test_prices_stand_on_the_last_raw_close(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    forecast = _forecast(model, bars)
    assert forecast.returns is forecast.values
    assert forecast.anchor_price is not None
    assert forecast.anchor_price.tolist() == bars.close[:, -1].tolist()
    assert forecast.prices is not None
    np.testing.assert_array_equal(forecast.prices, bars.close[:, -1][:, None, None] * np.exp(forecast.values))


def test_a_forecast_in_volatility_units_is_undone_once(model: Model) -> None:
    """From the network's output to the answer by hand, offsets included."""
    prepared = model.prepare(Instance(input=recent_bars("AAPL")), AFTER_ALL_SESSIONS)
    units = model.engine.compute_units(prepared.inputs).numpy().astype(np.float64)
    calibrated = units + np.array([-0.05, 0.0, 0.08])
    scale = float(prepared.inputs.scale[0, 0])
    by_hand = scale * np.sqrt([1.0, 5.0, 10.0, 20.0])[:, None] * calibrated
    np.testing.assert_allclose(model.forecast([prepared])[0].values, by_hand, rtol=1e-12)
    assert 0.005 < scale < 0.05


def test_a_lag_gives_returns_and_no_prices() -> None:
    forecast = _forecast(small_model(small_artifact(target=Target(lag=1))), recent_bars("AAPL"))
    assert forecast.prices is None
    assert forecast.returns is not None
    assert forecast.lag == 1
    assert forecast.target_sessions[0] == date(2013, 3, 5)


def test_log_volatility_gives_neither_returns_nor_prices() -> None:
    target = Target(kind=TargetKind.LOG_VOLATILITY)
    forecast = _forecast(small_model(small_artifact(target=target)), recent_bars("AAPL"))
    assert (forecast.returns, forecast.prices, forecast.target_kind) == (None, None, "log-volatility")
    assert ((forecast.values > -8) & (forecast.values < -2)).all()


def test_many_instances_together_answer_as_each_alone(model: Model) -> None:
    panels = [recent_bars("AAPL"), recent_bars("IBM", "MSFT", "GOOG"), recent_bars("MSFT")]
    prepared = [model.prepare(Instance(input=bars), AFTER_ALL_SESSIONS) for bars in panels]
    for together, alone in zip(model.forecast(prepared), prepared, strict=True):
        np.testing.assert_allclose(together.values, model.forecast([alone])[0].values, rtol=0, atol=1e-6)


def test_small_chunks_answer_as_large_ones() -> None:
    made = small_artifact()
    prepared = small_model(made).prepare(Instance(input=recent_bars("AAPL", "IBM", "MSFT")), AFTER_ALL_SESSIONS)
    whole = small_model(made).forecast([prepared])[0]
    cut = Model.assemble(small_model(made).identity, made, device=torch.device("cpu"), max_rows=2).forecast([prepared])[
        0
    ]
    np.testing.assert_allclose(cut.values, whole.values, rtol=0, atol=1e-6)


# --- the id of a forecast


def test_the_same_question_has_the_same_id(model: Model) -> None:
    again = small_model(small_artifact())
    assert _forecast(model, recent_bars("AAPL")).forecast_id == _forecast(again, recent_bars("AAPL")).forecast_id


def test_another_question_or_model_has_another_id(model: Model) -> None:
    bars, made = recent_bars("AAPL"), small_artifact()
    dearer = replace(bars, **{name: getattr(bars, name) * 7 for name in COLUMNS if name != "volume"})
    renamed = replace(bars, symbols=("AAPX",))
    offsets = replace(made.manifest.conformal, offsets=((-0.5, 0.0, 0.5),) * 4)
    calibrated = small_model(replace(made, manifest=replace(made.manifest, conformal=offsets)))
    weights = replace(model.identity, weights_hash="1" * 64)
    other = Model.assemble(weights, made, device=torch.device("cpu"), max_rows=256)
    ids = {
        "plain": _forecast(model, bars).forecast_id,
        "a day earlier": _forecast(model, bars.until(20130228)).forecast_id,
        "another symbol": _forecast(model, recent_bars("IBM")).forecast_id,
        "another name": _forecast(model, renamed).forecast_id,
        "other prices of the same inputs": _forecast(model, dearer).forecast_id,
        "other offsets": _forecast(calibrated, bars).forecast_id,
        "other weights": _forecast(other, bars).forecast_id,
    }
    assert len(set(ids.values())) == len(ids)


def test_a_card_does_not_change_the_id(model: Model) -> None:
    made = small_artifact()
    other = small_model(replace(made, manifest=replace(made.manifest, card={"note": "rewritten"})))
    assert _forecast(other, recent_bars("AAPL")).forecast_id == _forecast(model, recent_bars("AAPL")).forecast_id


def test_a_missing_price_has_the_same_id_whichever_nan_a_language_writes(model: Model) -> None:
    bars = _without(recent_bars("AAPL", "IBM"), 1, slice(-1, None))
    of_dotnet = np.array([0xFFF8000000000000], np.uint64).view(np.float64)[0]
    columns = {name: np.where(np.isnan(getattr(bars, name)), of_dotnet, getattr(bars, name)) for name in bars.columns}
    assert columns["close"].tobytes() != bars.close.tobytes()
    assert _forecast(model, replace(bars, **columns)).forecast_id == _forecast(model, bars).forecast_id


# --- symbols that cannot be forecast


def test_a_symbol_without_its_last_bar_gets_no_numbers_and_is_named(model: Model) -> None:
    bars = _without(recent_bars("AAPL", "IBM", "MSFT"), 1, slice(-1, None))
    forecast = _forecast(model, bars)
    assert np.isnan(forecast.values[1]).all()
    assert forecast.prices is not None
    assert np.isnan(forecast.prices[1]).all()
    assert forecast.warnings == ("no forecast of IBM: has no bar on the panel's last session, 2013-03-01",)
    assert isinstance(forecast.refusals["IBM"], NoUsableSymbolError)
    alone = _forecast(model, recent_bars("AAPL", "MSFT"))
    np.testing.assert_allclose(forecast.values[[0, 2]], alone.values, rtol=0, atol=1e-6)


def test_a_symbol_whose_features_are_all_unknown_is_named(model: Model) -> None:
    bars = _without(recent_bars("AAPL", "IBM"), 1, slice(None, -1))
    forecast = _forecast(model, bars)
    assert np.isnan(forecast.values[1]).all()
    assert forecast.warnings[0].startswith("no forecast of IBM: have 1 bars in the last 60 sessions, need 30")


def test_a_symbol_without_a_return_in_its_last_sessions_is_named(model: Model) -> None:
    """Features without look-back are known on every other day, but no return is."""
    bars = _without(recent_bars("AAPL", "IBM"), 1, slice(0, -1, 2))
    refusal = _forecast(model, bars).refusals["IBM"]
    assert isinstance(refusal, TooFewBarsError)
    assert "have 0 values in the last 60 sessions for its volatility, need 20" in refusal.message


def test_a_symbol_of_a_volatility_that_no_market_has_is_named(model: Model) -> None:
    bars = replace(recent_bars("AAPL", "IBM"), adj_close=None)
    prices = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    for column in prices.values():
        column[1, ::2] *= 1e100
    forecast = _forecast(model, replace(bars, **prices), accept_suspect_bars=True)
    assert np.isfinite(forecast.values[0]).all()
    assert np.isnan(forecast.values[1]).all()
    assert "has a volatility of 230 per day, which is impossible" in forecast.refusals["IBM"].message


@pytest.mark.parametrize("price", [1e101, 1e-101])
def test_a_symbol_whose_last_close_no_fan_can_start_from_is_named(model: Model, price: float) -> None:
    bars = recent_bars("AAPL", "IBM")
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "adj_close")}
    for column in columns.values():
        column[1] *= price / bars.close[1, -1]
    answer = _forecast(model, replace(bars, **columns))
    assert answer.refusals["IBM"].message == (
        f"IBM: has a last close of {price:.3g}, which is impossible; check its prices"
    )
    assert answer.prices is not None
    assert np.isfinite(answer.prices[0]).all()


def test_a_panel_without_a_usable_symbol_is_refused_naming_each(model: Model) -> None:
    bars = _without(_without(recent_bars("AAPL", "IBM"), 1, slice(-1, None)), 0, slice(-1, None))
    with pytest.raises(NoUsableSymbolError, match=r"no symbol can be forecast: AAPL: has no bar.*; IBM: has no bar"):
        _forecast(model, bars)


def test_a_jump_that_may_be_a_split_is_a_warning(model: Model) -> None:
    bars = replace(recent_bars("IBM"), adj_close=None)
    prices = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    for column in prices.values():
        column[0, -10:] /= 3
    warnings = _forecast(model, replace(bars, **prices)).warnings
    assert len(warnings) == 1
    assert "IBM" in warnings[0]


# --- the exchange's calendar


def test_a_bar_whose_session_is_open_is_no_close(model: Model) -> None:
    closes = datetime(2013, 3, 1, 21, 0, tzinfo=UTC)  # 16:00 in New York
    instance = Instance(input=recent_bars("AAPL"))
    with pytest.raises(BarIncompleteError, match="2013-03-01 has not closed yet") as caught:
        model.prepare(instance, closes - timedelta(seconds=1))
    assert caught.value.metadata == {"date": "2013-03-01"}
    assert model.prepare(instance, closes).as_of == LAST


def test_a_caller_may_insist_on_an_unfinished_bar(model: Model) -> None:
    instance = Instance(input=recent_bars("AAPL"), allow_incomplete_last_bar=True)
    assert model.prepare(instance, datetime(2013, 3, 1, 15, tzinfo=UTC)).as_of == LAST


@pytest.mark.parametrize("allow", [False, True])
def test_a_bar_of_a_later_day_is_refused_also_if_unfinished_bars_are_allowed(model: Model, *, allow: bool) -> None:
    instance = Instance(input=recent_bars("AAPL"), allow_incomplete_last_bar=allow)
    with pytest.raises(BarsError, match="AAPL: session 2013-03-01 is in the future: today is 2013-02-27"):
        model.prepare(instance, datetime(2013, 2, 27, 15, tzinfo=UTC))


def _with_a_bar_on(bars: BarPanel, symbol: str, session: int) -> BarPanel:
    """The panel, in which the last bar of a symbol is also on another session."""
    longer = bars.on_sessions(np.union1d(bars.sessions, [session]))
    row, column = bars.symbols.index(symbol), int(np.searchsorted(longer.sessions, session))
    columns = {name: getattr(longer, name).copy() for name in COLUMNS}
    for name, values in columns.items():
        values[row, column] = getattr(bars, name)[row, -1]
    return replace(longer, **columns)


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (20130304, BarIncompleteError),  # the session of the present day
        (20130310, BarsError),  # later than the next day
        (20130224, BarsError),  # a Sunday
    ],
)
def test_a_symbol_with_a_bar_on_a_wrong_session_fails_alone(
    model: Model, session: int, reason: type[Exception]
) -> None:
    bars, now = recent_bars("AAPL", "IBM"), datetime(2013, 3, 4, 15, tzinfo=UTC)
    prepared = model.prepare(Instance(input=_with_a_bar_on(bars, "IBM", session)), now)
    ((symbol, error),) = prepared.refusals.items()
    assert (symbol, type(error), prepared.as_of) == ("IBM", reason, LAST)
    assert error.message.startswith("IBM: ")
    alone = model.predict([Instance(input=bars.select("AAPL"))], now, NEVER)[0]
    beside = model.predict([Instance(input=_with_a_bar_on(bars, "IBM", session))], now, NEVER)[0]
    assert isinstance(alone, Forecast)
    assert isinstance(beside, Forecast)
    assert np.array_equal(beside.values[0], alone.values[0])


def test_a_symbol_that_trades_on_weekends_leaves_the_others_their_history(model: Model) -> None:
    bars, days = recent_bars("AAPL", "IBM"), np.datetime64("2012-01-01") + np.arange(425)
    daily = np.array([int(str(day).replace("-", "")) for day in days])
    longer = bars.on_sessions(np.union1d(bars.sessions, daily))
    columns = {name: getattr(longer, name).copy() for name in COLUMNS}
    for name, values in columns.items():
        values[1] = getattr(bars, name)[1, -1]
    now = datetime(2013, 3, 4, 15, tzinfo=UTC)
    alone = model.predict([Instance(input=bars.select("AAPL"))], now, NEVER)[0]
    beside = model.predict([Instance(input=replace(longer, **columns))], now, NEVER)[0]
    assert isinstance(alone, Forecast)
    assert isinstance(beside, Forecast)
    assert [*beside.refusals] == ["IBM"]
    assert np.array_equal(beside.values[0], alone.values[0])


def test_a_panel_whose_symbols_mostly_have_bars_on_a_wrong_session_is_refused(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM", "MSFT")
    for symbol in ("IBM", "MSFT"):
        bars = _with_a_bar_on(bars, symbol, 20130224)
    with pytest.raises(BarsError, match=r"^XNYS held no session on 2013-02-24"):
        model.prepare(Instance(input=bars), datetime(2013, 3, 4, 15, tzinfo=UTC))


def test_a_panel_without_a_right_session_is_refused(model: Model) -> None:
    bars = without_bars(recent_bars("AAPL", "IBM"), "IBM", slice(None))
    with pytest.raises(BarsError, match="AAPL: session 2013-03-01 is in the future"):
        model.prepare(Instance(input=bars), datetime(2000, 1, 3, tzinfo=UTC))


def test_a_half_day_closes_early(model: Model) -> None:
    instance = Instance(input=recent_bars("AAPL").until(20121224))
    with pytest.raises(BarIncompleteError):
        model.prepare(instance, datetime(2012, 12, 24, 17, 59, tzinfo=UTC))
    assert model.prepare(instance, datetime(2012, 12, 24, 18, 0, tzinfo=UTC)).as_of == 20121224


def test_a_present_without_a_time_zone_is_refused(model: Model) -> None:
    with pytest.raises(ConfigurationError, match="without a time zone"):
        model.prepare(Instance(input=recent_bars("AAPL")), datetime(2020, 1, 1))  # noqa: DTZ001 - that is the point


def test_sessions_that_the_bars_lack_are_named(model: Model) -> None:
    bars = _cut(recent_bars("AAPL"), [20130213, 20130214])
    with pytest.raises(SessionGapError, match="2013-02-13, 2013-02-14") as caught:
        _forecast(model, bars)
    assert caught.value.metadata == {"missing": "2013-02-13, 2013-02-14", "count": "2"}


def test_many_missing_sessions_are_counted(model: Model) -> None:
    sessions = recent_bars("AAPL").sessions[-40:-20].tolist()
    with pytest.raises(SessionGapError, match="and 15 more"):
        _forecast(model, _cut(recent_bars("AAPL"), sessions))


def test_a_gap_before_the_bars_needed_does_not_matter(model: Model) -> None:
    bars = recent_bars("AAPL")
    whole = _forecast(model, bars)
    assert _forecast(model, _cut(bars, [int(bars.sessions[-141])])).forecast_id == whole.forecast_id


def test_masking_a_gap_counts_it_as_sessions_without_a_bar(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    day = int(np.flatnonzero(bars.sessions == 20130213)[0])
    cut = Instance(input=_cut(bars, [20130213]), gap_policy=GapPolicy.MASK)
    masked = model.prepare(cut, AFTER_ALL_SESSIONS)
    missing = _without(_without(bars, 0, slice(day, day + 1)), 1, slice(day, day + 1))
    expected = model.prepare(Instance(input=missing), AFTER_ALL_SESSIONS)
    assert masked.sessions.tolist() == bars.sessions[-60:].tolist()
    assert all(torch.equal(a, b) for a, b in zip(masked.inputs, expected.inputs, strict=True))
    assert not masked.inputs.mask[:, day - 140].any()


def test_ignoring_a_gap_takes_the_bars_as_consecutive(model: Model) -> None:
    bars = recent_bars("AAPL")
    cut = Instance(input=_cut(bars, [20130213]), gap_policy=GapPolicy.IGNORE)
    prepared = model.prepare(cut, AFTER_ALL_SESSIONS)
    assert 20130213 not in prepared.sessions
    assert bool(prepared.inputs.mask.all())


def test_masked_sessions_count_towards_the_bars_needed(model: Model) -> None:
    cut = _cut(recent_bars("AAPL").last(140), [20130213])
    masked, ignored = (
        model.prepare(Instance(input=cut, gap_policy=policy), AFTER_ALL_SESSIONS)
        for policy in (GapPolicy.MASK, GapPolicy.IGNORE)
    )
    assert masked.as_of == ignored.as_of == LAST
    assert masked.inputs.mask.sum() < ignored.inputs.mask.sum()
    for prepared in (masked, ignored):
        assert "forecast from fewer than the 140 bars that the model reads, AAPL from 139" in prepared.warnings[0]


def test_a_bar_on_a_holiday_is_refused_by_date(model: Model) -> None:
    bars = recent_bars("AAPL")
    sessions = bars.sessions.copy()
    sessions[sessions == 20130219] = 20130218  # Washington's birthday
    with pytest.raises(BarsError, match="XNYS held no session on 2013-02-18; remove"):
        _forecast(model, replace(bars, sessions=sessions))


def test_bars_of_another_calendar_are_refused(model: Model) -> None:
    with pytest.raises(BarsError, match="of calendar 'XLON', but the model's calendar is 'XNYS'"):
        _forecast(model, replace(recent_bars("AAPL"), calendar="XLON"))


def test_bars_that_name_no_calendar_are_taken_for_the_models(model: Model) -> None:
    assert _forecast(model, replace(recent_bars("AAPL"), calendar="")).as_of_session == to_date(LAST)


def test_bars_beyond_the_calendar_are_refused_by_its_end(model: Model) -> None:
    bars = recent_bars("AAPL")
    with pytest.raises(CalendarEndedError, match="2018-03"):
        _forecast(model, replace(bars, sessions=bars.sessions + 100_000))


def test_a_model_of_no_exchange_takes_bars_of_any() -> None:
    forecast = _forecast(_of_no_exchange(), recent_bars("AAPL"))
    assert forecast.target_sessions[0] == date(2013, 3, 4)
    assert any("Monday to Friday" in warning for warning in forecast.warnings)


@pytest.mark.parametrize("sessions", [35, 59, 100])
@pytest.mark.parametrize("kind", ["lstm", "hybrid", "tft", "har"])
def test_a_young_symbol_of_an_exchange_is_forecast_alone_as_with_an_old_one(kind: str, sessions: int) -> None:
    model = small_model(small_artifact(kind))
    beside, alone = _young(model, sessions)

    for name, group in alone.inputs._asdict().items():
        assert torch.equal(group, getattr(beside.inputs, name)), name
    one, other = (model.forecast([prepared])[0].values for prepared in (alone, beside))
    assert np.array_equal(one, other)


def test_a_young_symbol_without_an_exchange_warns_that_its_calendar_is_a_guess() -> None:
    model = _of_no_exchange()
    beside, alone = _young(model, 35)

    guess = "the bars begin on 2013-01-10, after the first of the 60 sessions that the model reads"
    assert not torch.equal(alone.inputs.known, beside.inputs.known)
    assert [warning for warning in alone.warnings if guess in warning]
    assert not [warning for warning in beside.warnings if guess in warning]


def test_a_symbol_of_no_exchange_that_fills_the_encoder_is_read_alone_as_with_an_old_one() -> None:
    beside, alone = _young(_of_no_exchange(), 60)

    for name, group in alone.inputs._asdict().items():
        assert torch.equal(group, getattr(beside.inputs, name)), name
    assert not [warning for warning in alone.warnings if "the bars begin on" in warning]


def test_the_panel_can_move_to_a_longer_axis() -> None:
    bars = recent_bars("AAPL", "IBM")
    cut = _cut(bars, [20130213, 20130220])
    back = cut.on_sessions(bars.sessions)
    assert back.sessions.tolist() == bars.sessions.tolist()
    lost = np.isin(bars.sessions, [20130213, 20130220])
    for name in COLUMNS:
        assert np.isnan(getattr(back, name)[:, lost]).all()
        assert np.array_equal(getattr(back, name)[:, ~lost], getattr(bars, name)[:, ~lost])
    assert (back.calendar, back.currency, back.symbols) == ("XNYS", "USD", ("AAPL", "IBM"))


def test_the_longer_axis_must_hold_every_session() -> None:
    bars = recent_bars("AAPL")
    with pytest.raises(BarsError, match="lacks session 2013-03-01"):
        bars.on_sessions(bars.sessions[:-1])


# --- windows in place of bars


def test_windows_answer_as_the_bars_they_were_made_from(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    from_windows = model.forecast([model.prepare(Instance(input=_window(model, bars)), AFTER_ALL_SESSIONS)])[0]
    from_bars = _forecast(model, bars)
    assert np.array_equal(from_windows.values, from_bars.values)
    assert from_windows.prices is not None
    assert from_bars.prices is not None
    assert np.array_equal(from_windows.prices, from_bars.prices)
    assert from_windows.target_sessions == from_bars.target_sessions
    assert from_windows.forecast_id == from_bars.forecast_id


def test_windows_without_session_and_anchor_give_neither_dates_nor_prices(model: Model) -> None:
    window = replace(_window(model, recent_bars("AAPL")), anchor_price=None, as_of_session=None)
    forecast = model.forecast([model.prepare(Instance(input=window), AFTER_ALL_SESSIONS)])[0]
    assert (forecast.prices, forecast.anchor_price, len(forecast.target_sessions)) == (None, None, 0)
    assert np.isfinite(forecast.values).all()


def test_an_unknown_feature_is_refused_with_the_known_ones(model: Model) -> None:
    names = ("rsi", *model.pipeline.features.features.names[1:])
    window = replace(_window(model, recent_bars("AAPL")), features=names)
    with pytest.raises(UnknownFeatureError, match=r"features \['rsi'\] are not the model's; it reads \['return_1'"):
        model.prepare(Instance(input=window), AFTER_ALL_SESSIONS)


def test_features_in_another_order_or_too_few_are_refused_naming_what_is_missing(model: Model) -> None:
    names = model.pipeline.features.features.names
    window = _window(model, recent_bars("AAPL"))
    with pytest.raises(FeatureMismatchError, match="another order"):
        model.prepare(Instance(input=replace(window, features=names[::-1])), AFTER_ALL_SESSIONS)
    with pytest.raises(FeatureMismatchError, match=r"missing \['return_1'\]"):
        model.prepare(Instance(input=replace(window, features=names[1:])), AFTER_ALL_SESSIONS)


def test_the_models_own_feature_names_are_accepted(model: Model) -> None:
    window = replace(_window(model, recent_bars("AAPL")), features=model.pipeline.features.features.names)
    assert model.prepare(Instance(input=window), AFTER_ALL_SESSIONS).symbols == ("AAPL",)


def test_windows_of_another_schema_are_refused_naming_the_features(model: Model) -> None:
    window = replace(_window(model, recent_bars("AAPL")), schema_hash="f" * 5000)
    with pytest.raises(FeatureMismatchError, match="return_1") as caught:
        model.prepare(Instance(input=window), AFTER_ALL_SESSIONS)
    assert caught.value.metadata == {"expected": model.pipeline.features.schema_hash}
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("group", ["observed", "known", "static", "mask", "location", "scale", "anchor_price"])
def test_a_window_group_of_another_shape_is_named(model: Model, group: str) -> None:
    window = _window(model, recent_bars("AAPL"))
    wrong: NDArray[np.generic] = np.concatenate([getattr(window, group)] * 2, axis=-1)
    wrong = wrong if group != "static" else np.zeros((1, 1), np.float32)
    with pytest.raises(WindowShapeError, match=f"^{group} "):
        model.prepare(Instance(input=replace(window, **{group: wrong})), AFTER_ALL_SESSIONS)


@pytest.mark.parametrize(
    ("group", "kind"), [("observed", np.float64), ("known", np.float64), ("mask", np.int8), ("scale", np.float32)]
)
def test_a_window_group_of_another_type_is_named(model: Model, group: str, kind: type[np.generic]) -> None:
    window = _window(model, recent_bars("AAPL"))
    with pytest.raises(WindowShapeError, match=f"{group} is {np.dtype(kind)} of shape .*, the model reads"):
        model.prepare(
            Instance(input=replace(window, **{group: getattr(window, group).astype(kind)})), AFTER_ALL_SESSIONS
        )


@pytest.mark.parametrize("group", ["observed", "known", "location", "scale", "anchor_price"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_window_value_that_is_not_finite_is_named(model: Model, group: str, value: float) -> None:
    window = _window(model, recent_bars("AAPL", "IBM"))
    with pytest.raises(InvalidInputError, match=f"^{group} holds a value"):
        model.prepare(Instance(input=_with_last(window, group, value)), AFTER_ALL_SESSIONS)


@pytest.mark.parametrize("group", ["observed", "known", "location", "scale"])
def test_a_window_value_that_would_overflow_is_named(model: Model, group: str) -> None:
    window = _window(model, recent_bars("AAPL"))
    with pytest.raises(InvalidInputError, match=f"^{group} holds a value that is not finite, or beyond"):
        model.prepare(Instance(input=_with_last(window, group, 2e6)), AFTER_ALL_SESSIONS)


@pytest.mark.parametrize("group", ["scale", "anchor_price"])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_scale_and_an_anchor_must_be_positive(model: Model, group: str, value: float) -> None:
    window = _window(model, recent_bars("AAPL"))
    with pytest.raises(InvalidInputError, match=f"^{group} holds a value that is not"):
        model.prepare(Instance(input=_with_last(window, group, value)), AFTER_ALL_SESSIONS)


def test_a_value_in_an_unknown_cell_is_refused(model: Model) -> None:
    window = _window(model, recent_bars("AAPL"))
    with pytest.raises(InvalidInputError, match="a cell that mask marks as unknown"):
        model.prepare(Instance(input=replace(window, mask=np.zeros_like(window.mask))), AFTER_ALL_SESSIONS)


def test_a_window_of_which_nothing_is_known_is_refused_by_its_symbol(model: Model) -> None:
    window = _window(model, recent_bars("AAPL", "IBM"))
    mask, observed = window.mask.copy(), window.observed.copy()
    mask[1], observed[1] = False, 0
    with pytest.raises(InvalidInputError, match="mask marks every cell of IBM as unknown"):
        model.prepare(Instance(input=replace(window, mask=mask, observed=observed)), AFTER_ALL_SESSIONS)


@pytest.mark.parametrize("group", ["location", "scale"])
@pytest.mark.parametrize(("fitted", "wanted"), [(False, r"\[2\]"), (True, r"\[2, 4\]")], ids=["window", "fitted"])
def test_levels_of_the_other_kind_of_model_are_refused_by_name(*, fitted: bool, wanted: str, group: str) -> None:
    model = small_model(small_artifact(fitted=fitted))
    rows = model.prepare(Instance(input=recent_bars("AAPL", "IBM")), AFTER_ALL_SESSIONS).inputs
    levels = {name: getattr(rows, name).numpy() for name in ("location", "scale")}
    own = levels if fitted else {name: level[:, 0] for name, level in levels.items()}
    other = {name: level[:, 0] for name, level in levels.items()} if fitted else levels
    groups = {name: getattr(rows, name).numpy() for name in ("observed", "known", "static", "mask")}
    window = FeatureWindow(symbols=("AAPL", "IBM"), schema_hash=model.pipeline.features.schema_hash, **groups, **own)

    assert model.prepare(Instance(input=window), AFTER_ALL_SESSIONS).symbols == ("AAPL", "IBM")
    with pytest.raises(WindowShapeError, match=rf"{group} is float64 .* of shape {wanted}"):
        model.prepare(Instance(input=replace(window, **{group: other[group]})), AFTER_ALL_SESSIONS)


def test_windows_of_no_symbol_are_refused(model: Model) -> None:
    window = _window(model, recent_bars("AAPL"))
    empty = {name: getattr(window, name)[:0] for name in ("observed", "known", "static", "mask", "location", "scale")}
    with pytest.raises(InvalidInputError, match="at least one symbol"):
        model.prepare(Instance(input=replace(window, symbols=(), anchor_price=None, **empty)), AFTER_ALL_SESSIONS)


@pytest.mark.parametrize("session", [date(2013, 3, 2), date(2013, 2, 18), date(2099, 12, 31), date(1, 1, 1)])
def test_windows_as_of_a_day_without_trading_are_refused(model: Model, session: date) -> None:
    """Immediately, not after a whole batch."""
    window = replace(_window(model, recent_bars("AAPL")), as_of_session=session)
    with pytest.raises((InvalidInputError, CalendarEndedError)):
        model.prepare(Instance(input=window), AFTER_ALL_SESSIONS)


@settings(max_examples=30, deadline=None)
@given(size=st.sampled_from([1e-6, 1e-3, 1.0]), seed=st.integers(0, 2**32 - 1))
def test_no_window_that_is_accepted_gives_a_number_that_is_not_finite(model: Model, size: float, seed: int) -> None:
    window, random = _window(model, recent_bars("AAPL")), np.random.default_rng(seed)
    wild = {
        name: (random.uniform(-1, 1, getattr(window, name).shape) * size * MAX_VALUES[name]).astype(np.float32)
        for name in ("observed", "known")
    }
    level, scale = np.array([size * MAX_VALUES["location"]]), np.array([size * MAX_VALUES["scale"]])
    asked = replace(window, mask=np.ones_like(window.mask), location=level, scale=scale, **wild)
    forecast = model.forecast([model.prepare(Instance(input=asked), AFTER_ALL_SESSIONS)])[0]
    assert np.isfinite(forecast.values).all()
    assert forecast.prices is not None
    assert np.isfinite(forecast.prices).all()


def test_a_prepared_window_does_not_share_the_callers_arrays(model: Model) -> None:
    window = _window(model, recent_bars("AAPL"))
    prepared = model.prepare(Instance(input=window), AFTER_ALL_SESSIONS)
    before = model.forecast([prepared])[0].values
    window.observed[:] = 3
    window.scale[:] = 9
    assert np.array_equal(model.forecast([prepared])[0].values, before)


# --- explanations


def test_an_attribution_names_every_input_and_adds_up(model: Model) -> None:
    query = ExplanationQuery(
        instance=Instance(input=recent_bars("AAPL", "IBM")), targets=(TargetPoint(5, 0.9),), tolerance=1e-3
    )
    (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)
    names = [f.name for f in model.pipeline.features.features.observed]
    assert found.row_names[: len(names)] == tuple(names)
    assert found.row_names[-3:] == ("location", "scale", "conformal")
    assert len(found.row_names) == len(found.row_kinds) == found.per_row.shape[1]
    assert found.converged.all()
    difference = found.prediction - found.baseline_prediction
    np.testing.assert_allclose(found.per_row.sum(axis=1), difference, atol=2e-3 * np.abs(difference).max())
    np.testing.assert_allclose(found.importance.sum(axis=1), 1)


def test_an_attribution_explains_the_forecast_that_is_served(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    found = model.explain(ExplanationQuery(instance=Instance(input=bars)), AFTER_ALL_SESSIONS, NEVER)
    assert [(a.horizon, a.quantile) for a in found] == [(1, 0.5), (5, 0.5), (10, 0.5), (20, 0.5)]
    served = _forecast(model, bars)
    for place, attribution in enumerate(found):
        np.testing.assert_allclose(attribution.prediction, served.values[:, place, 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("fitted", [False, True], ids=["window", "fitted"])
@pytest.mark.parametrize("h", range(4))
def test_location_and_scale_of_the_asked_horizon_count_by_hand(*, fitted: bool, h: int) -> None:
    model = small_model(constant_artifact(fitted=fitted))
    prepared = model.prepare(Instance(input=recent_bars("AAPL", "IBM")), AFTER_ALL_SESSIONS)
    asked = replace(QUESTION, targets=(TargetPoint(model.manifest.target.horizons[h], 0.9),))
    (found,) = model.explain(asked, AFTER_ALL_SESSIONS, NEVER)

    expected = constant_rows(model, prepared, h, 2)
    rows = dict(zip(found.row_names, found.per_row.T, strict=True))
    for name, by_hand in expected.items():
        np.testing.assert_allclose(rows.pop(name), by_hand, rtol=1e-6, atol=1e-12, err_msg=name)
    assert all(np.all(others == 0.0) for others in rows.values())


def test_an_attribution_has_times_and_cells_when_asked(model: Model) -> None:
    bars = recent_bars("AAPL")
    query = ExplanationQuery(instance=Instance(input=bars), targets=(TargetPoint(1, 0.5),), detail=Detail.CELLS)
    (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)
    assert found.cells is not None
    assert found.per_time is not None
    assert found.cells.shape == (1, 60, 23)
    assert found.sessions == tuple(to_date(day) for day in bars.sessions[-60:].tolist())
    np.testing.assert_allclose(found.cells.sum(axis=1), found.per_row[:, :23], atol=1e-12)
    (plain,) = model.explain(replace(query, detail=Detail.FEATURES), AFTER_ALL_SESSIONS, NEVER)
    assert (plain.cells, plain.per_time) == (None, None)


def test_a_symbol_that_cannot_be_forecast_has_no_attribution(model: Model) -> None:
    bars = _without(recent_bars("AAPL", "IBM"), 0, slice(-1, None))
    query = ExplanationQuery(instance=Instance(input=bars), targets=(TargetPoint(1, 0.5),))
    (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)
    assert np.isnan(found.per_row[0]).all()
    assert np.isfinite(found.per_row[1]).all()
    assert (found.converged.tolist()[0], found.nodes.tolist()[0]) == (False, 0)
    assert found.warnings[0].startswith("no forecast of AAPL")
    assert list(found.refusals) == ["AAPL"]


def test_a_question_that_the_model_cannot_answer_is_refused_by_name(model: Model) -> None:
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL")))
    with pytest.raises(
        ExplainUnsupportedError, match=r"'shap'; the model supports \['integrated-gradients', 'shapley', 'occlusion'\]"
    ):
        model.explain(replace(query, method="shap"), AFTER_ALL_SESSIONS, NEVER)
    with pytest.raises(UnknownHorizonError, match=r"horizon 7 is not forecast; the model has \[1, 5, 10, 20\]"):
        model.explain(replace(query, targets=(TargetPoint(7, 0.5),)), AFTER_ALL_SESSIONS, NEVER)


@pytest.mark.parametrize("tolerance", [0.0, 9.9e-5, 1.0, float("nan")])
def test_a_tolerance_that_no_gap_of_float32_can_meet_is_refused_naming_the_least(
    model: Model, tolerance: float
) -> None:
    with pytest.raises(InvalidInputError, match=r"tolerance is .* must be from 0\.0001 to below 1"):
        model.explain(replace(QUESTION, tolerance=tolerance), AFTER_ALL_SESSIONS, NEVER)


def test_equal_targets_are_answered_each_in_the_order_asked(model: Model) -> None:
    one, other = TargetPoint(5, 0.9), TargetPoint(1, 0.5)
    found = model.explain(replace(QUESTION, targets=(one, other, *[one] * 22)), AFTER_ALL_SESSIONS, NEVER)
    alone = model.explain(replace(QUESTION, targets=(one, other)), AFTER_ALL_SESSIONS, NEVER)
    assert [(a.horizon, a.quantile) for a in found] == [one, other, *[one] * 22]
    for k, answer in enumerate(found):
        np.testing.assert_array_equal(answer.per_row, alone[k == 1].per_row)


# --- cost of an explanation


def test_the_cost_is_symbols_times_different_targets_times_all_nodes(model: Model) -> None:
    nodes = 3 + 6 + 12 + 24 + 48 + 96 + 192 + 384
    assert model.explain_cost(QUESTION) == 2 * 4 * nodes  # every horizon
    one, other = TargetPoint(5, 0.9), TargetPoint(5, 0.5)
    assert model.explain_cost(replace(QUESTION, targets=(one, other, one), symbols=("IBM",))) == 2 * nodes


@pytest.mark.parametrize("method", ["shapley", "occlusion"])
def test_the_cost_of_a_method_without_gradients_is_the_number_of_its_forecasts(model: Model, method: str) -> None:
    asked = replace(QUESTION, method=method, symbols=("IBM",))
    rows = 0

    def count(_module: nn.Module, inputs: tuple[Inputs]) -> None:
        nonlocal rows
        rows += len(inputs[0].observed)

    hook = model.engine.network.register_forward_pre_hook(count)
    model.explain(asked, AFTER_ALL_SESSIONS, NEVER)
    hook.remove()
    assert model.explain_cost(asked) == rows


def test_the_cost_counts_the_neighbours_that_a_window_is_read_with() -> None:
    graph = small_model(small_artifact("graph"))
    assert isinstance(graph.engine.network, GraphForecaster)
    neighbours = graph.engine.network.neighbours.shape[1]
    assert neighbours > 0
    one = replace(QUESTION, targets=(TargetPoint(5, 0.9),))
    assert graph.explain_cost(one) == 2 * (1 + neighbours) * sum(NODE_COUNTS)


def test_what_might_take_too_many_rows_is_refused_before_anything_is_prepared(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.explain.integrated_gradients.MAX_ROWS", model.explain_cost(QUESTION))
    too_few = recent_bars("AAPL", "IBM", "MSFT").last(1)
    with pytest.raises(
        RequestTooLargeError, match=r"4 targets of 3 symbols .* ask for fewer targets or symbols"
    ) as told:
        model.explain(ExplanationQuery(instance=Instance(input=too_few)), AFTER_ALL_SESSIONS, NEVER)
    assert told.value.metadata == {"have": str(3 * 4 * 765), "most": str(2 * 4 * 765)}
    assert len(model.explain(QUESTION, AFTER_ALL_SESSIONS, NEVER)) == 4


@pytest.mark.parametrize(("symbols", "targets", "rows"), [(100, 4, 11), (500, 12, 1), (100, 24, 2)])
def test_what_people_ask_for_is_not_refused(symbols: int, targets: int, rows: int) -> None:
    ExplanationCost(symbols=symbols, targets=targets, rows_per_window=rows).check()


def test_a_whole_market_at_every_quantile_is_refused() -> None:
    with pytest.raises(RequestTooLargeError):
        ExplanationCost(symbols=300, targets=24, rows_per_window=1).check()


def test_a_model_lists_its_inputs(model: Model) -> None:
    info = model.info(("champion",), is_default=True)
    assert (info.bars_needed, info.encoder_length, info.lookback, info.future_length) == (140, 60, 81, 20)
    assert (len(info.observed_features), len(info.known_features)) == (23, 5)
    assert info.schema_hash == model.pipeline.features.schema_hash
    assert info.calendar_ends >= 20180301


def _of_no_exchange() -> Model:
    made = small_artifact()
    weekdays = replace(made.pipeline, calendar=SessionCalendar.weekdays(20000103, 20180301))
    return small_model(replace(made, pipeline=weekdays))


def _young(model: Model, sessions: int) -> tuple[PreparedInstance, PreparedInstance]:
    """IBM with few bars, next to a complete AAPL and alone."""
    bars = replace(recent_bars("AAPL", "IBM"), calendar="")
    columns = {name: getattr(bars, name).copy() for name in COLUMNS}
    for column in columns.values():
        column[1, :-sessions] = np.nan
    both = replace(bars, **columns)
    beside = model.prepare(Instance(input=both), AFTER_ALL_SESSIONS).only(["IBM"])
    return beside, model.prepare(Instance(input=both.select(["IBM"]).last(sessions)), AFTER_ALL_SESSIONS)


def _forecast(model: Model, bars: BarPanel, *, accept_suspect_bars: bool = False) -> Forecast:
    instance = Instance(input=bars, accept_suspect_bars=accept_suspect_bars)
    return model.forecast([model.prepare(instance, AFTER_ALL_SESSIONS)])[0]


def _window(model: Model, bars: BarPanel) -> FeatureWindow:
    encoded = model.pipeline.encode_latest(bars)
    location, scale = levels_at(model.pipeline, encoded, -1)
    return FeatureWindow(
        symbols=bars.symbols,
        observed=encoded.observed,
        known=np.repeat(encoded.known, len(bars.symbols), axis=0),
        static=np.zeros((len(bars.symbols), 0), np.float32),
        mask=encoded.mask,
        location=location[:, 0].copy(),
        scale=scale[:, 0].copy(),
        schema_hash=model.pipeline.features.schema_hash,
        anchor_price=bars.close[:, -1].copy(),
        as_of_session=to_date(int(bars.sessions[-1])),
    )


def _with_last(window: FeatureWindow, group: str, value: float) -> FeatureWindow:
    changed: NDArray[np.floating] = getattr(window, group).copy()
    changed.reshape(-1)[-1] = value
    return replace(window, **{group: changed})


def _columns(bars: BarPanel) -> Mapping[str, NDArray[np.float64]]:
    return {name: getattr(bars, name).copy() for name in COLUMNS}


def _without(bars: BarPanel, symbol: int, sessions: slice) -> BarPanel:
    """The panel without the bars of one symbol on some of its sessions."""
    columns = _columns(bars)
    for column in columns.values():
        column[symbol, sessions] = np.nan
    return replace(bars, **columns)


def _cut(bars: BarPanel, sessions: list[int]) -> BarPanel:
    """The panel without some of its sessions."""
    kept = ~np.isin(bars.sessions, sessions)
    assert (~kept).sum() == len(sessions)
    columns = {name: column[:, kept] for name, column in _columns(bars).items()}
    return replace(bars, sessions=bars.sessions[kept], **columns)
