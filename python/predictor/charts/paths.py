"""Figures of joint price paths: some of the paths, and the distribution of a number over all of them."""

from typing import TYPE_CHECKING, Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.theme import (
    BLUE,
    BLUE_FILL,
    INK,
    ORANGE,
    append_unit,
    escape_tags,
    import_graph_objects,
    make_figure,
)
from predictor.errors import ConfigurationError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_BINS: Final = 40
_FAINT: Final = "rgba(0, 114, 178, 0.45)"


def draw_path_lines(past: FloatArray, paths: FloatArray, *, title: str, currency: str = "") -> "Figure":
    """The last closes of a symbol, followed by some of its paths, which all start at the last close.

    Args:
        past: [P] closes up to the last bar; NaN without a bar.
        paths: [N, D] closes of the days after the last bar.
        title: such as the symbol.
        currency: of the closes; may be empty.

    Raises:
        ConfigurationError: there is no close or no path.
        MissingPackageError: plotly is not installed.
    """
    closes = past[np.isfinite(past)]
    if not closes.size or not paths.size:
        raise ConfigurationError(f"there are {closes.size} closes and {len(paths)} paths; give at least one of each")
    count, days = paths.shape
    figure = make_figure(title, "sessions after the last bar", append_unit("close", currency))
    line = import_graph_objects().Scatter
    # One trace: a missing value ends a path.
    lines = np.hstack([np.full((count, 1), closes[-1]), paths, np.full((count, 1), np.nan)])
    figure.add_trace(
        line(
            x=np.tile(np.arange(days + 2), count),
            y=lines.ravel(),
            name=f"{count} paths",
            mode="lines",
            line={"color": _FAINT, "width": 1},
            connectgaps=False,
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        line(
            x=np.arange(1 - past.size, 1),
            y=past,
            name="closes",
            mode="lines",
            line={"color": INK, "width": 2},
            hovertemplate="%{y:,.4~f}<extra></extra>",
        )
    )
    return figure


def draw_distribution(values: FloatArray, *, title: str, what: str, mark: float, mark_name: str) -> "Figure":
    """A histogram of one value per path, with one value marked.

    Args:
        values: [N], in the axis's unit.
        title: of the figure.
        what: title of the value axis, with its unit.
        mark: the value of the vertical line, such as a quantile.
        mark_name: written at the line, such as `1 in 20`.

    Raises:
        MissingPackageError: plotly is not installed.
    """
    counts, edges = np.histogram(values, bins=_BINS)
    shares = 100 * counts / values.size
    figure = make_figure(title, what, "paths (%)")
    figure.add_trace(
        import_graph_objects().Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=shares,
            width=np.diff(edges),
            marker={"color": BLUE_FILL, "line": {"color": BLUE, "width": 1}},
            customdata=np.stack([edges[:-1], edges[1:]], axis=1),
            hovertemplate="%{customdata[0]:,.4~g} to %{customdata[1]:,.4~g}: %{y:.1f} % of the paths<extra></extra>",
        )
    )
    figure.add_vline(
        x=mark,
        line={"color": ORANGE, "width": 2, "dash": "dash"},
        annotation={"text": escape_tags(mark_name), "xanchor": "center", "yanchor": "bottom"},
    )
    figure.update_layout(showlegend=False, height=320, bargap=0)
    return figure
