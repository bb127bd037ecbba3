"""Adjustment of prices and volumes for splits and dividends, relative to each symbol's last bar.

`FORMULAS` defines it, and artifacts repeat it. Another implementation must keep the order of operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IndexArray
from predictor.bars.checks import check_events
from predictor.errors import BarsError

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
"""Defines the adjustment. Every feature depends on it, so a change requires a new operator set."""


def close_before(close: FloatArray) -> FloatArray:
    """The last close before each session, [S, T]; NaN before the first one."""
    before = _find_bar_before(close)
    return np.where(before < 0, np.nan, close[np.arange(len(close))[:, None], before])


class RawBars(Protocol):
    """Bars before adjustment, of a panel or of several stacked instances; float64 [S, T], NaN = no bar."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """S names."""
        ...

    @property
    def sessions(self) -> NDArray[np.int32]:
        """[T] dates, yyyymmdd, in increasing order."""
        ...

    @property
    def open(self) -> FloatArray:
        """First price of each day."""
        ...

    @property
    def high(self) -> FloatArray:
        """Highest price of each day."""
        ...

    @property
    def low(self) -> FloatArray:
        """Lowest price of each day."""
        ...

    @property
    def close(self) -> FloatArray:
        """Last price of each day."""
        ...

    @property
    def volume(self) -> FloatArray:
        """Shares traded."""
        ...

    @property
    def adj_close(self) -> FloatArray | None:
        """Close adjusted for splits and dividends; None if not given."""
        ...

    @property
    def split_ratio(self) -> FloatArray | None:
        """New shares per old share; None if not given."""
        ...

    @property
    def cash_dividend(self) -> FloatArray | None:
        """Money per share on the ex-date; None if not given."""
        ...


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdjustedBars:
    """Bars adjusted for splits and dividends; every array is float64 [S, T], read-only, NaN = no bar.

    Attributes:
        open: Adjusted to the price level of the symbol's last bar, like high, low and close.
        high: The day's highest price.
        low: The day's lowest price.
        close: The last close equals the raw price.
        volume: Counted in shares of the last bar. `adj_close` does not distinguish splits from dividends, so with it
            dividends change the volume too (by their yield).
        money: Raw close times raw volume, in quote currency; splits do not change it.
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
        for values in (self.open, self.high, self.low, self.close, self.volume, self.money, self.factor):
            values.setflags(write=False)


def adjust(bars: RawBars) -> AdjustedBars:
    """Adjust bars according to FORMULAS.

    Raises:
        BarsError: splits, dividends or volumes take a price or the money traded beyond the range of a double.
    """
    adjusted, faults = adjust_each(bars)
    for fault in faults.values():
        raise fault
    return adjusted


def adjust_each(bars: RawBars) -> tuple[AdjustedBars, Mapping[int, BarsError]]:
    """As `adjust`, but a symbol that cannot be adjusted gets no bars.

    Returns:
        The adjusted bars, and the error of each row that failed, in order; it names the row's first impossible bar.
    """
    with np.errstate(all="ignore"):
        adjusted = _adjust(bars)
        is_usable = (adjusted.low > 0) & (adjusted.high < np.inf) & (adjusted.money != np.inf)  # NaN: unknown
    if is_usable.all():
        return adjusted, {}
    is_usable |= np.isnan(bars.close)
    rows = np.flatnonzero(~is_usable.all(axis=1))
    faults = {
        int(row): _make_adjustment_error(bars, adjusted, int(row), int(np.argmin(is_usable[row]))) for row in rows
    }
    return (_empty_rows(adjusted, rows) if faults else adjusted), faults


def _empty_rows(adjusted: AdjustedBars, rows: IndexArray) -> AdjustedBars:
    def emptied(values: FloatArray) -> FloatArray:
        copy = values.copy()
        copy[rows] = np.nan
        return copy

    return AdjustedBars(**{field.name: emptied(getattr(adjusted, field.name)) for field in fields(adjusted)})


def _make_adjustment_error(bars: RawBars, adjusted: AdjustedBars, row: int, column: int) -> BarsError:
    field = "adjusted close" if adjusted.money[row, column] != np.inf else "close times volume"
    value = float((adjusted.close if field == "adjusted close" else adjusted.money)[row, column])
    rule = "it must be within the range of a double; check prices, volume, and later splits and dividends"
    return BarsError.at(bars.symbols[row], int(bars.sessions[column]), field, value, rule)


def _adjust(bars: RawBars) -> AdjustedBars:
    if bars.adj_close is not None:
        factor = _rebase(bars.adj_close / bars.close, bars.close)
        return _scale(bars, factor, bars.volume / factor)
    if bars.split_ratio is None and bars.cash_dividend is None:
        factor = np.where(np.isnan(bars.close), np.nan, 1.0)
        # the raw arrays are read-only and shared
        return AdjustedBars(
            open=bars.open,
            high=bars.high,
            low=bars.low,
            close=bars.close,
            volume=bars.volume,
            money=bars.close * bars.volume,
            factor=factor,
        )
    later = compute_later_shares(bars)
    factor = _rebase(_multiply_later(compute_price_shares(bars, later)) / later, bars.close)
    return _scale(bars, factor, bars.volume * _rebase(later, bars.close))


def _scale(bars: RawBars, factor: FloatArray, volume: FloatArray) -> AdjustedBars:
    return AdjustedBars(
        open=bars.open * factor,
        high=bars.high * factor,
        low=bars.low * factor,
        close=bars.close * factor,
        volume=volume,
        money=bars.close * bars.volume,
        factor=factor,
    )


def _rebase(values: FloatArray, close: FloatArray) -> FloatArray:
    """Divide each row by its value at the symbol's last bar; NaN without a bar."""
    present = ~np.isnan(close)
    last = close.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    base = values[np.arange(values.shape[0]), last]
    return np.where(present, values / base[:, None], np.nan)


def compute_later_shares(bars: RawBars) -> FloatArray:
    """The number of shares [S, T] that one share of each day becomes by the last day: the product of later splits."""
    if bars.split_ratio is None:
        return np.ones_like(bars.close)
    return _multiply_later(np.where(np.isnan(bars.split_ratio), 1.0, bars.split_ratio))


def _multiply_later(values: FloatArray) -> FloatArray:
    """The product of the values of all later days, multiplied from the last day backwards."""
    product = np.ones_like(values)
    product[:, :-1] = np.multiply.accumulate(values[:, :0:-1], axis=1)[:, ::-1]
    return product


def compute_price_shares(bars: RawBars, later: FloatArray) -> FloatArray:
    """The share of a price [S, T] that remains after the dividend; 1 without a dividend or an earlier bar.

    A dividend is cash per share on the ex-date, so the previous close is converted to shares of the ex-date.
    """
    if bars.cash_dividend is None:
        return np.ones_like(bars.close)
    rows = np.arange(bars.close.shape[0])[:, None]
    before = _find_bar_before(bars.close)
    price = bars.close[rows, before] * (later / later[rows, before])
    paid = np.where((bars.cash_dividend > 0) & (before >= 0), bars.cash_dividend, 0.0)
    return 1.0 - np.divide(paid, price, out=np.zeros_like(paid), where=paid > 0)


def _find_bar_before(close: FloatArray) -> IndexArray:
    """The column of the last bar before each day; -1 before the first bar."""
    columns = np.arange(close.shape[1])
    last = np.maximum.accumulate(np.where(np.isnan(close), -1, columns), axis=1)
    before = np.full(close.shape, -1)
    before[:, 1:] = last[:, :-1]
    return before


def check_dividends(bars: RawBars) -> None:
    """Check dividends.

    Raises:
        BarsError: A dividend is negative, not finite, or not less than the close before it.
    """
    paid = bars.cash_dividend
    if paid is None:
        return
    is_usable = (paid >= 0) & np.isfinite(paid)
    rule = "a dividend must be finite and not negative; 0 or empty for none"
    check_events(bars.symbols, bars.sessions, "cash_dividend", paid, is_usable, rule)
    with np.errstate(all="ignore"):  # the adjustment reports overflows
        price_shares = compute_price_shares(bars, compute_later_shares(bars))
    rule = "a dividend must be less than the close before it"
    check_events(bars.symbols, bars.sessions, "cash_dividend", paid, price_shares > 0, rule)
