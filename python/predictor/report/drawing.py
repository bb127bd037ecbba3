"""Figures as HTML that loads nothing from anywhere."""

from itertools import count
from typing import TYPE_CHECKING, Final, final

from predictor.errors import MissingPackageError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CLEAR: Final = "rgba(0, 0, 0, 0)"
_CHART: Final = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


@final
class Drawing:
    """Turns figures into HTML; numbers them, so that the same figures always give the same text."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._drawn = False

    def html(self, figure: "Figure", *, top: int = 40) -> str:
        """The figure's `<div>` and the script that fills it, without the title and with `top` pixels in its place.

        It stands on the page's own ground, which may be light or dark.
        """
        figure.update_layout(title=None, autosize=True, margin_t=top, paper_bgcolor=_CLEAR, plot_bgcolor=_CLEAR)
        self._drawn = True
        text: str = figure.to_html(
            full_html=False, include_plotlyjs=False, config=_CHART, div_id=f"chart-{next(self._ids)}"
        )
        return text

    def library(self) -> str:
        """The text of plotly.js; empty where nothing was drawn."""
        if not self._drawn:
            return ""
        try:
            from plotly.offline import get_plotlyjs
        except ModuleNotFoundError as error:
            raise MissingPackageError.of("plotly", "report", "a report") from error
        text: str = get_plotlyjs()
        return text
