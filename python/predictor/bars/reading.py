"""A file of bars read, and what it was understood as, in words for a person."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from predictor.bars.panel import BarPanel
from predictor.bars.tables import BarTable, ReadingOptions, read_table
from predictor.errors import shown_date

MOST_NAMED: Final = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BarReading:
    """Bars, and what their file was read as.

    Attributes:
        panel: The bars.
        name: Of the file, as messages call it.
        layout: Name of the file's layout.
        prices: What the file says of splits and dividends.
        remarks: What was settled about it.
        warnings: What its reader should look at.
    """

    panel: BarPanel
    name: str
    layout: str
    prices: str
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, table: BarTable, name: str, *, calendar: str = "", currency: str = "") -> Self:
        """The bars of a table; see `BarPanel.of_table`."""
        return cls(
            panel=BarPanel.of_table(table, calendar=calendar, currency=currency),
            name=name,
            layout=table.layout,
            prices=str(table.prices),
            remarks=table.remarks,
            warnings=table.warnings,
        )

    def __str__(self) -> str:
        """One line, such as: bars.csv read as yfinance, 4 symbols, 2010-01-04 to 2026-11-20, with adjusted closes."""
        symbols, sessions = self.panel.symbols, self.panel.sessions
        whose = ", ".join(symbols) if len(symbols) <= MOST_NAMED else f"{len(symbols)} symbols"
        span = f"{shown_date(int(sessions[0]))} to {shown_date(int(sessions[-1]))}"
        parts = [f"{self.name} read as {self.layout}", whose, span, self.prices]
        jumps = self.panel.suspicious_jumps().count
        if jumps:
            parts.append(f"{jumps} split{'s' if jumps > 1 else ''} suspected")
        return "; ".join([", ".join(parts), *self.remarks, *self.warnings])


def read_file(
    path: str | Path, options: ReadingOptions | None = None, *, calendar: str = "", currency: str = ""
) -> BarReading:
    """Read a file of bars, and say what it was read as; see `BarPanel.read`."""
    return BarReading.of(read_table(Path(path), options), Path(path).name, calendar=calendar, currency=currency)
