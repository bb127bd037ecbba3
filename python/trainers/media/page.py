"""Self-contained HTML pages without scripts: figures, curves, images and writing to disk.

Page templates extend `media/base.html` and show figures with the macros of `media/parts.html`.
"""

import base64
import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from PIL import Image

from predictor.replacement import replace_file
from trainers.media.errors import PageError

UNKNOWN: Final = "\N{EN DASH}"
"""Shown in place of an unknown number."""

MINUS: Final = "\N{MINUS SIGN}"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LabelledFigure:
    """A number with its name.

    Attributes:
        name: Name of the number.
        value: Full-precision value; None if unknown.
        text: Formatted value.
        note: How to read it.
    """

    name: str
    value: float | None
    text: str
    note: str = ""


def figure(name: str, value: float, show: Callable[[float], str], note: str = "") -> LabelledFigure:
    """A figure formatted by `show`; a non-finite value is unknown."""
    if not math.isfinite(value):
        return LabelledFigure(name, None, UNKNOWN, note)
    return LabelledFigure(name, value, show(value), note)


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def plain(value: float) -> str:
    """Format a number with three decimals."""
    return f"{value:.3f}".replace("-", MINUS)


def encode_data_uri(kind: str, content: bytes) -> str:
    """Encode content of a media type, such as `image/png`, as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def take_within_limit(items: Iterable[Item], weight: Callable[[Item], int], limit: int) -> tuple[Item, ...]:
    """The first items that fit within a page size limit, at least one.

    Args:
        items: Consumed lazily, up to the first that does not fit.
        weight: Characters that an item adds to the page.
        limit: Limit on the total.
    """
    first_items: list[Item] = []
    total = 0
    for item in items:
        total += weight(item)
        if first_items and total > limit:
            break
        first_items.append(item)
    return tuple(first_items)


def encode_png(image: Image.Image, *, transparent: int | None = None) -> str:
    """Encode an image as a data URI of a PNG.

    Args:
        image: Image to encode.
        transparent: Palette index to make transparent, if any.
    """
    file = io.BytesIO()
    if transparent is None:
        image.save(file, format="PNG", optimize=True)
    else:
        image.save(file, format="PNG", optimize=True, transparency=transparent)
    return encode_data_uri("image/png", file.getvalue())


def render(package: str, template: str, parts: Mapping[str, object]) -> str:
    """Render a page as HTML; deterministic.

    Args:
        package: Package that holds the template in its folder `templates`.
        template: File name of the template. Values are escaped, and an undefined name is an error.
        parts: Template variables by name.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PrefixLoader({"media": PackageLoader("trainers.media"), "own": PackageLoader(package)}),
    )
    return environment.get_template(f"own/{template}").render(parts)


def check_file(path: Path) -> None:
    """Check before hours of work that a page can be written at the end.

    Raises:
        PageError: The path is a folder, or its parent is missing or not writable.
    """
    if path.is_dir():
        raise PageError(f"{path} is a folder; name a file, such as {path / 'page.html'}")
    if not path.parent.is_dir():
        raise PageError(f"{path} cannot be written: folder {path.parent} does not exist; create it or choose another")
    if not os.access(path.parent, os.W_OK):
        raise PageError(f"{path} cannot be written: no write permission for {path.parent}; choose another folder")


def write_page(path: Path, text: str) -> None:
    """Write or replace a page atomically.

    Raises:
        PageError: The page cannot be written; an existing one is unchanged.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise PageError(f"{path} cannot be written ({error.strerror}); free space or choose another path") from error


MAX_MARKS: Final = 5
"""Approximate number of ticks on an axis."""

STEPS: Final = (1, 2, 5, 10)
"""Possible tick distances, times a power of ten."""

MARGIN: Final = 0.06
"""Free space above and below the values, as a share of their range."""

FLAT: Final = 1e-6
"""Values whose relative difference is below this are shown as equal."""

MAX_NUMBER: Final = 1e300
"""Larger numbers are left out like infinite ones, because their range would overflow."""

DIGITS: Final = 4
"""Significant digits of a tick; more if two ticks would read the same."""

LONG: Final = 1e6
"""Numbers from here on are written as powers of ten, to fit next to an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurve:
    """A number over the course of training.

    Attributes:
        name: Heading.
        over: Unit of the horizontal axis, such as `steps`.
        points: Pairs of position and value, in order; non-finite values and those beyond 1e300 are left out.
        level: Reference value, drawn as a dashed line, if any.
        level_name: Name of the reference value.
        note: How to read the curve.
    """

    name: str
    over: str
    points: tuple[tuple[float, float], ...]
    level: float | None = None
    level_name: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTick:
    """A tick of an axis.

    Attributes:
        text: Its label.
        place: Percent from the left or the bottom.
    """

    text: str
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """A curve in SVG coordinates: a square of 100 by 100 whose y axis points down.

    Attributes:
        curve: Curve to show.
        values: Its finite points.
        line: Points of an SVG polyline.
        dots: SVG path with a dot at each point.
        level: y of the reference level, if any.
        across: Ticks of the horizontal axis.
        upwards: Ticks of the vertical axis.
    """

    curve: TrainingCurve
    values: tuple[tuple[float, float], ...]
    line: str
    dots: str
    level: float | None
    across: tuple[AxisTick, ...]
    upwards: tuple[AxisTick, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    high: float

    def share(self, value: float) -> float:
        """Position of a value, in percent of the range."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def marks(self, min_step: float = 0.0) -> tuple[AxisTick, ...]:
        values = round_values(self.low, self.high, min_step=min_step)
        labellings = ([number(value, digits) for value in values] for digits in range(DIGITS, 16))
        texts = next(texts for texts in labellings if len(set(texts)) == len(values))
        return tuple(AxisTick(text=text, place=self.share(value)) for text, value in zip(texts, values, strict=True))


def plots(curves: Iterable[TrainingCurve]) -> tuple[CurvePlot, ...]:
    """Plots of the curves that have a finite point."""
    return tuple(plot(curve) for curve in curves if any(_is_shown(value) for _, value in curve.points))


def plot(curve: TrainingCurve) -> CurvePlot:
    """Plot a curve with its axes.

    Raises:
        ValueError: The curve has no finite point.
    """
    values = tuple(point for point in curve.points if all(map(_is_shown, point)))
    level = curve.level if curve.level is not None and _is_shown(curve.level) else None
    if not values:
        raise ValueError(f"curve {curve.name} has no finite point; leave it out")
    counts = [count for count, _ in values]
    across = _Range(min(0.0, *counts), max(*counts, 1.0))  # from 0 to the last count
    upwards = _span_heights([value for _, value in values], level)
    places = [(across.share(count), round(100 - upwards.share(value), 2)) for count, value in values]
    return CurvePlot(
        curve=curve,
        values=values,
        line=" ".join(f"{x:g},{y:g}" for x, y in places),
        dots="".join(f"M{x:g} {y:g}h0" for x, y in places),
        level=None if level is None else round(100 - upwards.share(level), 2),
        across=across.marks(min_step=1.0),
        upwards=upwards.marks(),
    )


def round_values(low: float, high: float, count: int = MAX_MARKS, min_step: float = 0.0) -> list[float]:
    """Evenly spaced round numbers between low and high (low < high): about `count`, at least `least` apart."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(min_step, next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9)))
    first = math.ceil(low / step - 1e-9)
    return [step * multiple for multiple in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float, digits: int = DIGITS) -> str:
    """Format a number with significant digits, in full from 1,000 to a million: 0.25, 1,500, 123,456 or 2e+06."""
    use_commas = digits == DIGITS and 1000 <= abs(value) < LONG  # noqa: PLR2004  from here on with commas
    text = f"{value:,.0f}" if use_commas else f"{value:,.{digits}g}"
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def _span_heights(values: Sequence[float], level: float | None) -> _Range:
    """Range of all values and the level, with a margin."""
    heights = [*values, *([] if level is None else [level])]
    low, high = min(heights), max(heights)
    size = max(abs(low), abs(high))
    room = MARGIN * ((high - low) if high - low > FLAT * size else size) or MARGIN
    return _Range(low - room, high + room)


def _is_shown(value: float) -> bool:
    return math.isfinite(value) and abs(value) < MAX_NUMBER
