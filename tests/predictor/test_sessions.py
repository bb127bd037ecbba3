"""Exchange calendars, compared with the history of the New York Stock Exchange."""

import dataclasses
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import exchange_calendars
import numpy as np
import pytest

from predictor import canonical
from predictor.dates import to_date_numbers, to_days
from predictor.errors import ArtifactError, BarsError, CalendarEndedError, ConfigurationError, MissingPackageError
from predictor.sessions import FIELDS, CloseTime, SessionCalendar

# exchange-calendars still uses what newer releases of pandas deprecate
pytestmark = pytest.mark.filterwarnings("ignore:Series.values:DeprecationWarning")

NYSE = SessionCalendar.from_exchange("XNYS", 20000103, 20311120)
WEEKDAYS = SessionCalendar.weekdays(20200101, 20311231)
EVERY_DAY = SessionCalendar.every_day(20240115, 20241231)


FIRST_VERSION = b"""{
  "first": 20240101,
  "holidays": [],
  "last": 20240229,
  "name": "weekdays",
  "regular_closes": [],
  "special_closes": [],
  "time_zone": "UTC",
  "unannounced": []
}
"""
"""Calendars in the format of earlier versions."""


def dates(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.asarray(values, np.int32)


def edited(**changes: object) -> bytes:
    """NYSE's calendar.json with some keys changed."""
    return json.dumps(json.loads(NYSE.to_json()) | changes).encode()


def edited_every_day(**changes: object) -> bytes:
    """The every-day calendar, of format version 2, with some keys changed."""
    return json.dumps(json.loads(EVERY_DAY.to_json()) | changes).encode()


def without(key: str) -> bytes:
    record = json.loads(NYSE.to_json())
    del record[key]
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    "day",
    [
        20010911,
        20010912,
        20010913,
        20010914,  # the attacks on New York
        20121029,
        20121030,  # hurricane Sandy
        20181205,  # mourning for President Bush
        20240329,  # Good Friday
        20241225,
        20220620,  # Juneteenth, observed on Monday
        20240615,  # a Saturday
    ],
)
def test_new_york_is_closed_on_holidays_and_in_disasters(day: int) -> None:
    assert not NYSE.is_session(day)


def test_the_last_days_of_a_calendar_may_be_none_of_its_sessions() -> None:
    calendar = SessionCalendar.weekdays(20200101, 20200531)
    assert [calendar.is_session(day) for day in (20200529, 20200530, 20200531)] == [True, False, False]
    with pytest.raises(CalendarEndedError):
        calendar.is_session(20200601)


def test_new_york_trades_around_its_closures() -> None:
    assert all(NYSE.is_session(day) for day in (20010910, 20010917, 20121026, 20121031, 20181206, 20240328))


def test_sessions_are_those_of_exchange_calendars_over_twenty_years() -> None:
    expected = exchange_calendars.get_calendar("XNYS", start="2005-01-01", end="2024-12-31").sessions

    sessions = NYSE.sessions(20050101, 20241231)

    assert sessions.dtype == np.int32
    assert sessions.tolist() == [int(day.strftime("%Y%m%d")) for day in expected]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["XNYS", "XHKG", "XKRX", "XSGO"])
def test_close_instants_are_those_of_exchange_calendars(name: str) -> None:
    calendar = SessionCalendar.from_exchange(name, 20140101, 20191231)
    expected = exchange_calendars.get_calendar(name, start="2014-01-01", end="2019-12-31").closes

    closes = [calendar.close_instant(day) for day in calendar.sessions(20140101, 20191231).tolist()]

    assert closes == [moment.to_pydatetime() for moment in expected]


def test_the_day_after_thanksgiving_closes_at_one() -> None:
    assert CloseTime(date=20241129, time="13:00") in NYSE.schedule.special_closes
    assert NYSE.close_instant(20241129) == datetime(2024, 11, 29, 18, tzinfo=UTC)


@pytest.mark.parametrize(("session", "hour"), [(20240308, 21), (20240311, 20), (20241101, 20), (20241104, 21)])
def test_closes_follow_daylight_saving_time(session: int, hour: int) -> None:
    close = NYSE.close_instant(session)

    assert close is not None
    assert (close.hour, close.minute, close.tzinfo) == (hour, 0, UTC)


def test_a_session_is_complete_from_its_close_on() -> None:
    assert not NYSE.is_complete(20240328, datetime(2024, 3, 28, 19, 59, 59, tzinfo=UTC))
    assert NYSE.is_complete(20240328, datetime(2024, 3, 28, 20, tzinfo=UTC))


def test_an_early_close_completes_its_session_early() -> None:
    assert NYSE.is_complete(20241129, datetime(2024, 11, 29, 18, 30, tzinfo=UTC))
    assert not NYSE.is_complete(20241127, datetime(2024, 11, 27, 18, 30, tzinfo=UTC))


def test_without_close_times_a_session_is_complete_on_the_next_day_in_utc() -> None:
    assert WEEKDAYS.close_instant(20240328) is None
    assert not WEEKDAYS.is_complete(20240328, datetime(2024, 3, 28, 23, 59, 59, tzinfo=UTC))
    assert WEEKDAYS.is_complete(20240328, datetime(2024, 3, 29, tzinfo=UTC))


def test_now_needs_a_time_zone() -> None:
    with pytest.raises(ConfigurationError, match="without a time zone"):
        NYSE.is_complete(20240328, datetime(2024, 3, 29))  # noqa: DTZ001 - that is the point


def test_a_holiday_has_no_close() -> None:
    with pytest.raises(BarsError, match="2024-03-29 is not a session of the calendar XNYS"):
        NYSE.close_instant(20240329)


def test_sessions_are_followed_across_the_year_end() -> None:
    assert NYSE.following(20241230, 4).tolist() == [20241231, 20250102, 20250103, 20250106]


def test_sessions_are_followed_from_a_holiday() -> None:
    assert NYSE.following(20240329, 1).tolist() == [20240401]


def test_following_beyond_the_calendar_names_its_last_day() -> None:
    with pytest.raises(CalendarEndedError, match=r"only 3 of the 5 .* XNYS ends on 2031-11-30") as caught:
        NYSE.following(20311124, 5)

    assert caught.value.metadata["last"] == "2031-11-30"


@pytest.mark.parametrize("day", [19991231, 20311201])
def test_dates_outside_the_calendar_are_refused(day: int) -> None:
    with pytest.raises(CalendarEndedError, match="covers 2000-01-01 to 2031-11-30"):
        NYSE.fields(dates(20240328, day))


def test_missing_sessions_are_found_and_holidays_are_not_missing() -> None:
    assert NYSE.missing(dates(20240327, 20240401, 20240403)).tolist() == [20240328, 20240402]


def test_complete_sessions_miss_nothing() -> None:
    assert NYSE.missing(NYSE.sessions(20010801, 20011031)).size == 0


@pytest.mark.parametrize(
    ("days", "gapless"),
    [
        ((20130628, 20130701, 20130702, 20130703, 20130705), True),
        ((20130628, 20130702), False),
        ((20130703, 20130704, 20130705), False),
        ((20130704,), False),
        ((17000101,), False),
        ((), True),
    ],
    ids=str,
)
def test_dates_are_gapless_where_they_are_sessions_in_a_row(days: tuple[int, ...], *, gapless: bool) -> None:
    assert NYSE.is_gapless(dates(*days)) == gapless


def test_no_dates_miss_nothing() -> None:
    assert NYSE.missing(dates()).size == 0
    assert NYSE.unexpected(dates()).size == 0


def test_dates_without_trading_are_unexpected() -> None:
    assert NYSE.unexpected(dates(20240328, 20240329, 20240330, 20240401)).tolist() == [20240329, 20240330]


def test_month_fields_count_sessions() -> None:
    fields = NYSE.fields(dates(20240301, 20240304, 20240327, 20240328))  # Good Friday ends March on the 28th

    assert fields["sessions_from_month_start"].tolist() == [0, 1, 18, 19]
    assert fields["sessions_to_month_end"].tolist() == [19, 18, 1, 0]


def test_weekday_counts_from_monday() -> None:
    assert NYSE.fields(dates(20240318, 20240319, 20240320, 20240321, 20240322))["weekday"].tolist() == [0, 1, 2, 3, 4]


def test_holiday_fields_count_calendar_days() -> None:
    fields = NYSE.fields(dates(20240326, 20240328, 20240401, 20240429))

    assert fields["days_to_holiday"].tolist() == [3, 1, 30, 28]
    assert fields["days_from_holiday"].tolist() == [30, 30, 3, 30]


def test_fields_do_not_foresee_a_disaster_but_remember_it() -> None:
    fields = NYSE.fields(dates(20010910, 20010917))

    assert fields["days_to_holiday"].tolist() == [30, 30]
    assert fields["sessions_to_month_end"].tolist() == [14, 9]  # on the 10th, four sessions more were planned
    assert fields["days_from_holiday"].tolist() == [7, 3]


def test_weekdays_have_no_holidays() -> None:
    fields = WEEKDAYS.fields(dates(20241225, 20251231))

    assert fields["days_to_holiday"].tolist() == [30, 30]
    assert fields["days_from_holiday"].tolist() == [30, 30]
    assert fields["sessions_to_month_end"].tolist() == [4, 0]


def test_fields_of_a_session_do_not_depend_on_the_other_dates() -> None:
    sessions = NYSE.sessions(20010701, 20041231)
    together = NYSE.fields(sessions)

    alone = [NYSE.fields(sessions[row : row + 1]) for row in range(0, sessions.size, 7)]
    backwards = NYSE.fields(sessions[::-1])

    for name in FIELDS:
        assert together[name][::7].tolist() == [float(one[name][0]) for one in alone]
        assert together[name].tolist() == backwards[name][::-1].tolist()


def test_fields_are_float64_in_a_fixed_order() -> None:
    fields = NYSE.fields(NYSE.following(20241220, 25))

    assert tuple(fields) == (*FIELDS, "day_of_month", "month_of_year")
    assert {(values.dtype, values.shape) for values in fields.values()} == {(np.dtype(np.float64), (25,))}


def test_fields_of_a_holiday_are_refused() -> None:
    with pytest.raises(BarsError, match="2024-03-29 is not a session"):
        NYSE.fields(dates(20240328, 20240329))


@pytest.mark.parametrize("calendar", [NYSE, WEEKDAYS, EVERY_DAY, None], ids=lambda calendar: calendar and calendar.name)
def test_json_round_trip_is_exact(calendar: SessionCalendar | None) -> None:
    calendar = calendar or SessionCalendar.from_exchange("XSGO", 20140101, 20191231)
    content = calendar.to_json()

    read = SessionCalendar.from_json(content)

    assert read == calendar
    assert read.to_json() == content
    assert read.sessions(read.first, read.last).tolist() == calendar.sessions(read.first, read.last).tolist()


def test_calendars_of_a_working_week_keep_their_format() -> None:
    for calendar in (NYSE, WEEKDAYS):
        assert not {"version", "is_every_day"} & json.loads(calendar.to_json()).keys()
    assert SessionCalendar.weekdays(20240115, 20240201).to_json() == FIRST_VERSION


def test_the_calendar_of_every_day_is_of_the_second_version() -> None:
    written = json.loads(EVERY_DAY.to_json())

    assert (written["version"], written["is_every_day"]) == (2, True)
    assert written["regular_closes"] == [{"date": 20240101, "time": "24:00"}]


def test_a_newer_version_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        ArtifactError, match=r"calendar\.json: version is 3, this program reads up to 2; update quantra"
    ):
        SessionCalendar.from_json(edited_every_day(version=3, days_of_the_week="Monday"))


def test_json_is_canonical() -> None:
    content = SessionCalendar.weekdays(20240115, 20240201).to_json()

    assert content == canonical.to_bytes(canonical.from_bytes(content, "calendar.json"))
    assert json.loads(content)["first"] == 20240101


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (edited(surprise=1), "surprise"),
        (without("holidays"), "holidays"),
        (edited(first=20000103.0), "first"),
        (edited(first=True), "first"),
        (edited(first=20000230), "first"),
        (edited(last=99991231), "last"),
        (edited(last=19990101), "last"),
        (edited(name=""), "name"),
        (edited(time_zone="Mars/Olympus"), "time_zone"),
        (edited(time_zone="America"), "time_zone"),
        (edited(time_zone="../../etc/passwd"), "time_zone"),
        (edited(holidays=None), "holidays"),
        (edited(holidays=[20240329, 20240101], unannounced=[]), "holidays[1]"),
        (edited(holidays=[20240101, 20240101], unannounced=[]), "holidays[1]"),
        (edited(holidays=[20240330], unannounced=[]), "holidays[0]"),
        (edited(holidays=[19990104], unannounced=[]), "holidays[0]"),
        (edited(unannounced=[20240102]), "unannounced[0]"),
        (edited(special_closes=[{"date": 20240329, "time": "13:00"}]), "special_closes[0]"),
        (edited(special_closes=[{"date": 20240328, "time": "24:00"}]), "special_closes[0].time"),
        (edited(special_closes=[{"date": 20240328}]), "special_closes[0].time"),
        (edited(special_closes=[20240328]), "special_closes[0]"),
        (edited(regular_closes=[]), "special_closes"),
        (edited(regular_closes=[{"date": 20010101, "time": "16:00"}]), "regular_closes"),
    ],
)
def test_a_damaged_calendar_is_refused_by_the_key(content: bytes, key: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        SessionCalendar.from_json(content)

    assert caught.value.metadata["key"] == key
    assert key in caught.value.message


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (edited(version=1), "version"),
        (edited(version="2"), "version"),
        (edited(is_every_day=False), "is_every_day"),
        (edited(version=2), "is_every_day"),
        (edited(version=2, is_every_day=True), "name"),
        (edited(name="24/7"), "name"),
        (edited_every_day(is_every_day=False), "name"),
        (edited_every_day(is_every_day=1), "is_every_day"),
        (edited_every_day(name="XNYS"), "name"),
        (edited_every_day(regular_closes=[{"date": 20240101, "time": "24:01"}]), "regular_closes[0].time"),
        (edited_every_day(holidays=[20250101]), "holidays[0]"),
    ],
)
def test_a_damaged_version_is_refused_by_the_key(content: bytes, key: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        SessionCalendar.from_json(content)

    assert caught.value.metadata["key"] == key


def test_a_duplicate_key_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"calendar\.json: is not strict JSON: key 'first' appears twice"):
        SessionCalendar.from_json(NYSE.to_json().replace(b'"last"', b'"first"'))


def test_a_calendar_without_any_session_is_refused() -> None:
    content = edited(first=20240201, last=20240201, holidays=[20240201], unannounced=[], special_closes=[])

    with pytest.raises(ArtifactError, match="leave no session"):
        SessionCalendar.from_json(content)


def test_a_calendar_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NYSE.schedule.last = 20991231  # pyright: ignore[reportAttributeAccessIssue] - that is the point
    with pytest.raises(ValueError, match="read-only"):
        NYSE.sessions(20240101, 20241231)[0] = 0


def test_weekdays_are_no_exchange() -> None:
    assert NYSE.is_exchange
    assert not WEEKDAYS.is_exchange


# --- every day of the week


def test_every_day_is_a_session() -> None:
    assert (EVERY_DAY.name, EVERY_DAY.first, EVERY_DAY.last) == ("24/7", 20240101, 20241231)
    assert EVERY_DAY.is_exchange
    assert EVERY_DAY.is_every_day
    assert EVERY_DAY.sessions(20240101, 20241231).size == 366
    assert EVERY_DAY.following(20240223, 4).tolist() == [20240224, 20240225, 20240226, 20240227]
    assert EVERY_DAY.preceding(20240226, 3).tolist() == [20240223, 20240224, 20240225]
    assert EVERY_DAY.missing(dates(20240223, 20240226)).tolist() == [20240224, 20240225]
    assert not EVERY_DAY.unexpected(dates(20240224, 20240225)).size


def test_a_session_of_every_day_ends_at_midnight_utc() -> None:
    end = datetime(2024, 2, 25, tzinfo=UTC)
    assert EVERY_DAY.close_instant(20240224) == end
    assert not EVERY_DAY.is_complete(20240224, end - timedelta(microseconds=1))
    assert EVERY_DAY.is_complete(20240224, end)
    assert EVERY_DAY.is_complete(20240224, end.astimezone(ZoneInfo("America/New_York")))
    assert [EVERY_DAY.closed_since(20240223, end + timedelta(days=days)) for days in (0, 1, 9)] == [1, 2, 10]


def test_midnight_is_that_of_the_calendars_zone() -> None:
    calendar = SessionCalendar.from_json(edited_every_day(time_zone="America/New_York"))
    assert calendar.close_instant(20240310) == datetime(2024, 3, 11, 4, tzinfo=UTC)  # the clocks went forward


def test_every_day_has_fields_of_seven_weekdays_and_no_holidays() -> None:
    fields = EVERY_DAY.fields(dates(20240224, 20240225, 20240226, 20240229))
    assert fields["weekday"].tolist() == [5, 6, 0, 3]
    assert fields["sessions_to_month_end"].tolist() == [5, 4, 3, 0]
    assert fields["sessions_from_month_start"].tolist() == [23, 24, 25, 28]
    assert set(fields["days_to_holiday"].tolist()) == {30}
    assert set(fields["days_from_holiday"].tolist()) == {30}


def test_every_day_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)

    assert SessionCalendar.named("24/7", 20240115, 20241231) == EVERY_DAY


def test_an_alias_becomes_the_exchange_itself() -> None:
    assert SessionCalendar.from_exchange("NYSE", 20240101, 20240131).name == "XNYS"


@pytest.mark.parametrize(
    ("exchange", "first", "message"),
    [
        ("xnyse", 20200101, r"unknown exchange 'xnyse'; similar codes are \['XNYS'"),
        ("24/7", 20240101, "'24/7' for every day of the week"),
        ("XSAU", 20220101, "XSAU has sessions on weekends, such as 2022-01-02"),
        ("24/5", 20220101, "past midnight"),
        ("XBOM", 19900101, "XBOM are recorded from 1997-01-01"),
    ],
    ids=["unknown", "every day", "weekend sessions", "past midnight", "before the record"],
)
def test_an_unusable_exchange_is_refused(exchange: str, first: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SessionCalendar.from_exchange(exchange, first, 20241231)


def test_the_calendar_ends_where_the_exchange_has_published_no_further() -> None:
    bound = exchange_calendars.get_calendar("XBOM").bound_max()
    assert bound is not None

    assert SessionCalendar.from_exchange("XBOM", 20200101, 20991231).last == int(bound.strftime("%Y%m%d"))


@pytest.mark.parametrize(("first", "last"), [(20240230, 20241231), (20241231, 20240101), (2024, 20241231)])
def test_a_range_that_cannot_be_is_refused(first: int, last: int) -> None:
    with pytest.raises(ConfigurationError):
        SessionCalendar.weekdays(first, last)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)

    with pytest.raises(MissingPackageError, match=r"quantra\[calendars\]"):
        SessionCalendar.from_exchange("XNYS", 20240101, 20241231)


def test_dates_convert_to_days_and_back() -> None:
    days = np.arange(np.datetime64("1895-12-30"), np.datetime64("2105-01-03"))

    values = to_date_numbers(days)

    assert values[[0, -1]].tolist() == [18951230, 21050102]
    assert (to_days(values) == days).all()
