"""Where on the path from baseline to input gradients are taken, and what each one weighs."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

NODE_COUNTS = (3, 6, 12, 24, 48, 96, 192, 384)
"""Tried in this order. Three are enough for most windows; the measured completeness gap and the roughness decide, so
fewer to begin with cost no accuracy."""


@cache
def gauss_legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Positions in (0, 1) and weights that sum to 1, each [count]; exact for polynomials of degree 2 count - 1."""
    positions, weights = np.polynomial.legendre.leggauss(count)
    return _constant((positions + 1) / 2), _constant(weights / 2)


@cache
def highest_legendre(count: int) -> FloatArray:
    """[count] what the weighted value at each node counts for in the coefficient of the Legendre polynomial of degree
    count - 1: the highest that the nodes can tell, and the first to show that a function is rough.
    """
    positions, _ = np.polynomial.legendre.leggauss(count)
    highest = np.polynomial.legendre.Legendre.basis(count - 1)(positions)
    return _constant((2 * count - 1) * highest)


def roughest(count: int, tolerance: float) -> float:
    """The largest highest coefficient, relative to the mean, with which the mean itself is within the tolerance.

    The coefficients of a smooth function fall as powers of some r. The highest that is seen, of degree n - 1, is then
    r^(n - 1); what falsifies the mean of n nodes is r^(2 n), for the nodes take everything below rightly.
    """
    return tolerance ** ((count - 1) / (2 * count))


def _constant(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values
