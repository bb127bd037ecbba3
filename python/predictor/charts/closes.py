"""Closes of several stocks on one scale."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.charts.theme import ORANGE, graph_objects, iso_dates, new_figure, require_shape, series_look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def closes_lines(
    symbols: Sequence[str],
    sessions: NDArray[np.int32],
    close: FloatArray,
    marked: Mapping[str, Sequence[int]],
    *,
    notes: Sequence[str] = (),
) -> "Figure":
    """A line for each stock, 100 on its first day with a bar, broken where it has none.

    Args:
        symbols: S names.
        sessions: [T] yyyymmdd.
        close: [S, T] raw closes, NaN = no bar.
        marked: sessions of a symbol at which a split is suspected.
        notes: small lines below the title.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("close", close, (len(symbols), len(sessions)))
    scatter = graph_objects().Scatter
    figure = new_figure("Closes, first bar = 100", "session", "close, first bar = 100", notes)
    days = iso_dates(sessions)
    for row, symbol in enumerate(symbols):
        known = np.flatnonzero(np.isfinite(close[row]))
        if not known.size:
            continue
        scaled = 100 * close[row] / close[row, known[0]]
        line = {"color": series_look(row)[0], "width": 1.8}
        figure.add_trace(scatter(x=days, y=scaled, name=symbol, mode="lines", line=line))
        places = np.flatnonzero(np.isin(sessions, list(marked.get(symbol, ()))))
        if places.size:
            figure.add_trace(
                scatter(
                    x=[days[place] for place in places],
                    y=scaled[places],
                    name=f"{symbol}: split?",
                    mode="markers",
                    marker={"color": ORANGE, "size": 10, "symbol": "x"},
                )
            )
    return figure
