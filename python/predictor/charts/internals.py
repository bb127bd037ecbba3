"""What a network says of itself: which inputs it selected, which sessions it attended to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predictor.arrays import FloatArray
from predictor.charts.theme import BLUE, BLUE_FILL, graph_objects, largest, new_figure, plain, require_shape

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def selection_bars(names: Sequence[str], shares: FloatArray, *, top: int = 15) -> "Figure":
    """Shares as horizontal bars, the largest on top, and all that is left as one bar "others".

    Args:
        names: [L], the inputs.
        shares: [L], at least 0.
        top: how many inputs get a bar of their own.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("shares", shares, (len(names),))
    labels, widths = largest(names, shares, top)
    figure = new_figure("", "share", "")
    bars = graph_objects().Bar(
        x=widths, y=labels, orientation="h", marker={"color": BLUE}, hovertemplate="%{y}: %{x:.1%}<extra></extra>"
    )
    figure.add_trace(bars)
    figure.update_layout(height=110 + 24 * len(labels), showlegend=False, bargap=0.35)
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def attention_line(labels: Sequence[str], shares: FloatArray) -> "Figure":
    """Shares as a line over sessions, oldest first.

    Args:
        labels: [L], the sessions, such as `-59`, `0` and `+5`.
        shares: [L], at least 0.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("shares", shares, (len(labels),))
    figure = new_figure("", "session, counted from the last bar", "share")
    line = graph_objects().Scatter(
        x=list(map(plain, labels)),
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
