"""The symbols of several instances as the rows of one panel, so that their inputs are computed in one pass.

No row knows of another: what is computed for it is the same to the last bit whatever stands beside it. So instances may
be of different dates, as long as each forecast depends on equally many sessions.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray, IndexArray
from predictor.bars import BarPanel
from predictor.bars.adjustment import LARGEST_USUAL_MOVE
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.instance import Instance
from predictor.model.dates import ForecastDates

ValueT = TypeVar("ValueT")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlignedInstance:
    """An instance of bars whose dates and covariates are those of the model."""

    instance: Instance
    bars: BarPanel
    """All that were sent."""
    dates: ForecastDates
    covariates: Covariates
    """On the sessions that the forecast depends on."""

    @property
    def kind(self) -> Hashable:
        """Readings of one kind can be stacked: one formula adjusts their bars, and known covariates share an axis."""
        bars = self.bars
        recorded = (bars.adj_close is None, bars.split_ratio is None, bars.cash_dividend is None)
        return (recorded, self.dates if self.covariates.known else None)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedBars:
    """Raw bars of R symbols, those of the readings one after the other; what adjustment reads, and float64 [R, B]."""

    symbols: tuple[str, ...]
    """[R] a name may be that of several rows."""
    sessions: NDArray[np.int32]
    """[B] of the first reading."""
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    adj_close: FloatArray | None
    split_ratio: FloatArray | None
    cash_dividend: FloatArray | None
    rows: tuple[slice, ...]
    """Which rows are those of each reading."""

    @property
    def without_remark(self) -> BoolArray:
        """[R] symbols that have every bar, and no price jump that their panel does not explain."""
        whole = np.all(~np.isnan(self.close), axis=1)
        if self.adj_close is not None or self.split_ratio is not None:
            return whole
        before = self.close[:, :-1]
        with np.errstate(all="ignore"):
            moves = np.stack([self.open[:, 1:] / before, self.close[:, 1:] / before])
        usual = (moves <= LARGEST_USUAL_MOVE) & (moves >= 1 / LARGEST_USUAL_MOVE)
        return whole & np.all(usual, axis=(0, 2))


def stacked(readings: Sequence[AlignedInstance]) -> StackedBars:
    """The bars of readings of one kind, on the sessions that each forecast depends on."""
    panels = [reading.bars for reading in readings]
    places = [reading.dates.places for reading in readings]
    count = len(readings[0].dates.sessions)

    def column(of: Callable[[BarPanel], FloatArray]) -> FloatArray:
        parts = [_recent(of(bars), there, count) for bars, there in zip(panels, places, strict=True)]
        return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def optional(of: Callable[[BarPanel], FloatArray | None]) -> FloatArray | None:
        return None if of(panels[0]) is None else column(lambda bars: _given(of(bars)))

    return StackedBars(
        symbols=tuple(chain.from_iterable(bars.symbols for bars in panels)),
        sessions=readings[0].dates.sessions,
        open=column(lambda bars: bars.open),
        high=column(lambda bars: bars.high),
        low=column(lambda bars: bars.low),
        close=column(lambda bars: bars.close),
        volume=column(lambda bars: bars.volume),
        adj_close=optional(lambda bars: bars.adj_close),
        split_ratio=optional(lambda bars: bars.split_ratio),
        cash_dividend=optional(lambda bars: bars.cash_dividend),
        rows=tuple(_slices(len(bars.symbols) for bars in panels)),
    )


def stacked_covariates(readings: Sequence[AlignedInstance]) -> Covariates:
    """The covariates [R, ...] beside the bars of a stack."""
    first, *others = (reading.covariates for reading in readings)
    if not others or not first.names:
        return first if first.names else NO_COVARIATES
    every = (first, *others)

    def joined(of: Callable[[Covariates], Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        return {name: np.concatenate([of(one)[name] for one in every]) for name in of(first)}

    return Covariates(
        observed=joined(lambda one: one.observed),
        known=joined(lambda one: one.known),
        future_sessions=first.future_sessions,
        numbers=joined(lambda one: one.numbers),
        categories={
            name: tuple(chain.from_iterable(one.categories[name] for one in every)) for name in first.categories
        },
    )


def _recent(values: FloatArray, places: IndexArray | None, count: int) -> FloatArray:
    """[S, B] of a column [S, T]."""
    if places is None:
        return values[:, -count:]
    taken = values[:, places]
    taken[:, places < 0] = np.nan
    return taken


def _given(column: FloatArray | None) -> FloatArray:
    assert column is not None, "readings of one kind have the same columns"  # noqa: S101
    return column


def _slices(counts: Iterator[int]) -> Iterator[slice]:
    ends = list(accumulate(counts, initial=0))
    return (slice(first, end) for first, end in pairwise(ends))
