"""Prices and volumes in the money and the shares of each symbol's last bar.

`FORMULAS` says how, in words that an artifact repeats; a second implementation follows the same order of operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from predictor.errors import BarsError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

FORMULAS: Final[Mapping[str, str]] = {
    "end": "the symbol's last bar",
    "before": "the symbol's last bar before the day",
    "later": "product of the split ratios of all later days, multiplied from the last day backwards",
    "kept": "1 - cash dividend / (raw close at before * (later / later at before)); 1 without dividend or before",
    "paid": "product of the kept of all later days, multiplied from the last day backwards",
    "factor with adj_close": "(adj_close / raw close) / (adj_close at end / raw close at end)",
    "factor with splits or dividends": "(paid / later) / (paid at end / later at end)",
    "factor with neither": "1",
    "volume with adj_close": "raw volume / factor",
    "volume with splits or dividends": "raw volume * (later / later at end)",
    "volume with neither": "raw volume",
}
"""How prices and volumes are adjusted; part of what every feature means, so a change is another operator set."""


class RawBars(Protocol):
    """What the adjustment reads of a panel; every array but the sessions is float64 [S, T], NaN = no bar."""

    @property
    def symbols(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def sessions(self) -> NDArray[np.int32]: ...  # noqa: D102
    @property
    def open(self) -> FloatArray: ...  # noqa: D102 (the class tells)
    @property
    def high(self) -> FloatArray: ...  # noqa: D102
    @property
    def low(self) -> FloatArray: ...  # noqa: D102
    @property
    def close(self) -> FloatArray: ...  # noqa: D102
    @property
    def volume(self) -> FloatArray: ...  # noqa: D102
    @property
    def adj_close(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def split_ratio(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def cash_dividend(self) -> FloatArray | None: ...  # noqa: D102


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdjustedBars:
    """Bars without the jumps of splits and dividends; every array is float64 [S, T], read-only, NaN = no bar.

    Attributes:
        open: In the money of the symbol's last bar, as are high, low and close.
        high: The day's highest price.
        low: The day's lowest price.
        close: The last close is the real last price.
        volume: In the shares of the last bar. From `adj_close` alone splits and dividends cannot be told apart, so
            there the dividends move the volume too (by their yield).
        money: Raw close times raw volume, in quote currency; no split changes it.
        factor: Adjusted price divided by raw price; 1 at the symbol's last bar.
    """

    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    money: FloatArray
    factor: FloatArray

    def __post_init__(self) -> None:
        """Lock the arrays."""
        for values in (self.open, self.high, self.low, self.close, self.volume, self.money, self.factor):
            values.setflags(write=False)


def adjust(bars: RawBars) -> AdjustedBars:
    """Apply the module's formulas.

    Raises:
        BarsError: splits, dividends or volumes take a price or the money traded beyond what a double can hold.
    """
    adjusted, faults = adjust_each(bars)
    for fault in faults.values():
        raise fault
    return adjusted


def adjust_each(bars: RawBars) -> tuple[AdjustedBars, Mapping[int, BarsError]]:
    """The same symbol by symbol: one that cannot be adjusted has no bars.

    Returns:
        The adjusted bars, and for each row that failed, in order, an error that names its first impossible bar.
    """
    with np.errstate(all="ignore"):
        adjusted = _adjusted(bars)
        sound = (adjusted.low > 0) & (adjusted.high < np.inf) & (adjusted.money < np.inf)
    if sound.all():
        return adjusted, {}
    sound |= np.isnan(bars.close)
    rows = np.flatnonzero(~sound.all(axis=1))
    faults = {int(row): _fault(bars, adjusted, int(row), int(np.argmin(sound[row]))) for row in rows}
    return (_without(adjusted, rows) if faults else adjusted), faults


def _without(adjusted: AdjustedBars, rows: IndexArray) -> AdjustedBars:
    """The same with no bars in these rows."""

    def emptied(values: FloatArray) -> FloatArray:
        copy = values.copy()
        copy[rows] = np.nan
        return copy

    return AdjustedBars(**{one.name: emptied(getattr(adjusted, one.name)) for one in fields(adjusted)})


def _fault(bars: RawBars, adjusted: AdjustedBars, row: int, column: int) -> BarsError:
    """What adjustment made of a bar."""
    field = "adjusted close" if adjusted.money[row, column] < np.inf else "close times volume"
    value = float((adjusted.close if field == "adjusted close" else adjusted.money)[row, column])
    rule = "a double must hold it; check prices, volume and the splits and dividends since then"
    return BarsError.at(bars.symbols[row], int(bars.sessions[column]), field, value, rule)


def _adjusted(bars: RawBars) -> AdjustedBars:
    if bars.adj_close is not None:
        factor = _rebased(bars.adj_close / bars.close, bars.close)
        return _scaled(bars, factor, bars.volume / factor)
    if bars.split_ratio is None and bars.cash_dividend is None:
        factor = np.where(np.isnan(bars.close), np.nan, 1.0)
        return _unscaled(bars, factor)
    later = later_shares(bars)
    factor = _rebased(_product_of_later(kept_shares(bars, later)) / later, bars.close)
    return _scaled(bars, factor, bars.volume * _rebased(later, bars.close))


def _scaled(bars: RawBars, factor: FloatArray, volume: FloatArray) -> AdjustedBars:
    return AdjustedBars(
        open=bars.open * factor,
        high=bars.high * factor,
        low=bars.low * factor,
        close=bars.close * factor,
        volume=volume,
        money=bars.close * bars.volume,
        factor=factor,
    )


def _unscaled(bars: RawBars, factor: FloatArray) -> AdjustedBars:
    """The raw arrays themselves: they are read-only, so they can be shared."""
    return AdjustedBars(
        open=bars.open,
        high=bars.high,
        low=bars.low,
        close=bars.close,
        volume=bars.volume,
        money=bars.close * bars.volume,
        factor=factor,
    )


def _rebased(values: FloatArray, close: FloatArray) -> FloatArray:
    """Divide each row by its value at the symbol's last bar; NaN where there is no bar."""
    present = ~np.isnan(close)
    last = close.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    base = values[np.arange(values.shape[0]), last]
    return np.where(present, values / base[:, None], np.nan)


def later_shares(bars: RawBars) -> FloatArray:
    """How many shares one share of each day has become by the last day: the product of the later splits."""
    if bars.split_ratio is None:
        return np.ones_like(bars.close)
    return _product_of_later(np.where(np.isnan(bars.split_ratio), 1.0, bars.split_ratio))


def _product_of_later(values: FloatArray) -> FloatArray:
    """At each day the product of the values of all later days, multiplied from the last day backwards."""
    product = np.ones_like(values)
    product[:, :-1] = np.multiply.accumulate(values[:, :0:-1], axis=1)[:, ::-1]
    return product


def kept_shares(bars: RawBars, later: FloatArray) -> FloatArray:
    """What is left of a share's price when its dividend is paid, [S, T]; 1 without dividend or without an earlier bar.

    The dividend is money for one share of the ex-date, so the close before is counted in shares of the ex-date too.
    """
    if bars.cash_dividend is None:
        return np.ones_like(bars.close)
    rows = np.arange(bars.close.shape[0])[:, None]
    before = _bar_before(bars.close)
    price = bars.close[rows, before] * (later / later[rows, before])
    paid = np.where((bars.cash_dividend > 0) & (before >= 0), bars.cash_dividend, 0.0)
    return 1.0 - np.divide(paid, price, out=np.zeros_like(paid), where=paid > 0)


def _bar_before(close: FloatArray) -> IndexArray:
    """The column of the last bar before each day, -1 where there is none."""
    columns = np.arange(close.shape[1])
    last = np.maximum.accumulate(np.where(np.isnan(close), -1, columns), axis=1)
    before = np.full(close.shape, -1)
    before[:, 1:] = last[:, :-1]
    return before
