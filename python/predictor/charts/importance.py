"""What moved a forecast: signed contributions as bars, and over time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.charts.theme import (
    BLUE,
    GREY,
    NOTE_HEIGHT,
    ORANGE,
    graph_objects,
    iso_dates,
    largest,
    new_figure,
    plain,
    require_shape,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_DIVERGING = ((0.0, ORANGE), (0.5, "#FFFFFF"), (1.0, BLUE))
_COLORBAR = {
    "orientation": "h",
    "thickness": 10,
    "len": 0.5,
    "x": 1,
    "xanchor": "right",
    "y": 1.01,
    "yanchor": "bottom",
}


def importance_bars(
    names: Sequence[str], values: FloatArray, unit: str, *, top: int = 15, notes: Sequence[str] = ()
) -> "Figure":
    """Signed importance as horizontal bars, the largest on top, and all that is left as one bar "others".

    Args:
        names: [F], the features.
        values: [F], signed, in `unit`.
        unit: such as "basis points of log return".
        top: how many features get a bar of their own.
        notes: small lines below the title.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("values", values, (len(names),))
    labels, heights = largest(names, values, top)
    figure = new_figure("Feature importance", unit or "contribution", "", notes)  # short, for narrow screens
    figure.add_trace(
        graph_objects().Bar(
            x=heights,
            y=labels,
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


def importance_heatmap(
    dates: NDArray[np.int32],
    names: Sequence[str],
    values: FloatArray,
    unit: str,
) -> "Figure":
    """Signed importance of each feature on each date: blue raises the forecast, orange lowers it, white is 0.

    Args:
        dates: int32 [T], yyyymmdd.
        names: [F], the features, drawn from top to bottom.
        values: [T, F], signed, in `unit`; NaN stays empty.
        unit: such as "basis points of log return".

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("values", values, (len(dates), len(names)))
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    figure = new_figure("Feature importance over time", "session", "")
    figure.add_trace(
        graph_objects().Heatmap(
            x=iso_dates(dates),
            y=list(map(plain, names)),
            z=values.T,
            zmin=-reach,
            zmid=0.0,
            zmax=reach,
            colorscale=_DIVERGING,
            colorbar=_COLORBAR | {"title": {"text": unit, "side": "top"}},
            hovertemplate=f"%{{y}}, %{{x}}: %{{z:+.4g}} {unit}<extra></extra>",
        )
    )
    figure.update_layout(height=190 + 22 * len(names), margin_t=100)
    figure.update_xaxes(type="category", nticks=8, showgrid=False)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure
