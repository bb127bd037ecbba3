"""Building blocks of pages: template, figures, tables and formatted numbers."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from predictor.charts.theme import THEME
from predictor.errors import MissingPackageError, format_date
from predictor.replacement import check_file

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_IN_A_SCRIPT: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
"""Escapes for characters that could end or change an inline script; in JSON they occur only in strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFigure:
    """A figure on a page.

    Attributes:
        name: id of its element.
        height: height in pixels.
        content: data and layout as JSON for an inline script.
    """

    name: str
    height: int
    content: str


@final
class PageFigures:
    """The figures of one page, in order."""

    def __init__(self) -> None:
        self._count = 0
        self._shared: dict[tuple[str, ...], int] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, figure: "Figure") -> PageFigure:
        """Add a figure; its theme is part of `common`."""
        self._count += 1
        content: dict[str, Any] = json.loads(str(figure.to_json()))
        content["layout"].pop("template", None)
        for trace in content["data"]:
            across = trace.get("x")  # mostly repeated dates, so that traces share them
            if isinstance(across, list) and across and all(isinstance(text, str) for text in across):
                trace["x"] = self._shared.setdefault(tuple(across), len(self._shared))
        height = int(content["layout"]["height"])
        return PageFigure(
            name=f"chart-{self._count}", height=height, content=_escape_json(_convert_to_float32(content))
        )

    def common(self) -> str:
        """The theme and the texts that figures share, as JSON for `draw.js`."""
        return _escape_json({"theme": {"layout": THEME}, "shared": list(self._shared)})


def _convert_to_float32(value: Any) -> Any:
    """Replace float64 by float32, because a chart shows fewer than seven digits."""
    if isinstance(value, list):
        return [_convert_to_float32(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("dtype") == "f8":
        numbers = np.frombuffer(base64.b64decode(value["bdata"]), "<f8").astype("<f4")
        return value | {"dtype": "f4", "bdata": base64.b64encode(numbers.tobytes()).decode()}
    return {key: _convert_to_float32(item) for key, item in value.items()}


def _escape_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).translate(_IN_A_SCRIPT)


NOTHING: Final = "–"  # noqa: RUF001 - an en dash for a missing number


_NEEDED: Final = ("plotly", "jinja2")

_SCRIPT: Final = "plotly/plotly-finance.min.js"

_CLEAR: Final = "rgba(0, 0, 0, 0)"


def check_report(path: Path) -> None:
    """Check in advance that a report can be written, before work that may take hours.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        ConfigurationError: the path is a folder, or its folder is missing or not writable.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingPackageError.of(package, "report", "a report")
    check_file(path)


def check_picture(path: Path) -> None:
    """Check in advance that a picture can be written.

    Raises:
        MissingPackageError: matplotlib is not installed.
        ConfigurationError: as `check_report`.
    """
    if find_spec("matplotlib") is None:
        raise MissingPackageError.of("matplotlib", "plot", "a picture")
    check_file(path)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What surrounds a page of a local server, which sends the content policy itself. A file has none."""

    nonce: str = ""
    """The value that permits the page's own scripts; empty for a file."""
    links: tuple[tuple[str, str], ...] = ()
    """Address and name of each page of the server."""
    current: str = ""
    """Address of this page."""
    style: str = ""
    script: str = ""


FILE: Final = PageFrame()


@final
class PageBuilder:
    """Builds one page from figures and a template.

    Figures are numbered, so the output is deterministic.
    """

    def __init__(self, package: str, template: str = "page.html.j2", frame: PageFrame = FILE) -> None:
        """Load the template.

        Args:
            package: package of the template, which refers to the common templates as `report/base.html.j2`. All values
                are escaped, and an unknown name is an error.
            template: file name of the template.
            frame: what surrounds the page.

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
            "capital": capitalize_first,
            "iso": format_session,
            "level": format_level,
            "sessions": format_horizon,
            "percent": format_percent,
            "signed": format_signed,
            "signed_percent": format_signed_percent,
            "unbroken": join_percent_signs,
        }
        self._frame = frame
        self._template = environment.get_template(f"own/{template}")
        self._figures = PageFigures()

    def chart(self, figure: "Figure", label: str, *, top: int = 40) -> str:
        """Add a figure and return its HTML, without a title and with the page's background, which may be light or dark.

        Args:
            figure: the figure, which is changed.
            label: description for screen readers.
            top: pixels above the axes, for the legend.
        """
        figure.update_layout(title=None, autosize=True, margin_t=top, paper_bgcolor=_CLEAR, plot_bgcolor=_CLEAR)
        added = self._figures.add(figure)
        return (
            f'<div id="{added.name}" class="plotly-graph-div" role="img" aria-label="{escape(label)}" '
            f'style="height: {added.height}px"></div>'
            f'<script type="application/json" id="{added.name}-figure">{added.content}</script>'
        )

    def render(self, parts: Mapping[str, object]) -> str:
        """Render the page with the template's variables; it includes plotly.js if it has figures."""
        script, common = "", ""
        if len(self._figures):
            script = files("predictor.report").joinpath(_SCRIPT).read_text("utf-8")
            common = self._figures.common()
        return self._template.render(parts, frame=self._frame, plotly_js=script, common=common)


# --- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A number in a table."""

    value: float | None
    """The full value, for programs; None if missing."""
    text: str
    note: str = ""
    """Small text below the number, such as its interval."""
    is_best: bool = False
    """Whether it is the best of its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table."""

    name: str
    cells: tuple[TableCell, ...]
    is_model: bool = False
    """Whether to highlight it as the page's model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table; each line has one cell per column."""

    columns: tuple[str, ...]
    lines: tuple[TableRow, ...]
    corner: str = ""
    """Header of the names of the lines."""


def make_number_cell(
    value: float | None, show: Callable[[float], str], *, note: str = "", is_best: bool = False
) -> TableCell:
    """Make a cell with a number formatted by `show`, or a dash if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return TableCell(value=None, text=NOTHING)
    return TableCell(value=value, text=show(value), note=note, is_best=is_best)


# --- numbers and names


def name_artifact(path: Path) -> str:
    """Join the last two parts of a path: an artifact's name and version, or a recipe's file in its folder."""
    return "/".join(path.resolve().parts[-2:])


def capitalize_first(text: str) -> str:
    """Write the first letter in upper case."""
    return text[:1].upper() + text[1:]


def join_percent_signs(text: str) -> str:
    """Replace the blanks before percent signs by non-breaking spaces."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def format_session(session: date | int | None) -> str:
    """Format a date or yyyymmdd as 2024-03-28; empty if unknown (None or 0)."""
    if not session:
        return ""
    return session.isoformat() if isinstance(session, date) else format_date(session)


def format_level(quantile: float) -> str:
    """Format a quantile's level: 10 %, or the median."""
    return "median" if quantile == 0.5 else f"{100 * quantile:g} %"  # noqa: PLR2004 - the definition of the median


def format_horizon(horizon: int) -> str:
    """Format a horizon in sessions."""
    return "1 session" if horizon == 1 else f"{horizon} sessions"


def format_percent(share: float, digits: int = 1) -> str:
    """Format a share in percent."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def format_signed(value: float, digits: int = 2) -> str:
    """Format a number with its sign; numbers of 1,000 and more have no decimals."""
    text = f"{value:+,.{digits if math.fabs(value) < 1000 else 0}f}"  # noqa: PLR2004 - four digits before the point
    return text.replace("-", "\N{MINUS SIGN}")


def format_signed_percent(share: float) -> str:
    """Format a share in percent with its sign."""
    return f"{format_signed(100 * share)}\N{NO-BREAK SPACE}%"
