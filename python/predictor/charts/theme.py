"""Common theme and checks of all figures."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError, MissingPackageError, format_date

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BLUE: Final = "#0072B2"
BLUE_FILL: Final = "rgba(0, 114, 178, 0.18)"
ORANGE: Final = "#D55E00"
GREEN: Final = "#009E73"
GREY: Final = "#6B7280"
GREY_FILL: Final = "rgba(107, 114, 128, 0.22)"
SERIES: Final = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x")

INK: Final = "#1F2937"
_AXIS: Final = {
    "gridcolor": "#E5E7EB",
    "linecolor": "#9CA3AF",
    "showline": True,
    "ticks": "outside",
    "tickcolor": "#9CA3AF",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 12},
}
_TOP: Final = 88
_HEIGHT: Final = 420
"""Default height in pixels."""
THEME: Final = {
    "font": {
        "family": "Inter, 'Segoe UI', system-ui, -apple-system, Helvetica, Arial, sans-serif",
        "size": 13,
        "color": INK,
    },
    "title": {"font": {"size": 17}, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.97, "yanchor": "top"},
    "paper_bgcolor": "#FFFFFF",
    "plot_bgcolor": "#FFFFFF",
    "margin": {"l": 64, "r": 32, "t": _TOP, "b": 56},
    "hoverlabel": {"bgcolor": "#FFFFFF", "bordercolor": "#9CA3AF", "font": {"color": INK}},
    "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    "xaxis": {**_AXIS, "tickangle": 0},
    "yaxis": _AXIS,
}
"""The layout of every figure's template."""


NOTE_HEIGHT: Final = 18
"""Height of a note below a title, in pixels."""


def make_figure(title: str, x_title: str, y_title: str, notes: Sequence[str] = ()) -> "Figure":
    """An empty figure with the common theme; each note is a small line below the title."""
    figures = import_graph_objects()
    top = _TOP + NOTE_HEIGHT * len(notes)
    return figures.Figure(
        layout={
            "template": figures.layout.Template(layout=THEME),
            "title": {"text": escape_tags(title), "subtitle": {"text": "<br>".join(map(escape_tags, notes))}},
            "xaxis": {"title": {"text": x_title}},
            "yaxis": {"title": {"text": y_title}},
            "margin": {"t": top},
            "height": _HEIGHT,
        },
    )


def import_graph_objects() -> Any:
    """Import the figure classes of plotly, which are untyped.

    Raises:
        MissingPackageError: plotly is not installed.
    """
    try:
        from plotly import graph_objects
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("plotly", "report", "a chart") from error
    return graph_objects


def make_fill(colour: str) -> str:
    """A colour such as #0072B2, transparent enough to be drawn over others."""
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgba({red}, {green}, {blue}, 0.18)"


def choose_series_style(index: int) -> tuple[str, str]:
    """Choose the colour and marker symbol of the series with this index; they repeat cyclically."""
    return SERIES[index % len(SERIES)], SYMBOLS[index % len(SYMBOLS)]


def escape_tags(text: str) -> str:
    """Escape a text, because plotly interprets tags such as `<b>`."""
    return escape(text, quote=False)


def select_largest(names: Sequence[str], values: FloatArray, top: int) -> tuple[list[str], list[float]]:
    """Select the `top` largest of values [N] with their names, largest first, and sum the rest as "others"."""
    order = np.argsort(-np.abs(values), kind="stable")
    labels = [names[int(row)] for row in order[:top]]
    lengths: list[float] = values[order[:top]].tolist()
    if order.size > top:
        labels.append(f"others ({order.size - top})")
        lengths.append(float(values[order[top:]].sum()))
    return labels, lengths


def format_dates(dates: "NDArray[np.int32]") -> list[str]:
    """Convert dates [T], yyyymmdd, to ISO form."""
    return [format_date(day) for day in dates.tolist()]


def append_unit(name: str, unit: str) -> str:
    """Format an axis title."""
    return f"{name} ({unit})" if unit else name


def require_shape(name: str, values: NDArray[Any], shape: "Sequence[int]") -> None:
    """Check the shape of an array.

    Raises:
        ConfigurationError: the shape differs; the message has the name and both shapes.
    """
    if values.shape != tuple(shape):
        raise ConfigurationError(
            f"{name} has shape {list(values.shape)}, but {list(shape)} is needed to match the other arrays"
        )
