"""Bar files: round trips, columns, dates, time zones, and refused tables."""

from datetime import date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from market import bokeh_panel

from predictor.bars import BarPanel, DateOrder, ReadingOptions, read_file
from predictor.errors import BarsError, BarsWarning

HEADER = "symbol,date,open,high,low,close,volume\n"


def write(folder: Path, text: str, name: str = "bars.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_written_panel_reads_back_to_the_same_bits(tmp_path: Path) -> None:
    panel = bokeh_panel("AAPL", "FB").last(250)
    panel.write_csv(tmp_path / "bars.csv")
    again = BarPanel.read(tmp_path / "bars.csv", calendar="XNYS", currency="USD")
    assert again.symbols == panel.symbols
    assert np.array_equal(again.sessions, panel.sessions)
    for name in ("open", "high", "low", "close", "volume", "adj_close"):
        assert np.array_equal(getattr(again, name), getattr(panel, name), equal_nan=True)
    assert (again.calendar, again.currency) == ("XNYS", "USD")
    assert [path.name for path in tmp_path.iterdir()] == ["bars.csv"]


def test_the_same_panel_gives_the_same_text(tmp_path: Path) -> None:
    panel = bokeh_panel("IBM").last(5)
    panel.write_csv(tmp_path / "a.csv")
    panel.write_csv(tmp_path / "b.csv")
    text = (tmp_path / "a.csv").read_bytes()
    assert text == (tmp_path / "b.csv").read_bytes()
    assert text.startswith(b"symbol,date,open,high,low,close,volume,adj_close\nIBM,2013-02-25,")


def test_a_split_on_a_day_without_a_bar_is_written(tmp_path: Path) -> None:
    prices = np.array([30.0, np.nan, 10.0])
    panel = BarPanel.single(
        "AAA",
        sessions=np.array([20240102, 20240103, 20240104]),
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=prices,
        split_ratio=np.array([np.nan, 3.0, np.nan]),
    )
    panel.write_csv(tmp_path / "bars.csv")
    assert np.allclose(BarPanel.read(tmp_path / "bars.csv").adjusted().close[0, [0, 2]], [10, 10])


def test_headers_are_read_in_any_case_and_the_file_names_a_single_symbol(tmp_path: Path) -> None:
    text = "Date,Open,High,Low,Close,Volume,Adj Close,Note\n2024-01-02,1,2,1,2,10,1,x\n20240103,2,2,2,2,0,2,\n"
    panel = BarPanel.read(write(tmp_path, text, "msft.csv"))
    assert panel.symbols == ("MSFT",)
    assert panel.sessions.tolist() == [20240102, 20240103]
    assert panel.adj_close is not None
    assert panel.adj_close.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("name", ["Ticker", "TICKER", "ticker symbol", "Stock_Symbol", " Symbol "])
def test_the_symbol_is_read_under_names_that_mean_nothing_else(tmp_path: Path, name: str) -> None:
    rows = "AAA,2024-01-02,1,1,1,1,1\nAAA,2024-01-03,3,3,3,3,3\nBBB,2024-01-02,2,2,2,2,2\nBBB,2024-01-03,4,4,4,4,4\n"
    panel = BarPanel.read(write(tmp_path, HEADER.replace("symbol", name) + rows))
    assert panel.symbols == ("AAA", "BBB")
    assert panel.close.tolist() == [[1, 3], [2, 4]]


def test_one_stock_under_ticker_is_not_called_like_its_file(tmp_path: Path) -> None:
    text = HEADER.replace("symbol", "Ticker") + "AAA,2024-01-02,1,1,1,1,1\n"
    assert BarPanel.read(write(tmp_path, text)).symbols == ("AAA",)


def test_symbol_and_ticker_may_stand_in_one_file_where_they_say_the_same(tmp_path: Path) -> None:
    text = "ticker,symbol,date,open,high,low,close,volume\nAAA, AAA,2024-01-02,1,1,1,1,1\n"
    assert BarPanel.read(write(tmp_path, text)).symbols == ("AAA",)


def test_symbol_and_ticker_that_contradict_are_refused_by_their_row(tmp_path: Path) -> None:
    rows = "AAA,AAA,2024-01-02,1,1,1,1,1\nAA,AAA,2024-01-03,1,1,1,1,1\n"
    problem = "row 2 after the header: column symbol is 'AAA', column ticker is 'AA'; keep the column"
    with pytest.raises(BarsError, match=problem):
        BarPanel.read(write(tmp_path, "ticker,symbol,date,open,high,low,close,volume\n" + rows))


STACKED = "".join(
    f"{name},{note},2024-01-0{day},1,1,1,1,1\n" for name in ("A", "B") for note, day in (("x", 2), ("y", 3))
)


@pytest.mark.parametrize("name", ["Instrument", "Code", "RIC", "isin"])
def test_a_column_that_may_hold_the_symbol_is_not_guessed_but_named(tmp_path: Path, name: str) -> None:
    header = f"{name},note,date,open,high,low,close,volume\n"
    problem = (
        f"no column symbol, and 2024-01-02 appears twice; if column '{name.lower()}' holds it, rename it to symbol$"
    )
    with pytest.raises(BarsError, match=problem):
        BarPanel.read(write(tmp_path, header + STACKED))


@pytest.mark.parametrize("days", [(2, 3), (3, 2)], ids=["oldest first", "newest first"])
def test_stocks_of_different_years_are_distinguished_by_their_column(tmp_path: Path, days: tuple[int, int]) -> None:
    rows = [f"{name},{year}-01-0{day},1,1,1,1,1" for name, year in (("A", 2024), ("B", 2023)) for day in days]
    text = "\n".join(["code,date,open,high,low,close,volume", *rows]) + "\n"
    with pytest.raises(BarsError, match="its dates are not in order; if column 'code' holds it, rename it to symbol"):
        BarPanel.read(write(tmp_path, text))


def test_days_that_stand_twice_without_any_column_of_texts_ask_for_a_column_symbol(tmp_path: Path) -> None:
    rows = "2024-01-02,1,1,1,1,1\n2024-01-02,2,2,2,2,2\n"
    problem = "2024-01-02 appears twice in .*, in rows 1 and 2 .*; give each day one row, or add a column symbol"
    with pytest.raises(BarsError, match=problem):
        BarPanel.read(write(tmp_path, HEADER.removeprefix("symbol,") + rows))


def test_a_file_of_one_stock_whose_newest_bar_stands_first_is_sorted_whatever_else_it_says(tmp_path: Path) -> None:
    rows = "up,2024-01-04,3,3,3,3,3\ndown,2024-01-03,2,2,2,2,2\nup,2024-01-02,1,1,1,1,1\n"
    panel = BarPanel.read(write(tmp_path, HEADER.replace("symbol", "trend") + rows))
    assert panel.sessions.tolist() == [20240102, 20240103, 20240104]
    assert panel.close.tolist() == [[1, 2, 3]]


def test_a_duplicate_row_counts_once_with_a_warning(tmp_path: Path) -> None:
    rows = "AAA,2024-01-02,1,1,1,1,1\nBBB,2024-01-02,1,1,1,1,1\nAAA,2024-01-02,1,1,1,1,1\n"
    path = write(tmp_path, HEADER + rows)
    with pytest.warns(BarsWarning, match=r"bars\.csv: 1 repeated row dropped, first AAA"):
        panel = BarPanel.read(path)
    assert panel.close.tolist() == [[1], [1]]
    assert not [remark for remark in read_file(path).remarks if "order" in remark]


def test_symbols_meet_on_the_union_of_their_dates(tmp_path: Path) -> None:
    rows = "BBB,2024-01-03,1,1,1,1,1\nAAA,2024-01-02,2,2,2,2,2\nBBB,2024-01-04,3,3,3,3,3\nAAA,2024-01-03,4,4,4,4,4\n"
    panel = BarPanel.read(write(tmp_path, HEADER + rows))
    assert panel.symbols == ("BBB", "AAA")
    assert np.array_equal(panel.close, [[np.nan, 1, 3], [2, 4, np.nan]], equal_nan=True)


def test_an_empty_row_is_a_missing_bar(tmp_path: Path) -> None:
    panel = BarPanel.read(write(tmp_path, HEADER + "AAA,2024-01-02,1,1,1,1,1\nAAA,2024-01-03,,,, ,\n"))
    assert panel.present.tolist() == [[True, False]]


@pytest.mark.parametrize(
    "dates",
    [
        [date(2024, 1, 2), date(2024, 1, 3)],
        [datetime(2024, 1, 2), datetime(2024, 1, 3, 16, 0)],  # noqa: DTZ001 (files hold such dates)
        [20240102, 20240103],
        ["2024-01-02", "2024-01-03T00:00:00Z"],
        ["20240102", "2024-01-03 00:00:00"],
    ],
)
def test_dates_are_read_in_every_usual_form(tmp_path: Path, dates: list[object]) -> None:
    ones = [1.0, 1.0]
    frame = pl.DataFrame({"date": dates, "open": ones, "high": ones, "low": ones, "close": ones, "volume": [5, 6]})
    frame.write_parquet(tmp_path / "aaa.parquet")
    panel = BarPanel.read(tmp_path / "aaa.parquet")
    assert panel.sessions.tolist() == [20240102, 20240103]
    assert panel.volume.tolist() == [[5.0, 6.0]]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_moment_is_of_the_day_that_its_own_time_zone_had(tmp_path: Path, zone: str) -> None:
    moments = pl.Series("date", [datetime(2024, 1, 2), datetime(2024, 1, 3, 23, 30)])  # noqa: DTZ001 (set below)
    columns = [pl.Series(name, [1.0, 1.0]) for name in ("open", "high", "low", "close", "volume")]
    pl.DataFrame([moments.dt.replace_time_zone(zone), *columns]).write_parquet(tmp_path / "aaa.parquet")
    assert BarPanel.read(tmp_path / "aaa.parquet").sessions.tolist() == [20240102, 20240103]


def test_a_first_date_in_another_order_than_chosen_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "AAA,31/12/2024,1,1,1,1,1\n")
    with pytest.raises(BarsError, match="the first date, '31/12/2024', does not exist in the order mdy"):
        BarPanel.read(path, options=ReadingOptions(date_order=DateOrder.MONTH_FIRST))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("AAA,2024-01-02,1,1,1,1,1\nAAA,2024-01-03,1,1,1,null,1\n", "row 2 .*column close: 'null' is not a number"),
        ("AAA,2024-13-02,1,1,1,1,1\n", "row 1 .*column date: '2024-13-02' is not a date"),
        (
            "AAA,02/01/2024,1,1,1,1,1\n",
            "'02/01/2024' are ambiguous; .* 2024-02-01 with --date-order mdy or 2024-01-02 with ",
        ),
        ("AAA,,1,1,1,1,1\n", "row 1 .*column date: '' is not a date"),
        (",2024-01-02,1,1,1,1,1\n", "row 1 .*symbol is empty"),
        ("AAA,2024-01-02,1,1,1,1,1\nBBB,2024-01-02,1,1,1,1,1\nAAA,2024-01-02,1,1,1,1,2\n", "AAA 2024-01-02 .*twice"),
        ("AAA,2024-01-02,1,1,1,-1,1\n", "AAA 2024-01-02: close is -1"),
        ("AAA,2024-01-02,1,1,1,inf,1\n", "AAA 2024-01-02: close is inf"),
        ("", "has no rows"),
        ("AAA,2024-01-02,1,1,1,1,1,9\n", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, rows: str, problem: str) -> None:
    with pytest.raises(BarsError, match=problem):
        BarPanel.read(write(tmp_path, HEADER + rows))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("bars.csv", "date,open,high,low,close\n2024-01-02,1,1,1,1\n", "no column volume; it has date, open"),
        ("bars.csv", "date,Close,close,open,high,low,volume\n", "more than one column close"),
        ("bars.doc", "", "must end in .csv, .txt, .tsv, .xlsx, .xlsm and 1 more, or in one of .csv.gz, .csv.zip"),
        ("bars.xlsx", "", "bars.xlsx cannot be read: .*; open it in Excel and save it again"),
        ("bars.parquet", "no parquet", "cannot be read"),
        ("bars.parquet.gz", "packed", "is a packed .parquet file; unpack it first"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(BarsError, match=problem):
        BarPanel.read(write(tmp_path, text, name))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match=r"there is no file .*nowhere\.csv"):
        BarPanel.read(tmp_path / "nowhere.csv")


def test_a_folder_in_place_of_a_file_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "bars.csv").mkdir()
    with pytest.raises(BarsError, match=r"no bars can be read from the folder .*bars\.csv: there is no file such as"):
        BarPanel.read(tmp_path / "bars.csv")


def test_a_table_that_cannot_be_parted_is_refused_with_advice_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("date,open,high\n2013-01-02,1,5,7\n", encoding="utf-8")
    with pytest.raises(BarsError, match="its columns must be separated by one sign, here ','") as refused:
        BarPanel.read(path)
    assert "truncate_ragged_lines" not in refused.value.message
