"""Small charts as SVG text without other packages, for example for notebook cells."""

from collections.abc import Sequence
from html import escape
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.charts.theme import BLUE, GREY

WIDTH: Final = 420
HEIGHT: Final = 180
_LEFT: Final = 62
_RIGHT: Final = 12
_TOP: Final = 26
_BOTTOM: Final = 30
_INK: Final = "#374151"
_BAND: Final = 0.16
"""Opacity of each band; inner bands are darker because they overlap outer ones."""


def draw_fan_svg(
    horizons: Sequence[int], quantiles: Sequence[float], values: FloatArray, *, title: str, start: float | None = None
) -> str:
    """Bands between pairs of quantiles, and a line at the quantile nearest to the median.

    Args:
        horizons: H, in sessions.
        quantiles: Q levels, ascending.
        values: [H, Q] in any unit; rows that are not finite are left out.
        title: title of the values.
        start: value on day 0, where the fan starts; None to start at the first horizon.

    Returns:
        An `<svg>` element; empty without finite values.
    """
    is_finite = np.isfinite(values).all(axis=1)
    days, lines = np.asarray(horizons, dtype=np.float64)[is_finite], values[is_finite]
    if start is not None and np.isfinite(start):
        days, lines = np.r_[0.0, days], np.vstack([np.full(len(quantiles), start), lines])
    if not days.size:
        return ""
    x = _place(days, _LEFT, WIDTH - _RIGHT)
    y = _place(lines, HEIGHT - _BOTTOM, _TOP)
    bands = [_draw_band(x, y[:, k], y[:, -1 - k]) for k in range(len(quantiles) // 2)]
    middle = min(range(len(quantiles)), key=lambda k: abs(quantiles[k] - 0.5))
    label = escape(f"{title}: quantiles {quantiles[0]:g} to {quantiles[-1]:g}")
    polyline = _format_points([*zip(x, y[:, middle], strict=True)])
    low, high, base = float(lines.min()), float(lines.max()), HEIGHT - _BOTTOM
    axes = (
        f'<path d="M{_LEFT} {_TOP}V{base}H{WIDTH - _RIGHT}" fill="none" stroke="{GREY}"/>',
        _draw_text(_LEFT - 6, _TOP + 4, f"{high:.5g}", "end"),
        _draw_text(_LEFT - 6, base, f"{low:.5g}", "end"),
        _draw_text(_LEFT, HEIGHT - 12, f"{days[0]:g}", "middle"),
        _draw_text(WIDTH - _RIGHT, HEIGHT - 12, f"{days[-1]:g} sessions", "end"),
    )
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'style="max-width:100%;height:auto;background:#fff" font-family="system-ui,sans-serif" font-size="11">'
        f"{_draw_text(_LEFT, 14, label, 'start')}{''.join(bands)}"
        f'<polyline points="{polyline}" fill="none" stroke="{BLUE}" stroke-width="2"/>'
        f"{''.join(axes)}</svg>"
    )


def _place(values: FloatArray, low: float, high: float) -> FloatArray:
    """Scale values to an axis between two positions; to its middle if all are equal."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.full(values.shape, (low + high) / 2)
    return low + (values - low) / (high - low) * (high - low)


def _draw_band(x: FloatArray, low: FloatArray, high: FloatArray) -> str:
    outline = [*zip(x, low, strict=True), *reversed([*zip(x, high, strict=True)])]
    return f'<polygon points="{_format_points(outline)}" fill="{BLUE}" fill-opacity="{_BAND}"/>'


def _format_points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _draw_text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{_INK}">{text}</text>'
