"""The closes of a file of bars, in a line of text and as a page with what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarReading
from predictor.charts import closes_lines
from predictor.replacement import replace_file
from predictor.report import PageBuilder, ReportTable, TableRow, number_cell
from predictor.report.templates import iso
from trainers.stock.checking.findings import SymbolFindings

BLOCKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 16
MOST_LINES: Final = 12
"""Symbols that one chart shows; with more, nobody could tell them apart."""


def sparkline(values: FloatArray) -> str:
    """A line of blocks, each the mean of a part of the values [T]; a blank where none is known."""
    parts = np.array_split(values, min(WIDTH, values.size))
    means = np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else np.nan for part in parts])
    low, high = (float(edge) for edge in (np.nanmin(means), np.nanmax(means))) if np.isfinite(means).any() else (0, 0)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return "".join(" " if np.isnan(mean) else BLOCKS[round((mean - low) / step)] for mean in means.tolist())


def write_bars_page(path: Path, reading: BarReading, findings: Sequence[SymbolFindings], doubts: Sequence[str]) -> None:
    """Write each symbol's close, 100 on its first day, with marks where a split is suspected, and what was found.

    Args:
        path: the HTML file.
        reading: the file as it was read.
        findings: of each of its symbols.
        doubts: what a person should look at, in words.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("trainers.stock.checking")
    parts = {
        "name": reading.name,
        "read_as": str(reading),
        "closes": closes_chart(reading, findings, page),
        "more": max(0, len(findings) - MOST_LINES),
        "symbols": symbol_grid(findings),
        "doubts": tuple(doubts),
    }
    replace_file(path, page.render(parts).encode())


def closes_chart(reading: BarReading, findings: Sequence[SymbolFindings], page: PageBuilder) -> str:
    """The first `MOST_LINES` symbols on one scale."""
    bars, marked = reading.panel, {one.symbol: [jump.session for jump in one.jumps.shown] for one in findings}
    names = bars.symbols[:MOST_LINES]
    label = f"Closes of {', '.join(names)}, 100 on each one's first day; suspected splits are marked"
    return page.chart(closes_lines(names, bars.sessions, bars.close[: len(names)], marked), label)


def symbol_grid(findings: Sequence[SymbolFindings]) -> ReportTable:
    """One line a symbol: its days, and how many of them are doubtful in which way."""
    columns = ("bars", "days missing", "days too many", "same as before", "no volume", "splits?")
    return ReportTable(corner="symbol", columns=columns, lines=tuple(map(_line, findings)))


def _line(one: SymbolFindings) -> TableRow:
    days = f"{iso(one.first)} to {iso(one.last)}"
    doubtful = (*map(len, (one.gaps, one.strangers, one.stale, one.without_volume)), one.jumps.count)
    counts = (number_cell(count, "{:,.0f}".format) for count in doubtful)
    return TableRow(name=one.symbol, cells=(number_cell(one.bars, "{:,.0f}".format, beside=days), *counts))
