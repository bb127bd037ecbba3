"""Where on the path from baseline to input gradients are taken, and what each one weighs."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

FEWEST_NODES = 8
"""Enough for most windows; the measured completeness gap decides, so fewer to begin with cost no accuracy."""
MOST_NODES = 256


@cache
def gauss_legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Positions in (0, 1) and weights that sum to 1, each [count]; exact for polynomials of degree 2 count - 1."""
    positions, weights = np.polynomial.legendre.leggauss(count)
    return _constant((positions + 1) / 2), _constant(weights / 2)


def node_counts(most: int) -> list[int]:
    """8, 16, 32 ... as far as `most`."""
    counts = [FEWEST_NODES]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts


def _constant(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values
