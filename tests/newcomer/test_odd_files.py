"""Unusual files and frames: read, or refused with an error of this package."""

import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import exports
import pandas as pd
import polars as pl
import pytest

from predictor.bars import BarPanel
from predictor.errors import BarsError

HEADER = "date,open,high,low,close,volume\n"
BAR = "2024-01-02,1,1,1,1,1\n"
ONES = {name: [1.0, 1.0] for name in exports.FIELDS}


def read(folder: Path, text: str) -> BarPanel:
    path = folder / "own.csv"
    path.write_bytes(text.encode())
    return BarPanel.read(path)


@pytest.mark.parametrize("end", ["\r\n\r\n", "\n\n\n", "\n,,,,,\n,,,,,\n"])
def test_rows_of_nothing_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    text = (HEADER + BAR).replace("\n", "\r\n" if end.startswith("\r") else "\n").rstrip() + end
    assert read(tmp_path, text).sessions.tolist() == [20240102]


def test_an_empty_row_is_named_by_its_position(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match="row 2 after the header, column date: '' is not a date"):
        read(tmp_path, HEADER + BAR + ",,,,,\n" + BAR.replace("02", "03"))


@pytest.mark.parametrize("first", ["$1,$1,$1,$1,$15", "null,null,null,null,null", "n/a,n/a,n/a,n/a,n/a"])
def test_a_first_bar_that_is_no_number_makes_no_wide_table(tmp_path: Path, first: str) -> None:
    panel = read(tmp_path, f"{HEADER}2024-01-02,{first}\n2024-01-03,2,2,2,2,2\n")
    assert panel.symbols == ("OWN",)
    assert panel.sessions.tolist() == [20240102, 20240103]
    assert panel.close[0, 1] == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n\n\n", "own.csv has no rows"),
        (
            "Price,Close,Close,High,Low,Open,Volume\nTicker,A,A,A,A,A,A\nDate,,,,,,\n2024-01-02,1,1,1,1,1,1\n",
            "close of A",
        ),
        (
            HEADER + "2024-01-02T99:99:00Z,1,1,1,1,1\n",
            "row 1 after the header, column date: '2024-01-02T99:99:00Z' is no",
        ),
    ],
)
def test_what_is_no_table_is_refused_in_our_own_words(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BarsError, match=problem):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"date": [date(2024, 1, 2), None], **ONES}),
        pl.DataFrame({"date": [datetime(2024, 1, 2), None], **ONES}),  # noqa: DTZ001 (frames hold such dates)
        pd.DataFrame({"date": pd.to_datetime(["2024-01-02", None]), **ONES}),
    ],
    ids=["dates", "moments", "pandas"],
)
def test_a_row_without_a_date_is_named(frame: Any) -> None:
    with pytest.raises(BarsError, match="row 2 after the header, column date is empty; write a date, or remove"):
        BarPanel.of(frame, symbol="AAA")


def test_a_packed_file_is_read_and_a_workbook_under_another_name_is_known(tmp_path: Path) -> None:
    packed, workbook = tmp_path / "bars.zip", tmp_path / "bars.csv"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("any.csv", HEADER + BAR)
    assert BarPanel.read(packed).sessions.tolist() == [20240102]
    workbook.write_bytes(exports.content(exports.EXPORTS["excel.xlsx"]))
    with pytest.raises(BarsError, match=r"is an Excel workbook; rename it to end in \.xlsx"):
        BarPanel.read(workbook)
