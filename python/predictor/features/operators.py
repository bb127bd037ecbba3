"""Operator set 1: every named operator with its signature, look-back and arithmetic.

Names are those of Qlib if it has the operator. An artifact records its operator set, so the meaning of an operator must
never change. A new operator raises the set's number. A set includes all older sets, and a program rejects a newer set
than its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, final

import numpy as np

from predictor.features import kernels
from predictor.features.expression import BinaryOperator
from predictor.features.kernels import Kernel

OPERATOR_SET: Final = 1
MAX_WINDOW: Final = 1000
MIN_ADDEND: Final = 1e-12
"""A smaller number would be within the rounding of a price of 100."""


class Flatness(Enum):
    """The size of an expression at a flat price, which decides whether it may be a denominator.

    At a flat price a difference or a standard deviation is not exactly zero but rounding, and a quotient by rounding is
    meaningless. A spread may therefore be a denominator only with a term of the prices' size added.
    """

    NUMBER = auto()
    """A nonzero constant."""
    LEVEL = auto()
    """A value of the series' size."""
    SPREAD = auto()
    """Only rounding."""


def derive_sum_flatness(left: Flatness, right: Flatness) -> Flatness:
    """A level dominates a spread; a number does not, because it is not relative to the prices."""
    if Flatness.LEVEL in (left, right):
        return Flatness.LEVEL
    return left if left is right else Flatness.SPREAD


def derive_product_flatness(left: Flatness, right: Flatness) -> Flatness:
    """A product with a spread is a spread."""
    if Flatness.SPREAD in (left, right):
        return Flatness.SPREAD
    return Flatness.NUMBER if left is right is Flatness.NUMBER else Flatness.LEVEL


def derive_quotient_flatness(numerator: Flatness, denominator: Flatness) -> Flatness:
    """The numerator decides; the denominator is never a spread."""
    return Flatness.LEVEL if (numerator, denominator) == (Flatness.NUMBER, Flatness.LEVEL) else numerator


@final
@dataclass(frozen=True, slots=True)
class Window:
    """An integer argument of an operator, from `smallest` to MAX_WINDOW.

    Attributes:
        name: The name in the signature.
        smallest: The smallest allowed value.
    """

    name: str
    smallest: int


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """A number argument of an operator, from `smallest` to `largest`.

    Attributes:
        name: The name in the signature.
        smallest: The smallest allowed value.
        largest: The largest allowed value.
    """

    name: str
    smallest: float
    largest: float


def _count_no_bars(_windows: tuple[int, ...]) -> int:
    return 0


def _count_window(windows: tuple[int, ...]) -> int:
    return windows[0]


def _count_returns_window(windows: tuple[int, ...]) -> int:
    return windows[-1] - 1


def _give_level(*_arguments: Flatness) -> Flatness:
    return Flatness.LEVEL


def _measure_spread(*_arguments: Flatness) -> Flatness:
    return Flatness.SPREAD


def _keep_flatness(argument: Flatness) -> Flatness:
    return argument


def _find_spread(*arguments: Flatness) -> Flatness:
    return Flatness.SPREAD if Flatness.SPREAD in arguments else Flatness.LEVEL


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One named operator.

    Attributes:
        name: The name in expressions.
        series: Names of the series arguments, which come first.
        windows: The integer arguments, which come second.
        kernel: Maps the integer and number arguments to the arithmetic.
        meaning: A one-line description.
        flatness: Maps the flatness of the series arguments to that of the result.
        reach: Maps the integer arguments to the number of bars that it reads before the current one.
        numbers: The other number arguments, which come last.
    """

    name: str
    series: tuple[str, ...]
    windows: tuple[Window, ...]
    kernel: Callable[..., Kernel]
    meaning: str
    flatness: Callable[..., Flatness] = field(default=_give_level)
    reach: Callable[[tuple[int, ...]], int] = field(default=_count_returns_window)
    numbers: tuple[Constant, ...] = ()

    @property
    def signature(self) -> str:
        """The operator's name with the names of its arguments."""
        settings = (setting.name for setting in (*self.windows, *self.numbers))
        return f"{self.name}({', '.join((*self.series, *settings))})"


def _make_elementwise(
    name: str, function: Kernel, meaning: str, flatness: Callable[..., Flatness], series: tuple[str, ...] = ("x",)
) -> Operator:
    return Operator(name, series, (), lambda: function, meaning, flatness, _count_no_bars)


_X, _XY = ("x",), ("x", "y")
_N = (Window("n", 1),)
_N2 = (Window("n", 2),)
_TAPS = (Window("n", 1), Window("taps", 1))

_TABLE: Final = (
    Operator("Ref", _X, (Window("n", 0),), kernels.ref, "x, n bars ago", _keep_flatness, _count_window),
    Operator("Delta", _X, _N, kernels.delta, "x minus x, n bars ago", _measure_spread, _count_window),
    Operator("Mean", _X, _N, kernels.mean, "mean of the last n values"),
    Operator("Sum", _X, _N, kernels.rolling_sum, "sum of the last n values"),
    Operator(
        "Std",
        _X,
        _N2,
        kernels.deviation,
        "sample standard deviation of the last n values (divisor n - 1)",
        _measure_spread,
    ),
    Operator("Var", _X, _N2, kernels.variance, "sample variance of the last n values (divisor n - 1)", _measure_spread),
    Operator("Max", _X, _N, kernels.largest, "largest of the last n values"),
    Operator("Min", _X, _N, kernels.smallest, "smallest of the last n values"),
    Operator(
        "EMA",
        _X,
        _TAPS,
        kernels.exponential,
        "exponential average, weights falling by 1 - 2 / (n + 1) a bar, over the last `taps` values",
    ),
    Operator(
        "Wilder",
        _X,
        _TAPS,
        kernels.wilder,
        "exponential average, weights falling by 1 - 1 / n a bar, over the last `taps` values",
    ),
    Operator(
        "Slope",
        _X,
        _N2,
        kernels.slope,
        "slope per bar of the least-squares line through the last n values",
        _measure_spread,
    ),
    Operator(
        "Rsquare",
        _X,
        _N2,
        kernels.determination,
        "R squared of the least-squares line through the last n values; 0 for a constant",
        _measure_spread,
    ),
    Operator(
        "Resi", _X, _N2, kernels.residual, "x minus the least-squares line through the last n values", _measure_spread
    ),
    Operator(
        "Corr",
        _XY,
        _N2,
        kernels.correlation,
        "Pearson's correlation of the last n pairs; 0 if one series is constant",
        _measure_spread,
    ),
    Operator(
        "Rank",
        _X,
        _N,
        kernels.rank,
        "rank of x among the last n values, from 1 / n to 1; equal values have the mean of their ranks",
    ),
    Operator(
        "Quantile",
        _X,
        _N,
        kernels.quantile,
        "quantile `level` of the last n values, with linear interpolation",
        numbers=(Constant("level", 0.0, 1.0),),
    ),
    Operator(
        "IdxMax",
        _X,
        _N,
        kernels.place_of_largest,
        "position of the largest of the last n values, 1 (oldest) to n (x); the oldest of equal ones",
    ),
    Operator(
        "IdxMin",
        _X,
        _N,
        kernels.place_of_smallest,
        "position of the smallest of the last n values, 1 (oldest) to n (x); the oldest of equal ones",
    ),
    Operator(
        "Plus",
        _X,
        (),
        kernels.plus,
        "x + c, for formulas that divide by a range plus a constant c; at flat prices they divide by c",
        reach=_count_no_bars,
        numbers=(Constant("c", MIN_ADDEND, 1.0),),
    ),
    _make_elementwise("Abs", np.absolute, "absolute value", _keep_flatness),
    _make_elementwise("Sign", np.sign, "-1, 0 or 1", _measure_spread),
    _make_elementwise("Log", np.log, "natural logarithm", _give_level),
    _make_elementwise("Sqrt", np.sqrt, "square root", _keep_flatness),
    _make_elementwise("Greater", np.maximum, "the larger of x and y", derive_sum_flatness, _XY),
    _make_elementwise("Less", np.minimum, "the smaller of x and y", _find_spread, _XY),
)

OPERATORS: Final[Mapping[str, Operator]] = {operator.name: operator for operator in _TABLE}
"""Operator set 1 by name."""

BINARY_KERNELS: Final[Mapping[BinaryOperator, Kernel]] = {
    ">": kernels.greater,
    "<": kernels.less,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
"""The element-wise arithmetic of two series."""
