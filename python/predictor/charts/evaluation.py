"""Figures of evaluations: calibration, intervals, books and losses."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IntArray
from predictor.charts.theme import (
    BLUE,
    BLUE_FILL,
    GREY,
    ORANGE,
    SERIES,
    choose_series_style,
    escape_tags,
    format_dates,
    import_graph_objects,
    make_figure,
    make_fill,
    require_shape,
)
from predictor.errors import ConfigurationError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter


_LEVEL_OFFSET = 0.14

_BAND_COLOUR = "rgba(107, 114, 128, 0.3)"


def draw_calibration(
    levels: Sequence[float],
    series: Sequence[str],
    observed: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    reach: float | None = None,
) -> "Figure":
    """Observed minus nominal coverage; a calibrated forecast lies on the line at 0.

    The series are shifted at each level, so that their error bars do not overlap.

    Args:
        levels: [L], nominal levels between 0 and 1.
        series: [S], names of the series, such as "5 sessions".
        observed: [S, L], the share of outcomes at or below each level's forecast.
        lower: [S, L], lower end of the confidence interval of `observed`.
        upper: [S, L], upper end.
        reach: end of the axis above and below 0, to compare two figures; None to fit the data.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, values in (("observed", observed), ("lower", lower), ("upper", upper)):
        require_shape(name, values, (len(series), len(levels)))
    figure = make_figure("Calibration", "nominal level", "observed minus nominal (points)")
    figure.add_hline(y=0, line={"color": GREY, "width": 1.5, "dash": "dash"})
    nominal = np.asarray(levels)
    for row, name in enumerate(series):
        positions = np.arange(nominal.size, dtype=np.float64) + (row - (len(series) - 1) / 2) * _LEVEL_OFFSET
        figure.add_trace(_draw_coverage(name, row, positions, nominal, (observed[row], lower[row], upper[row])))
    labels = [f"{100 * level:g} %" for level in levels]
    figure.update_xaxes(
        range=[-0.5, nominal.size - 0.5], tickvals=list(range(nominal.size)), ticktext=labels, showgrid=False
    )
    if reach is not None:
        figure.update_yaxes(range=[-100 * reach, 100 * reach])
    return figure


def _draw_coverage(
    name: str,
    row: int,
    positions: FloatArray,
    levels: FloatArray,
    interval: tuple[FloatArray, FloatArray, FloatArray],
) -> Any:
    """One series of `draw_calibration`: its points, and their confidence intervals as error bars."""
    observed, lower, upper = interval
    colour, symbol = choose_series_style(row)
    return import_graph_objects().Scatter(
        x=positions,
        y=100 * (observed - levels),
        name=escape_tags(name),
        mode="markers",
        marker={"symbol": symbol, "size": 10, "color": colour},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": 100 * (upper - observed),
            "arrayminus": 100 * (observed - lower),
            "width": 5,
        },
        customdata=np.stack([levels, observed, lower, upper], axis=1),
        hovertemplate=f"{escape_tags(name)}: nominal %{{customdata[0]:.1%}}, observed %{{customdata[1]:.1%}} "
        "(%{customdata[2]:.1%} to %{customdata[3]:.1%})<extra></extra>",
    )


def draw_pit_histogram(
    title: str,
    edges: Sequence[float],
    shares: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> "Figure":
    """Position of outcomes in their forecast distributions; a calibrated forecast has bars of height 1 (Dawid 1984).

    The band shows random deviations of a calibrated forecast: the interval of each share, around height 1.

    Args:
        title: such as "5 sessions".
        edges: [B + 1], levels from 0 to 1, ascending.
        shares: [B], share of the outcomes between two levels.
        lower: [B], lower end of the confidence interval of each share.
        upper: [B], upper end.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, values in (("shares", shares), ("lower", lower), ("upper", upper)):
        require_shape(name, values, (len(edges) - 1,))
    widths = np.diff(np.asarray(edges, np.float64))
    centres = np.asarray(edges[:-1], np.float64) + widths / 2
    figure = make_figure(title, "level (%)", "outcomes / calibrated")
    figure.add_trace(
        import_graph_objects().Bar(
            x=centres,
            y=shares / widths,
            width=widths,
            name="outcomes",
            marker={"color": BLUE_FILL, "line": {"color": BLUE, "width": 2}},
            customdata=np.stack([edges[:-1], edges[1:], shares, lower, upper], axis=1),
            hovertemplate="%{customdata[0]:.0%} to %{customdata[1]:.0%}: %{customdata[2]:.1%} of the outcomes "
            "(%{customdata[3]:.1%} to %{customdata[4]:.1%})<extra></extra>",
        )
    )
    figure.add_trace(_draw_chance_band(centres, widths, (upper - lower) / widths, 1 + (lower - shares) / widths))
    figure.add_hline(y=1, line={"color": GREY, "width": 1.5, "dash": "dash"})
    figure.update_layout(barmode="overlay", height=300)
    labels = [f"{100 * edge:g}" for edge in edges]
    figure.update_xaxes(tickvals=list(edges), ticktext=labels, range=[0, 1], showgrid=False)
    return figure


def _draw_chance_band(centres: FloatArray, widths: FloatArray, heights: FloatArray, bases: FloatArray) -> Any:
    """The band of `draw_pit_histogram`: random deviations of a calibrated forecast in each of the B bins."""
    return import_graph_objects().Bar(
        x=centres,
        y=heights,
        base=bases,
        width=widths,
        name="expected by chance",
        marker={"color": _BAND_COLOUR, "line": {"color": GREY, "width": 0}},
        hoverinfo="skip",
    )


_MAX_LINE_LENGTH = 17
"""Maximum characters per line of a name, to leave room for the figure on narrow screens."""

_SERIES_SPACING = 0.16

_MAX_SERIES_SPREAD = 0.7
"""Maximum share of a name's height that its series use."""


def draw_interval_rows(
    names: Sequence[str],
    series: Sequence[str],
    values: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    axis: str,
) -> "Figure":
    """Points with error bars, from top to bottom in order; NaN is left out.

    Args:
        names: [R], one line each.
        series: [S], such as "5 sessions", each with its own colour and symbol.
        values: [S, R], in the axis's unit.
        lower: [S, R], lower end of the confidence interval of each value.
        upper: [S, R], upper end.
        axis: title of the axis, with its unit.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, array in (("values", values), ("lower", lower), ("upper", upper)):
        require_shape(name, array, (len(series), len(names)))
    figure = make_figure("", axis, "")
    labels = ["<br>".join(map(escape_tags, wrap(name, _MAX_LINE_LENGTH))) for name in names]
    step = min(_SERIES_SPACING, _MAX_SERIES_SPREAD / len(series))
    for row, name in enumerate(series):
        shift = (row - (len(series) - 1) / 2) * step
        figure.add_trace(
            _draw_points(names, name, choose_series_style(row), shift, values[row], lower[row], upper[row])
        )
    room = 18 + 12 * min(len(series), 4)
    figure.update_layout(height=130 + room * len(names), showlegend=len(series) > 1)
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=labels, showgrid=False
    )
    return figure


def _draw_points(
    names: Sequence[str],
    series: str,
    look: tuple[str, str],
    shift: float,
    values: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> "Scatter":
    """One series: a point with its error bar per name, `shift` below the middle of the name."""
    colour, symbol = look
    return import_graph_objects().Scatter(
        x=values,
        y=np.arange(len(names)) + shift,
        name=escape_tags(series),
        mode="markers",
        marker={"symbol": symbol, "size": 8, "color": colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": upper - values,
            "arrayminus": values - lower,
            "width": 3,
            "thickness": 1.5,
        },
        text=list(map(escape_tags, names)),
        customdata=np.stack([lower, upper], axis=1),
        hovertemplate="%{text}, %{fullData.name}: %{x:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})"
        "<extra></extra>",
    )


_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BookCurve:
    """A curve of a book.

    Attributes:
        name: name in the legend.
        values: [T].
        book: index of its book; curves of a book share a colour, and the first book is drawn thick.
        is_gross: whether the values are before costs; such a curve is thin.
    """

    name: str
    values: FloatArray
    book: int
    is_gross: bool = False


def draw_book_curves(
    dates: NDArray[np.int32], curves: Sequence[BookCurve], *, axis: str, percent: bool = False
) -> "Figure":
    """Curves over common sessions.

    Args:
        dates: int32 [T], yyyymmdd.
        curves: curves of T values.
        axis: title of the axis, with its unit.
        percent: whether to show shares in percent.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    figure = make_figure("", "", axis)
    days = format_dates(dates)
    number = ".1%" if percent else ".3f"
    for curve in curves:
        require_shape(curve.name, curve.values, (len(dates),))
        figure.add_trace(
            import_graph_objects().Scatter(
                x=days,
                y=curve.values,
                name=escape_tags(curve.name),
                mode="lines",
                line=_style_line(curve),
                hovertemplate=f"%{{fullData.name}}: %{{y:{number}}}<extra></extra>",
            )
        )
    figure.update_layout(hovermode="x unified", margin_b=36)
    figure.update_yaxes(tickformat=".0%" if percent else ".2f")
    return figure


def _style_line(curve: BookCurve) -> dict[str, str | float]:
    colour = SERIES[curve.book % len(SERIES)]
    if curve.is_gross:
        return {"color": colour, "width": 1.2}
    return {"color": colour, "width": 2.5 if curve.book == 0 else 1.6, "dash": _DASHES[curve.book % len(_DASHES)]}


_MAX_TICK_LABELS = 12
"""Maximum number of epochs with a label, which are whole numbers."""


def draw_loss_curve(
    epochs: Sequence[int],
    train: Sequence[float],
    selection: Sequence[float],
    best: tuple[int, float],
    *,
    unit: str = "pinball loss",
) -> "Figure":
    """Loss per epoch on the training and the selection split, and the epoch whose weights were kept.

    Args:
        epochs: [E].
        train: [E], mean loss on the training split.
        selection: [E], mean loss on the selection split.
        best: epoch and selection loss of the kept weights; epoch 0 is the start.
        unit: name of the loss.

    Raises:
        ConfigurationError: shapes do not match, or the best epoch is not among the epochs.
        MissingPackageError: plotly is not installed.
    """
    require_shape("train", np.asarray(train), (len(epochs),))
    require_shape("selection", np.asarray(selection), (len(epochs),))
    best_epoch, best_loss = best
    if best_epoch and best_epoch not in epochs:
        raise ConfigurationError(f"the best epoch, {best_epoch}, is not among the epochs {list(epochs)}")
    scatter = import_graph_objects().Scatter
    figure = make_figure("Loss", "epoch", unit)
    for name, losses, line in (
        ("train", train, {"color": GREY, "width": 2, "dash": "dot"}),
        ("selection", selection, {"color": BLUE, "width": 2.5}),
    ):
        hover = f"{name}: %{{y:.5g}} {unit}<extra></extra>"
        figure.add_trace(
            scatter(x=list(epochs), y=list(losses), name=name, mode="lines", line=line, hovertemplate=hover)
        )
    figure.add_trace(
        scatter(
            x=[best_epoch],
            y=[best_loss],
            name=f"kept: epoch {best_epoch}" if best_epoch else "kept: the start",
            mode="markers",
            marker={"color": ORANGE, "size": 11, "symbol": "star"},
            hoverinfo="skip",
        )
    )
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(dtick=1 + len(epochs) // _MAX_TICK_LABELS)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedSeries:
    """A named series of values at D sessions, with or without bounds."""

    name: str
    dates: IntArray
    """[D] yyyymmdd, ascending."""
    values: FloatArray
    """[D]; NaN leaves a gap."""
    lower: FloatArray | None = None
    """[D] lower bound; None without bounds."""
    upper: FloatArray | None = None


def draw_bounded_lines(
    series: Sequence[BoundedSeries], *, title: str, what: str, level: float, level_name: str, is_log: bool = False
) -> "Figure":
    """Lines over sessions, bounds as a band, and a dashed reference level.

    Args:
        series: at least one session in all.
        title: such as the name of a monitor.
        what: title of the value axis.
        level: the reference for the values, such as a promised share.
        level_name: its name in the legend.
        is_log: whether the value axis is logarithmic.

    Raises:
        ConfigurationError: there is no session, or shapes do not match.
        MissingPackageError: plotly is not installed.
    """
    days = sorted({day for curve in series for day in format_dates(curve.dates)})
    if not days:
        raise ConfigurationError(f"{title!r} has no session to draw; give a series with at least one")
    scatter, figure = import_graph_objects().Scatter, make_figure(title, "session", what)
    for number, curve in enumerate(series):
        require_shape(curve.name, curve.values, curve.dates.shape)
        dates, colour, name = format_dates(curve.dates), choose_series_style(number)[0], escape_tags(curve.name)
        if curve.lower is not None and curve.upper is not None:
            edge = {"x": dates, "mode": "lines", "line": {"width": 0, "color": colour}, "hoverinfo": "skip"}
            figure.add_trace(scatter(y=curve.lower, showlegend=False, **edge))
            band = {"fill": "tonexty", "fillcolor": make_fill(colour), "name": f"bounds of {name}"}
            figure.add_trace(scatter(y=curve.upper, **band, **edge))
        line = {"color": colour, "width": 2}
        figure.add_trace(scatter(x=dates, y=curve.values, name=name, mode="lines+markers", line=line))
    dashed = {"color": GREY, "width": 1.5, "dash": "dash"}
    figure.add_trace(
        scatter(x=[days[0], days[-1]], y=[level, level], name=escape_tags(level_name), mode="lines", line=dashed)
    )
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(type="date")
    if is_log:
        figure.update_yaxes(type="log")
    return figure
