"""What the network is about to read, and which question it came from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Inputs

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_SCALE = 10.0
"""Daily volatility, a log return: a factor of 22 000 a day. Beyond it a price fan would overflow."""


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
    anchor: FloatArray | None
    """[S] last raw close."""
    warnings: tuple[str, ...]
