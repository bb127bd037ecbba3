"""Recognition of the exchange whose sessions fit the dates of bars."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.dates import is_weekend
from predictor.errors import ConfigurationError
from predictor.sessions.calendar import SessionCalendar
from predictor.sessions.schedule import EVERY_DAY

SUFFIXES: Final = {
    "AS": "XAMS",
    "AX": "XASX",
    "BO": "XBOM",
    "BR": "XBRU",
    "DE": "XETR",
    "F": "XFRA",
    "HK": "XHKG",
    "KS": "XKRX",
    "L": "XLON",
    "MC": "XMAD",
    "MI": "XMIL",
    "NS": "XBOM",
    "PA": "XPAR",
    "SA": "BVMF",
    "SS": "XSHG",
    "ST": "XSTO",
    "SW": "XSWX",
    "SZ": "XSHG",
    "T": "XTKS",
    "TO": "XTSE",
    "TW": "XTAI",
    "VI": "XWBO",
}
"""Exchanges by the suffix of tickers, as Yahoo writes them."""
OTHERS: Final = ("XNYS", "XLON", "XETR", "XTKS", "XHKG", "XPAR", "XTSE", "XASX", "XSWX", "XBOM", "XSHG")
"""Exchanges that are tried for tickers without a known suffix, in this order."""
MIN_SESSIONS: Final = 20
"""Fewest sessions by which a calendar is recognised."""
MAX_UNEXPECTED_SHARE: Final = 0.01
"""Share of dates that may be holidays: some vendors copy the bar of the day before."""
WEEKENDS: Final = 0.2
"""Share of Saturdays and Sundays from which bars are of every day; two of seven days are."""
SUFFICIENT: Final = 0.9
"""Share of the missing weekdays that an exchange's holidays must explain to end the search."""


def find_fitting_calendar(sessions: NDArray[np.int32], symbols: Sequence[str]) -> str:
    """The calendar whose sessions fit the dates of bars: an exchange's code, `24/7`, or empty if none fits.

    An exchange fits if hardly any bar is dated on one of its holidays; among several, the one that explains most of
    the missing weekdays. Without the package exchange-calendars only `24/7` is recognised.

    Args:
        sessions: [T] yyyymmdd, in increasing order.
        symbols: Tickers, whose suffix names the exchange first.
    """
    if len(sessions) < MIN_SESSIONS:
        return ""
    if is_weekend(sessions).mean() > WEEKENDS:
        return EVERY_DAY
    if is_weekend(sessions).any() or find_spec("exchange_calendars") is None:
        return ""
    missing = SessionCalendar.weekdays(int(sessions[0]), int(sessions[-1])).missing(sessions)
    suffixes = (symbol.rpartition(".")[2] for symbol in symbols if "." in symbol)
    best, most = "", 0
    for name in dict.fromkeys((*(SUFFIXES[suffix] for suffix in suffixes if suffix in SUFFIXES), *OTHERS)):
        try:
            calendar = SessionCalendar.named(name, int(sessions[0]), int(sessions[-1]))
        except ConfigurationError:  # not recorded for these years
            continue
        strange = calendar.unexpected(sessions)
        if len(strange) > MAX_UNEXPECTED_SHARE * len(sessions):
            continue
        explained = len(missing) - len(calendar.missing(np.setdiff1d(sessions, strange))) - len(strange)
        if explained <= most:
            continue
        best, most = name, explained
        if explained >= SUFFICIENT * len(missing):
            break
    return best
