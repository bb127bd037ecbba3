"""What every page is built from: its template, its figures, its tables, and numbers as people read them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from predictor.errors import MissingPackageError, shown_date
from predictor.replacement import check_file
from predictor.report.figures import PageFigures

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NOTHING: Final = "–"  # noqa: RUF001 - no minus: there is no number

_NEEDED: Final = ("plotly", "jinja2")
_SCRIPT: Final = "plotly/plotly-finance.min.js"
_CLEAR: Final = "rgba(0, 0, 0, 0)"


def check_report(path: Path) -> None:
    """Refuse now what could not be written later, after work that may take hours.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        ConfigurationError: the path is a folder, or in a folder that is not there or cannot be written.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingPackageError.of(package, "report", "a report")
    check_file(path)


@final
class PageBuilder:
    """Builds one page: draws its figures, then fills its template.

    Figures are numbered, so that the same figures always give the same text.
    """

    def __init__(self, package: str, template: str = "page.html.j2") -> None:
        """Load the template.

        Args:
            package: the one that holds it; the template refers to the common ones as `report/base.html.j2`. All
                values are escaped, and an unknown name is an error.
            template: its file's name.

        Raises:
            MissingPackageError: jinja2 is not installed.
        """
        try:
            from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
        except ModuleNotFoundError as error:
            raise MissingPackageError.of("jinja2", "report", "a report") from error
        environment = Environment(
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            loader=PrefixLoader({"report": PackageLoader("predictor.report", "."), "own": PackageLoader(package, ".")}),
        )
        environment.filters |= {
            text.__name__: text for text in (capital, iso, level, sessions, percent, signed, signed_percent, unbroken)
        }
        self._template = environment.get_template(f"own/{template}")
        self._figures = PageFigures()

    def chart(self, figure: "Figure", label: str, *, top: int = 40) -> str:
        """The figure's place in the page and what is drawn there, without the title and with `top` pixels instead.

        Its background is the page's own, which may be light or dark.

        Args:
            figure: changed here.
            label: what it shows, for those who cannot see it.
            top: pixels above the axes, for the legend.
        """
        figure.update_layout(title=None, autosize=True, margin_t=top, paper_bgcolor=_CLEAR, plot_bgcolor=_CLEAR)
        added = self._figures.add(figure)
        return (
            f'<div id="{added.name}" class="plotly-graph-div" role="img" aria-label="{escape(label)}" '
            f'style="height: {added.height}px"></div>'
            f'<script type="application/json" id="{added.name}-figure">{added.drawn}</script>'
        )

    def render(self, parts: Mapping[str, object]) -> str:
        """The whole page, from everything that the template names; plotly.js is in it if a figure was drawn."""
        script, common = (_plotly_js(), self._figures.common()) if len(self._figures) else ("", "")
        return self._template.render(parts, plotly_js=script, common=common)


def _plotly_js() -> str:
    """The part of plotly.js that draws the traces of `predictor.charts`: its finance bundle, 1.3 MB instead of 4.8."""
    return files("predictor.report").joinpath(_SCRIPT).read_text("utf-8")


# --- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One number of a table."""

    value: float | None
    """In full, for programs; None where there is none."""
    text: str
    beside: str = ""
    """Small below the number, such as its interval."""
    is_best: bool = False
    """Of its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row."""

    name: str
    cells: tuple[TableCell, ...]
    is_model: bool = False
    """Marked, as the row that the page is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table; each of its lines has one cell per column."""

    columns: tuple[str, ...]
    lines: tuple[TableRow, ...]
    corner: str = ""
    """Above the names of the lines."""


def number_cell(
    value: float | None, show: Callable[[float], str], *, beside: str = "", is_best: bool = False
) -> TableCell:
    """A number as `show` writes it; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return TableCell(value=None, text=NOTHING)
    return TableCell(value=value, text=show(value), beside=beside, is_best=is_best)


# --- numbers and names


def artifact_name(path: Path) -> str:
    """The last two parts of a path: an artifact's name and version, or a recipe's file in its folder."""
    return "/".join(path.resolve().parts[-2:])


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def unbroken(text: str) -> str:
    """A text whose numbers keep their percent sign on the same line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def iso(session: int) -> str:
    """A yyyymmdd for people; empty for 0, which means unknown."""
    return shown_date(session) if session else ""


def level(quantile: float) -> str:
    """A quantile's level: 10 %, or the median."""
    return "median" if quantile == 0.5 else f"{100 * quantile:g} %"  # noqa: PLR2004 - the definition of the median


def sessions(horizon: int) -> str:
    """A horizon in sessions."""
    return "1 session" if horizon == 1 else f"{horizon} sessions"


def percent(share: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign; no digits are wasted on large ones."""
    text = f"{value:+,.{digits if math.fabs(value) < 1000 else 0}f}"  # noqa: PLR2004 - four digits before the point
    return text.replace("-", "\N{MINUS SIGN}")


def signed_percent(share: float) -> str:
    """A share with its sign, in percent."""
    return f"{signed(100 * share)}\N{NO-BREAK SPACE}%"
