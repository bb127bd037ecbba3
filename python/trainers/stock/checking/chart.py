"""The closes of a file of bars, in a line of text and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.charts import closes_lines
from predictor.cli.output import write_charts
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


def closes_chart(path: Path, bars: BarPanel, findings: Sequence[SymbolFindings]) -> None:
    """Write a page with each symbol's close, 100 on its first day, and marks where a split is suspected."""
    marked = {one.symbol: [jump.session for jump in one.jumps.shown] for one in findings[:MOST_LINES]}
    more = len(bars.symbols) - MOST_LINES
    notes = (f"{more} more symbols are not shown.",) if more > 0 else ()
    names = bars.symbols[:MOST_LINES]
    write_charts(path, [closes_lines(names, bars.sessions, bars.close[: len(names)], marked, notes=notes)])
