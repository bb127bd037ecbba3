"""A picture shows the numbers and the words of the page's chart, in PNG or SVG."""

import struct
import sys
from datetime import date
from typing import Any

import numpy as np
import pytest
from pages import page_of

from predictor.charts import BarsPanel, Candles, FanChart, Panel, PastFan, PathsPanel, QuantilePanel, draw_picture
from predictor.charts.pictures import build_figure
from predictor.errors import ConfigurationError, MissingPackageError

DAYS = np.arange(np.datetime64("2022-10-03"), np.datetime64("2023-01-03"))
DATES = np.asarray([int(str(day).replace("-", "")) for day in DAYS], np.int32)
CLOSE = 100 + np.cumsum(np.random.default_rng(7).normal(size=DATES.size))
OPEN = CLOSE - np.where(np.arange(CLOSE.size) % 2, 0.5, -0.5)
PRICES = np.asarray([[95.0, 100.0, 105.0], [90.0, 101.0, 112.0]])
FAN = FanChart(
    candles=Candles(dates=DATES, open=OPEN, high=CLOSE + 1, low=CLOSE - 1, close=CLOSE),
    target_dates=(date(2023, 1, 3), date(2023, 1, 10)),
    quantiles=(0.1, 0.5, 0.9),
    prices=PRICES,
    past=(
        PastFan(start=date(2022, 11, 30), close=88, target_dates=(date(2022, 12, 20),), prices=PRICES[:1]),
        PastFan(start=date(2022, 12, 12), close=89, target_dates=(date(2022, 12, 30),), prices=PRICES[1:]),
    ),
    title="AAPL: demo@1, as of 2023-01-02",
    currency="USD",
    notes=("skill: not shown",),
)
LAGGED = QuantilePanel(
    horizons=(1, 5), quantiles=(0.1, 0.5, 0.9), values=PRICES, title="IBM: demo@1", what="return (%)", notes=("why",)
)
PATHS = 100 + np.arange(20.0).reshape(5, 4) % 7
REASONS = BarsPanel(names=("<a> & $b$", "scale"), values=(3.0, -2.0), unit="basis points", title="MSFT: demo@1")


def axes_of(panel: Panel) -> list[Any]:
    return list(build_figure([panel]).subfigs[0].axes)


def lines_of(axes: Any, style: str) -> list[list[float]]:
    return [line.get_ydata().tolist() for line in axes.lines if line.get_linestyle() == style]


def test_the_bars_of_sixty_sessions_stand_on_the_left() -> None:
    left, _ = axes_of(FAN)

    bodies = sorted((patch.get_x() + patch.get_width() / 2, patch) for patch in left.patches)
    assert [round(x) for x, _ in bodies] == list(range(61))
    assert [patch.get_y() for _, patch in bodies] == np.minimum(OPEN, CLOSE)[-61:].tolist()
    assert left.get_xlabel() == "session"
    assert left.get_ylabel() == "price (USD)"


def test_the_forecast_has_a_third_of_the_width_and_its_prices_at_its_end() -> None:
    left, right = axes_of(FAN)

    assert right.get_position().width / (left.get_position().width + right.get_position().width) == pytest.approx(1 / 3)
    assert lines_of(right, "-")[0] == [CLOSE[-1], 100, 101]
    assert [text.get_text() for text in right.texts] == ["90.00", "101.00", "112.00"]


def test_past_forecasts_start_at_their_close() -> None:
    left, _ = axes_of(FAN)

    assert lines_of(left, ":") == [[88, 100], [89, 101]]
    assert len(left.collections) == 2 + 2  # a band of each, and the ranges of rising and of falling bars


def test_returns_without_prices_are_drawn_by_horizon() -> None:
    (axes,) = axes_of(LAGGED)

    assert lines_of(axes, "-") == [[100, 101]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("sessions ahead", "return (%)")


def test_reasons_are_bars_from_top_to_bottom() -> None:
    (axes,) = axes_of(REASONS)

    assert [patch.get_width() for patch in axes.patches] == [3, -2]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.get_xlabel() == "basis points"


def test_some_paths_are_drawn_and_the_quantiles_of_all() -> None:
    (axes,) = axes_of(PathsPanel(paths=PATHS, drawn=2, quantiles=(0.1, 0.5, 0.9), title="AAPL: demo@1"))

    assert lines_of(axes, "-") == [*PATHS[:2].tolist(), np.median(PATHS, axis=0).tolist()]
    assert axes.get_legend_handles_labels()[1] == ["2 of 5 paths", "10 % to 90 %", "median"]


def test_an_svg_holds_every_word_as_it_is() -> None:
    text = page_of(draw_picture([FAN, LAGGED, REASONS], "svg", ("Grey: the past.", "")).decode()).text

    words = ("AAPL: demo@1, as of 2023-01-02", "skill: not shown", "past forecasts", "daily bars", "10 % to 90 %")
    more = ("median", "2023", "IBM: demo@1", "return (%)", "<a> & $b$", "Grey: the past.")
    assert [word for word in (*words, *more) if word not in text] == []


def test_long_notes_are_wrapped() -> None:
    last = build_figure([REASONS], (" ".join(["word"] * 60),)).subfigs[-1]

    assert [len(line) for line in last.texts[0].get_text().splitlines()] == [134, 134, 29]


def test_a_png_is_as_high_as_its_panels() -> None:
    one, two = draw_picture([FAN], "png"), draw_picture([FAN, FAN], "png")

    assert one[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", one[16:24]) == (1500, 720)
    assert struct.unpack(">II", two[16:24]) == (1500, 1440)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_panels_give_the_same_bytes(kind: str) -> None:
    assert draw_picture([FAN], kind) == draw_picture([FAN], kind)


def test_values_of_another_shape_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"values has shape \[3, 2\], but \[2, 3\]"):
        QuantilePanel(horizons=(1, 5), quantiles=(0.1, 0.5, 0.9), values=PRICES.T, title="IBM", what="return (%)")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingPackageError, match=r"pip install 'quantra\[plot\]'"):
        draw_picture([FAN], "png")
