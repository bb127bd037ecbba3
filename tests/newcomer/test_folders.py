"""A folder with one file per ticker is read as one panel."""

from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from typer.testing import CliRunner

from predictor.bars import BarPanel
from predictor.errors import BarsError, BarsWarning
from trainers.cli.commands import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file per symbol, of different lengths."""
    bokeh_panel("AAPL").last(300).write_csv(tmp_path / "AAPL.csv")
    bokeh_panel("IBM").last(200).write_csv(tmp_path / "IBM.csv")
    return tmp_path


def test_the_files_of_a_folder_are_one_panel(folder: Path) -> None:
    bars = BarPanel.read(folder)
    assert bars.symbols == ("AAPL", "IBM")
    assert np.array_equal(bars.close[0], bokeh_panel("AAPL").last(300).close[0])
    assert np.array_equal(bars.close[1, 100:], bokeh_panel("IBM").last(200).close[0])
    assert np.isnan(bars.close[1, :100]).all()


def test_one_bad_file_is_left_out_with_its_reason(folder: Path) -> None:
    (folder / "MSFT.csv").write_text("date,open\n2024-01-02,1\n", encoding="utf-8")
    with pytest.warns(BarsWarning, match=r"MSFT\.csv is left out: .*"):
        assert BarPanel.read(folder).symbols == ("AAPL", "IBM")


def test_files_with_other_columns_are_named(folder: Path) -> None:
    plain = "date,open,high,low,close,volume\n2013-02-28,1,1,1,1,1\n"
    (folder / "XYZ.csv").write_text(plain, encoding="utf-8")
    with pytest.raises(BarsError, match=r"AAPL\.csv .* has the columns .*, but XYZ\.csv .* the same columns"):
        BarPanel.read(folder)


def test_a_symbol_of_two_files_is_refused(folder: Path) -> None:
    bokeh_panel("IBM").last(10).write_csv(folder / "more.csv")
    with pytest.raises(BarsError, match=r"both IBM\.csv and more\.csv have bars of IBM"):
        BarPanel.read(folder)


def test_check_takes_a_folder(folder: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(folder)], catch_exceptions=False).stdout
    assert "read as plain, AAPL, IBM, 2011-12-19 to 2013-03-01" in said
