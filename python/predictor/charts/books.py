"""Books over time: what a strategy earned, lost from its peak and traded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.charts.theme import SERIES, graph_objects, iso_dates, new_figure, plain, require_shape

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BookCurve:
    """One line of a book.

    Attributes:
        name: in the legend.
        values: [T].
        book: which book it is of, from 0; curves of one book share a colour, and the first is drawn thick.
        is_gross: before costs; such a line is thin.
    """

    name: str
    values: FloatArray
    book: int
    is_gross: bool = False


def book_curves(dates: NDArray[np.int32], curves: Sequence[BookCurve], *, axis: str, percent: bool = False) -> "Figure":
    """Curves over the same sessions.

    Args:
        dates: int32 [T], yyyymmdd.
        curves: each of T values.
        axis: title of the axis, with its unit.
        percent: values are shares, shown in percent.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    figure = new_figure("", "", axis)
    days = iso_dates(dates)
    number = ".1%" if percent else ".3f"
    for curve in curves:
        require_shape(curve.name, curve.values, (len(dates),))
        figure.add_trace(
            graph_objects().Scatter(
                x=days,
                y=curve.values,
                name=plain(curve.name),
                mode="lines",
                line=_line(curve),
                hovertemplate=f"%{{fullData.name}}: %{{y:{number}}}<extra></extra>",
            )
        )
    figure.update_layout(hovermode="x unified", margin_b=36)
    figure.update_yaxes(tickformat=".0%" if percent else ".2f")
    return figure


def _line(curve: BookCurve) -> dict[str, str | float]:
    colour = SERIES[curve.book % len(SERIES)]
    if curve.is_gross:
        return {"color": colour, "width": 1.2}
    return {"color": colour, "width": 2.5 if curve.book == 0 else 1.6, "dash": _DASHES[curve.book % len(_DASHES)]}
