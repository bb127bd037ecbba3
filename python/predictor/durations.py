"""Durations as people read them."""

from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit that keeps it at 1 or more, rounded: `40 s`, `3 min`, `1.5 h`."""
    if seconds < _MINUTE:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / _MINUTE)} min" if seconds < _HOUR else f"{seconds / _HOUR:.1f} h"
