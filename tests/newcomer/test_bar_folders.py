"""A folder with one file per ticker, or several such files, read as one panel."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from typer.testing import CliRunner

from predictor.bars import BarPanel, read_files
from predictor.errors import ArtifactError, BarsError, BarsWarning
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


def test_a_symbol_with_a_date_in_the_future_is_left_out(folder: Path) -> None:
    ahead = (folder / "IBM.csv").read_text().replace("IBM", "MSFT").replace("2013-03-01", "2099-03-02")
    (folder / "MSFT.csv").write_text(ahead)
    with pytest.warns(BarsWarning, match=r"MSFT: session 2099-03-02 is in the future: .*; MSFT is left out"):
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


def test_files_by_name_are_one_panel(folder: Path) -> None:
    files = [folder / "IBM.csv", folder / "AAPL.csv"]
    reading = read_files(files)
    assert str(reading).startswith("IBM.csv, AAPL.csv read as plain, IBM, AAPL, 2011-12-19 to 2013-03-01")
    assert np.array_equal(
        reading.panel.select("AAPL").close, BarPanel.read(folder).select("AAPL").close, equal_nan=True
    )


def test_a_list_of_files_is_one_panel_in_python(folder: Path) -> None:
    files = [folder / "AAPL.csv", folder / "IBM.csv"]
    assert np.array_equal(BarPanel.read(files).close, BarPanel.read(folder).close, equal_nan=True)


def test_the_symbol_of_a_file_without_a_symbol_column_is_its_name(folder: Path) -> None:
    for name in ("one.csv", "two.csv"):
        (folder / name).write_text("date,open,high,low,close,volume\n2013-02-28,1,1,1,1,1\n", encoding="utf-8")
    assert read_files([folder / "one.csv", folder / "two.csv"]).panel.symbols == ("ONE", "TWO")


def test_a_bad_file_by_name_is_left_out_with_its_reason(folder: Path) -> None:
    bad = folder / "MSFT.csv"
    bad.write_text("date,open\n2024-01-02,1\n", encoding="utf-8")
    reading = read_files([folder / "AAPL.csv", bad])
    assert reading.panel.symbols == ("AAPL",)
    assert any(f"{bad} is left out: MSFT.csv has no column" in warning for warning in reading.warnings)


def test_a_file_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(BarsError, match=r"there is no file .*APPL\.csv"):
        read_files([folder / "APPL.csv", folder / "IBM.csv"])


def test_check_takes_files_and_suggests_to_train_on_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    bokeh_panel("AAPL").last(400).write_csv(folder / "AAPL.csv")
    said = CliRunner().invoke(app, ["check", "AAPL.csv", "IBM.csv"], catch_exceptions=False).stdout
    assert said.splitlines()[-1].startswith("Next: quantra train stock --bars AAPL.csv IBM.csv --calendar XNYS")


@pytest.mark.parametrize(
    "bars", ["--bars AAPL.csv IBM.csv", "--bars AAPL.csv --bars IBM.csv", "--bars=AAPL.csv IBM.csv"]
)
def test_a_command_takes_files(bars: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command = ["evaluate", *bars.split(), "models/1"]
    with pytest.raises(ArtifactError, match="models/1"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_training_on_files_is_followed_by_commands_on_the_same_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for symbol in ("AAPL", "IBM"):
        bokeh_panel(symbol).last(420).write_csv(folder / f"{symbol}.csv")
    command = shlex.split("train stock --model har --horizons 1 --bars AAPL.csv IBM.csv --out 1")
    trained = CliRunner().invoke(app, command, catch_exceptions=False)
    forecast = shlex.split(trained.stdout.splitlines()[-1])[1:]
    assert forecast == shlex.split("predict --artifact 1 --bars AAPL.csv --bars IBM.csv")
    said = CliRunner().invoke(app, forecast, catch_exceptions=False).stdout
    assert "AAPL" in said
    assert "IBM" in said


def test_a_file_that_is_named_twice_is_refused(folder: Path) -> None:
    with pytest.raises(BarsError, match=r"AAPL\.csv is named twice; name it once"):
        read_files([folder / "AAPL.csv", folder / "AAPL.csv"])


def test_a_folder_without_files_beside_a_file_is_refused(folder: Path) -> None:
    (folder / "parts").mkdir()
    with pytest.raises(BarsError, match=r"parts has no file such as AAPL\.csv"):
        read_files([folder / "AAPL.csv", folder / "parts"])
