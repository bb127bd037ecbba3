"""Validation of panels; errors name the symbol, date, field and value.

Each rule is one comparison over whole arrays. Single cells are checked only if a rule is broken.
"""

import math
from calendar import monthrange
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.dates import parse_date_number
from predictor.errors import MAX_LISTED, BarsError, format_date, format_names

MAX_NAME_LENGTH: Final = 64
LEAP_DAY: Final = 229
REAL_DAYS: Final = np.zeros(10_000, np.bool_)
"""Which mmdd are days of a leap year."""
REAL_DAYS[[100 * month + day + 1 for month in range(1, 13) for day in range(monthrange(2000, month)[1])]] = True
FLOAT64_BYTES: Final = 8


def check_symbols(symbols: tuple[str, ...]) -> None:
    """Raise BarsError if there are no symbols, or if one is repeated or not printable."""
    if not symbols:
        raise BarsError("a panel needs at least one symbol, but has none")
    for symbol in symbols:
        if not symbol.strip() or len(symbol) > MAX_NAME_LENGTH or not symbol.isprintable():
            excerpt = symbol[: MAX_NAME_LENGTH + 1]
            raise BarsError(
                f"symbol {excerpt!r} must have 1 to {MAX_NAME_LENGTH} printable characters, not only blanks"
            )
    if len(set(symbols)) != len(symbols):
        twice = next(symbol for symbol, count in Counter(symbols).items() if count > 1)
        raise BarsError(f"symbol {twice} appears twice in the panel; give each symbol one row")


def check_label(name: str, text: str) -> None:
    """Raise BarsError for a calendar or currency code that is too long or not printable; empty means unknown."""
    if len(text) > MAX_NAME_LENGTH or not text.isprintable():
        raise BarsError(
            f"{name} {text[: MAX_NAME_LENGTH + 1]!r} must have at most {MAX_NAME_LENGTH} printable characters"
        )


def freeze_sessions(sessions: NDArray[np.integer], symbols: tuple[str, ...]) -> NDArray[np.int32]:
    """Validate sessions and return a read-only int32 copy [T].

    Args:
        sessions: Integers yyyymmdd [T], strictly increasing.
        symbols: S names, for messages.

    Raises:
        BarsError: A session is not a real date or is out of order.
    """
    if sessions.ndim != 1 or sessions.dtype.kind not in "iu":
        raise BarsError(
            f"sessions must be integers yyyymmdd of shape [T], but are {sessions.dtype} {list(sessions.shape)}"
        )
    if sessions.size == 0:
        raise BarsError("a panel needs at least one session, but has none")
    if not (sessions.dtype == np.int32 and _are_rising_dates(sessions.tobytes())):
        _check_dates(sessions, symbols, _find_real_dates(sessions))
    copy = sessions.astype(np.int32)
    copy.setflags(write=False)
    return copy


@lru_cache(maxsize=64)
def _are_rising_dates(sessions: bytes) -> bool:
    """Whether int32 sessions are valid. Cached, because the bars of most symbols have the same sessions."""
    dates = np.frombuffer(sessions, np.int32)
    return bool(_find_real_dates(dates).all() and (dates[1:] > dates[:-1]).all())


def _find_real_dates(sessions: NDArray[np.integer]) -> BoolArray:
    year, day = np.divmod(sessions, 10_000)
    real = REAL_DAYS[day] & (year >= 1) & (year <= 9_999)  # noqa: PLR2004 (the range of a date)
    leap_day = day == LEAP_DAY
    if leap_day.any():
        real &= ~leap_day | ((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))
    return real


def _check_dates(sessions: NDArray[np.integer], symbols: tuple[str, ...], real: BoolArray) -> None:
    if not real.all():
        raise _make_session_error(
            symbols, int(sessions[np.argmin(real)]), "is not a date; write yyyymmdd, such as 20131231", is_date=False
        )
    rising = sessions[1:] > sessions[:-1]
    if rising.all():
        return
    at = int(np.argmin(rising)) + 1
    session, before = int(sessions[at]), int(sessions[at - 1])
    if session == before:
        raise _make_session_error(symbols, session, "appears twice; give each session one bar")
    raise _make_session_error(symbols, session, f"comes after {format_date(before)}; sort the sessions, oldest first")


def _make_session_error(symbols: tuple[str, ...], session: int, problem: str, *, is_date: bool = True) -> BarsError:
    names, day = format_names(symbols), format_date(session) if is_date else str(session)
    return BarsError(
        f"{names}: session {day} {problem}",
        metadata={"symbol": names, "date": day, "field": "session", "value": str(session)},
    )


def freeze_column(name: str, values: NDArray[np.floating | np.integer], shape: tuple[int, int]) -> FloatArray:
    """Return one field as a read-only float64 array of shape [S, T].

    It is a copy, unless no one can change the array: it is read-only, and its memory is its own or that of bytes.
    Integers are converted. float32 is rejected, because its rounding would affect the forecasts.

    Raises:
        BarsError: The dtype or the shape is wrong.
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind not in "iu" and (kind != "f" or size != FLOAT64_BYTES):
        raise BarsError(f"{name} must be float64, but is {values.dtype}; read the bars as float64 from the start")
    if values.shape != shape:
        raise BarsError(f"{name} must have shape {list(shape)} (symbols, sessions), but has {list(values.shape)}")
    flags = values.flags
    is_constant = not flags.writeable and (flags.owndata or isinstance(values.base, bytes))
    if is_constant and flags.c_contiguous and values.dtype == np.float64:
        return np.asarray(values, np.float64)
    copy = np.array(values, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def check_bars(symbols: tuple[str, ...], sessions: NDArray[np.int32], fields: Mapping[str, FloatArray]) -> None:
    """Check that bars are possible.

    Args:
        symbols: S names.
        sessions: T dates, yyyymmdd.
        fields: open, high, low, close, volume and optionally adj_close; each [S, T]. If all fields are NaN there is no
            bar; if only the volume is, it is unknown.

    Raises:
        BarsError: A bar is impossible; names the first one's symbol, date, field and value, and counts the others.
    """
    low, high, volume = fields["low"], fields["high"], fields["volume"]
    is_valid = low > 0
    for inner in (fields["open"], fields["close"]):
        is_valid &= low <= inner
        is_valid &= inner <= high
    is_valid &= high < math.inf
    is_valid &= ~(volume < 0)  # NaN: the volume is unknown
    is_valid &= volume != math.inf
    if "adj_close" in fields:
        is_valid &= fields["adj_close"] > 0
        is_valid &= fields["adj_close"] < math.inf
    if is_valid.all():
        return
    is_valid |= np.logical_and.reduce([np.isnan(values) for values in fields.values()])
    if is_valid.all():
        return
    row, column = divmod(int(np.argmin(is_valid)), sessions.size)
    bar = {name: float(values[row, column]) for name, values in fields.items()}
    field, rule = _find_broken_rule(bar)
    rule += _explain_columns(fields, row) + _list_further_bars(symbols, sessions, is_valid)
    raise BarsError.at(symbols[row], int(sessions[column]), field, bar[field], rule)


def _explain_columns(fields: Mapping[str, FloatArray], row: int) -> str:
    """The part of a message that explains prices which are wrong on most days of a symbol; empty otherwise."""
    high, low, close = (fields[name][row] for name in ("high", "low", "close"))
    days = np.isfinite(close).sum()
    swapped = (high < low).sum()
    if swapped > days / 2:
        return f"; the high is below the low on {swapped} of {days} days: exchange the columns high and low"
    outside = ((close > high) | (close < low)).sum()
    if outside > days / 2:
        return (
            f"; the close is outside low and high on {outside} of {days} days: if open, high and low are adjusted and "
            "the close is not, or the reverse, give all four from columns of one kind"
        )
    return ""


def find_latest_day(today: date) -> int:
    """The last day, yyyymmdd, of which there can be bars; the exchange may be a day ahead of `today`."""
    return parse_date_number(today + timedelta(days=1))


def check_past(symbols: tuple[str, ...], sessions: NDArray[np.int32], close: FloatArray, today: date) -> None:
    """Check that no bar is dated in the future, after `find_latest_day`.

    Args:
        symbols: S names.
        sessions: T dates, yyyymmdd.
        close: [S, T], NaN where a symbol has no bar.
        today: The present day.

    Raises:
        BarsError: The last session is; names the symbols that have a bar on it.
    """
    last = int(sessions[-1])
    if last > find_latest_day(today):
        traded = tuple(name for name, price in zip(symbols, close[:, -1], strict=True) if not math.isnan(price))
        raise _make_session_error(
            traded or symbols,
            last,
            f"is in the future: today is {today.isoformat()}; check its year, and whether day and month are swapped",
        )


def _list_further_bars(symbols: tuple[str, ...], sessions: NDArray[np.int32], is_valid: BoolArray) -> str:
    """The part of a message that lists the other bars that break a rule; empty if there are none."""
    places = np.flatnonzero(~is_valid)[1:]
    if not places.size:
        return ""
    rows, columns = np.divmod(places[:MAX_LISTED], sessions.size)
    named_bars = [
        f"{symbols[row]} {format_date(int(sessions[column]))}" for row, column in zip(rows, columns, strict=True)
    ]
    others = f"{places.size} more bar{'s' if places.size > 1 else ''}"
    return f"; {others} must be corrected: {format_names(named_bars, places.size)}"


def _find_broken_rule(bar: Mapping[str, float]) -> tuple[str, str]:
    """The first field of a bar that breaks a rule, and the rule."""
    for field, value in bar.items():
        if math.isnan(value) and field != "volume":
            return field, "the bar's other fields are numbers; leave all fields empty if there is no bar"
        if math.isinf(value):
            return field, "it must be finite"
        if field == "volume" and value < 0:
            return field, "a volume must not be negative"
        if field != "volume" and value <= 0:
            return field, "a price must be positive"
    for field in ("open", "close"):
        if bar[field] < bar["low"]:
            return field, f"it must not be below the low, {bar['low']:g}"
        if bar[field] > bar["high"]:
            return field, f"it must not be above the high, {bar['high']:g}"
    raise AssertionError(f"the bar breaks no rule: {bar}")


def check_events(
    symbols: tuple[str, ...],
    sessions: NDArray[np.int32],
    field: str,
    values: FloatArray,
    is_valid: BoolArray,
    rule: str,
) -> None:
    """Check splits or dividends.

    Args:
        symbols: S names.
        sessions: T dates, yyyymmdd.
        field: The column's name.
        values: [S, T] ratios or amounts; NaN = no event.
        is_valid: [S, T] where a value obeys the rule.
        rule: The rule in words, for messages.

    Raises:
        BarsError: A value breaks the rule; names the first one's symbol, date, field and value, and counts the others.
    """
    is_valid = is_valid | np.isnan(values)
    if not is_valid.all():
        row, column = divmod(int(np.argmin(is_valid)), sessions.size)
        rule += _list_further_bars(symbols, sessions, is_valid)
        raise BarsError.at(symbols[row], int(sessions[column]), field, float(values[row, column]), rule)
