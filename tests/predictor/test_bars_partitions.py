"""Bars in partitioned Parquet, from a folder or an address."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from market import bokeh_panel

from predictor.bars import BarPanel, folders
from predictor.bars.source import read_bars, read_source
from predictor.errors import BarsError, ConfigurationError


def panel() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG", "IBM").last(30)


def frame(tmp_path: Path) -> pl.DataFrame:
    """The rows of the panel, with names that look like numbers."""
    panel().write_csv(tmp_path / "bars.csv")
    rows = pl.read_csv(tmp_path / "bars.csv")
    return rows.with_columns(pl.col("symbol").replace({"AAPL": "000001", "GOOG": "000002", "IBM": "000010"}))


def write(rows: pl.DataFrame, folder: Path, *keys: str) -> Path:
    parts = {"year": pl.col("date").str.slice(0, 4), "month": pl.col("date").str.slice(5, 2)}
    rows = rows.with_columns(part.alias(name) for name, part in parts.items() if name in keys)
    folder.mkdir()
    rows.write_parquet(folder, partition_by=keys)
    return folder


def assert_equal(found: BarPanel, expected: BarPanel) -> None:
    assert found.symbols == ("000001", "000002", "000010")
    assert found.columns == expected.columns
    np.testing.assert_array_equal(found.sessions, expected.sessions)
    for name in expected.columns:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("keys", [("year",), ("symbol",), ("date",), ("year", "month")])
@pytest.mark.parametrize("block", [1, 2, 500])
def test_partitions_give_the_bars_of_one_file(
    tmp_path: Path, keys: tuple[str, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SYMBOLS_AT_ONCE", block)
    folder = write(frame(tmp_path).sample(fraction=1.0, shuffle=True, seed=0), tmp_path / "bars", *keys)
    assert_equal(BarPanel.read(folder), panel())


def test_an_address_gives_the_same_bars(tmp_path: Path) -> None:
    folder = write(frame(tmp_path), tmp_path / "bars", "year")
    assert_equal(read_bars(f"{folder.as_uri()}/"), panel())
    frame(tmp_path).write_parquet(tmp_path / "one.parquet")
    reading = read_source((tmp_path / "one.parquet").as_uri())
    assert_equal(reading.panel, panel())
    assert str(reading).startswith("one.parquet read as plain, 000001, 000002, 000010, ")


def test_a_symbol_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    rows = frame(tmp_path)
    twice = rows.filter(pl.col("symbol") == "000002").head(1).with_columns(pl.col("close") * 1.01)
    folder = write(pl.concat([rows, twice]), tmp_path / "bars", "year")
    reading = read_source(folder)
    assert reading.panel.symbols == ("000001", "000010")
    (warning,) = reading.warnings
    assert warning.startswith("000002 is left out: 000002 2013-01-17 appears twice in bars, 000002")


def test_columns_that_are_missing_are_named_once(tmp_path: Path) -> None:
    folder = write(frame(tmp_path).drop("close"), tmp_path / "bars", "year")
    with pytest.raises(BarsError, match=r"no bars can be read from bars: .* has no column close") as caught:
        BarPanel.read(folder)
    assert caught.value.message.count("has no column") <= folders.MAX_FAILURES


def test_files_without_symbols_are_refused(tmp_path: Path) -> None:
    folder = write(frame(tmp_path).drop("symbol"), tmp_path / "bars", "year")
    with pytest.raises(BarsError, match="bars has no column symbol; it has "):
        BarPanel.read(folder)


def test_an_empty_symbol_is_refused(tmp_path: Path) -> None:
    rows = frame(tmp_path).with_columns(pl.when(pl.col("symbol") != "000001").then(pl.col("symbol")).alias("symbol"))
    with pytest.raises(BarsError, match="bars has rows with an empty symbol; fill or remove them"):
        BarPanel.read(write(rows, tmp_path / "bars", "year"))


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "bars" / "year=2013"
    folder.mkdir(parents=True)
    if what == "damaged":
        (folder / "0.parquet").write_bytes(b"PAR1")
    with pytest.raises(BarsError, match="bars cannot be read: "):
        BarPanel.read(folder.parent)


def test_an_address_with_a_query_is_no_address_of_bars(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="must hold a database's URI"):
        read_bars("https://host/bars.parquet?signature=secret")
    with pytest.raises(ConfigurationError, match="--query needs a database"):
        read_bars(f"{tmp_path.as_uri()}/bars/", query="SELECT 1")
