"""Common mistakes in bar files: each is refused with a remedy that works."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import exports
import numpy as np
import polars as pl
import pytest

from predictor.bars import BarPanel, ReadingOptions, read_file
from predictor.bars.layouts import DateOrder, DecimalSign
from predictor.errors import BarsError

NO_OPTIONS: Final = ReadingOptions()
MISTAKES: Final = exports.CASES / "mistakes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRefusal:
    """The message about a mistake, and the result of following it.

    Attributes:
        says: the whole message, as a pattern.
        options: flags that the message names.
        mend: what else it asks for, done to the file's bytes.
        ending: of the mended file.
        symbols: of the bars that are read then.
    """

    says: str
    options: ReadingOptions = NO_OPTIONS
    mend: Callable[[bytes], bytes] = bytes
    ending: str = ".csv"
    symbols: tuple[str, ...] = ("MENDED",)


def edit(before: str, after: str) -> Callable[[bytes], bytes]:
    """Replace the first occurrence."""
    return lambda content: content.decode().replace(before, after, 1).encode()


def one_bar_a_day(content: bytes) -> bytes:
    """Keep one bar per day, as the message advises."""
    bars = pl.read_csv(content).with_columns(pl.col("date").str.slice(0, 10)).group_by("date", maintain_order=True)
    day = bars.agg(
        pl.col("open").first(),
        pl.col("high").max(),
        pl.col("low").min(),
        pl.col("close").last(),
        pl.col("volume").sum(),
    )
    return day.write_csv().encode()


def export_again(_: bytes) -> bytes:
    return exports.content(exports.EXPORTS["stooq_page/AAPL.csv"])


def mixed_dates_in_iso(_: bytes) -> bytes:
    return export_again(_)


HALF_EMPTY: Final = ",".join(("2012-10-18", *exports.of("AAPL")[3].prices[:3], "", str(exports.of("AAPL")[3].volume)))
BOTH: Final = ("AAPL", "MSFT")
REFUSED: Final = {
    "short_dates.csv": ExpectedRefusal(
        says=r"short_dates.csv: dates such as '11/01/2012' are ambiguous; choose "
        r"2012-11-01 with "
        r"--date-order mdy or 2012-01-11 with --date-order dmy",
        options=ReadingOptions(date_order=DateOrder.MONTH_FIRST),
    ),
    "short_years.csv": ExpectedRefusal(
        says=r".*'01/11/12' have two-digit years; .*2012-11-01 with --date-order dmy or 2012-01-11 with "
        r"--date-order "
        r"mdy or 2001-11-12 with --date-order ymd",
        options=ReadingOptions(date_order=DateOrder.DAY_FIRST),
    ),
    "mixed_dates.csv": ExpectedRefusal(
        says=r".*'16/10/2012' has the day first, '10/15/2012' the month; write all dates as 2013-12-31",
        mend=mixed_dates_in_iso,
    ),
    "thousandths.csv": ExpectedRefusal(
        says=r".*row 1 after the header, column open: '6.612' is ambiguous, and so are all other cells; "
        r"choose 6.612 with --decimal point or 6612 with --decimal comma",
        options=ReadingOptions(decimal=DecimalSign.POINT),
    ),
    "tokyo_two_days.csv": ExpectedRefusal(
        says=r".*the UTC timestamp 2012-10-15 15:00:00 may be of the session 2012-10-15 or 2012-10-16; set the "
        r"exchange's time zone, such as --time-zone America/New_York, or UTC to keep the dates as written",
        options=ReadingOptions(time_zone="Asia/Tokyo"),
    ),
    "volume_in_thousands.csv": ExpectedRefusal(
        says=r".*column volume_\(000\) may count thousands of shares or single shares; choose "
        r"--volume-unit 1000 if 1 means 1,000 shares, or --volume-unit 1 if it means one share",
        options=ReadingOptions(volume_unit=1000),
    ),
    "different_duplicates.csv": ExpectedRefusal(
        says=r"AAPL 2012-10-19 appears twice in different_duplicates.csv, in rows 5 and 65 after the header "
        r"with close "
        r"609.84 and 631.05; give each day one row",
        mend=lambda content: b"".join(content.splitlines(keepends=True)[:-1]),
        symbols=BOTH,
    ),
    "within_the_day.csv": ExpectedRefusal(
        says=r".*2012-10-15 appears twice in .* as 2012-10-15 09:30:00 and 2012-10-15 10:30:00: the bars are "
        r"intraday, but must be daily; aggregate each day to the first open, the highest high, the lowest low, "
        r"the last close and the sum of the volumes",
        mend=one_bar_a_day,
    ),
    "weekly.csv": ExpectedRefusal(
        says=r"weekly.csv: its bars are 7 days apart, the nearest 7, but must be daily; export it with an "
        r"interval of one day",
        mend=export_again,
    ),
    "closes_only.csv": ExpectedRefusal(
        says=r".*no column open, high, low, close, volume; it has date, aapl, msft; rename the columns that hold "
        r"them; closing prices are not enough: export open, high, low, close and volume",
        mend=export_again,
    ),
    "stacked_by_code.csv": ExpectedRefusal(
        says=r".*has no column symbol, and 2012-10-15 appears twice; if column 'code' holds it, rename it to symbol",
        mend=edit("code", "symbol"),
        symbols=BOTH,
    ),
    "without_volume.csv": ExpectedRefusal(
        says=r".*no column volume; it has symbol, date, open, high, low, close; if the volume is unknown, add an "
        r"empty column volume",
        mend=lambda content: content.replace(b"\n", b",\n").replace(b"close,", b"close,volume"),
        symbols=BOTH,
    ),
    "half_empty.csv": ExpectedRefusal(
        says=r"AAPL 2012-10-18: close is nan, but the bar's other fields are numbers; leave all fields empty "
        r"if there is no bar",
        mend=edit(HALF_EMPTY, "2012-10-18,,,,,"),
        symbols=("AAPL",),
    ),
    "footer.csv": ExpectedRefusal(
        says=r".*row 65 after the header, column date: '' is not a date; write 2013-12-31 or 20131231, or "
        r"remove the row",
        mend=edit("Source: an exchange\n", ""),
        symbols=BOTH,
    ),
    "column_twice.csv": ExpectedRefusal(
        says=r"column_twice.csv has more than one column close; remove all but one",
        mend=lambda content: pl.read_csv(content).drop("close_duplicated_0").write_csv().encode(),
    ),
    "without_header.csv": ExpectedRefusal(
        says=r"without_header.csv has no header: its first line begins with '2012-10-15'; add the column "
        r"names, such as date,open,high,low,close,volume",
        mend=lambda content: b"date,open,high,low,close,volume\n" + content,
    ),
    "web_page.csv": ExpectedRefusal(
        says=r"web_page.csv has no table but '<!DOCTYPE html>'; check whether its download failed",
        mend=export_again,
    ),
    "latin.csv": ExpectedRefusal(
        says=r"latin.csv is not UTF-8 \(byte 0xf6 at 9\); save it as CSV UTF-8, or convert it: iconv -f "
        r"WINDOWS-1252 -t "
        r"UTF-8 latin.csv > utf8.csv",
        mend=lambda content: content.decode("cp1252").encode(),
        symbols=BOTH,
    ),
    "old_excel.xls": ExpectedRefusal(
        says=r"old_excel.xls is in an old Excel format; open it in Excel and save it as .xlsx or CSV UTF-8",
        mend=lambda _: exports.content(exports.EXPORTS["excel.xlsx"]),
        ending=".xlsx",
        symbols=BOTH,
    ),
    "cut_off.csv.gz": ExpectedRefusal(
        says=r"cut_off.csv.gz is damaged or truncated \(Compressed file ended before .*\); download it again",
        mend=lambda _: gzip.compress(exports.plain().encode()),
        ending=".csv.gz",
        symbols=BOTH,
    ),
}


def test_every_mistake_has_an_expectation() -> None:
    assert REFUSED.keys() == exports.MISTAKES.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_with_what_is_wrong_and_what_to_do(name: str) -> None:
    with pytest.raises(BarsError, match=f"^{REFUSED[name].says}{python_ending(REFUSED[name].options)}$"):
        BarPanel.read(MISTAKES / name)


def python_ending(options: ReadingOptions) -> str:
    """The end of a message that offers these Python arguments."""
    given = [one.name for one in fields(options) if getattr(options, one.name) != getattr(NO_OPTIONS, one.name)]
    return (
        rf"; in Python pass options=ReadingOptions\({given[0]}=…\) to BarPanel\.of or BarPanel\.read" if given else ""
    )


@pytest.mark.parametrize("name", REFUSED)
def test_the_remedy_works_when_it_is_followed(name: str, tmp_path: Path) -> None:
    refused = REFUSED[name]
    mended = tmp_path / f"mended{refused.ending}"
    mended.write_bytes(refused.mend((MISTAKES / name).read_bytes()))
    panel = read_file(mended, refused.options).panel
    assert panel.symbols == refused.symbols
    truth = BarPanel.read(exports.CASES / "exports" / "plain.csv").select(["AAPL"])
    assert np.isin(panel.sessions, truth.sessions).all()


def test_each_answer_to_a_question_gives_what_the_question_said(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("date,open,high,low,close,volume\n03/04/2020,1,1,1,1,1\n", encoding="utf-8")
    days = {
        str(order): read_file(path, ReadingOptions(date_order=order)).panel.sessions.tolist()
        for order in (DateOrder.DAY_FIRST, DateOrder.MONTH_FIRST)
    }
    assert days == {"dmy": [20200403], "mdy": [20200304]}
    numbers = {
        str(sign): read_file(MISTAKES / "thousandths.csv", ReadingOptions(decimal=sign)).panel.open[0, 0]
        for sign in DecimalSign
    }
    assert numbers == {"point": 6.612, "comma": 6612}
    zones = {
        zone: int(read_file(MISTAKES / "tokyo_two_days.csv", ReadingOptions(time_zone=zone)).panel.sessions[0])
        for zone in ("UTC", "Asia/Tokyo", "America/New_York")
    }
    assert zones == {"UTC": 20121015, "Asia/Tokyo": 20121016, "America/New_York": 20121015}
    volumes = {
        unit: read_file(MISTAKES / "volume_in_thousands.csv", ReadingOptions(volume_unit=unit)).panel.volume[0, 0]
        for unit in (1, 1000)
    }
    assert volumes == {1: 15446, 1000: 15446000}


@pytest.mark.parametrize(
    ("moment", "zone", "day"),
    [
        ("2024-01-02T20:00:00-05:00", "UTC", 20240103),
        ("2024-01-02T20:00:00-05:00", "", 20240102),
        ("2024-01-03T08:00:00+09:00", "UTC", 20240102),
        ("2024-01-03T08:30:00+0530", "Europe/London", 20240103),
        ("2024-01-03T04:30:00+0530", "Europe/London", 20240102),
        ("2024-01-03 02:00:00+00", "America/New_York", 20240102),
        ("2024-01-03 02:00:00z", "America/New_York", 20240102),
        ("2024-01-03 02:00:00 GMT", "America/New_York", 20240102),
    ],
)
def test_a_moment_with_an_offset_is_of_the_day_of_the_zone_that_is_named(
    tmp_path: Path, moment: str, zone: str, day: int
) -> None:
    path = tmp_path / "moment.csv"
    path.write_text(f"date,open,high,low,close,volume\n{moment},1,1,1,1,1\n", encoding="utf-8")
    assert read_file(path, ReadingOptions(time_zone=zone)).panel.sessions.tolist() == [day]


@pytest.mark.parametrize("dates", [("30-Dec-13", "02-Jan-14"), ("Dec 30, 13", "Jan 02, 14")])
def test_a_year_of_two_digits_after_a_named_month_is_of_this_century(tmp_path: Path, dates: tuple[str, str]) -> None:
    path = tmp_path / "short_years.csv"
    rows = [f'"{day}",1,1,1,1,1' for day in dates]
    path.write_text("\n".join(["date,open,high,low,close,volume", *rows]), encoding="utf-8")
    assert read_file(path).panel.sessions.tolist() == [20131230, 20140102]
