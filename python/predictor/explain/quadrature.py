"""Where on the path from baseline to input gradients are taken, and what each one weighs."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

NODE_COUNTS = (8, 16, 32, 64, 128, 256)
"""Tried in this order. Eight are enough for most windows; the measured completeness gap decides, so fewer to begin with
cost no accuracy."""


@cache
def gauss_legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Positions in (0, 1) and weights that sum to 1, each [count]; exact for polynomials of degree 2 count - 1."""
    positions, weights = np.polynomial.legendre.leggauss(count)
    return _constant((positions + 1) / 2), _constant(weights / 2)


def _constant(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values
