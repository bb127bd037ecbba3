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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number that changed while something learnt.

    Attributes:
        name: of the number, as a heading.
        over: what is counted to the right, such as `steps`.
        points: pairs of that count and the number, in order; those that are not finite are left out.
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
class Mark:
    """A mark of an axis.

    Attributes:
        text: its number.
        place: from the left, or from the bottom, in percent.
    """

    text: str
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
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

    curve: Curve
    values: tuple[tuple[float, float], ...]
    line: str
    dots: str
    level: float | None
    across: tuple[Mark, ...]
    upwards: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a value lies, in percent of the range."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def marks(self) -> tuple[Mark, ...]:
        return tuple(Mark(text=number(value), place=self.share(value)) for value in round_values(self.low, self.high))


def plots(curves: Iterable[Curve]) -> tuple[Plot, ...]:
    """Those that have a point to show."""
    return tuple(plot(curve) for curve in curves if any(math.isfinite(value) for _, value in curve.points))


def plot(curve: Curve) -> Plot:
    """A curve with its axes.

    Raises:
        ValueError: it has no finite point.
    """
    values = tuple(point for point in curve.points if all(map(math.isfinite, point)))
    if not values:
        raise ValueError(f"curve {curve.name} has no finite point; leave it out")
    across, upwards = _counts([count for count, _ in values]), _heights([value for _, value in values], curve.level)
    places = [(across.share(count), round(100 - upwards.share(value), 2)) for count, value in values]
    return Plot(
        curve=curve,
        values=values,
        line=" ".join(f"{x:g},{y:g}" for x, y in places),
        dots="".join(f"M{x:g} {y:g}h0" for x, y in places),
        level=None if curve.level is None else round(100 - upwards.share(curve.level), 2),
        across=across.marks(),
        upwards=upwards.marks(),
    )


def round_values(low: float, high: float, most: int = MOST_MARKS) -> list[float]:
    """Round numbers from low to high, evenly spaced: at most about so many; low is below high."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A number of four digits at most, in full where it is large: as in 1,500 or 0.25."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004  from here on with commas
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def _counts(values: Sequence[float]) -> _Range:
    """From nothing to the last."""
    return _Range(min(0.0, *values), max(*values, 1.0))


def _heights(values: Sequence[float], level: float | None) -> _Range:
    """All values and the level, with some room."""
    shown = [*values, *([] if level is None else [level])]
    low, high = min(shown), max(shown)
    room = MARGIN * (high - low) or MARGIN * abs(high) or MARGIN
    return _Range(low - room, high + room)
