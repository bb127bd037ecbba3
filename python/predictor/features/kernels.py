"""The operators' arithmetic in float64, defined to the last bit.

Every series is a contiguous array [R, S], oldest row first. A kernel that looks back n bars returns n rows fewer: its
first row is the first with a full window. Another implementation must follow these rules:

- A sum adds from the oldest to the youngest value, with one accumulator and without fused multiply-add. Every row is
  summed separately, so a value depends only on its own window.
- A mean is the sum divided by n. A deviation takes a second pass over the window.
- NaN anywhere in a window gives NaN. Division by zero and the logarithm of zero follow IEEE 754.
- Only `Log` may differ in its last bit between machines.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from predictor.arrays import FloatArray

Kernel = Callable[..., FloatArray]
SeriesKernel = Callable[[FloatArray], FloatArray]
PairKernel = Callable[[FloatArray, FloatArray], FloatArray]

RELATIVE_EPSILON: Final = 1e-9
"""A spread below this share of the level is considered rounding."""

CELLS_AT_ONCE: Final = 1 << 18
"""Window cells that are processed at once (2 MiB), to fit into the processor's cache."""


def make_windows(series: FloatArray, n: int) -> FloatArray:
    """A view [n, R - n + 1, S] of all windows; the first axis runs from the oldest to the youngest value."""
    rows, symbols = series.shape
    row, cell = series.strides
    return np.ndarray((n, rows - n + 1, symbols), np.float64, series, 0, (row, row, cell))


def add_oldest_first(windows: FloatArray) -> FloatArray:
    """Sum [n, ...] over its first axis in order, to [...].

    NumPy adds row by row along the first axis, except that it sums pairwise if a row is a single value.
    """
    if windows.size == len(windows):
        return np.add.accumulate(windows)[-1]
    return np.add.reduce(windows)


def map_windows(n: int, value: Callable[..., FloatArray]) -> Kernel:
    """A kernel that maps windows [n, rows, S] to values, in blocks of rows.

    A value depends only on its own window, so the size of the blocks does not change the result.
    """

    def kernel(*series: FloatArray) -> FloatArray:
        rows, symbols = series[0].shape[0] - n + 1, series[0].shape[1]
        step = max(1, CELLS_AT_ONCE // (n * symbols))
        if step >= rows:
            return value(*(make_windows(values, n) for values in series))
        parts = (slice(first, min(first + step, rows) + n - 1) for first in range(0, rows, step))
        return np.concatenate([value(*(make_windows(values[part], n) for values in series)) for part in parts])

    return kernel


def ref(n: int) -> SeriesKernel:
    """The value n bars ago."""
    return lambda x: x[: x.shape[0] - n]


def delta(n: int) -> SeriesKernel:
    """The value minus the value n bars ago."""
    return lambda x: x[n:] - x[: x.shape[0] - n]


def rolling_sum(n: int) -> SeriesKernel:
    """The sum of the last n values."""
    return lambda x: add_oldest_first(make_windows(x, n))


def mean(n: int) -> SeriesKernel:
    """The sum of the last n values, divided by n."""
    return lambda x: add_oldest_first(make_windows(x, n)) / n


def variance(n: int) -> SeriesKernel:
    """The sum of squared deviations from the window's mean, divided by n - 1."""

    def value(windows: FloatArray) -> FloatArray:
        deviations = windows - add_oldest_first(windows) / n
        return add_oldest_first(np.multiply(deviations, deviations, deviations)) / (n - 1)

    return map_windows(n, value)


def deviation(n: int) -> SeriesKernel:
    """The square root of the variance."""
    squared = variance(n)
    return lambda x: np.sqrt(squared(x))


def largest(n: int) -> SeriesKernel:
    """The largest of the last n values."""
    return _make_extreme(np.maximum, n)


def smallest(n: int) -> SeriesKernel:
    """The smallest of the last n values."""
    return _make_extreme(np.minimum, n)


def _make_extreme(pick: PairKernel, n: int) -> SeriesKernel:
    """The extreme of the last n values; computed by doubling the window, which is exact since nothing is rounded."""

    def kernel(x: FloatArray) -> FloatArray:
        best, width = x, 1
        while width < n:
            step = min(width, n - width)
            best = pick(best[:-step], best[step:])
            width += step
        return best

    return kernel


def exponential_weights(decay: float, taps: int) -> FloatArray:
    """Weights [taps], oldest first: 1, decay, decay * decay ... from the youngest, divided by their sum.

    Truncation omits a weight of decay ** taps, which the division distributes over the rest.
    """
    weights = np.multiply.accumulate(np.concatenate(([1.0], np.full(taps - 1, decay))))[::-1]
    return weights / np.add.accumulate(weights)[-1]


def smoothed(decay: float, taps: int) -> SeriesKernel:
    """The weighted sum of the last `taps` values: first the products with the weights, then their sum."""
    weights = exponential_weights(decay, taps)[:, None, None]

    def value(windows: FloatArray) -> FloatArray:
        return add_oldest_first(windows * weights)

    return map_windows(taps, value)


def exponential(n: int, taps: int) -> SeriesKernel:
    """The exponential average of span n, truncated after `taps` values."""
    return smoothed(1.0 - 2.0 / (n + 1), taps)


def wilder(n: int, taps: int) -> SeriesKernel:
    """Wilder's average of n, truncated after `taps` values."""
    return smoothed(1.0 - 1.0 / n, taps)


def slope(n: int) -> SeriesKernel:
    """The slope per bar of the least-squares line through the last n values.

    It is computed from differences to the window's oldest value, so the slope of a constant series is exactly 0.
    """
    places = _list_places(n)

    def value(windows: FloatArray) -> FloatArray:
        return add_oldest_first((windows - windows[0]) * places) / _sum_squared_positions(n)

    return map_windows(n, value)


def _list_places(n: int) -> FloatArray:
    """The positions of n values relative to their middle, [n, 1, 1]."""
    return (np.arange(n, dtype=np.float64) - (n - 1) / 2)[:, None, None]


def _sum_squared_positions(n: int) -> float:
    """The sum of the squared positions of n values."""
    return n * (n * n - 1) / 12


def correlation(n: int) -> PairKernel:
    """Pearson's correlation over the last n pairs.

    Each sum of squares is increased by n * (1e-9 * mean) ** 2, so a constant series, whose deviations are only
    rounding, gives 0 within 1e-6. If a sum of squares is still 0 (a constant 0), the result is 0.
    """

    def value(x: FloatArray, y: FloatArray) -> FloatArray:
        x_off, x_root = _compute_deviations(x, n)
        y_off, y_root = _compute_deviations(y, n)
        denominator = x_root * y_root
        return add_oldest_first(np.multiply(x_off, y_off, x_off)) / (denominator + (denominator == 0))

    return map_windows(n, value)


def _compute_deviations(windows: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """The deviations from the mean, and the root of their sum of squares plus an allowance for rounding."""
    average = add_oldest_first(windows) / n
    off = windows - average
    rounding = RELATIVE_EPSILON * average
    return off, np.sqrt(add_oldest_first(off * off) + n * (rounding * rounding))


def determination(n: int) -> SeriesKernel:
    """R squared of the least-squares line through the last n values, 0 to 1.

    It is the squared correlation with the positions, so a constant series gives 0; see `correlation`.
    """
    places = _list_places(n)
    spread = math.sqrt(_sum_squared_positions(n))

    def value(windows: FloatArray) -> FloatArray:
        off, root = _compute_deviations(windows, n)
        denominator = root * spread
        correlated = add_oldest_first(np.multiply(off, places, off)) / (denominator + (denominator == 0))
        return correlated * correlated

    return map_windows(n, value)


def residual(n: int) -> SeriesKernel:
    """The youngest of the last n values minus their least-squares line.

    It is computed from differences to the window's oldest value, so the residual of a constant series is exactly 0.
    """
    places = _list_places(n)

    def value(windows: FloatArray) -> FloatArray:
        steps = windows - windows[0]
        average = add_oldest_first(steps) / n
        rise = add_oldest_first(steps * places) / _sum_squared_positions(n)
        return steps[-1] - (average + rise * ((n - 1) / 2))

    return map_windows(n, value)


def place_of_largest(n: int) -> SeriesKernel:
    """The position of the largest of the last n values, from 1 (oldest) to n (youngest); the oldest of equal ones."""
    return _place_of(np.maximum, n)


def place_of_smallest(n: int) -> SeriesKernel:
    """The position of the smallest of the last n values, from 1 (oldest) to n (youngest); the oldest of equal ones."""
    return _place_of(np.minimum, n)


def _place_of(pick: np.ufunc, n: int) -> SeriesKernel:
    def value(windows: FloatArray) -> FloatArray:
        best = pick.reduce(windows)
        return np.where(np.isnan(best), math.nan, (windows == best).argmax(axis=0) + 1.0)

    return map_windows(n, value)


def quantile(n: int, level: float) -> SeriesKernel:
    """The quantile `level` of the last n values.

    It is at position level * (n - 1) of the sorted values, counted from 0, with linear interpolation:
    lower + (upper - lower) * fraction.
    """
    lower = math.floor(level * (n - 1))
    upper = min(lower + 1, n - 1)
    fraction = level * (n - 1) - lower

    def value(windows: FloatArray) -> FloatArray:
        ordered = np.partition(windows, (lower, upper), axis=0)
        low, high = ordered[lower], ordered[upper]
        return np.where(high == low, low, low + (high - low) * fraction) * _compute_one_or_nan(windows)

    return map_windows(n, value)


def greater(x: FloatArray, y: FloatArray) -> FloatArray:
    """1 where x is greater than y, else 0; NaN where one of them is NaN; all [R, S]."""
    return np.where(np.isnan(x) | np.isnan(y), math.nan, x > y)


def less(x: FloatArray, y: FloatArray) -> FloatArray:
    """1 where x is less than y, else 0; NaN where one of them is NaN; all [R, S]."""
    return greater(y, x)


def plus(number: float) -> SeriesKernel:
    """The value plus a number."""
    return lambda x: x + number


def rank(n: int) -> SeriesKernel:
    """The rank of the youngest of the last n values, divided by n; equal values have the mean of their ranks."""

    def value(windows: FloatArray) -> FloatArray:
        youngest = windows[-1]
        lower_count = add_oldest_first((windows < youngest).astype(np.float64))
        equal_count = add_oldest_first((windows == youngest).astype(np.float64))
        return (lower_count + (equal_count + 1.0) / 2.0) / n * _compute_one_or_nan(windows)

    return map_windows(n, value)


def _compute_one_or_nan(windows: FloatArray) -> FloatArray:
    """1, or NaN where a window contains NaN."""
    return np.where(np.isnan(add_oldest_first(np.abs(windows))), math.nan, 1.0)
