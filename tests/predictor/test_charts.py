"""Charts show the given numbers in the right traces."""

import sys
from dataclasses import replace
from datetime import date
from typing import Any, cast

import numpy as np
import pytest
from plotly.graph_objects import Figure

from predictor.charts import (
    BookCurve,
    BoundedSeries,
    Candles,
    FanChart,
    PastFan,
    draw_attention_line,
    draw_book_curves,
    draw_bounded_lines,
    draw_calibration,
    draw_distribution,
    draw_fan,
    draw_importance_bars,
    draw_importance_heatmap,
    draw_interval_rows,
    draw_loss_curve,
    draw_path_lines,
    draw_pit_histogram,
    draw_quantile_lines,
    draw_selection_bars,
)
from predictor.dates import to_date
from predictor.errors import ConfigurationError, MissingPackageError

DAYS = np.arange(np.datetime64("2022-01-03"), np.datetime64("2023-01-03"))
DATES = np.asarray([int(str(day).replace("-", "")) for day in DAYS], np.int32)
CLOSE = 100 + np.cumsum(np.random.default_rng(7).normal(size=DATES.size))
CANDLES = Candles(dates=DATES, open=CLOSE - 0.5, high=CLOSE + 1, low=CLOSE - 1, close=CLOSE)
HEAT_DAYS = tuple(to_date(day) for day in DATES.tolist())
TARGETS = (date(2023, 1, 3), date(2023, 1, 10))
PRICES = np.asarray([[95.0, 98.0, 100.0, 102.0, 105.0], [90.0, 96.0, 101.0, 106.0, 112.0]])
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def traces(figure: Figure) -> list[Any]:
    """Traces of a figure; plotly is untyped."""
    return list(cast("Any", figure).data)


CHART = FanChart(candles=CANDLES, target_dates=TARGETS, quantiles=QUANTILES, prices=PRICES, title="AAPL")


def test_every_path_starts_at_the_last_close_and_ends_with_a_gap() -> None:
    paths = np.array([[10.0, 11.0, 12.0], [9.0, 8.0, 7.0]])
    lines, past = traces(draw_path_lines(np.array([8.0, 9.5]), paths, title="AAPL"))
    assert lines.x.tolist() == [0, 1, 2, 3, 4] * 2
    np.testing.assert_array_equal(lines.y, [9.5, 10, 11, 12, np.nan, 9.5, 9, 8, 7, np.nan])
    assert (past.x.tolist(), past.y.tolist()) == ([-1, 0], [8.0, 9.5])


def test_the_bars_of_a_distribution_hold_all_paths() -> None:
    figure = draw_distribution(np.arange(200.0), title="", what="loss", mark=190.0, mark_name="1 in 20")
    (bars,) = traces(figure)
    assert sum(bars.y) == pytest.approx(100.0)
    (line,) = cast("Any", figure).layout.shapes
    assert (line.x0, line.x1) == (190.0, 190.0)


def test_paths_start_at_the_last_close_that_is_known() -> None:
    (lines, _) = traces(draw_path_lines(np.array([8.0, np.nan]), np.ones((1, 2)), title="AAPL"))
    assert lines.y.tolist()[0] == 8.0


@pytest.mark.parametrize("past", [[], [np.nan]])
def test_paths_need_a_close(past: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="0 closes and 1 paths"):
        draw_path_lines(np.array(past), np.ones((1, 5)), title="AAPL")


def test_a_fan_needs_a_target_date() -> None:
    with pytest.raises(ConfigurationError, match="at least one target date"):
        chart(target_dates=(), prices=np.empty((0, len(QUANTILES))))


@pytest.mark.parametrize(
    "series", [[], [BoundedSeries(name="AAPL", dates=np.array([], np.int32), values=np.array([]))]]
)
def test_bounded_lines_need_a_session(series: list[BoundedSeries]) -> None:
    with pytest.raises(ConfigurationError, match="no session to draw"):
        draw_bounded_lines(series, title="coverage", what="share", level=0.8, level_name="promised")


def chart(**changes: Any) -> FanChart:
    return replace(CHART, **changes)


def past(start: date, *targets: date) -> PastFan:
    """A forecast as of a session, with the same prices for every target."""
    return PastFan(start=start, close=88, target_dates=targets, prices=np.tile(PRICES[0], (len(targets), 1)))


def forecast_traces(chart: FanChart) -> list[Any]:
    return [trace for trace in traces(draw_fan(chart)) if trace.xaxis == "x2"]


def test_the_fan_shows_sixty_sessions_after_the_oldest_candle() -> None:
    candles = traces(draw_fan(CHART))[0]

    assert candles.type == "candlestick"
    assert candles.x[-1] == "2023-01-02"
    assert len(candles.x) == 61
    for column in ("open", "high", "low", "close"):
        assert getattr(candles, column).tolist() == getattr(CANDLES, column)[-61:].tolist()


def test_the_forecast_has_a_third_of_the_width() -> None:
    layout = cast("Any", draw_fan(CHART)).layout

    assert layout.xaxis.domain == (0, pytest.approx(2 / 3))
    assert layout.xaxis2.domain == (pytest.approx(2 / 3), 1)
    assert layout.xaxis2.range == ("2023-01-02", "2023-01-10")


def test_a_past_fan_starts_at_its_close_on_the_axis_of_the_bars() -> None:
    drawn = draw_fan(chart(past=(past(date(2022, 11, 30), date(2022, 12, 1), date(2022, 12, 30)),)))

    grey = [trace for trace in traces(drawn)[1:] if trace.xaxis == "x"]
    assert {trace.x for trace in grey} == {("2022-11-30", "2022-12-01", "2022-12-30")}
    assert [trace.y.tolist() for trace in grey] == [[88, PRICES[0, q], PRICES[0, q]] for q in (0, 4, 1, 3, 2)]
    assert [trace.name for trace in grey if trace.showlegend is not False] == ["past forecasts"]
    assert all("as of 2022-11-30" in trace.hovertemplate for trace in grey)


def test_a_past_fan_ends_with_the_last_bar() -> None:
    drawn = chart(past=(past(date(2022, 12, 30), date(2023, 1, 2), date(2023, 1, 6)),))

    assert [fan.target_dates for fan in drawn.past] == [(date(2023, 1, 2),)]
    assert drawn.past[0].prices.shape == (1, 5)


@pytest.mark.parametrize(
    "left_out", [past(date(2022, 12, 30), date(2023, 1, 6)), past(date(2022, 9, 1), date(2022, 12, 30))]
)
def test_a_past_fan_without_an_outcome_or_without_its_bars_is_left_out(left_out: PastFan) -> None:
    assert chart(past=(left_out,)).past == ()


def test_a_session_without_a_bar_has_its_place_where_a_past_fan_names_it() -> None:
    kept = DATES != 20221215
    gap = Candles(**{name: getattr(CANDLES, name)[kept] for name in ("dates", "open", "high", "low", "close")})

    days = cast("Any", draw_fan(chart(candles=gap, past=(past(date(2022, 12, 1), date(2022, 12, 15)),)))).layout.xaxis

    assert "2022-12-15" in days.categoryarray
    assert list(days.categoryarray) == sorted(days.categoryarray)


@pytest.mark.parametrize(("targets", "named"), [((3, 4, 12), [12, 4]), ((11, 12), [12]), ((12,), [12])])
def test_dates_below_a_forecast_are_far_enough_from_each_other(targets: tuple[int, ...], named: list[int]) -> None:
    drawn = chart(target_dates=[date(2023, 1, day) for day in targets], prices=np.ones((len(targets), 5)))

    assert [day.day for day in drawn.targets_named] == named


def test_only_the_outer_quantiles_and_the_median_have_their_price_beside_them() -> None:
    beside = [note.text for note in cast("Any", draw_fan(CHART)).layout.annotations]

    assert beside == ["90.00", "101.00", "112.00"]


def test_a_price_that_would_cover_that_of_the_median_is_not_written() -> None:
    close = chart(prices=np.array(CHART.prices) * 0 + [100.0, 100.1, 100.2, 100.3, 150.0])

    assert close.labelled_prices == [100.2, 150.0]


def test_the_fan_opens_at_the_last_close() -> None:
    drawn = forecast_traces(CHART)

    assert {trace.x for trace in drawn} == {("2023-01-02", "2023-01-03", "2023-01-10")}
    assert {trace.y[0] for trace in drawn} == {CLOSE[-1]}


def test_the_fan_shades_between_pairs_of_quantiles_and_draws_the_median() -> None:
    low, high, inner_low, inner_high, median = forecast_traces(CHART)

    assert [trace.y[1:].tolist() for trace in (low, high)] == [[95, 90], [105, 112]]
    assert [trace.y[1:].tolist() for trace in (inner_low, inner_high)] == [[98, 96], [102, 106]]
    assert median.y[1:].tolist() == [100, 101]
    assert [trace.fill for trace in (low, high, inner_low, inner_high, median)] == [
        None,
        "tonexty",
        None,
        "tonexty",
        None,
    ]
    assert [high.name, median.name] == ["5 % to 95 %", "median"]


def test_the_fan_names_symbol_and_currency() -> None:
    layout = cast("Any", draw_fan(chart(currency="USD"))).layout

    assert (layout.title.text, layout.yaxis.title.text) == ("AAPL", "price (USD)")


def test_a_fan_refuses_prices_of_another_shape() -> None:
    with pytest.raises(ConfigurationError, match=r"prices has shape \[5, 2\], but \[2, 5\]"):
        chart(prices=PRICES.T)


def test_a_fan_refuses_to_start_from_nothing() -> None:
    nothing = CLOSE[:0]
    candles = Candles(dates=DATES[:0], open=nothing, high=nothing, low=nothing, close=nothing)

    with pytest.raises(ConfigurationError, match="at least one bar"):
        chart(candles=candles)


def test_quantile_lines_shade_bands_over_the_horizons() -> None:
    figure = draw_quantile_lines((1, 20), QUANTILES, PRICES, title="AAPL", what="price (USD)", notes=("no <skill>",))

    low, high, _, _, median = traces(figure)
    assert {trace.x for trace in traces(figure)} == {(1, 20)}
    assert [low.y.tolist(), high.y.tolist(), median.y.tolist()] == [[95, 90], [105, 112], [100, 101]]
    layout = cast("Any", figure).layout
    assert layout.yaxis.title.text == "price (USD)"
    assert layout.title.subtitle.text == "no &lt;skill&gt;"


def test_quantile_lines_refuse_values_of_another_shape() -> None:
    with pytest.raises(ConfigurationError, match=r"values has shape \[5, 2\], but \[2, 5\]"):
        draw_quantile_lines((1, 20), QUANTILES, PRICES.T, title="AAPL")


def test_bars_are_sorted_by_size_and_the_rest_is_added_up() -> None:
    figure = draw_importance_bars(["a", "b", "c", "d"], np.asarray([1.0, -5.0, 0.5, -2.0]), "bp", top=2)

    bars = traces(figure)[0]
    assert bars.y == ("b", "d", "others (2)")
    assert bars.x == (-5.0, -2.0, 1.5)
    assert "bp" in bars.hovertemplate


def test_bars_have_no_others_where_all_have_their_own() -> None:
    assert traces(draw_importance_bars(["a", "b"], np.asarray([1.0, 2.0]), "bp"))[0].y == ("b", "a")


def test_bars_show_the_sign_by_colour() -> None:
    down, up = traces(draw_importance_bars(["a", "b"], np.asarray([1.0, -2.0]), "bp"))[0].marker.color

    assert down != up


def test_the_heat_map_shows_each_feature_on_each_date_with_white_at_zero() -> None:
    values = np.asarray([[1.0, -3.0], [0.5, 2.0], [np.nan, 0.0]])

    figure = draw_importance_heatmap(HEAT_DAYS[:3], ["a", "<b>"], values, "bp of log return")

    rows, layout = traces(figure), cast("Any", figure).layout
    assert [(row.type, row.name, row.base, row.y.tolist()) for row in rows] == [
        ("bar", "a", -0.5, [1, 1, 0]),
        ("bar", "&lt;b&gt;", 0.5, [1, 1, 1]),
    ]
    assert {row.x for row in rows} == {("2022-01-03", "2022-01-04", "2022-01-05")}
    np.testing.assert_array_equal([row.marker.color for row in rows], values.T)
    scale = layout.coloraxis
    assert (scale.cmin, scale.cmid, scale.cmax) == (-3.0, 0.0, 3.0)
    assert scale.colorscale[1] == (0.5, "#FFFFFF")
    assert scale.colorbar.title.text == "bp<br>of log return"
    assert layout.yaxis.ticktext == ("a", "&lt;b&gt;")


def test_a_heat_map_names_a_few_days_that_are_never_rotated() -> None:
    axis = cast("Any", draw_importance_heatmap(HEAT_DAYS[:60], ["a"], np.zeros((60, 1)), "bp")).layout.xaxis

    assert axis.tickvals == (0, 20, 39, 59)
    assert axis.ticktext[0] == "01-03<br>2022"


def test_a_heat_map_of_zeros_is_white() -> None:
    scale = cast("Any", draw_importance_heatmap(HEAT_DAYS[:2], ["a"], np.zeros((2, 1)), "bp")).layout.coloraxis

    assert (scale.cmin, scale.cmax) == (-1.0, 1.0)


def test_the_loss_curve_marks_the_epoch_that_was_kept() -> None:
    train, selection, kept = traces(draw_loss_curve([1, 2, 3], [0.9, 0.7, 0.6], [0.95, 0.8, 0.85], (2, 0.8)))

    assert (train.name, train.x, train.y) == ("train", (1, 2, 3), (0.9, 0.7, 0.6))
    assert (selection.name, selection.y) == ("selection", (0.95, 0.8, 0.85))
    assert (kept.x, kept.y) == ((2,), (0.8,))


@pytest.mark.parametrize(("count", "step"), [(4, 1), (40, 4)])
def test_the_loss_curve_names_whole_epochs(count: int, step: int) -> None:
    losses = [1.0] * count
    figure = draw_loss_curve(range(1, count + 1), losses, losses, (1, 1.0))
    assert cast("Any", figure).layout.xaxis.dtick == step


def test_a_best_epoch_that_was_not_trained_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="best epoch, 4"):
        draw_loss_curve([1, 2], [0.9, 0.7], [0.9, 0.8], (4, 0.8))


def test_calibration_shows_how_far_each_horizon_is_off_with_its_interval() -> None:
    observed = np.asarray([[0.12, 0.52, 0.88], [0.2, 0.6, 0.8]])
    figure = draw_calibration([0.1, 0.5, 0.9], ["1 session", "5 sessions"], observed, observed - 0.05, observed + 0.1)

    first, second = traces(figure)
    assert [first.name, second.name] == ["1 session", "5 sessions"]
    np.testing.assert_allclose(second.y, [10, 10, -10])
    np.testing.assert_allclose(second.error_y.array, 10)
    np.testing.assert_allclose(second.error_y.arrayminus, 5)
    np.testing.assert_allclose(second.customdata[:, 1], observed[1])
    assert first.marker.symbol != second.marker.symbol


def test_two_charts_of_calibration_can_have_the_same_axis() -> None:
    numbers = np.full((1, 1), 0.5)

    figure = draw_calibration([0.5], ["1 session"], numbers, numbers, numbers, reach=0.07)

    np.testing.assert_allclose(cast("Any", figure).layout.yaxis.range, [-7, 7])


def test_the_bars_of_a_pit_histogram_are_relative_to_those_of_a_calibrated_forecast() -> None:
    shares = np.array([0.2, 0.3, 0.5])

    bars, _ = traces(draw_pit_histogram("5 sessions", [0, 0.1, 0.5, 1], shares, shares - 0.1, shares + 0.1))

    np.testing.assert_allclose(bars.y, [2, 0.75, 1])
    np.testing.assert_allclose(bars.width, [0.1, 0.4, 0.5])
    np.testing.assert_allclose(bars.x, [0.05, 0.3, 0.75])


def test_the_band_of_a_pit_histogram_lies_around_1_and_is_as_wide_as_the_interval() -> None:
    shares, lower, upper = np.array([0.2, 0.8]), np.array([0.15, 0.7]), np.array([0.3, 0.9])

    _, band = traces(draw_pit_histogram("5 sessions", [0, 0.5, 1], shares, lower, upper))

    base = np.asarray(band.base, np.float64)
    np.testing.assert_allclose(base, [0.9, 0.8])
    np.testing.assert_allclose(base + band.y, [1.2, 1.2])


def test_intervals_stand_in_the_order_given_with_the_series_side_by_side() -> None:
    value = np.array([[1.0, 2.0], [3.0, np.nan]])

    figure = draw_interval_rows(
        ["volatility-scaled quantiles", "<b>"],
        ["1 session", "all"],
        value,
        value - 0.5,
        value + 0.25,
        axis="loss",
    )

    first, second = traces(figure)
    np.testing.assert_array_equal(first.x, [1, 2])
    np.testing.assert_allclose(first.error_x.array, 0.25)
    np.testing.assert_allclose(first.error_x.arrayminus, 0.5)
    assert first.y[0] < 0 < second.y[0]
    layout = cast("Any", figure).layout
    assert layout.yaxis.ticktext == ("volatility-scaled<br>quantiles", "&lt;b&gt;")
    assert layout.yaxis.range[0] > layout.yaxis.range[1]


def test_intervals_of_another_shape_are_refused() -> None:
    value = np.ones((2, 1))
    with pytest.raises(ConfigurationError, match=r"values has shape \[2, 1\], but \[1, 2\]"):
        draw_interval_rows(["a", "b"], ["all"], value, value, value, axis="loss")


def test_curves_of_one_book_share_a_colour_and_those_before_costs_are_thin() -> None:
    curves = [
        BookCurve(name="model", values=np.array([1.0, 1.1]), book=0),
        BookCurve(name="before", values=np.array([1.0, 1.2]), book=0, is_gross=True),
        BookCurve(name="other", values=np.array([1.0, 0.9]), book=1),
    ]

    net, gross, other = traces(draw_book_curves(DATES[:2], curves, axis="equity"))

    assert net.x == ("2022-01-03", "2022-01-04")
    assert [curve.y.tolist() for curve in (net, gross, other)] == [[1.0, 1.1], [1.0, 1.2], [1.0, 0.9]]
    assert net.line.color == gross.line.color != other.line.color
    assert gross.line.width < other.line.width < net.line.width
    assert net.line.dash != other.line.dash


def test_a_book_of_other_days_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="model has shape"):
        draw_book_curves(DATES[:3], [BookCurve(name="model", values=np.ones(2), book=0)], axis="equity")


def test_selected_inputs_are_sorted_and_the_rest_is_added_up() -> None:
    bars = traces(draw_selection_bars(["a", "b", "c"], np.array([0.2, 0.5, 0.3]), top=1))[0]

    assert bars.y == ("b", "others (2)")
    assert bars.x == (0.5, 0.5)


def test_attention_keeps_the_order_of_the_sessions() -> None:
    line = traces(draw_attention_line(["-1", "0", "+1"], np.array([0.2, 0.5, 0.3])))[0]

    assert line.x == ("-1", "0", "+1")
    assert line.y.tolist() == [0.2, 0.5, 0.3]


def test_calibration_draws_its_series_side_by_side() -> None:
    numbers = np.ones((2, 1))

    first, second = traces(draw_calibration([0.5], ["1 session", "5 sessions"], numbers, numbers, numbers))

    assert first.x[0] < 0 < second.x[0]


def test_calibration_refuses_intervals_of_another_shape() -> None:
    with pytest.raises(ConfigurationError, match="upper has shape"):
        draw_calibration([0.5], ["1 session"], np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 2)))


def test_every_figure_becomes_html() -> None:
    figures = [
        draw_fan(CHART),
        draw_quantile_lines((1, 20), QUANTILES, PRICES, title="AAPL"),
        draw_importance_bars(["a"], np.ones(1), "bp"),
        draw_importance_heatmap(HEAT_DAYS[:1], ["a"], np.ones((1, 1)), "bp"),
        draw_loss_curve([1], [0.9], [0.9], (1, 0.9)),
        draw_calibration([0.5], ["1 session"], np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))),
    ]

    assert all("<div" in figure.to_html(full_html=False, include_plotlyjs=False) for figure in figures)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)

    with pytest.raises(MissingPackageError, match=r"quantra\[report\]"):
        draw_importance_bars(["a"], np.ones(1), "bp")


def test_a_title_is_text_and_no_markup() -> None:
    figure = draw_quantile_lines((1, 20), QUANTILES, PRICES, title="<b>A</b>&B")

    assert cast("Any", figure).layout.title.text == "&lt;b&gt;A&lt;/b&gt;&amp;B"
