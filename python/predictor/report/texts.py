"""Numbers and dates as the page shows them."""

import math
from pathlib import Path

from predictor.errors import shown_date


def artifact_name(path: Path) -> str:
    """The last two parts of an artifact's folder, which are its name and version; of a recipe's file its folder's."""
    return "/".join(path.resolve().parts[-2:])


def capital(text: str) -> str:
    """A text that begins a sentence; the rest of it stays as it is."""
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
