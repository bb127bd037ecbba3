"""Parsing of the date column of a table, in the formats that programs write; ambiguous dates are errors.

A bar's date is a day of its exchange. A timestamp with the exchange's offset has the date as written. A timestamp in
UTC may belong to the day before or after, which is decided by the layout's time zone or by the days of the week.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from predictor.bars.layouts import DateOrder, suggest_python_option
from predictor.errors import BarsError

if TYPE_CHECKING:
    import polars as pl

READABLE_DATE: Final = r"^(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?)$"
NUMERIC_DATE: Final = r"^([0-9]{1,2})([./-])([0-9]{1,2})[./-]([0-9]{4}|[0-9]{2})(?:[T ].*)?$"
YEAR_FIRST: Final = r"^([0-9]{4})[./]([0-9]{1,2})[./]([0-9]{1,2})(?:[T ].*)?$"
MONTH_NAME_DATE: Final = r"^(?:[0-9]{1,2}[- ][A-Za-z]{3,9}[- ,]|[A-Za-z]{3,9} [0-9]{1,2},? )"
MONTHS: Final = ("%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%b %d %Y", "%d-%B-%Y", "%d %B %Y", "%B %d, %Y", "%B %d %Y")
UTC_OFFSET: Final = r"[0-9]{2}:[0-9]{2}.*?(Z|z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)$"
TIMESTAMP: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})"
EPOCH_NUMBER: Final = r"^[0-9]{9,10}$|^[0-9]{12,13}$|^[0-9]{15,16}$|^[0-9]{18,19}$"
EPOCH_UNITS: Final = ((11, 1), (14, 1_000), (17, 1_000_000), (20, 1_000_000_000))
"""Pairs of a bound and units per second: below so many digits, a number counts seconds, milli-, micro-, nanoseconds."""
UTC_NAMES: Final = ("Z", "z", "UTC", "GMT", "+00:00", "+0000", "+00")
YMD_GROUPS: Final = {DateOrder.DAY_FIRST: (4, 3, 1), DateOrder.MONTH_FIRST: (4, 1, 3), DateOrder.YEAR_FIRST: (1, 3, 4)}
"""The groups of `NUMERIC_DATE` with year, month and day."""
DATE_CHARACTERS: Final = 10
SATURDAY: Final = 6
MAX_YEAR_DIGITS: Final = 4
FORENOON_HOURS: Final = 10
"""A UTC time before this hour may belong to the previous day elsewhere, a later one to the next day."""
CENTURY: Final = 100
CENTURY_PIVOT: Final = 69
"""The first two-digit year of the twentieth century, as in POSIX."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DateForm:
    """Options that resolve ambiguous dates of a table.

    Attributes:
        order: Order of day, month and year; None = unknown.
        zone: The exchange's time zone, for timestamps; empty = unknown.
        has_options: Whether the user can set these options; if not, messages ask for ISO dates instead.
    """

    order: DateOrder | None = None
    zone: str = ""
    has_options: bool = True


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionColumn:
    """The sessions of a table's rows.

    Attributes:
        sessions: int32 [rows], yyyymmdd.
        remark: A note for the user about how the dates were interpreted; empty = none.
    """

    sessions: NDArray[np.int32]
    remark: str = ""


def parse_sessions(column: "pl.Series", source: str) -> NDArray[np.int32]:
    """Parse a column of dates without options, as int32 [rows], yyyymmdd; see `parse_dates`."""
    return parse_dates(column, source, DateForm(has_options=False)).sessions


def parse_dates(column: "pl.Series", source: str, form: DateForm) -> SessionColumn:
    """Parse a column of dates, timestamps, strings, or integers (yyyymmdd or since 1970).

    Raises:
        BarsError: A cell is not a date, or the dates are ambiguous; the message names the option that decides.
    """
    import polars as pl

    if isinstance(column.dtype, pl.Date | pl.Datetime):
        empty = np.flatnonzero(column.is_null().to_numpy())
        if empty.size:
            raise BarsError(
                f"{source}: row {int(empty[0]) + 1} after the header, column {column.name} is empty; write a "
                "date, or remove the row"
            )
    if isinstance(column.dtype, pl.Date):
        return _convert_to_sessions(column)
    if isinstance(column.dtype, pl.Datetime):
        zone = column.dtype.time_zone
        if zone in ("UTC", "Etc/UTC"):
            return _choose_days_of_utc(column.dt.replace_time_zone(None), source, form)
        if zone is not None and form.zone:
            return _choose_days_of_utc(column.dt.convert_time_zone("UTC").dt.replace_time_zone(None), source, form)
        return _convert_to_sessions(column.dt.date())  # the date as written; a cast would convert to UTC
    text = column.cast(pl.String) if column.dtype.is_integer() else column
    if text.dtype != pl.String:
        raise BarsError(f"{source}: column {column.name} holds {column.dtype}, but must hold dates")
    return _parse_texts(text.str.strip_chars(), source, form)


def check_parsed(cells: "pl.Series", parsed: "pl.Series", source: str, problem: str) -> None:
    """Raise BarsError for the first cell that is not empty and could not be parsed."""
    unread = find_unread_rows(cells, parsed)
    if unread:
        row = unread[0]
        raise BarsError(f"{source}: row {row + 1} after the header, column {cells.name}: {cells[row]!r} {problem}")


def find_unread_rows(cells: "pl.Series", parsed: "pl.Series") -> list[int]:
    """The rows whose cell is not empty and could not be parsed."""
    return np.flatnonzero((cells.is_not_null() & parsed.is_null()).to_numpy()).tolist()


def _convert_to_sessions(dates: "pl.Series", remark: str = "") -> SessionColumn:
    import polars as pl

    days = dates.dt.year() * 10_000 + dates.dt.month().cast(pl.Int32) * 100 + dates.dt.day()
    return SessionColumn(sessions=days.to_numpy(), remark=remark)


def _parse_texts(text: "pl.Series", source: str, form: DateForm) -> SessionColumn:
    """Parse strings in the format of the first one that is not empty; another format is an error."""
    import polars as pl

    filled = text.filter(text.fill_null("") != "")
    first = filled[0] if len(filled) else ""
    if re.match(EPOCH_NUMBER, first):
        counts = text.cast(pl.Int64, strict=False)
        _require_all_parsed(text, counts, source)
        units_per_second = next(unit for digits, unit in EPOCH_UNITS if len(str(counts.max())) < digits)
        return _choose_days_of_utc((counts // units_per_second * 1_000_000).cast(pl.Datetime("us")), source, form)
    if re.match(NUMERIC_DATE, first):
        order = form.order or _infer_order(text, source, form)
        dates = _build_dates(text, NUMERIC_DATE, YMD_GROUPS[order])
        if form.order is not None and dates.filter(text == first)[0] is None:
            raise BarsError(f"{source}: the first date, {first!r}, does not exist in the order {order}; choose another")
        return _convert_to_sessions(_require_all_parsed(text, dates, source))
    if re.match(MONTH_NAME_DATE, first):
        parsed = pl.coalesce(pl.col("text").str.to_date(month, strict=False) for month in MONTHS)
        dated = text.to_frame("text").select(date=parsed)
        date = pl.col("date").dt
        dates = dated.select(pl.date(_add_century(date.year()), date.month(), date.day())).to_series()
        return _convert_to_sessions(_require_all_parsed(text, dates, source))
    if re.match(YEAR_FIRST, first):
        return _convert_to_sessions(_require_all_parsed(text, _build_dates(text, YEAR_FIRST, (1, 2, 3)), source))
    # ISO 8601, with or without a time of day
    readable = text.str.contains(READABLE_DATE).fill_null(value=False)
    compact = text.str.slice(0, DATE_CHARACTERS).str.replace_all("-", "", literal=True)
    dates = compact.set(~readable, None).str.to_date("%Y%m%d", strict=False)
    check_parsed(text.fill_null(""), dates, source, "is not a date; write 2013-12-31 or 20131231, or remove the row")
    if not bool((text.str.len_bytes() > DATE_CHARACTERS).any()):
        return _convert_to_sessions(dates)
    offset = text.str.extract(UTC_OFFSET, 1)
    if offset.null_count() or not (form.zone or offset.is_in(UTC_NAMES).all()):
        return _convert_to_sessions(dates)
    return _choose_days_of_utc(_parse_utc(text, offset, source), source, form)


def _require_all_parsed(text: "pl.Series", dates: "pl.Series", source: str) -> "pl.Series":
    check_parsed(text.fill_null(""), dates, source, "is not a date like the ones before; write 2013-12-31 or 20131231")
    return dates


def _build_dates(text: "pl.Series", pattern: str, ymd_groups: tuple[int, int, int]) -> "pl.Series":
    """Build dates from a pattern's groups; `ymd_groups` are those of year, month and day."""
    import polars as pl

    frame = text.to_frame("text")
    groups = [pl.col("text").str.extract(pattern, group).cast(pl.Int32) for group in ymd_groups]
    dates = pl.format("{}-{}-{}", _add_century(groups[0]), *groups[1:]).str.to_date("%Y-%m-%d", strict=False)
    return frame.select(dates).to_series()


def _add_century(years: "pl.Expr") -> "pl.Expr":
    """Complete years of two digits."""
    import polars as pl

    return years + pl.when(years >= CENTURY).then(0).when(years < CENTURY_PIVOT).then(2000).otherwise(1900)


def _infer_order(text: "pl.Series", source: str, form: DateForm) -> DateOrder:
    """The only order in which all dates of a column exist.

    Raises:
        BarsError: Both orders are possible, or neither.
    """
    import polars as pl

    dates = text.filter(text.str.contains(NUMERIC_DATE).fill_null(value=False))
    first, second = (dates.str.extract(NUMERIC_DATE, group).cast(pl.Int32) for group in (1, 3))
    day_first, month_first = dates.filter(first > 12), dates.filter(second > 12)  # noqa: PLR2004 (months)
    if (dates.str.extract(NUMERIC_DATE, 4).str.len_bytes() < MAX_YEAR_DIGITS).any():
        raise BarsError(
            f"{source}: dates such as {dates[0]!r} have two-digit years; "
            f"{_describe_choices(dates[0], tuple(DateOrder), form)}"
        )
    if len(day_first) and len(month_first):
        raise BarsError(
            f"{source}: {day_first[0]!r} has the day first, {month_first[0]!r} the month; write all dates as 2013-12-31"
        )
    if len(day_first) or dates.str.extract(NUMERIC_DATE, 2)[0] == ".":  # dates with points always have the day first
        return DateOrder.DAY_FIRST
    if len(month_first):
        return DateOrder.MONTH_FIRST
    raise BarsError(
        f"{source}: dates such as {dates[0]!r} are ambiguous; "
        f"{_describe_choices(dates[0], (DateOrder.MONTH_FIRST, DateOrder.DAY_FIRST), form)}"
    )


def _describe_choices(text: str, orders: tuple[DateOrder, ...], form: DateForm) -> str:
    """The advice for an ambiguous date: its value in each possible order, and the flag that selects the order."""
    import polars as pl

    if not form.has_options:
        return "write all dates as 2013-12-31"
    choices: list[str] = []
    for order in orders:
        date = _build_dates(pl.Series([text]), NUMERIC_DATE, YMD_GROUPS[order])[0]
        if date is not None:
            choices.append(f"{date} with --date-order {order}")
    return f"choose {' or '.join(choices)}{suggest_python_option('date_order')}"


def _parse_utc(text: "pl.Series", offset: "pl.Series", source: str) -> "pl.Series":
    """Parse timestamps with an offset and convert them to UTC."""
    import polars as pl

    written = text.str.extract(TIMESTAMP, 1) + " " + text.str.extract(TIMESTAMP, 2)
    moment = written.str.to_datetime("%Y-%m-%d %H:%M", time_unit="us", strict=False)
    check_parsed(text, moment, source, "is not a timestamp; write 2013-12-31T16:00:00Z, or only the date")
    sign = offset.str.starts_with("-").cast(pl.Int64) * -2 + 1
    hours, minutes = (
        offset.str.extract(r"^[+-]([0-9]{2})(?::?([0-9]{2}))?$", part).cast(pl.Int64).fill_null(0) for part in (1, 2)
    )
    ahead = sign * (hours * 60 + minutes) * 60_000_000
    return (moment.cast(pl.Int64) - ahead).cast(pl.Datetime("us"))


def _choose_days_of_utc(moments: "pl.Series", source: str, form: DateForm) -> SessionColumn:
    """The sessions of UTC timestamps: by time zone, by midnights, or by the only choice without weekends."""
    import polars as pl

    if form.zone:
        return _convert_to_sessions(
            moments.dt.replace_time_zone("UTC").dt.convert_time_zone(_check_zone(form.zone)).dt.date()
        )
    own_days = moments.dt.date()
    if bool((moments.cast(pl.Int64) % 86_400_000_000 == 0).all()):
        return _convert_to_sessions(own_days)
    is_forenoon = bool((moments.dt.hour() < FORENOON_HOURS).all())
    adjacent = own_days.dt.offset_by("-1d" if is_forenoon else "1d")
    fit = [not bool((days.dt.weekday() >= SATURDAY).any()) for days in (own_days, adjacent)]
    side = "before" if is_forenoon else "after"
    if fit == [False, True]:
        return _convert_to_sessions(
            adjacent, f"UTC timestamps count for the day {side}, since their own dates include weekends"
        )
    if fit == [True, False]:
        return _convert_to_sessions(own_days)
    advice = "write the exchange's local dates"
    if form.has_options:
        zones = "such as --time-zone America/New_York, or UTC to keep the dates as written"
        advice = f"set the exchange's time zone, {zones}{suggest_python_option('time_zone')}"
    raise BarsError(
        f"{source}: the UTC timestamp {moments[0]} may be of the session {own_days[0]} or {adjacent[0]}; {advice}"
    )


def _check_zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BarsError(f"unknown time zone {name!r}; use one such as America/New_York or UTC") from error
