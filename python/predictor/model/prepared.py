"""What the network is about to read, and which question it came from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import InvalidInputError, NoUsableSymbolError, QuantraError, TooFewBarsError, listed
from predictor.networks import Inputs

LARGEST_SCALE = 10.0
"""Daily volatility, a log return: a factor of 22 000 a day. Beyond it a price fan would overflow."""

LARGEST_PRICE = 1e100
"""Its inverse is the smallest. Beyond it a price fan would leave what a double holds."""

MOST_WARNINGS: Final = 20
"""Warnings beside one forecast; those beyond them, as from broken bars, are counted."""
LONGEST_WARNING: Final = 1000
"""Characters of one; five symbols of 64 and a sentence about them fit."""
MOST_TOLD: Final = 5
"""Symbols that an instance's error names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """An instance that was checked and encoded: one row of inputs for each symbol that can be forecast."""

    symbols: tuple[str, ...]
    usable: BoolArray
    """[S] which symbols have a row in `inputs`."""
    inputs: Inputs
    """[N] rows, N = how many are usable."""
    sessions: NDArray[np.int32]
    """[T] of the encoder; empty if unknown."""
    as_of: int
    """yyyymmdd; 0 if unknown."""
    target_sessions: NDArray[np.int32]
    """[H] session that each horizon ends on; empty if `as_of` is 0."""
    base_session: int
    """Session that horizons count from, yyyymmdd; 0 if `as_of` is 0."""
    anchor: FloatArray | None
    """[S] last raw close."""
    warnings: tuple[str, ...]
    """All of them; `bounded` when a model answers."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol that is not usable cannot be forecast."""

    def only(self, symbols: Sequence[str]) -> "Prepared":
        """The same for some symbols, in their order; for all where none is named.

        Raises:
            InvalidInputError: one is not in the instance, or is named twice.
        """
        if not symbols:
            return self
        _check_among(symbols, self.symbols)
        places = places_of(symbols, self.symbols)
        rows = torch.from_numpy((np.cumsum(self.usable) - 1)[places][self.usable[places]])
        return replace(
            self,
            symbols=tuple(symbols),
            usable=self.usable[places],
            refusals={symbol: self.refusals[symbol] for symbol in symbols if symbol in self.refusals},
            inputs=Inputs(*(group[rows] for group in self.inputs)),
            anchor=None if self.anchor is None else self.anchor[places],
        )

    @property
    def usable_symbols(self) -> tuple[str, ...]:
        """[N] whose rows `inputs` holds."""
        return tuple(symbol for symbol, known in zip(self.symbols, self.usable, strict=True) if known)


def can_anchor(prices: FloatArray) -> BoolArray:
    """Which prices, of any shape, a fan can start from; never NaN."""
    return (prices >= 1 / LARGEST_PRICE) & (prices <= LARGEST_PRICE)


def bounded(lines: Iterable[str]) -> tuple[str, ...]:
    """The first MOST_WARNINGS lines, each shortened, and how many more were left out."""
    every = tuple(line if len(line) <= LONGEST_WARNING else f"{line[:LONGEST_WARNING]} …" for line in lines)
    left = len(every) - MOST_WARNINGS
    return every if left <= 0 else (*every[:MOST_WARNINGS], f"{left} more warnings were left out")


def nothing_usable(refusals: Mapping[str, QuantraError]) -> QuantraError:
    """The error for an instance none of whose symbols can be forecast: their own, where all have the same."""
    first, *others = refusals.values()
    if not others and isinstance(first, TooFewBarsError):
        return first
    told = "; ".join(error.message for error in list(refusals.values())[:MOST_TOLD])
    more = f"; and {len(refusals) - MOST_TOLD} more symbols" if len(refusals) > MOST_TOLD else ""
    if all(isinstance(error, TooFewBarsError) for error in refusals.values()):
        return TooFewBarsError(told + more, metadata=first.metadata)
    return NoUsableSymbolError(f"no symbol can be forecast: {told}{more}")


def places_of(symbols: Sequence[str], there: Sequence[str]) -> list[int]:
    """The place of each of these symbols among those that are there."""
    place = {symbol: k for k, symbol in enumerate(there)}
    return [place[symbol] for symbol in symbols]


def _check_among(symbols: Sequence[str], there: Sequence[str]) -> None:
    """Refuse symbols that are not there, or named twice.

    Raises:
        InvalidInputError: naming the first.
    """
    known = set(there)
    for symbol, count in Counter(symbols).items():
        if symbol not in known:
            raise InvalidInputError(f"there is no symbol {symbol!r} to explain; the instance has {listed(there)}")
        if count > 1:
            raise InvalidInputError(f"symbol {symbol!r} is to be explained twice; name it once")
