"""How often outcomes fell where a forecast said."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.theme import BLUE, BLUE_FILL, GREY, graph_objects, new_figure, plain, require_shape, series_look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SIDE_BY_SIDE = 0.14
_BAND = "rgba(107, 114, 128, 0.3)"


def calibration(
    levels: Sequence[float],
    series: Sequence[str],
    observed: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    reach: float | None = None,
) -> "Figure":
    """How far observed coverage lies from nominal; a calibrated forecast lies on the line at 0.

    The series stand side by side at each level, so that their error bars do not hide each other.

    Args:
        levels: [L], nominal levels between 0 and 1.
        series: [S], one name a series, such as "5 sessions".
        observed: [S, L], the share of outcomes at or below each level's forecast.
        lower: [S, L], lower end of the confidence interval of `observed`.
        upper: [S, L], upper end.
        reach: where the axis ends, above and below 0, so that two figures can be compared; None: by the data.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, values in (("observed", observed), ("lower", lower), ("upper", upper)):
        require_shape(name, values, (len(series), len(levels)))
    figure = new_figure("Calibration", "nominal level", "observed minus nominal (points)")
    figure.add_hline(y=0, line={"color": GREY, "width": 1.5, "dash": "dash"})
    nominal = np.asarray(levels)
    for row, name in enumerate(series):
        places = np.arange(nominal.size, dtype=np.float64) + (row - (len(series) - 1) / 2) * _SIDE_BY_SIDE
        figure.add_trace(_coverage(name, row, places, nominal, (observed[row], lower[row], upper[row])))
    labels = [f"{100 * level:g} %" for level in levels]
    figure.update_xaxes(
        range=[-0.5, nominal.size - 0.5], tickvals=list(range(nominal.size)), ticktext=labels, showgrid=False
    )
    if reach is not None:
        figure.update_yaxes(range=[-100 * reach, 100 * reach])
    return figure


def _coverage(
    name: str,
    row: int,
    places: FloatArray,
    levels: FloatArray,
    interval: tuple[FloatArray, FloatArray, FloatArray],
) -> Any:
    """One series of `calibration`: its points, and their confidence intervals as error bars."""
    observed, lower, upper = interval
    colour, symbol = series_look(row)
    return graph_objects().Scatter(
        x=places,
        y=100 * (observed - levels),
        name=plain(name),
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
        hovertemplate=f"{name}: nominal %{{customdata[0]:.1%}}, observed %{{customdata[1]:.1%}} "
        "(%{customdata[2]:.1%} to %{customdata[3]:.1%})<extra></extra>",
    )


def pit_histogram(
    title: str,
    edges: Sequence[float],
    shares: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> "Figure":
    """Where in its forecast distribution each outcome fell; a calibrated forecast has bars of height 1 (Dawid 1984).

    The band is where its bars would fall by luck alone: as wide as the interval of each share, around the height 1.

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
    figure = new_figure(title, "level (%)", "outcomes / calibrated")
    figure.add_trace(
        graph_objects().Bar(
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
    figure.add_trace(_luck(centres, widths, (upper - lower) / widths, 1 + (lower - shares) / widths))
    figure.add_hline(y=1, line={"color": GREY, "width": 1.5, "dash": "dash"})
    figure.update_layout(barmode="overlay", height=300)
    labels = [f"{100 * edge:g}" for edge in edges]
    figure.update_xaxes(tickvals=list(edges), ticktext=labels, range=[0, 1], showgrid=False)
    return figure


def _luck(centres: FloatArray, widths: FloatArray, heights: FloatArray, bases: FloatArray) -> Any:
    """The band of `pit_histogram`: for each of the B bins, where a calibrated forecast's bar would end by luck."""
    return graph_objects().Bar(
        x=centres,
        y=heights,
        base=bases,
        width=widths,
        name="calibrated, by luck",
        marker={"color": _BAND, "line": {"color": GREY, "width": 0}},
        hoverinfo="skip",
    )
