"""Estimates with their intervals: one line a name, side by side a series."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.theme import GREY, graph_objects, new_figure, plain, require_shape, series_look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

_LONGEST = 17
"""Characters of a line of a name, so that narrow screens keep room for the figure."""
_APART = 0.16
_MOST_APART = 0.7
"""Of the room of a name that its series take together, at most."""


def interval_rows(
    names: Sequence[str],
    series: Sequence[str],
    values: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    axis: str,
    zero: bool = False,
) -> "Figure":
    """Points with error bars, from top to bottom in the order given; what is NaN is left out.

    Args:
        names: [R], one line each.
        series: [S], such as "5 sessions"; each has a colour and a symbol of its own.
        values: [S, R], in the axis's unit.
        lower: [S, R], lower end of the confidence interval of each value.
        upper: [S, R], upper end.
        axis: title of the axis, with its unit.
        zero: whether zero means something: a line is drawn there.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, array in (("values", values), ("lower", lower), ("upper", upper)):
        require_shape(name, array, (len(series), len(names)))
    figure = new_figure("", axis, "")
    if zero:
        figure.add_vline(x=0, line={"color": GREY, "width": 1.5, "dash": "dash"})
    labels = ["<br>".join(map(plain, wrap(name, _LONGEST))) for name in names]
    step = min(_APART, _MOST_APART / len(series))
    for row, name in enumerate(series):
        shift = (row - (len(series) - 1) / 2) * step
        figure.add_trace(_points(names, name, series_look(row), shift, values[row], lower[row], upper[row]))
    room = 18 + 12 * min(len(series), 4)
    figure.update_layout(height=130 + room * len(names), showlegend=len(series) > 1)
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=labels, showgrid=False
    )
    return figure


def _points(
    names: Sequence[str],
    series: str,
    look: tuple[str, str],
    shift: float,
    values: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> "Scatter":
    """One series: a point a name with its error bar, so far below the name's middle."""
    colour, symbol = look
    return graph_objects().Scatter(
        x=values,
        y=np.arange(len(names)) + shift,
        name=plain(series),
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
        text=list(map(plain, names)),
        customdata=np.stack([lower, upper], axis=1),
        hovertemplate="%{text}, %{fullData.name}: %{x:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})"
        "<extra></extra>",
    )
