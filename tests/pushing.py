"""Bar pushes of a session, and the panel of all bars sent so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from predictor.bars import BarPanel
from predictor.instance import Instance
from predictor.subscription import Push

Bar = Mapping[str, float]


def day_of(panel: BarPanel, session: int, *symbols: str) -> BarPanel:
    """Bars of one day, of some or all symbols."""
    return panel.between(session, session).select(symbols or panel.symbols)


def push_of(panel: BarPanel, session: int, *symbols: str, flush: bool = False) -> Push:
    """The push of one day's bars."""
    return Push(bars=day_of(panel, session, *symbols), flush=flush)


def no_bar(panel: BarPanel, session: int, *symbols: str) -> BarPanel:
    """The day without bars of these symbols."""
    there = day_of(panel, session, *symbols)
    return there.without_bars(session)


def scaled(bars: BarPanel, factor: float) -> BarPanel:
    """The bars with scaled prices."""
    columns = {name: getattr(bars, name) * factor for name in bars.columns if name not in {"volume", "split_ratio"}}
    return replace(bars, **columns)


@dataclass
class SentBars:
    """All bars sent so far; the last one per day and symbol counts."""

    like: BarPanel
    """The first panel, for its symbols and columns."""
    days: dict[int, dict[str, Bar]] = field(default_factory=dict[int, dict[str, Bar]])

    @classmethod
    def of(cls, panel: BarPanel) -> "SentBars":
        """All bars of a subscription request."""
        sent = cls(panel)
        for session in panel.sessions.tolist():
            sent.add(panel.between(session, session))
        return sent

    def add(self, bars: BarPanel) -> None:
        """Add the bars of one day."""
        day = self.days.setdefault(int(bars.sessions[0]), {})
        for row, symbol in enumerate(bars.symbols):
            day[symbol] = {name: float(getattr(bars, name)[row, 0]) for name in bars.columns}

    def panel(self) -> BarPanel:
        """The panel of all bars; bars that were not sent are missing."""
        symbols, days = self.like.symbols, sorted(self.days)

        def column(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            cells = [[self.days[day].get(symbol, {}).get(name, np.nan) for day in days] for symbol in symbols]
            return np.array(cells)

        columns = {name: column(name) for name in self.like.columns}
        return replace(self.like, sessions=np.array(days, np.int32), **columns)

    def instance(self, asked: Instance) -> Instance:
        """The instance with all bars, with the settings of `asked`."""
        return replace(asked, input=self.panel())
