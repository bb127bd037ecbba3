"""Pages to look at and to listen to: one HTML file each, which loads nothing and runs nothing.

A page's template extends `media/base.html`, and shows its numbers by the macros of `media/parts.html`.
"""

import base64
import io
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from PIL import Image

from trainers.media.errors import PageError

UNKNOWN: Final = "\N{EN DASH}"
"""What stands for a number that is not known."""


MINUS: Final = "\N{MINUS SIGN}"


Drawn = TypeVar("Drawn")


@dataclass(frozen=True, slots=True)
class LabelledFigure:
    """A number under its name.

    Attributes:
        name: what it is.
        value: in full, for programs; None where it is unknown.
        text: the same for people.
        note: how to read it.
    """

    name: str
    value: float | None
    text: str
    note: str = ""


def figure(name: str, value: float, show: Callable[[float], str], note: str = "") -> LabelledFigure:
    """A number as `show` writes it; one that is not finite is unknown."""
    if not math.isfinite(value):
        return LabelledFigure(name, None, UNKNOWN, note)
    return LabelledFigure(name, value, show(value), note)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def plain(value: float) -> str:
    """A number with three digits after the point."""
    return f"{value:.3f}".replace("-", MINUS)


def data_uri(kind: str, content: bytes) -> str:
    """Content of a media type, such as `image/png`, as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def as_light(drawn: Iterable[Drawn], weight: Callable[[Drawn], int], most: int) -> tuple[Drawn, ...]:
    """The first of what is drawn, as far as the page stays light; one at least if there is any.

    Args:
        drawn: in order; what is beyond is hardly drawn.
        weight: characters that one adds to the page.
        most: characters that all may add together.
    """
    kept: list[Drawn] = []
    total = 0
    for one in drawn:
        total += weight(one)
        if kept and total > most:
            break
        kept.append(one)
    return tuple(kept)


def png_uri(image: Image.Image, *, transparent: int | None = None) -> str:
    """An image as an address that holds it.

    Args:
        image: what is to be seen.
        transparent: the entry of its palette that lets the page shine through; None for none.
    """
    file = io.BytesIO()
    if transparent is None:
        image.save(file, format="PNG", optimize=True)
    else:
        image.save(file, format="PNG", optimize=True, transparency=transparent)
    return data_uri("image/png", file.getvalue())


def render(package: str, template: str, parts: Mapping[str, object]) -> str:
    """A page as HTML text; the same parts give the same text.

    Args:
        package: that holds the template, in its folder `templates`.
        template: its file's name. Everything that it shows is escaped, and a name that it does not know is an error.
        parts: what it shows, by the names that it has for them.
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
    """Refuse now what could not be written later, after work that may take hours.

    Raises:
        PageError: the path is a folder, or in a folder that is not there or cannot be written.
    """
    if path.is_dir():
        raise PageError(f"{path} is a folder; name a file, such as {path / 'page.html'}")
    if not path.parent.is_dir():
        raise PageError(f"{path} cannot be written: there is no folder {path.parent}; make it, or name another")
    if not os.access(path.parent, os.W_OK):
        raise PageError(f"{path} cannot be written: {path.parent} is not yours to write to; name another folder")


def write_page(path: Path, text: str) -> None:
    """Write a page, whole or not at all, in place of an older one: as a draft beside it, flushed, then renamed.

    Raises:
        PageError: it cannot be written; what was there stays as it was.
    """
    try:
        _replace(path, text.encode())
    except OSError as error:
        raise PageError(f"{path} cannot be written ({error.strerror}); make room, or name another") from error


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


MOST_MARKS: Final = 5
"""Marks of an axis, about."""


STEPS: Final = (1, 2, 5, 10)
"""What lies between two marks, times a power of ten."""


MARGIN: Final = 0.06
"""What is left free above and below the values, as a share of their range."""


FLAT: Final = 1e-6
"""Values that differ by less than this share of themselves are shown as equal."""


LARGEST: Final = 1e300
"""Numbers beyond are shown as little as infinite ones: their range would be infinite."""


DIGITS: Final = 4
"""Of a mark, and more where two marks would have the same number."""


LONG: Final = 1e6
"""From here on numbers are written as powers of ten, for which there is room beside an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurve:
    """A number that changed while something learnt.

    Attributes:
        name: of the number, as a heading.
        over: what is counted to the right, such as `steps`.
        points: pairs of that count and the number, in order; those that are not finite, or beyond 1e300, are left out.
        level: a number to compare it with, a dashed line; None for none.
        level_name: what that is.
        note: how to read it.
    """

    name: str
    over: str
    points: tuple[tuple[float, float], ...]
    level: float | None = None
    level_name: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTick:
    """A mark of an axis.

    Attributes:
        text: its number.
        place: from the left, or from the bottom, in percent.
    """

    text: str
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """A curve, ready to be seen, in a square of 100 by 100 whose y goes down.

    Attributes:
        curve: what is shown.
        values: its points that can be.
        line: through them, as the points of an SVG polyline.
        dots: one at each, as an SVG path.
        level: the height of the level; None for none.
        across: marks of the axis below.
        upwards: marks of the axis on the left.
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
        """Where a value lies, in percent of the range."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def marks(self, least: float = 0.0) -> tuple[AxisTick, ...]:
        values = round_values(self.low, self.high, least=least)
        tried = ([number(value, digits) for value in values] for digits in range(DIGITS, 16))
        texts = next(texts for texts in tried if len(set(texts)) == len(values))
        return tuple(AxisTick(text=text, place=self.share(value)) for text, value in zip(texts, values, strict=True))


def plots(curves: Iterable[TrainingCurve]) -> tuple[CurvePlot, ...]:
    """Those that have a point to show."""
    return tuple(plot(curve) for curve in curves if any(_is_shown(value) for _, value in curve.points))


def plot(curve: TrainingCurve) -> CurvePlot:
    """A curve with its axes.

    Raises:
        ValueError: it has no finite point.
    """
    values = tuple(point for point in curve.points if all(map(_is_shown, point)))
    level = curve.level if curve.level is not None and _is_shown(curve.level) else None
    if not values:
        raise ValueError(f"curve {curve.name} has no finite point; leave it out")
    across, upwards = _counts([count for count, _ in values]), _heights([value for _, value in values], level)
    places = [(across.share(count), round(100 - upwards.share(value), 2)) for count, value in values]
    return CurvePlot(
        curve=curve,
        values=values,
        line=" ".join(f"{x:g},{y:g}" for x, y in places),
        dots="".join(f"M{x:g} {y:g}h0" for x, y in places),
        level=None if level is None else round(100 - upwards.share(level), 2),
        across=across.marks(least=1.0),
        upwards=upwards.marks(),
    )


def round_values(low: float, high: float, most: int = MOST_MARKS, least: float = 0.0) -> list[float]:
    """Round numbers from low to high, evenly spaced: at most about so many, the least apart; low is below high."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(least, next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9)))
    first = math.ceil(low / step - 1e-9)
    return [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float, digits: int = DIGITS) -> str:
    """A number of so many digits at most, in full from thousands to a million: as in 0.25, 1,500, 123,456 or 2e+06."""
    whole = digits == DIGITS and 1000 <= abs(value) < LONG  # noqa: PLR2004  from here on with commas
    text = f"{value:,.0f}" if whole else f"{value:,.{digits}g}"
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def _counts(values: Sequence[float]) -> _Range:
    """From nothing to the last."""
    return _Range(min(0.0, *values), max(*values, 1.0))


def _heights(values: Sequence[float], level: float | None) -> _Range:
    """All values and the level, with some room."""
    shown = [*values, *([] if level is None else [level])]
    low, high = min(shown), max(shown)
    size = max(abs(low), abs(high))
    room = MARGIN * ((high - low) if high - low > FLAT * size else size) or MARGIN
    return _Range(low - room, high + room)


def _is_shown(value: float) -> bool:
    return math.isfinite(value) and abs(value) < LARGEST
