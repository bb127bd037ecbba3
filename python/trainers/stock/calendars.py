"""Whether bars are of the calendar that a model counts sessions by."""

import numpy as np

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError, listed
from predictor.sessions import WEEKDAYS, SessionCalendar, is_weekend


def check_sessions(bars: BarPanel, calendar: SessionCalendar) -> None:
    """Refuse bars that are of another calendar than a model's.

    Raises:
        CalendarEndedError: a bar lies outside the calendar.
        ConfigurationError: a bar lies on no session, or a symbol has none on any weekend although those are sessions.
    """
    strangers = calendar.unexpected(bars.sessions)
    if len(strangers):
        raise ConfigurationError(
            f"{calendar.name} held no session on {strangers[:5].tolist()}, and a model counts sessions by its "
            f"calendar: {calendar.remedy(strangers)}"
        )
    resting = [symbol for row, symbol in enumerate(bars.symbols) if _rests(bars, row, calendar)]
    if resting:
        raise ConfigurationError(
            f"{listed(resting)} {'has' if len(resting) == 1 else 'have'} no bar on any Saturday or Sunday, but "
            f"{calendar.name} counts every day as a session: train by the exchange's calendar, such as XNYS, "
            f"or {WEEKDAYS}, with --calendar, and apart from what trades on every day"
        )


def _rests(bars: BarPanel, row: int, calendar: SessionCalendar) -> bool:
    """Whether a symbol lacks every weekend from its first bar to its last, and there is one."""
    if not calendar.is_every_day:
        return False
    sessions = bars.sessions[np.flatnonzero(bars.present[row])]
    return not is_weekend(sessions).any() and bool(is_weekend(calendar.missing(sessions)).any())
