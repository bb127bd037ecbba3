"""Numbers of an evaluation as people read them, at a terminal and on a page."""

from collections.abc import Callable
from math import isfinite
from typing import Final

from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.resampling import Interval

SCALE: Final = 10_000
"""Losses are shown so many times larger."""
NOTHING: Final = "–"  # noqa: RUF001 - no minus: there is no number
_LARGE: Final = 1000


def loss_text(value: float) -> str:
    """Three or four digits of a loss, `SCALE` times larger."""
    scaled = SCALE * value
    return f"{scaled:,.2f}" if scaled < _LARGE else f"{scaled:,.0f}"


def share_text(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def gain_text(value: float) -> str:
    """A share with its sign, in percent; empty where there is none."""
    return f"{100 * value:+.1f} %" if isfinite(value) else ""


def plain_text(value: float) -> str:
    """A number without a unit."""
    return f"{value:.3f}"


def span_text(found: Interval, show: Callable[[float], str]) -> str:
    """Lower and upper end, with the unit once; empty where unknown."""
    return f"{show(found.lower).removesuffix(' %')} to {show(found.upper)}" if isfinite(found.lower) else ""


def band_text(found: Evaluation) -> str:
    """What lies between the lowest and the highest quantile."""
    return f"in {100 * found.levels[0]:g}–{100 * found.levels[-1]:g} %"  # noqa: RUF001 - a range
