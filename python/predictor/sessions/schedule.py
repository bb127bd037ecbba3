"""What is known of an exchange's sessions: holidays and close times between two dates, as plain data."""

from dataclasses import dataclass

WEEKDAYS = "weekdays"
"""The name of the calendar that is used when the exchange is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTime:
    """When trading ends: on `date` alone (a special close), or from `date` on (the regular close).

    Attributes:
        date: yyyymmdd.
        time: "HH:MM", local to the exchange.
    """

    date: int
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An exchange's sessions from `first` to `last`: Monday to Friday without `holidays`.

    Attributes:
        name: the exchange's code (ISO 10383, such as "XNYS"), or "weekdays" where the exchange is unknown.
        time_zone: IANA name of the zone in which dates and close times are meant.
        first: first date covered, yyyymmdd.
        last: last date covered, yyyymmdd.
        holidays: weekdays without a session, ascending.
        unannounced: those of the holidays that nobody knew of beforehand, ascending. Fields that look ahead do not
            see them, or a model would learn from what no one could know on the day.
        regular_closes: the usual close from a date on, ascending; the first holds from `first`. Empty: closes unknown.
        special_closes: sessions that close at another time than usual, mostly earlier, ascending.
    """

    name: str
    time_zone: str
    first: int
    last: int
    holidays: tuple[int, ...] = ()
    unannounced: tuple[int, ...] = ()
    regular_closes: tuple[CloseTime, ...] = ()
    special_closes: tuple[CloseTime, ...] = ()
