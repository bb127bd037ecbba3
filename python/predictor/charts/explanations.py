"""Figures of explanations: contributions as bars and over time, selection and attention."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.theme import (
    BLUE,
    BLUE_FILL,
    GREY,
    NOTE_HEIGHT,
    ORANGE,
    escape_tags,
    import_graph_objects,
    make_figure,
    require_shape,
    select_largest,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_DIVERGING = ((0.0, ORANGE), (0.5, "#FFFFFF"), (1.0, BLUE))

_COLORBAR = {
    "orientation": "h",
    "thickness": 10,
    "len": 0.9,
    "tickformat": ".2~g",
    "tickangle": 0,
    "x": 1,
    "xanchor": "right",
    "y": 1.01,
    "yanchor": "bottom",
}

_DATES_NAMED = 4
"""Maximum number of dates below a heat map; more do not fit on a phone."""


def draw_importance_bars(
    names: Sequence[str], values: FloatArray, unit: str, *, top: int = 15, notes: Sequence[str] = ()
) -> "Figure":
    """Signed importance as horizontal bars, largest first, with the remaining ones as one bar "others".

    Args:
        names: [F], the features.
        values: [F], signed, in `unit`.
        unit: such as "basis points of log return".
        top: number of features with a separate bar.
        notes: small lines below the title.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("values", values, (len(names),))
    labels, heights = select_largest(names, values, top)
    figure = make_figure("Feature importance", _break_unit(unit) or "contribution", "", notes)
    figure.add_trace(
        import_graph_objects().Bar(
            x=heights,
            y=list(map(escape_tags, labels)),
            orientation="h",
            marker={"color": [BLUE if height >= 0 else ORANGE for height in heights]},
            hovertemplate=f"%{{y}}: %{{x:+.4g}} {unit}<extra></extra>",
        )
    )
    room = NOTE_HEIGHT * len(notes)
    figure.update_layout(height=150 + room + 24 * len(labels), showlegend=False, bargap=0.35, margin_t=56 + room)
    figure.update_xaxes(zeroline=True, zerolinecolor=GREY)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def _break_unit(unit: str) -> str:
    return unit.replace(" of ", "<br>of ")


def draw_importance_heatmap(
    dates: Sequence[date],
    names: Sequence[str],
    values: FloatArray,
    unit: str,
) -> "Figure":
    """Signed importance of each feature on each date: blue raises the forecast, orange lowers it, white is 0.

    Args:
        dates: [T].
        names: [F], the features, from top to bottom.
        values: [T, F], signed, in `unit`; NaN is empty.
        unit: such as "basis points of log return".

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("values", values, (len(dates), len(names)))
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    days = [day.isoformat() for day in dates]
    figure = make_figure("Feature importance over time", "", "")
    for row, name in enumerate(names):
        figure.add_trace(_draw_heat_row(row, name, days, values[:, row], unit))
    figure.update_layout(
        height=190 + 22 * len(names),
        margin_t=100,
        showlegend=False,
        barmode="overlay",
        bargap=0,
        coloraxis={
            "cmin": -reach,
            "cmid": 0.0,
            "cmax": reach,
            "colorscale": _DIVERGING,
            "colorbar": _COLORBAR
            | {"title": {"text": _break_unit(unit), "side": "top"}, "tickvals": [-reach, 0.0, reach]},
        },
    )
    _name_dates(figure, days)
    labels = list(map(escape_tags, names))
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=labels, showgrid=False
    )
    return figure


def _name_dates(figure: "Figure", days: list[str]) -> None:
    """Label some dates below a heat map, on two lines to avoid rotation."""
    positions = [round(position) for position in np.linspace(0, len(days) - 1, min(_DATES_NAMED, len(days))).tolist()]
    figure.update_xaxes(
        type="category",
        categoryarray=days,
        range=[-0.5, len(days) - 0.5],
        tickvals=positions,
        ticktext=[f"{days[position][5:]}<br>{days[position][:4]}" for position in positions],
        showgrid=False,
    )


def _draw_heat_row(row: int, name: str, days: list[str], values: FloatArray, unit: str) -> Any:
    """One feature of the heat map with days and values [T]: adjacent bars of height 1, coloured by value.

    They are bars, because the plotly.js bundle of pages does not support heat maps.
    """
    return import_graph_objects().Bar(
        name=escape_tags(name),
        x=days,
        y=np.where(np.isfinite(values), np.int8(1), np.int8(0)),
        base=row - 0.5,
        width=1,
        marker={"color": values.astype(np.float32), "coloraxis": "coloraxis", "line": {"width": 0}},
        hovertemplate=f"%{{fullData.name}}, %{{x}}: %{{marker.color:+.4g}} {unit}<extra></extra>",
    )


def draw_selection_bars(names: Sequence[str], shares: FloatArray, *, top: int = 15) -> "Figure":
    """Shares as horizontal bars, largest first, with the remaining ones as one bar "others".

    Args:
        names: [L], the inputs.
        shares: [L], at least 0.
        top: number of inputs with a separate bar.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("shares", shares, (len(names),))
    largest_names, widths = select_largest(names, shares, top)
    labels = list(map(escape_tags, largest_names))
    figure = make_figure("", "share", "")
    bars = import_graph_objects().Bar(
        x=widths, y=labels, orientation="h", marker={"color": BLUE}, hovertemplate="%{y}: %{x:.1%}<extra></extra>"
    )
    figure.add_trace(bars)
    figure.update_layout(height=110 + 24 * len(labels), showlegend=False, bargap=0.35)
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def draw_attention_line(labels: Sequence[str], shares: FloatArray) -> "Figure":
    """Shares as a line over sessions, oldest first.

    Args:
        labels: [L], the sessions, such as `-59`, `0` and `+5`.
        shares: [L], at least 0.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("shares", shares, (len(labels),))
    figure = make_figure("", "session, counted from the last bar", "share")
    line = import_graph_objects().Scatter(
        x=list(map(escape_tags, labels)),
        y=shares,
        mode="lines",
        line={"color": BLUE, "width": 2},
        fill="tozeroy",
        fillcolor=BLUE_FILL,
        hovertemplate="%{x}: %{y:.2%}<extra></extra>",
    )
    figure.add_trace(line)
    figure.update_layout(height=300, showlegend=False)
    figure.update_xaxes(type="category", nticks=8, showgrid=False)
    figure.update_yaxes(tickformat=".1%", rangemode="tozero")
    return figure
