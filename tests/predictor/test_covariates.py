"""Covariates are used from the day they became known, restated values from the day of restatement."""

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest
from canned_service import model_info
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates, CovariateSource, Series, check_covariates
from predictor.errors import CovariateMissingError, CovariatesError, UnknownCovariateError

SESSIONS = np.array([20240102, 20240103, 20240104, 20240105, 20240108, 20240109], np.int32)
NAN = float("nan")


def series(*rows: tuple[int, int, float], name: str = "sales") -> Series:
    """A series for all symbols of (date, known_from, value) rows."""
    date, known_from, value = zip(*rows, strict=True)
    return Series(
        name=name,
        symbols=(),
        owner=np.zeros(len(rows), np.intp),
        date=np.array(date, np.int32),
        known_from=np.array(known_from, np.int32),
        value=np.array(value),
        row=np.arange(1, len(rows) + 1),
    )


def known_at_close(one: Series) -> list[float]:
    return one.as_of(["A"], SESSIONS)[0].tolist()


def csv(folder: Path, text: str, name: str = "file.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_value_is_used_from_the_session_that_knows_it() -> None:
    found = known_at_close(series((20231231, 20240104, 7.0)))
    assert found == pytest.approx([NAN, NAN, 7, 7, 7, 7], nan_ok=True)


def test_a_value_known_on_a_weekend_is_used_from_the_session_after_it() -> None:
    found = known_at_close(series((20231231, 20240106, 7.0)))
    assert found == pytest.approx([NAN, NAN, NAN, NAN, 7, 7], nan_ok=True)


def test_a_restated_value_comes_in_when_it_is_known_and_not_before() -> None:
    found = known_at_close(series((20231231, 20240102, 7.0), (20231231, 20240105, 6.5)))
    assert found == [7, 7, 7, 6.5, 6.5, 6.5]


def test_a_late_correction_of_an_older_day_does_not_displace_the_latest_day() -> None:
    found = known_at_close(series((20231130, 20240102, 5.0), (20231231, 20240103, 7.0), (20231130, 20240105, 4.0)))
    assert found == [5, 7, 7, 7, 7, 7]


def test_of_two_days_that_become_known_at_once_the_later_one_counts() -> None:
    assert known_at_close(series((20231231, 20240102, 7.0), (20231130, 20240102, 5.0))) == [7] * 6


def test_rows_may_stand_in_any_order() -> None:
    rows = [(20231130, 20240102, 5.0), (20231231, 20240103, 7.0), (20231231, 20240108, 6.0)]
    assert known_at_close(series(*reversed(rows))) == known_at_close(series(*rows))


def test_a_withdrawn_value_is_unknown_from_then_on() -> None:
    found = known_at_close(series((20231231, 20240102, 7.0), (20240103, 20240103, NAN)))
    assert found == pytest.approx([7, NAN, NAN, NAN, NAN, NAN], nan_ok=True)


@pytest.mark.parametrize("session", range(6))
def test_rows_known_later_change_nothing_before(session: int) -> None:
    """Leak test: values do not depend on rows that become known later."""
    random = np.random.default_rng(session)
    days = np.unique(random.choice(np.arange(20231201, 20231229), 12))
    rows = [(int(day), int(random.choice(SESSIONS)), float(random.normal())) for day in days]
    known = [row for row in rows if row[1] <= SESSIONS[session]]
    late = [(day, known_from, 1e9) for day, known_from, _ in rows if known_from > SESSIONS[session]]
    whole, wild = known_at_close(series(*rows)), known_at_close(series(*known, *late, (20240131, 20250101, 1e9)))
    assert whole[: session + 1] == pytest.approx(wild[: session + 1], nan_ok=True)


def test_a_known_covariate_has_the_value_of_each_sessions_own_day() -> None:
    one = series((20240103, 20231201, 1.0), (20240104, 20231201, 0.0), (20240108, 20240105, 1.0))
    days = one.of_days(["A"], SESSIONS, known_by=20240105)[0].tolist()
    assert days == pytest.approx([NAN, 1, 0, 0, 1, 1], nan_ok=True)


def test_a_known_covariate_is_not_used_before_its_row_is_known() -> None:
    one = series((20240103, 20231201, 1.0), (20240108, 20240105, 2.0))
    days = one.of_days(["A"], SESSIONS, known_by=20240104)[0].tolist()
    assert days == pytest.approx([NAN, 1, 1, 1, 1, 1], nan_ok=True)


def test_a_known_row_that_comes_too_late_is_named() -> None:
    one = series((20240103, 20231201, 1.0), (20240108, 20240104, 1.0))
    one.check_known_ahead(SESSIONS, 2)
    with pytest.raises(CovariatesError, match=r"row 2 after the header is for 2024-01-08 and known from 2024-01-04"):
        one.check_known_ahead(SESSIONS, 3)


def test_a_superseded_known_row_may_come_late() -> None:
    """It is unused, because a later day before the first session replaced it."""
    one = series((20231201, 20240104, 1.0), (20231215, 20231220, 2.0))
    one.check_known_ahead(SESSIONS, 2)


def test_two_values_of_one_day_that_became_known_together_are_refused() -> None:
    with pytest.raises(CovariatesError, match="rows 1 and 3 after the header are two values of one day"):
        series((20231231, 20240102, 7.0), (20240101, 20240102, 1.0), (20231231, 20240102, 6.0))


def test_a_file_without_known_from_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = csv(tmp_path, "date,sales\n2024-01-02,1\n")
    with pytest.raises(CovariatesError, match=r"no column known_from.*learn from the future"):
        CovariateSource.read([path])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("known_from,sales\n2024-01-02,1\n", "no column date"),
        ("date,known_from\n2024-01-02,2024-01-02\n", "no column of values"),
        ("date,known_from,sales\n", "has no rows"),
        ("date,known_from,net sales!\n2024-01-02,2024-01-02,1\n", "letters, digits and underscores"),
        (
            "date,known_from,sales\n2024-01-02,soon,1\n",
            "row 1 after the header, column known_from: 'soon' is not a date",
        ),
        ("date,known_from,sales\n2024-01-02,2024-01-02,high\n", "column sales: 'high' is not a number"),
        ("symbol,date,known_from,sales\n,2024-01-02,2024-01-02,1\n", "row 1 after the header has no symbol"),
        (
            "date,known_from,sales\n2024-01-02,2024-01-02,1\n2024-01-03,2024-01-03,-inf\n",
            "row 2 after the header, column sales: '-inf' is not a finite number",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(CovariatesError, match=problem):
        CovariateSource.read([csv(tmp_path, text)])


def test_the_symbol_may_be_called_ticker_in_every_file(tmp_path: Path) -> None:
    dated = csv(tmp_path, "Ticker,date,known_from,sales\nA,2024-01-02,2024-01-02,1\n")
    static = csv(tmp_path, "TICKER,sector\nA,Media\n", "static.csv")
    source = CovariateSource.read([dated], static)
    assert source.series[0].symbols == ("A",)
    assert source.static_names == ("sector",)


def test_symbol_and_ticker_that_contradict_are_refused_in_covariates_too(tmp_path: Path) -> None:
    with pytest.raises(CovariatesError, match=r"column symbol is 'A', column ticker is 'A\.N'"):
        CovariateSource.read((), csv(tmp_path, "symbol,ticker,sector\nA,A.N,Media\n"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "instrument,date,known_from,sales\nA,2024-01-02,2024-01-02,1\nB,2024-01-02,2024-01-02,1\n",
            "column instrument: 'A' is not a number.*no column symbol; if column 'instrument' holds it, rename it",
        ),
        (
            "code,date,known_from,sales\n600519,2024-01-02,2024-01-02,1\n600520,2024-01-02,2024-01-02,1\n",
            "rows 1 and 2 after the header.*keep one, or add a column symbol that tells them apart",
        ),
    ],
)
def test_rows_of_several_symbols_without_a_column_symbol_say_what_to_rename(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(CovariatesError, match=problem):
        CovariateSource.read([csv(tmp_path, text)])


def test_a_static_file_without_a_column_symbol_names_what_may_hold_it(tmp_path: Path) -> None:
    text = "RIC,sector\nA.N,Media\nB.N,Media\n"
    problem = "no column symbol; it has ric, sector; if column 'ric' holds it, rename it to symbol$"
    with pytest.raises(CovariatesError, match=problem):
        CovariateSource.read((), csv(tmp_path, text))


@pytest.mark.parametrize("day", ["2024-01-03", "20240103", "2024-01-03 00:00:00", "2024-01-03T00:00:00.000Z"])
def test_the_day_that_knows_a_value_may_be_written_as_its_midnight(tmp_path: Path, day: str) -> None:
    (sales,) = CovariateSource.read([csv(tmp_path, f"date,known_from,sales\n2024-01-02,{day},1\n")]).series
    assert known_at_close(sales) == pytest.approx([NAN, 1, 1, 1, 1, 1], nan_ok=True)


@pytest.mark.parametrize("moment", ["2024-01-03 21:30:00", "2024-01-03T16:05-05:00", "2024-01-03T00:00:01"])
def test_a_value_known_at_a_time_of_day_is_refused_as_the_close_may_come_before_it(tmp_path: Path, moment: str) -> None:
    with pytest.raises(
        CovariatesError, match=f"row 1 .*{moment}.* has a time of day.*first day at whose close it is known"
    ):
        CovariateSource.read([csv(tmp_path, f"date,known_from,sales\n2024-01-02,{moment},1\n")])


@pytest.mark.parametrize(
    ("day", "advice"),
    [
        ("03/04/2013", r"dates such as '03/04/2013' are ambiguous; write all dates as 2013-12-31$"),
        ("03.04.13", r"dates such as '03.04.13' have two-digit years; write all dates as 2013-12-31$"),
        ("2013-07-01T15:00Z", r"2013-07-01 or 2013-07-02; write the exchange's local dates$"),
    ],
)
def test_dates_that_can_be_read_in_two_ways_are_refused_without_flags_which_are_about_bars(
    tmp_path: Path, day: str, advice: str
) -> None:
    with pytest.raises(CovariatesError, match=advice):
        CovariateSource.read([csv(tmp_path, f"date,known_from,sales\n{day},2013-07-02,1\n")])


def test_columns_between_semicolons_are_refused_as_their_points_may_part_thousands(tmp_path: Path) -> None:
    with pytest.raises(CovariatesError, match=r"is separated by ';', .* separate columns by commas"):
        CovariateSource.read([csv(tmp_path, "date;known_from;sales\n2024-01-02;2024-01-03;1.234\n")])
    with pytest.raises(CovariatesError, match="separate columns by commas"):
        CovariateSource.read([], static=csv(tmp_path, "symbol;sector\nAAPL;Hardware\n"))


def test_parquet_tells_a_day_from_a_moment_in_its_own_time_zone(tmp_path: Path) -> None:
    import polars as pl

    days = pl.Series("date", [date(2024, 1, 2)])
    for name, moment in (("day", datetime(2024, 1, 3)), ("moment", datetime(2024, 1, 3, 9))):  # noqa: DTZ001 - set below
        known = pl.Series("known_from", [moment]).dt.replace_time_zone("Asia/Tokyo")
        pl.DataFrame([days, known, pl.Series("sales", [1.0])]).write_parquet(tmp_path / f"{name}.parquet")
    (sales,) = CovariateSource.read([tmp_path / "day.parquet"]).series
    assert known_at_close(sales) == pytest.approx([NAN, 1, 1, 1, 1, 1], nan_ok=True)
    with pytest.raises(CovariatesError, match="has a time of day"):
        CovariateSource.read([tmp_path / "moment.parquet"])


def test_a_column_of_lists_is_refused(tmp_path: Path) -> None:
    import polars as pl

    pl.DataFrame({"symbol": ["A"], "sector": [["Tech", "Energy"]]}).write_parquet(tmp_path / "file.parquet")
    with pytest.raises(CovariatesError, match=r"file.parquet: column sector holds List\(String\)"):
        CovariateSource.read([], tmp_path / "file.parquet")


SALES_AND_CAP = (
    CovariateInfo(name="sales", group=CovariateGroup.OBSERVED),
    CovariateInfo(name="cap", group=CovariateGroup.STATIC),
)


def of_apple(source: CovariateSource) -> Covariates:
    """Covariates sales and cap for six bars of AAPL."""
    bars = bokeh_panel("AAPL").last(6)
    return source.values_for(SALES_AND_CAP, bars, np.zeros(0, np.int32), known_by=int(bars.sessions[-1]))


@pytest.mark.parametrize(
    ("dated", "static"), [("aapl", "AAPL"), ("AAPL", "Aapl")], ids=["in a file of dates", "in a static file"]
)
def test_a_symbol_in_other_letters_than_the_bars_is_refused(tmp_path: Path, dated: str, static: str) -> None:
    source = CovariateSource.read(
        [csv(tmp_path, f"symbol,date,known_from,sales\n{dated},2012-01-02,2012-01-02,1\n")],
        csv(tmp_path, f"symbol,cap\nIBM,2\n{static},1\n", "static.csv"),
    )
    with pytest.raises(CovariatesError, match=r"have the symbol (aapl|Aapl), the bars AAPL; write a symbol in"):
        of_apple(source)


def test_a_symbol_that_no_file_names_is_unknown(tmp_path: Path) -> None:
    source = CovariateSource.read(
        [csv(tmp_path, "symbol,date,known_from,sales\nIBM,2012-01-02,2012-01-02,1\n")],
        csv(tmp_path, "symbol,cap\nIBM,2\n", "static.csv"),
    )
    found = of_apple(source)
    np.testing.assert_array_equal(found.observed["sales"], np.full((1, 6), NAN))
    np.testing.assert_array_equal(found.numbers["cap"], [NAN])


def test_a_text_where_the_model_reads_numbers_is_named(tmp_path: Path) -> None:
    source = CovariateSource.read([], csv(tmp_path, "symbol,cap\nIBM,2\nMSFT,n/a\nAAPL,1\n"))
    with pytest.raises(CovariatesError, match=r"cap must be a number for every symbol, but that of MSFT is not; leave"):
        of_apple(source)


def test_columns_of_one_file_may_be_stated_on_different_days(tmp_path: Path) -> None:
    text = (
        "date,known_from,sales,staff\n2024-01-02,2024-01-02,1,\n2024-01-03,2024-01-04,,50\n2024-01-05,2024-01-05,,nan\n"
    )
    sales, staff = CovariateSource.read([csv(tmp_path, text)]).series
    assert known_at_close(sales) == [1] * 6
    assert known_at_close(staff) == pytest.approx([NAN, NAN, 50, NAN, NAN, NAN], nan_ok=True)


def test_each_symbol_has_its_own_rows(tmp_path: Path) -> None:
    text = "symbol,date,known_from,sales\nB,2024-01-02,2024-01-02,2\nA,2024-01-03,2024-01-03,1\n"
    (sales,) = CovariateSource.read([csv(tmp_path, text)]).series
    found = sales.as_of(["A", "B", "C"], SESSIONS[:2])
    np.testing.assert_array_equal(found, [[NAN, 1], [2, 2], [NAN, NAN]])


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    import polars as pl

    path = csv(tmp_path, "symbol,date,known_from,sales\nA,2024-01-02,2024-01-03,2.5\n")
    other = tmp_path / "file.parquet"
    pl.read_csv(path, try_parse_dates=True).write_parquet(other)
    assert CovariateSource.read([path]).digest() == CovariateSource.read([other]).digest()


def test_a_column_in_two_files_is_refused(tmp_path: Path) -> None:
    text = "date,known_from,sales\n2024-01-02,2024-01-02,1\n"
    with pytest.raises(CovariatesError, match="covariates sales are in two columns"):
        CovariateSource.read([csv(tmp_path, text), csv(tmp_path, text, "other.csv")])


def test_a_symbol_with_two_static_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CovariatesError, match="symbol A has several rows"):
        CovariateSource.read([], csv(tmp_path, "symbol,sector\nA,x\nB,x\nA,y\n"))


def test_static_columns_are_numbers_where_every_entry_is_one(tmp_path: Path) -> None:
    table = CovariateSource.read([], csv(tmp_path, "symbol,sector,cap\nA,Tech,1.5\nB,10,\n")).statics
    assert table is not None
    np.testing.assert_array_equal(table.numbers_of("cap", ["B", "A", "C"]), [NAN, 1.5, NAN])
    assert table.texts_of("sector", ["B", "A", "C"]) == ("10", "Tech", "")
    assert set(table.numbers) == {"cap"}


def future_covariates(**changes: object) -> Covariates:
    """Covariates of two symbols for six sessions and two future ones."""
    values: dict[str, object] = {
        "observed": {"sales": np.arange(12.0).reshape(2, 6)},
        "known": {"earnings": np.arange(16.0).reshape(2, 8)},
        "future_sessions": np.array([20240110, 20240111], np.int32),
        "numbers": {"cap": np.array([1.0, NAN])},
        "categories": {"sector": ("Tech", "")},
    }
    return replace(Covariates(), **values | changes)  # pyright: ignore[reportArgumentType] - the test's own fields


def test_values_cannot_change_after_they_were_given() -> None:
    values = np.ones((2, 6))
    given = Covariates(observed={"sales": values})
    values[0, 0] = 5.0
    assert given.observed["sales"][0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        given.observed["sales"][0, 0] = 2.0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"observed": {"sales": np.zeros((2, 5))}}, r"sales has shape \[2, 5\], need \[2, 6\]"),
        ({"known": {"earnings": np.zeros((2, 6))}}, r"earnings has shape \[2, 6\], need \[2, 8\]"),
        ({"numbers": {"cap": np.zeros(3)}}, r"cap has shape \[3\], need \[2\]"),
        ({"categories": {"sector": ("Tech",)}}, "sector has 1 texts, need 2"),
        ({"future_sessions": np.array([20240109, 20240111], np.int32)}, "must come after the last bar, 2024-01-09"),
    ],
)
def test_what_does_not_fit_the_bars_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(CovariatesError, match=problem):
        future_covariates(**changes).check(2, SESSIONS)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"numbers": {"sales": np.zeros(2)}}, "are in two groups"),
        ({"observed": {"sales": np.zeros((2, 6), np.float32)}}, "must be float64"),
        ({"observed": {"sales": np.zeros(6)}}, "must be float64 with 2 axes"),
        ({"observed": {"sales": np.full((2, 6), np.inf)}}, "holds infinity"),
        ({"future_sessions": np.array([20240111, 20240110], np.int32)}, "must be in strictly ascending order"),
        ({"future_sessions": np.array([20240230])}, "future_sessions holds 20240230, which is no date yyyymmdd"),
        ({"future_sessions": np.array([20240110 + 2**32])}, "holds 4315207406, which is no date"),
    ],
)
def test_what_no_covariates_can_be_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(CovariatesError, match=problem):
        future_covariates(**changes)


def moved(want: list[int], future: list[int]) -> Covariates:
    return future_covariates().on_sessions(SESSIONS, np.array(want, np.int32), np.array(future, np.int32))


def test_values_follow_the_bars_to_other_sessions() -> None:
    found = moved([20240105, 20240106, 20240109], [20240111])
    np.testing.assert_array_equal(found.observed["sales"][0], [3, NAN, 5])
    np.testing.assert_array_equal(found.known["earnings"][0], [3, NAN, 5, 7])


def test_a_future_session_that_was_not_sent_is_named() -> None:
    with pytest.raises(CovariateMissingError, match="earnings has no value for session 2024-01-12") as caught:
        moved([20240109], [20240111, 20240112])
    assert caught.value.metadata == {"covariate": "earnings", "date": "2024-01-12"}


@pytest.mark.parametrize(("calendar", "days"), [("XNYS", 18), ("weekdays", 18), ("24/7", 2)])
def test_the_future_is_given_on_days_that_the_models_calendar_may_have(calendar: str, days: int) -> None:
    source, friday = CovariateSource(series=(series((20130301, 20130301, 1.0), name="earnings"),)), 20130301
    model = replace(model_info(), calendar=calendar, future_length=2)
    future = source.for_model(model, bokeh_panel("AAPL").until(friday)).future_sessions
    assert len(future) == days
    assert future[:2].tolist() == ([20130302, 20130303] if calendar == "24/7" else [20130304, 20130305])


NEEDS = (
    CovariateInfo(name="sales", group=CovariateGroup.OBSERVED),
    CovariateInfo(name="earnings", group=CovariateGroup.KNOWN),
    CovariateInfo(name="cap", group=CovariateGroup.STATIC),
    CovariateInfo(name="sector", group=CovariateGroup.STATIC, categories=("Tech",)),
)


def test_what_the_model_reads_and_no_more_is_accepted() -> None:
    check_covariates(NEEDS, future_covariates())


@pytest.mark.parametrize("name", ["sales", "earnings", "cap", "sector"])
def test_a_covariate_that_is_not_sent_is_named(name: str) -> None:
    others = future_covariates().only([need.name for need in NEEDS if need.name != name])
    with pytest.raises(CovariateMissingError, match=f"covariate {name} is not sent") as caught:
        check_covariates(NEEDS, others)
    assert caught.value.metadata["covariate"] == name


def test_a_covariate_in_another_group_is_named() -> None:
    sent = future_covariates(numbers={}, categories={"cap": ("1", "2"), "sector": ("Tech", "")})
    with pytest.raises(
        CovariateMissingError, match="cap is sent as a static text, but the model reads it as a static n"
    ):
        check_covariates(NEEDS, sent)


def test_an_unused_covariate_is_named() -> None:
    with pytest.raises(
        UnknownCovariateError, match="the model does not read covariate cap; it reads sales, earnings, sector"
    ):
        check_covariates([need for need in NEEDS if need.name != "cap"], future_covariates())


def numbers(values: NDArray[np.float64]) -> Covariates:
    return Covariates(numbers={"cap": values})


def test_whole_numbers_are_taken_as_they_are() -> None:
    assert numbers(np.array([1, 2])).numbers["cap"].dtype == np.float64  # pyright: ignore[reportArgumentType] - is it so?
