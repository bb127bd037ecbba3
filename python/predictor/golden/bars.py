"""The bars of the golden instance, made up.

Symbol ODD has a missing bar, a flat stretch, a split, a dividend and a day without volume, symbol EVEN has none of
these, and both have exactly as many bars as a forecast needs.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

FloatArray = NDArray[np.float64]

SYMBOLS: Final = ("ODD", "EVEN")
COLUMNS: Final = ("open", "high", "low", "close", "volume", "split_ratio", "cash_dividend")


def made_up(pipeline: Pipeline) -> BarPanel:
    """Exactly as many bars of both symbols as a forecast needs."""
    return made_up_on(pipeline.calendar, reach=pipeline.target.reach, count=pipeline.bars_needed)


def made_up_on(calendar: SessionCalendar, *, reach: int, count: int) -> BarPanel:
    """So many bars of both symbols on the last sessions after which the calendar still holds `reach` more."""
    sessions = calendar.sessions(calendar.first, calendar.last)[:-reach][-count:]
    random = np.random.default_rng(20)
    daily = random.normal(0, 0.015, (2, count))
    close = np.array([[90.0], [40.0]]) * np.exp(np.cumsum(daily, axis=1))
    opening = close * np.exp(random.normal(0, 0.004, (2, count)))
    high = np.maximum(opening, close) * (1 + np.abs(random.normal(0, 0.006, (2, count))))
    low = np.minimum(opening, close) * (1 - np.abs(random.normal(0, 0.006, (2, count))))
    volume = np.rint(np.exp(random.normal(14, 0.3, (2, count))))
    values = (opening, high, low, close, volume, np.ones((2, count)), np.zeros((2, count)))
    columns: dict[str, FloatArray] = dict(zip(COLUMNS, values, strict=True))
    _make_odd(columns)
    return panel(SYMBOLS, sessions, columns)


def panel(symbols: tuple[str, ...], sessions: NDArray[np.int32], columns: Mapping[str, FloatArray]) -> BarPanel:
    """The panel of these columns, each [S, T], by the names of `COLUMNS`."""
    return BarPanel(
        symbols=symbols,
        sessions=sessions,
        open=columns["open"],
        high=columns["high"],
        low=columns["low"],
        close=columns["close"],
        volume=columns["volume"],
        split_ratio=columns["split_ratio"],
        cash_dividend=columns["cash_dividend"],
    )


def columns_of(bars: BarPanel) -> dict[str, FloatArray]:
    """The columns that `panel` makes the same bars of."""
    events = {"split_ratio": bars.split_ratio, "cash_dividend": bars.cash_dividend}
    prices = {"open": bars.open, "high": bars.high, "low": bars.low, "close": bars.close, "volume": bars.volume}
    return prices | {name: values for name, values in events.items() if values is not None}


def _make_odd(columns: Mapping[str, FloatArray]) -> None:
    """Give the first symbol a missing bar, a flat stretch, a split, a dividend, a day without volume, in this order."""
    missing, flat, flat_end, split, dividend, quiet = (
        int(share * columns["close"].shape[1]) for share in (0.54, 0.64, 0.82, 0.86, 0.93, 0.97)
    )
    for name in ("open", "high", "low", "close"):
        columns[name][0, flat:flat_end] = columns["close"][0, flat - 1]
        columns[name][0, split:] /= 3.0
    columns["split_ratio"][0, split] = 3.0
    columns["cash_dividend"][0, dividend] = 0.5
    columns["volume"][0, quiet] = 0.0
    for name in COLUMNS:
        columns[name][0, missing] = np.nan
