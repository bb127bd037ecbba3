"""Curves of a training inside a page: lines over steps that fit any width, without a script."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trainers.media.page import MINUS

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
