"""Charts of values over sessions, with their bounds and a reference level."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from predictor.arrays import FloatArray, IntArray
from predictor.charts.theme import (
    BLUE_FILL,
    GREY,
    graph_objects,
    iso_dates,
    new_figure,
    plain,
    require_shape,
    series_style,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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


def bounded_lines(
    series: Sequence[BoundedSeries], *, title: str, what: str, level: float, level_name: str, is_log: bool = False
) -> "Figure":
    """Lines over sessions, bounds as a band, and a dashed reference level.

    Args:
        series: at least one.
        title: such as the name of a monitor.
        what: title of the value axis.
        level: the reference for the values, such as a promised share.
        level_name: its name in the legend.
        is_log: whether the value axis is logarithmic.

    Raises:
        ConfigurationError: shapes do not match.
        MissingPackageError: plotly is not installed.
    """
    scatter, figure = graph_objects().Scatter, new_figure(title, "session", what)
    for place, one in enumerate(series):
        require_shape(one.name, one.values, one.dates.shape)
        days, colour = iso_dates(one.dates), series_style(place)[0]
        if one.lower is not None and one.upper is not None:
            edge = {"x": days, "mode": "lines", "line": {"width": 0, "color": colour}, "hoverinfo": "skip"}
            figure.add_trace(scatter(y=one.lower, showlegend=False, **edge))
            band = {"fill": "tonexty", "fillcolor": BLUE_FILL, "name": "bounds"}
            figure.add_trace(scatter(y=one.upper, **band, **edge))
        line = {"color": colour, "width": 2}
        figure.add_trace(scatter(x=days, y=one.values, name=plain(one.name), mode="lines+markers", line=line))
    days = sorted({day for one in series for day in iso_dates(one.dates)})
    dashed = {"color": GREY, "width": 1.5, "dash": "dash"}
    figure.add_trace(
        scatter(x=[days[0], days[-1]], y=[level, level], name=plain(level_name), mode="lines", line=dashed)
    )
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(type="date")
    if is_log:
        figure.update_yaxes(type="log")
    return figure
