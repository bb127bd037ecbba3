"""Windows: same inputs in training and serving, no look-ahead, and independence from price units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from artifacts import recent_bars, small_artifact, small_model
from market import bokeh_panel
from window_levels import levels_at

from predictor.bars import BarPanel
from predictor.errors import BarsError, CalendarEndedError, ConfigurationError, TooFewBarsError
from predictor.features import FeatureDefinition, FeatureSet, FittedFeatures, Scaling
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.model import Model
from predictor.networks import Inputs, Target, TargetKind, WindowNormaliser
from predictor.sessions import SessionCalendar
from predictor.windows import BarRequirements, EncodedPanel, Pipeline

PRICES = ("open", "high", "low", "close")


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


@pytest.fixture(scope="module")
def pipeline(model: Model) -> Pipeline:
    return model.pipeline


@pytest.fixture(scope="module")
def history() -> BarPanel:
    """Seven years of two symbols, with dividends and a split of AAPL."""
    return bokeh_panel("AAPL", "IBM").between(20040101, 20110101)


# --- no skew between training and serving


@pytest.mark.parametrize("kind", TargetKind)
def test_serving_computes_what_training_saw(history: BarPanel, kind: TargetKind) -> None:
    pipeline = small_artifact(target=Target(kind=kind)).pipeline
    whole, length = pipeline.encode(history), pipeline.encoder_length
    for end in (200, 290, 777, 1400, len(history.sessions)):
        sent = history.until(int(history.sessions[end - 1])).last(pipeline.bars_needed)
        served = pipeline.encode_latest(sent)
        trained = slice(end - length, end)
        assert np.array_equal(served.mask, whole.mask[:, trained])
        np.testing.assert_array_max_ulp(served.observed, whole.observed[:, trained], maxulp=1)
        assert np.array_equal(served.known[:, :length], whole.known[:, trained])
        for mine, theirs in zip(levels_at(pipeline, served, -1), levels_at(pipeline, whole, end - 1), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-15)


def test_features_before_scaling_agree_between_training_and_serving(pipeline: Pipeline, history: BarPanel) -> None:
    features, length = pipeline.features.features, pipeline.encoder_length
    whole = features.evaluate(history.adjusted())[:, -length:]
    served = features.evaluate(history.last(pipeline.bars_needed).adjusted())[:, -length:]
    np.testing.assert_allclose(served, whole, rtol=1e-9, atol=1e-9)


def test_bars_before_those_needed_change_nothing(pipeline: Pipeline, history: BarPanel) -> None:
    needed = pipeline.encode_latest(history.last(pipeline.bars_needed))
    _assert_same_bits(pipeline, pipeline.encode_latest(history), needed)


def test_the_first_of_the_bars_needed_is_really_needed(pipeline: Pipeline, history: BarPanel) -> None:
    sent = replace(history.last(pipeline.bars_needed), adj_close=None)
    moved = {name: getattr(sent, name).copy() for name in PRICES}
    for column in moved.values():
        column[:, 0] *= 1.5
    changed = pipeline.encode_latest(replace(sent, **moved))
    assert not np.array_equal(changed.observed, pipeline.encode_latest(sent).observed)


def test_the_normalisers_window_counts_among_the_bars_needed() -> None:
    """Even with short features, the closes for the volatility are needed."""
    pipeline = _plain_pipeline(encoder_length=5, window=60)
    assert pipeline.bars_needed == 61
    bars = bokeh_panel("IBM").between(20040101, 20081231)
    served = pipeline.encode_latest(bars.last(61))
    whole = pipeline.encode(bars)
    np.testing.assert_allclose(levels_at(pipeline, served, -1)[1], levels_at(pipeline, whole, -1)[1], rtol=1e-12)


def test_future_bars_change_nothing(pipeline: Pipeline, history: BarPanel) -> None:
    """The same past with a different future gives bit-identical inputs, with raw prices and no adjustments."""
    plain = replace(history, adj_close=None)
    now = 1000
    future = {name: getattr(plain, name).copy() for name in (*PRICES, "volume")}
    for column in future.values():
        column[:, now:] *= 1.7
    before, after = pipeline.encode(plain), pipeline.encode(replace(plain, **future))
    for name in ("observed", "mask"):
        assert np.array_equal(getattr(before, name)[:, :now], getattr(after, name)[:, :now], equal_nan=True)
    for position in (100, now - 1):
        levels = (levels_at(pipeline, encoded, position) for encoded in (before, after))
        for mine, theirs in zip(*levels, strict=True):
            assert np.array_equal(mine, theirs)
    assert not np.array_equal(before.observed[:, now:], after.observed[:, now:])


# --- short panels


def test_a_panel_that_begins_late_reads_as_if_it_had_no_bars_before(pipeline: Pipeline) -> None:
    """Next to a symbol with a longer history, the inputs are the same."""
    both = recent_bars("AAPL", "IBM").last(pipeline.bars_needed)
    columns = {name: getattr(both, name).copy() for name in (*PRICES, "volume", "adj_close")}
    for column in columns.values():
        column[1, :-50] = np.nan
    beside = pipeline.latest_window(pipeline.encode_latest(replace(both, **columns)))
    alone = pipeline.latest_window(pipeline.encode_latest(recent_bars("IBM").last(50)))
    for mine, theirs in zip(alone, beside, strict=True):
        assert torch.equal(mine[0], theirs[1])


def test_sessions_before_the_calendar_begins_cannot_be_filled_in() -> None:
    pipeline = replace(
        _plain_pipeline(encoder_length=20, window=5), calendar=SessionCalendar.weekdays(20000301, 20201231)
    )
    first = bokeh_panel("IBM").between(20000301, 20000310)
    with pytest.raises(TooFewBarsError, match="have 8 sessions, need 20"):
        pipeline.encode_latest(first)


@pytest.mark.parametrize(("share", "values"), [(0.0, 20), (1.1, 20), (0.5, 0)])
def test_a_minimum_that_cannot_be_is_refused(share: float, values: int) -> None:
    with pytest.raises(ConfigurationError, match="encoder_share must be above 0"):
        BarRequirements(encoder_share=share, values=values)


def test_counts_are_of_the_encoders_bars_and_of_the_values_that_levels_are_measured_by() -> None:
    pipeline = _plain_pipeline(encoder_length=4, window=3)
    present = np.array([[True, False, True, True, True, True]])
    series = (np.array([[np.nan, 1.0, np.nan, 1.0, 1.0, 1.0]]),)
    bars, values = pipeline.counts(present, series)
    assert bars.tolist() == [[1, 1, 2, 3, 3, 4]]
    assert values.tolist() == [[0, 1, 1, 2, 2, 3]]


def test_an_encoder_without_a_session_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="encoder length is 0"):
        _plain_pipeline(encoder_length=0, window=5)


# --- splits and units


@pytest.mark.parametrize("days_ago", [0, 1, 7, 59, 60, 100, 139])
def test_a_split_at_any_date_changes_no_input(model: Model, days_ago: int) -> None:
    plain = replace(recent_bars("MSFT").last(140), adj_close=None)
    at = 140 - 1 - days_ago
    _assert_close(_inputs(model, _split(plain, at)), _inputs(model, plain))


@pytest.mark.parametrize("days_ago", [0, 1, 30, 139])
def test_a_split_that_adj_close_tells_changes_no_input(model: Model, days_ago: int) -> None:
    plain = recent_bars("MSFT").last(140)
    at = 140 - 1 - days_ago
    split = replace(_split(replace(plain, adj_close=None), at), split_ratio=None)
    assert plain.adj_close is not None
    _assert_close(_inputs(model, replace(split, adj_close=plain.adj_close)), _inputs(model, plain))


def test_the_price_fan_stands_at_the_raw_last_price(model: Model) -> None:
    split = _split(replace(recent_bars("MSFT").last(140), adj_close=None), 130)
    forecast = model.forecast([model.prepare(Instance(input=split), AFTER_ALL_SESSIONS)])[0]
    assert forecast.prices is not None
    np.testing.assert_allclose(forecast.prices[0], split.close[0, -1] * np.exp(forecast.values[0]), rtol=1e-12)


def test_all_prices_times_seven_change_no_input(model: Model) -> None:
    plain = replace(recent_bars("AAPL", "IBM"), adj_close=None)
    dearer = replace(plain, **{name: getattr(plain, name) * 7 for name in PRICES})
    _assert_close(_inputs(model, dearer), _inputs(model, plain))


def test_adj_close_on_another_scale_changes_no_input(model: Model) -> None:
    plain = recent_bars("AAPL")
    assert plain.adj_close is not None
    _assert_close(_inputs(model, replace(plain, adj_close=plain.adj_close * 7)), _inputs(model, plain))


# --- missing bars and sessions


def test_a_missing_bar_is_masked_and_zero(pipeline: Pipeline) -> None:
    bars = recent_bars("IBM")
    columns = {name: getattr(bars, name).copy() for name in (*PRICES, "volume", "adj_close")}
    for column in columns.values():
        column[0, -30] = np.nan
    encoded = pipeline.encode_latest(replace(bars, **columns))
    assert not encoded.mask[0, -30].any()
    assert not encoded.observed[0, -30].any()
    assert np.isfinite(encoded.observed).all()


def test_known_inputs_cover_the_sessions_that_horizons_reach(pipeline: Pipeline) -> None:
    bars = recent_bars("IBM")
    encoded = pipeline.encode_latest(bars)
    assert encoded.known.shape == (1, 60 + 20, 5)
    future = pipeline.calendar.following(int(bars.sessions[-1]), 20)
    assert np.array_equal(encoded.known[:, 60:], pipeline.features.known(pipeline.calendar.fields(future)))


@pytest.mark.parametrize("lag", [0, 1])
def test_target_sessions_are_the_horizons_th_sessions_after_the_last(lag: int) -> None:
    pipeline = small_artifact(target=Target(lag=lag)).pipeline
    following = pipeline.calendar.following(20121221, 30)
    expected = [following[lag + h - 1] for h in (1, 5, 10, 20)]
    assert pipeline.target_sessions(20121221).tolist() == expected
    assert lag or expected[0] == 20121224


def test_a_calendar_that_ends_before_the_horizons_is_refused_by_date(pipeline: Pipeline) -> None:
    with pytest.raises(CalendarEndedError, match="2018-03"):
        pipeline.target_sessions(20180326)


def test_a_bar_on_a_day_without_trading_is_refused_by_date(pipeline: Pipeline) -> None:
    bars = recent_bars("IBM")
    sessions = bars.sessions.copy()
    sessions[-1] = 20130302  # a Saturday
    with pytest.raises(BarsError, match="2013-03-02"):
        pipeline.encode_latest(replace(bars, sessions=sessions))


def test_the_latest_window_holds_a_row_a_symbol(pipeline: Pipeline) -> None:
    rows = pipeline.latest_window(pipeline.encode(recent_bars("AAPL", "IBM")))
    assert [tuple(group.shape) for group in rows] == [(2, 60, 23), (2, 80, 5), (2, 0), (2, 60, 23), (2, 4), (2, 4)]
    assert [group.dtype for group in rows] == [
        torch.float32,
        torch.float32,
        torch.float32,
        torch.bool,
        torch.float64,
        torch.float64,
    ]


def _inputs(model: Model, bars: BarPanel) -> Inputs:
    return model.prepare(Instance(input=bars), AFTER_ALL_SESSIONS).inputs


def _assert_close(found: Inputs, expected: Inputs) -> None:
    for name in Inputs._fields:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=2e-6)


def _assert_same_bits(pipeline: Pipeline, found: EncodedPanel, expected: EncodedPanel) -> None:
    for name in ("observed", "mask", "known"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for mine, theirs in zip(levels_at(pipeline, found, -1), levels_at(pipeline, expected, -1), strict=True):
        assert np.array_equal(mine, theirs)


def _split(bars: BarPanel, at: int) -> BarPanel:
    """The same days after a 3:1 split at the open of day `at`."""
    before = np.where(np.arange(len(bars.sessions)) < at, 3.0, 1.0)
    ratio = np.ones_like(bars.close)
    ratio[:, at] = 3.0
    prices = {name: getattr(bars, name) * before for name in PRICES}
    return replace(bars, **prices, volume=bars.volume / before, split_ratio=ratio)


def _plain_pipeline(*, encoder_length: int, window: int) -> Pipeline:
    features = FeatureSet(
        observed=(FeatureDefinition("body", "Log($close / $open)", "the day's return", "log return"),)
    )
    return Pipeline(
        features=FittedFeatures(features=features, scaling=Scaling(center=np.zeros(1), scale=np.ones(1))),
        target=Target(horizons=(1,)),
        normaliser=WindowNormaliser(window=window),
        calendar=SessionCalendar.weekdays(20000101, 20201231),
        encoder_length=encoder_length,
    )
