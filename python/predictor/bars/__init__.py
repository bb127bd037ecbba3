"""Daily bars: validated panels, their adjustment, and readers for tables, files and databases. Does not load torch."""

from predictor.bars.adjustment import AdjustedBars
from predictor.bars.frames import Frame
from predictor.bars.jumps import PriceJump, PriceJumps
from predictor.bars.layouts import DateOrder, DecimalSign
from predictor.bars.panel import OPTIONAL_FIELDS, PRICE_FIELDS, BarPanel
from predictor.bars.source import BarReading, read_bars, read_file, read_files, read_source
from predictor.bars.tables import BarTable, ReadingOptions

__all__ = [
    "OPTIONAL_FIELDS",
    "PRICE_FIELDS",
    "AdjustedBars",
    "BarPanel",
    "BarReading",
    "BarTable",
    "DateOrder",
    "DecimalSign",
    "Frame",
    "PriceJump",
    "PriceJumps",
    "ReadingOptions",
    "read_bars",
    "read_file",
    "read_files",
    "read_source",
]
