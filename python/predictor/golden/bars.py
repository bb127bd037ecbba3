"""Synthetic bars and covariates of the golden instance: five symbols with different special cases.

ODD       a missing bar, a flat stretch, a split, a dividend and a day without volume; some covariate values and all
          static ones are missing
EVEN      none of these, with exactly the bars that a forecast needs
SHORT     a young listing, with slightly more bars than the minimum
HALTED    no bars for some sessions shortly before the end
FLAT      a constant price
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.canonical import Record
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates
from predictor.windows import Pipeline

Arrays = Mapping[str, NDArray[np.generic]]

FUTURE = "covariates.future_sessions"
GROUPS = ("observed", "known", "numbers")
"""Groups of covariates with arrays."""


SYMBOLS: Final = ("ODD", "EVEN", "SHORT", "HALTED", "FLAT")
ODD, EVEN, SHORT, HALTED, FLAT = range(len(SYMBOLS))
PRICES: Final = ("open", "high", "low", "close")
COLUMNS: Final = (*PRICES, "volume", "split_ratio", "cash_dividend")


def make_synthetic_covariates(needs: Sequence[CovariateInfo], bars: BarPanel, future: NDArray[np.int32]) -> Covariates:
    """Synthetic covariates for these bars, including the following sessions int32 [D]."""
    symbols, sessions = bars.close.shape
    random = np.random.default_rng(21)
    statics = [need for need in needs if need.group is CovariateGroup.STATIC]
    known = [need.name for need in needs if need.group is CovariateGroup.KNOWN]
    return Covariates(
        observed={
            need.name: _draw_values(random, (symbols, sessions))
            for need in needs
            if need.group is CovariateGroup.OBSERVED
        },
        known={name: _draw_values(random, (symbols, sessions + len(future))) for name in known},
        future_sessions=future if known else future[:0],
        numbers={need.name: np.r_[np.nan, random.normal(size=symbols)[1:]] for need in statics if not need.categories},
        categories={need.name: ("", *(need.categories[0],) * (symbols - 1)) for need in statics if need.categories},
    )


def list_covariate_arrays(covariates: Covariates) -> dict[str, NDArray[np.generic]]:
    """Arrays by name for `restore_covariates`, in the shapes of `Covariates`; empty without covariates."""
    if not covariates.names:
        return {}
    groups: dict[str, Mapping[str, FloatArray]] = {name: getattr(covariates, name) for name in GROUPS}
    arrays = {
        f"covariates.{group}.{name}": values
        for group, group_arrays in groups.items()
        for name, values in group_arrays.items()
    }
    return {FUTURE: covariates.future_sessions, **arrays}


def restore_covariates(categories: Record, arrays: Arrays) -> Covariates:
    """Restore the covariates from categories and arrays, in the shapes of `Covariates`."""
    texts = {name: categories.texts(name) for name in categories.keys()}  # noqa: SIM118 - a Record is not a dict
    categories.end()
    if FUTURE not in arrays:
        return Covariates(categories=texts)
    starts = (f"covariates.{group}." for group in GROUPS)
    observed, known, numbers = (
        {n.removeprefix(start): values.astype(np.float64) for n, values in arrays.items() if n.startswith(start)}
        for start in starts
    )
    return Covariates(
        observed=observed,
        known=known,
        future_sessions=arrays[FUTURE].astype(np.int32),
        numbers=numbers,
        categories=texts,
    )


def _draw_values(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """[S, length] positive values with a gap in the first symbol."""
    values, length = np.exp(random.normal(0, 0.5, shape)), shape[1]
    values[0, length // 2 : length // 2 + 3] = np.nan
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths in the golden instance.

    Attributes:
        sessions: number of sessions, as many as a forecast needs.
        short: number of bars of SHORT.
        halt: number of sessions without a bar of HALTED.
    """

    sessions: int
    short: int
    halt: int

    @classmethod
    def of(cls, pipelines: Sequence[Pipeline]) -> Self:
        """Lengths that let every pipeline forecast every symbol."""
        sessions = max(pipeline.bars_needed for pipeline in pipelines)
        min_bars = max(max(pipeline.least_bars, pipeline.least_values + 1) for pipeline in pipelines)
        spare = min(min(p.encoder_length, p.normaliser.window) - max(p.least_bars, p.least_values) for p in pipelines)
        return cls(sessions=sessions, short=min(min_bars + 2, sessions), halt=max(0, min(20, spare - 3)))


def make_synthetic_bars(pipelines: Sequence[Pipeline]) -> BarPanel:
    """Synthetic bars that every pipeline can forecast, on the last sessions whose targets all calendars cover."""
    calendar = min((pipeline.calendar for pipeline in pipelines), key=lambda calendar: calendar.last)
    lengths, reach = Lengths.of(pipelines), pipelines[0].target.reach
    count = lengths.sessions
    sessions = calendar.sessions(calendar.first, calendar.last)[:-reach][-count:]
    random, shape = np.random.default_rng(20), (len(SYMBOLS), count)
    daily = random.normal(0, 0.015, shape)
    close = np.array([[90.0], [40.0], [12.0], [150.0], [50.0]]) * np.exp(np.cumsum(daily, axis=1))
    opening = close * np.exp(random.normal(0, 0.004, shape))
    high = np.maximum(opening, close) * (1 + np.abs(random.normal(0, 0.006, shape)))
    low = np.minimum(opening, close) * (1 - np.abs(random.normal(0, 0.006, shape)))
    volume = np.rint(np.exp(random.normal(14, 0.3, shape)))
    values = (opening, high, low, close, volume, np.ones(shape), np.zeros(shape))
    columns: dict[str, FloatArray] = dict(zip(COLUMNS, values, strict=True))
    missing, flat, flat_end, split, dividend, quiet = (
        int(share * count) for share in (0.54, 0.64, 0.82, 0.86, 0.93, 0.97)
    )
    for name in PRICES:
        columns[name][ODD, flat:flat_end] = columns["close"][ODD, flat - 1]
        columns[name][ODD, split:] /= 3.0
    columns["split_ratio"][ODD, split] = 3.0
    columns["cash_dividend"][ODD, dividend] = 0.5
    columns["volume"][ODD, quiet] = 0.0
    for name in COLUMNS:
        columns[name][ODD, missing] = np.nan
        columns[name][SHORT, : count - lengths.short] = np.nan
        columns[name][HALTED, count - 3 - lengths.halt : count - 3] = np.nan
    for name in PRICES:
        columns[name][FLAT] = 50.0
    return build_panel(SYMBOLS, sessions, columns)


def build_panel(symbols: tuple[str, ...], sessions: NDArray[np.int32], columns: Mapping[str, FloatArray]) -> BarPanel:
    """Build a panel from columns [S, T] by the names of `COLUMNS`."""
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


def list_bar_columns(bars: BarPanel) -> dict[str, FloatArray]:
    """Columns [S, T] for `build_panel`."""
    events = {"split_ratio": bars.split_ratio, "cash_dividend": bars.cash_dividend}
    prices = {"open": bars.open, "high": bars.high, "low": bars.low, "close": bars.close, "volume": bars.volume}
    return prices | {name: values for name, values in events.items() if values is not None}
