"""How often outcomes fell where a forecast said."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.charts.theme import GREY, graph_objects, new_figure, require_shape

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SIDE_BY_SIDE = 0.14


def calibration(
    levels: Sequence[float],
    series: Sequence[str],
    observed: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> "Figure":
    """How far observed coverage lies from nominal; a calibrated forecast lies on the line at 0.

    The series stand side by side at each level, so that their error bars do not hide each other.

    Args:
        levels: [L], nominal levels between 0 and 1.
        series: [S], one name a series, such as "5 sessions".
        observed: [S, L], the share of outcomes at or below each level's forecast.
        lower: [S, L], lower end of the confidence interval of `observed`.
        upper: [S, L], upper end.

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
    return figure


def _coverage(
    name: str,
    row: int,
    places: NDArray[np.float64],
    levels: NDArray[np.float64],
    interval: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> Any:
    """One series of `calibration`: its points, and their confidence intervals as error bars."""
    observed, lower, upper = interval
    return graph_objects().Scatter(
        x=places,
        y=100 * (observed - levels),
        name=name,
        mode="markers",
        marker={"symbol": SYMBOLS[row % len(SYMBOLS)], "size": 10, "color": SERIES[row % len(SERIES)]},
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
