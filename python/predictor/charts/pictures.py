"""Pictures of forecasts and explanations as PNG or SVG, drawn by matplotlib (extra `plot`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.forecasts import (
    FORECAST_SHARE,
    FanChart,
    name_band,
    name_level,
)
from predictor.charts.theme import BLUE, GREEN, GREY, INK, ORANGE, append_unit, require_shape
from predictor.errors import MissingPackageError, format_price

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH: Final = 10.0
"""Inches."""
HEIGHT: Final = 4.8
"""Inches per panel."""
BAR_HEIGHT: Final = 0.28
"""Inches per bar of a panel of bars."""
DOTS_PER_INCH: Final = 150
_LEFT, _RIGHT, _ROOM_BELOW = 0.08, 0.9, 0.75
_NOTE_WIDTH: Final = 135
"""Characters per line of a note."""
_LINE: Final = 0.2
"""Inches per line of a note."""
_SHADE: Final = 0.2
"""Opacity of each band; inner bands are darker because they overlap outer ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantilePanel:
    """A forecast without bars.

    Attributes:
        horizons: [H], sessions after the last bar, ascending.
        quantiles: [Q], levels between 0 and 1, ascending.
        values: [H, Q].
        title: such as the symbol.
        what: description of the values.
        notes: lines below the title.
    """

    horizons: Sequence[int]
    quantiles: Sequence[float]
    values: FloatArray
    title: str
    what: str
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        require_shape("values", self.values, (len(self.horizons), len(self.quantiles)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BarsPanel:
    """Signed numbers as horizontal bars.

    Attributes:
        names: [N], from top to bottom.
        values: [N].
        unit: unit of the values.
        title: such as the symbol.
        notes: lines below the title.
    """

    names: Sequence[str]
    values: Sequence[float]
    unit: str
    title: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathsPanel:
    """Simulated closes of one symbol: some paths, and quantiles of all on each day.

    Attributes:
        paths: [N, D + 1], each from the last close.
        drawn: number of paths that are drawn, from the first.
        quantiles: [Q], levels between 0 and 1, ascending.
        title: such as the symbol.
        notes: lines below the title.
    """

    paths: FloatArray
    drawn: int
    quantiles: Sequence[float]
    title: str
    notes: Sequence[str] = ()


Panel = FanChart | QuantilePanel | BarsPanel | PathsPanel


def draw_picture(panels: Sequence[Panel], kind: str, notes: Sequence[str] = ()) -> bytes:
    """Draw panels below each other.

    Args:
        panels: at least one.
        kind: `png` or `svg`; the same panels give the same bytes.
        notes: lines at the end, for all panels.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    # texts are drawn literally, and the same figure gives the same bytes
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("matplotlib", "plot", "a picture") from error
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "quantra", "font.size": 9}
    settings |= {"text.color": INK, "text.parse_math": False}
    with rc_context(settings), BytesIO() as picture:
        undated: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        build_figure(panels, notes).savefig(picture, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
        return picture.getvalue()


def build_figure(panels: Sequence[Panel], notes: Sequence[str] = ()) -> "Figure":
    """The figure that `draw_picture` saves."""
    from matplotlib import figure as figures

    lines = _wrap_notes(notes)
    heights = [*map(_choose_height, panels), *([_LINE * (len(lines) + 1)] if lines else [])]
    figure = figures.Figure(figsize=(WIDTH, sum(heights)))
    rows = figure.add_gridspec(len(heights), 1, height_ratios=heights, left=0, right=1, bottom=0, top=1, hspace=0)
    for row, panel in enumerate(panels):
        _draw_panel(figure.add_subfigure(rows[row]), panel)
    if lines:
        last = figure.add_subfigure(rows[len(panels)])
        last.text(_LEFT, 1, "\n".join(lines), va="top", color=GREY, linespacing=1.5)
    return figure


def _wrap_notes(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in wrap(note, _NOTE_WIDTH)]


def _choose_height(panel: Panel) -> float:
    if isinstance(panel, BarsPanel):
        return 1.6 + _LINE * len(_wrap_notes(panel.notes)) + BAR_HEIGHT * len(panel.names)
    return HEIGHT


def _draw_panel(part: "SubFigure", panel: Panel) -> None:
    """Draw the title, the notes, the axes and the legend of a panel."""
    height = _choose_height(panel)
    part.text(_LEFT, 1 - 0.12 / height, panel.title, va="top", fontsize=12)
    notes = _wrap_notes(panel.notes)
    part.text(_LEFT, 1 - 0.42 / height, "\n".join(notes), va="top", color=GREY, linespacing=1.5)
    top = 1 - (0.5 + _LINE * len(notes)) / height
    bottom = _ROOM_BELOW / height
    if isinstance(panel, BarsPanel):
        grid = part.add_gridspec(1, 1, left=3 * _LEFT, right=_RIGHT, bottom=bottom, top=top)
        _draw_bars(part.add_subplot(grid[0]), panel)
        return
    lower_edge = top - 0.35 / height
    if isinstance(panel, FanChart):
        ratios = (1 - FORECAST_SHARE, FORECAST_SHARE)
        grid = part.add_gridspec(
            1, 2, width_ratios=ratios, wspace=0, left=_LEFT, right=_RIGHT, bottom=bottom, top=lower_edge
        )
        fan_axes = part.add_subplot(grid[0])
        _draw_fan(fan_axes, part.add_subplot(grid[1], sharey=fan_axes), panel)
    else:
        axes = part.add_subplot(part.add_gridspec(1, 1, left=_LEFT, right=_RIGHT, bottom=bottom, top=lower_edge)[0])
        if isinstance(panel, PathsPanel):
            days = range(panel.paths.shape[1])
            shown = panel.paths[: panel.drawn]
            lines = axes.plot(days, shown.T, color=GREY, linewidth=0.6, alpha=0.6)
            lines[0].set_label(f"{len(shown)} of {len(panel.paths):,} paths")
            _draw_bands(axes, days, panel.quantiles, np.quantile(panel.paths, panel.quantiles, axis=0))
            axes.locator_params(axis="x", integer=True)
            axes.set_xlabel("sessions after the last bar")
            axes.set_ylabel("close")
            _style_axes(axes, ("top", "right"))
        else:
            _draw_bands(axes, list(panel.horizons), panel.quantiles, panel.values.T)
            axes.set_xticks(list(panel.horizons))
            axes.set_xlabel("sessions ahead")
            axes.set_ylabel(panel.what)
            _style_axes(axes, ("top", "right"))
    named = {text: handle for axes in part.axes for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    part.legend(
        named.values(), named.keys(), loc="upper left", bbox_to_anchor=(_LEFT, top), ncols=6, frameon=False, borderpad=0
    )


def _draw_fan(left: "Axes", right: "Axes", chart: FanChart) -> None:
    """Draw bars and past forecasts on the left, and the forecast on the right, with the same prices."""
    days = chart.days
    x_of_day = {day: number for number, day in enumerate(days)}
    _draw_candles(left, chart, x_of_day)
    for number, past in enumerate(chart.past):
        x = [x_of_day[day.isoformat()] for day in (past.start, *past.target_dates)]
        paths = np.vstack([np.full(len(chart.quantiles), past.close), past.prices]).T
        _draw_bands(left, x, chart.quantiles, paths, legend="" if number else "past forecasts")
    named = chart.days_named
    left.set_xticks([x_of_day[day] for day in named], [_break_day(day) for day in named])
    left.set_xlim(-0.7, len(days) - 0.5)
    left.set_xlabel("session")
    left.set_ylabel(append_unit("price", chart.currency))
    last = chart.last_session
    ahead = [0, *((day - last).days for day in chart.target_dates)]
    start = np.full(len(chart.quantiles), chart.candles.close[-1])
    _draw_bands(right, ahead, chart.quantiles, np.vstack([start, chart.prices]).T)
    ticks = chart.targets_named
    right.set_xticks([(day - last).days for day in ticks], [_break_day(day.isoformat()) for day in ticks])
    right.set_xlim(0, ahead[-1])
    right.set_xlabel("forecast")
    right.tick_params(axis="y", length=0, labelleft=False)
    right.axvline(0, color=GREY, linestyle=":", linewidth=1.5)
    for price in chart.labelled_prices:
        text, at = format_price(price), (ahead[-1], price)
        right.annotate(text, at, (5, 0), textcoords="offset points", va="center", color=BLUE, annotation_clip=False)
    for axes, hidden in ((left, ("top", "right")), (right, ("top", "right", "left"))):
        _style_axes(axes, hidden)


def _draw_candles(axes: "Axes", chart: FanChart, place: dict[str, int]) -> None:
    """Draw daily bars; rising ones are hollow."""
    candles = chart.candles
    x = np.array([place[day] for day in chart.bar_days])
    rises = candles.close >= candles.open
    for some, colour, fill, label in ((rises, GREEN, "white", "_"), (~rises, ORANGE, ORANGE, "daily bars")):
        bottom = np.minimum(candles.open, candles.close)[some]
        body = np.abs(candles.open - candles.close)[some]
        edge: dict[str, Any] = {"edgecolor": colour, "linewidth": 0.9, "zorder": 4, "label": label}
        axes.vlines(x[some], candles.low[some], candles.high[some], color=colour, linewidth=0.9, zorder=3)
        axes.bar(x[some], body, 0.55, bottom=bottom, color=fill, **edge)


def _draw_bands(
    axes: "Axes", x: Sequence[int], quantiles: Sequence[float], paths: FloatArray, *, legend: str | None = None
) -> None:
    """Draw bands between pairs of quantiles and a line in the middle; grey with one name where `legend` is given."""
    colour = BLUE if legend is None else GREY
    count = len(quantiles)
    for low in range(count // 2):
        name = name_band(quantiles, low) if legend is None else (legend if low == 0 else "")
        axes.fill_between(x, paths[low], paths[-1 - low], color=colour, alpha=_SHADE, linewidth=0, label=name or "_")
    if count % 2:
        look: dict[str, Any] = {"linewidth": 1.2, "linestyle": ":"}
        if legend is None:
            look = {"linewidth": 2, "marker": "o", "markersize": 4, "label": name_level(quantiles[count // 2])}
        axes.plot(x, paths[count // 2], color=colour, **look)


def _draw_bars(axes: "Axes", panel: BarsPanel) -> None:
    places = list(range(len(panel.names)))
    axes.barh(places, panel.values, 0.65, color=[BLUE if value >= 0 else ORANGE for value in panel.values])
    axes.set_yticks(places, panel.names)
    axes.set_ylim(len(panel.names) - 0.4, -0.6)
    axes.set_xlabel(panel.unit)
    axes.axvline(0, color=GREY, linewidth=1)
    _style_axes(axes, ("top", "right", "left"))


def _style_axes(axes: "Axes", hidden: Sequence[str]) -> None:
    axes.spines[list(hidden)].set_visible(False)
    axes.grid(color="#E5E7EB", linewidth=0.8)
    axes.set_axisbelow(True)


def _break_day(day: str) -> str:
    return f"{day[5:]}\n{day[:4]}"
