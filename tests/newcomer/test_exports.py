"""Common export formats are read with the same numbers as the plain file."""

import gzip
import io
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import exports
import numpy as np
import polars as pl
import pytest

from predictor.bars import BarPanel, BarReading, read_file
from predictor.bars.layouts import extract_symbol, get_layout

EXPORTS: Final = exports.CASES / "exports"
BOTH: Final = ("AAPL", "MSFT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRead:
    """The expected content of an export.

    Attributes:
        layout: the program's name, as the line that is shown says.
        symbols: in the panel's order.
        truth: the stocks that the symbols are, in the plain file.
        prices: what is said of splits and dividends.
        has_adj_close: whether the export has the adjusted close.
        volume_digits: how many of a volume the export keeps.
        remarks: what else is said, a part of each.
    """

    layout: str = "plain"
    symbols: tuple[str, ...] = BOTH
    truth: tuple[str, ...] = BOTH
    prices: str = "no splits or dividends recorded"
    has_adj_close: bool = False
    volume_step: int = 1
    remarks: tuple[str, ...] = ()


APPLE: Final = ("AAPL",)
COIN: Final = ("BTCUSDT",)
ADJUSTED: Final = "prices adjusted for splits and dividends"
BESIDE: Final = "with adjusted closes"
SORTED: Final = ("rows were not in order of date",)
READ: Final = {
    "plain.csv": ExpectedRead(),
    "coins.csv": ExpectedRead(symbols=COIN, truth=COIN),
    "bom.csv": ExpectedRead(),
    "utf16.csv": ExpectedRead(),
    "utf16_tabs.txt": ExpectedRead(),
    "tabs.txt": ExpectedRead(),
    "bars.csv.gz": ExpectedRead(),
    "german_excel.csv": ExpectedRead(),
    "excel.xlsx": ExpectedRead(),
    "newest_first.csv": ExpectedRead(symbols=("MSFT", "AAPL"), truth=("MSFT", "AAPL"), remarks=SORTED),
    "unsorted.csv": ExpectedRead(remarks=SORTED),
    "equal_duplicates.csv": ExpectedRead(remarks=(*SORTED, "2 repeated rows dropped, first AAPL 2012-10-17")),
    "yfinance_history/AAPL.csv": ExpectedRead(layout="yfinance", symbols=APPLE, truth=APPLE, prices=ADJUSTED),
    "yfinance_download.csv": ExpectedRead(layout="yfinance", symbols=APPLE, truth=APPLE, prices=ADJUSTED),
    "yfinance_two.csv": ExpectedRead(layout="yfinance", prices=BESIDE, has_adj_close=True),
    "yfinance_by_ticker.csv": ExpectedRead(layout="yfinance", prices=ADJUSTED),
    "yahoo_page/AAPL.csv": ExpectedRead(
        symbols=APPLE, truth=APPLE, prices=BESIDE, has_adj_close=True, remarks=("1 empty row",)
    ),
    "stooq_page/AAPL.csv": ExpectedRead(symbols=APPLE, truth=APPLE),
    "stooq_bulk/aapl.us.txt": ExpectedRead(layout="stooq", symbols=("AAPL.US",), truth=APPLE, prices=ADJUSTED),
    "alpaca.csv": ExpectedRead(layout="alpaca"),
    "polygon/AAPL.csv": ExpectedRead(layout="polygon", symbols=APPLE, truth=APPLE),
    "polygon_flat_file.csv.gz": ExpectedRead(layout="polygon-flat-file"),
    "binance/BTCUSDT-1d-2024-01.csv": ExpectedRead(layout="binance", symbols=COIN, truth=COIN),
    "binance_with_header/BTCUSDT.csv": ExpectedRead(layout="binance", symbols=COIN, truth=COIN),
    "cryptodatadownload.csv": ExpectedRead(layout="cryptodatadownload", symbols=COIN, truth=COIN, remarks=SORTED),
    "investing/AAPL Historical Data.csv": ExpectedRead(
        layout="investing", symbols=APPLE, truth=APPLE, volume_step=10_000, remarks=("rounded", *SORTED)
    ),
    **{
        f"investing_{language}/AAPL.csv": ExpectedRead(
            layout=f"investing-{language}",
            symbols=APPLE,
            truth=APPLE,
            volume_step=10_000,
            remarks=("rounded", *SORTED),
        )
        for language in ("german", "french", "italian", "portuguese", "spanish")
    },
    "japanese/AAPL.csv": ExpectedRead(layout="japanese", symbols=APPLE, truth=APPLE),
    "nasdaq/AAPL.csv": ExpectedRead(layout="nasdaq", symbols=APPLE, truth=APPLE, remarks=SORTED),
    "marketwatch/AAPL.csv": ExpectedRead(symbols=APPLE, truth=APPLE, remarks=SORTED),
    "alpha_vantage/AAPL.csv": ExpectedRead(
        layout="alpha-vantage", symbols=APPLE, truth=APPLE, prices=BESIDE, has_adj_close=True, remarks=SORTED
    ),
    "tiingo/AAPL.csv": ExpectedRead(layout="tiingo", symbols=APPLE, truth=APPLE, prices=BESIDE, has_adj_close=True),
    "quandl.csv": ExpectedRead(layout="quandl", prices=BESIDE, has_adj_close=True),
    "eodhd/AAPL.csv": ExpectedRead(symbols=APPLE, truth=APPLE, prices=BESIDE, has_adj_close=True),
    "metatrader/AAPL.csv": ExpectedRead(layout="metatrader", symbols=APPLE, truth=APPLE),
    "tradingview/AAPL.csv": ExpectedRead(symbols=APPLE, truth=APPLE),
    "ariva/AAPL.csv": ExpectedRead(layout="ariva", symbols=APPLE, truth=APPLE, remarks=SORTED),
    "adjusted_only.csv": ExpectedRead(layout="adjusted", prices=ADJUSTED),
    "day_first.csv": ExpectedRead(),
    "named_months.csv": ExpectedRead(),
    "tokyo/AAPL.csv": ExpectedRead(symbols=APPLE, truth=APPLE, remarks=("the day after",)),
    "parquet/AAPL.parquet": ExpectedRead(symbols=APPLE, truth=APPLE),
}


def test_every_export_has_an_expectation() -> None:
    assert READ.keys() == exports.EXPORTS.keys()


@pytest.mark.parametrize(("part", "cases"), [("exports", exports.EXPORTS), ("mistakes", exports.MISTAKES)])
def test_the_committed_files_are_what_the_script_writes(part: str, cases: "dict[str, object]") -> None:
    folder = exports.CASES / part
    committed = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    written = {name: exports.content(make) for name, make in {**exports.EXPORTS, **exports.MISTAKES}.items()}
    assert committed.keys() == cases.keys()
    for name in cases:
        assert file_content(name, committed[name]) == file_content(name, written[name]), name


def file_content(name: str, content: bytes) -> object:
    """Content of a file, uncompressed, since compressed bytes differ between versions."""
    if name == "cut_off.csv.gz":
        return exports.plain().encode().startswith(zlib.decompressobj(wbits=31).decompress(content))
    if name.endswith(".gz"):
        return gzip.decompress(content)
    if name.endswith(".parquet"):
        return pl.read_parquet(io.BytesIO(content)).rows()
    if name.endswith(".xlsx"):
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            return {part: book.read(part) for part in book.namelist()}
    return content


@pytest.mark.parametrize(
    ("stem", "layout"),
    [
        ("aapl", "plain"),
        ("AAPL Historical Data (1)", "investing"),
        ("AAPL - Données Historiques", "investing-french"),
        ("AAPL Dati Storici", "investing-italian"),
        (unicodedata.normalize("NFD", "AAPL - Dados Históricos"), "investing-portuguese"),
        ("Datos históricos AAPL", "investing-spanish"),
        ("AAPL Datos históricos", "investing-spanish"),
        ("AAPL-1d-2024-01", "binance"),
    ],
)
def test_the_symbol_is_in_the_name_that_a_program_gives_its_file(stem: str, layout: str) -> None:
    assert extract_symbol(stem, get_layout(layout)) == "AAPL"


@pytest.mark.parametrize("name", READ)
def test_an_export_is_read_with_the_numbers_of_the_plain_file(name: str) -> None:
    expected, panel = READ[name], read_file(EXPORTS / name).panel
    plain = BarPanel.read(EXPORTS / ("coins.csv" if expected.truth == COIN else "plain.csv")).select(expected.truth)
    assert panel.symbols == expected.symbols
    present = panel.present.any(axis=0)
    assert np.array_equal(panel.sessions[present], plain.sessions)
    for field in ("open", "high", "low", "close"):
        assert np.array_equal(getattr(panel, field)[:, present], getattr(plain, field)), field
    assert np.array_equal(panel.volume[:, present], _rounded_volume(plain.volume, expected.volume_step))
    assert panel.split_ratio is None
    assert (panel.adj_close is not None) == expected.has_adj_close


def _rounded_volume(volume: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", step: int) -> np.ndarray:
    """A volume as the export rounds it, by Python's rounding rule."""
    return np.array([[float(f"{shares / step:.0f}") * step for shares in row] for row in volume.tolist()])


@pytest.mark.parametrize("name", [name for name, expected in READ.items() if expected.has_adj_close])
def test_adjusted_closes_are_the_exports_own(name: str) -> None:
    panel = read_file(EXPORTS / name).panel
    assert panel.adj_close is not None
    for row, symbol in enumerate(READ[name].truth):
        given = [bar.adj_close for bar in exports.of(symbol)]
        assert panel.adj_close[row, panel.present[row]].tolist() == given


@pytest.mark.parametrize("name", READ)
def test_what_was_read_is_said(name: str) -> None:
    expected, reading = READ[name], read_file(EXPORTS / name)
    assert isinstance(reading, BarReading)
    assert (reading.layout, reading.prices) == (expected.layout, expected.prices)
    said = (*reading.remarks, *reading.warnings)
    assert len(said) == len(expected.remarks)
    for part in expected.remarks:
        assert any(part in remark for remark in said), (part, said)


def test_a_day_of_words_for_nothing_and_empty_cells_has_no_bar(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text(
        "date,open,high,low,close,volume\n2024-01-02,1,1,1,1,1\n2024-01-03,null,N/A,-,NaN,\n", encoding="utf-8"
    )
    assert BarPanel.read(path).present.tolist() == [[True, False]]
