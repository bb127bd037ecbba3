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
LONGEST_WINDOW: Final = 1000
SMALLEST_PLUS: Final = 1e-12
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


def flatness_of_sum(left: Flatness, right: Flatness) -> Flatness:
    """A level dominates a spread; a number does not, because it is not relative to the prices."""
    if Flatness.LEVEL in (left, right):
        return Flatness.LEVEL
    return left if left is right else Flatness.SPREAD


def flatness_of_product(left: Flatness, right: Flatness) -> Flatness:
    """A product with a spread is a spread."""
    if Flatness.SPREAD in (left, right):
        return Flatness.SPREAD
    return Flatness.NUMBER if left is right is Flatness.NUMBER else Flatness.LEVEL


def flatness_of_quotient(above: Flatness, below: Flatness) -> Flatness:
    """The numerator decides; the denominator is never a spread."""
    return Flatness.LEVEL if (above, below) == (Flatness.NUMBER, Flatness.LEVEL) else above


@final
@dataclass(frozen=True, slots=True)
class Window:
    """An integer argument of an operator, from `smallest` to LONGEST_WINDOW.

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


def _no_bars(_windows: tuple[int, ...]) -> int:
    return 0


def _n_bars(windows: tuple[int, ...]) -> int:
    return windows[0]


def _returns_window(windows: tuple[int, ...]) -> int:
    return windows[-1] - 1


def _level(*_arguments: Flatness) -> Flatness:
    return Flatness.LEVEL


def _spread(*_arguments: Flatness) -> Flatness:
    return Flatness.SPREAD


def _same(argument: Flatness) -> Flatness:
    return argument


def _any_spread(*arguments: Flatness) -> Flatness:
    return Flatness.SPREAD if Flatness.SPREAD in arguments else Flatness.LEVEL


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One named operator.

    Attributes:
        name: The name in expressions.
        series: Names of the series arguments, which come first.
        windows: The integer arguments, which come second.
        numbers: The other number arguments, which come last.
        kernel: Maps the integer and number arguments to the arithmetic.
        reach: Maps the integer arguments to the number of bars that it reads before the current one.
        flatness: Maps the flatness of the series arguments to that of the result.
        meaning: A one-line description.
    """

    name: str
    series: tuple[str, ...]
    windows: tuple[Window, ...] = ()
    numbers: tuple[Constant, ...] = ()
    kernel: Callable[..., Kernel]
    reach: Callable[[tuple[int, ...]], int] = field(default=_returns_window)
    flatness: Callable[..., Flatness] = field(default=_level)
    meaning: str

    @property
    def signature(self) -> str:
        """The operator's name with the names of its arguments."""
        settings = (setting.name for setting in (*self.windows, *self.numbers))
        return f"{self.name}({', '.join((*self.series, *settings))})"


def _elementwise(
    name: str, function: Kernel, meaning: str, *, series: tuple[str, ...] = ("x",), flatness: Callable[..., Flatness]
) -> Operator:
    return Operator(
        name=name, series=series, kernel=lambda: function, reach=_no_bars, flatness=flatness, meaning=meaning
    )


_X, _XY = ("x",), ("x", "y")
_N = (Window("n", 1),)
_N2 = (Window("n", 2),)
_TAPS = (Window("n", 1), Window("taps", 1))

_TABLE: Final = (
    Operator(
        name="Ref",
        series=_X,
        windows=(Window("n", 0),),
        kernel=kernels.ref,
        reach=_n_bars,
        flatness=_same,
        meaning="x, n bars ago",
    ),
    Operator(
        name="Delta",
        series=_X,
        windows=_N,
        kernel=kernels.delta,
        reach=_n_bars,
        flatness=_spread,
        meaning="x minus x, n bars ago",
    ),
    Operator(name="Mean", series=_X, windows=_N, kernel=kernels.mean, meaning="mean of the last n values"),
    Operator(name="Sum", series=_X, windows=_N, kernel=kernels.rolling_sum, meaning="sum of the last n values"),
    Operator(
        name="Std",
        series=_X,
        windows=_N2,
        kernel=kernels.deviation,
        flatness=_spread,
        meaning="sample standard deviation of the last n values (divisor n - 1)",
    ),
    Operator(
        name="Var",
        series=_X,
        windows=_N2,
        kernel=kernels.variance,
        flatness=_spread,
        meaning="sample variance of the last n values (divisor n - 1)",
    ),
    Operator(
        name="Max",
        series=_X,
        windows=_N,
        kernel=kernels.largest,
        meaning="largest of the last n values",
    ),
    Operator(
        name="Min",
        series=_X,
        windows=_N,
        kernel=kernels.smallest,
        meaning="smallest of the last n values",
    ),
    Operator(
        name="EMA",
        series=_X,
        windows=_TAPS,
        kernel=kernels.exponential,
        meaning="exponential average, weights falling by 1 - 2 / (n + 1) a bar, over the last `taps` values",
    ),
    Operator(
        name="Wilder",
        series=_X,
        windows=_TAPS,
        kernel=kernels.wilder,
        meaning="exponential average, weights falling by 1 - 1 / n a bar, over the last `taps` values",
    ),
    Operator(
        name="Slope",
        series=_X,
        windows=_N2,
        kernel=kernels.slope,
        flatness=_spread,
        meaning="slope per bar of the least-squares line through the last n values",
    ),
    Operator(
        name="Rsquare",
        series=_X,
        windows=_N2,
        kernel=kernels.determination,
        flatness=_spread,
        meaning="R squared of the least-squares line through the last n values; 0 for a constant",
    ),
    Operator(
        name="Resi",
        series=_X,
        windows=_N2,
        kernel=kernels.residual,
        flatness=_spread,
        meaning="x minus the least-squares line through the last n values",
    ),
    Operator(
        name="Corr",
        series=_XY,
        windows=_N2,
        kernel=kernels.correlation,
        flatness=_spread,
        meaning="Pearson's correlation of the last n pairs; 0 if one series is constant",
    ),
    Operator(
        name="Rank",
        series=_X,
        windows=_N,
        kernel=kernels.rank,
        meaning="rank of x among the last n values, from 1 / n to 1; equal values have the mean of their ranks",
    ),
    Operator(
        name="Quantile",
        series=_X,
        windows=_N,
        numbers=(Constant("level", 0.0, 1.0),),
        kernel=kernels.quantile,
        meaning="quantile `level` of the last n values, with linear interpolation",
    ),
    Operator(
        name="IdxMax",
        series=_X,
        windows=_N,
        kernel=kernels.place_of_largest,
        meaning="position of the largest of the last n values, 1 (oldest) to n (x); the oldest of equal ones",
    ),
    Operator(
        name="IdxMin",
        series=_X,
        windows=_N,
        kernel=kernels.place_of_smallest,
        meaning="position of the smallest of the last n values, 1 (oldest) to n (x); the oldest of equal ones",
    ),
    Operator(
        name="Plus",
        series=_X,
        numbers=(Constant("c", SMALLEST_PLUS, 1.0),),
        kernel=kernels.plus,
        reach=_no_bars,
        meaning="x + c, for formulas that divide by a range plus a constant c; at flat prices they divide by c",
    ),
    _elementwise("Abs", np.absolute, "absolute value", flatness=_same),
    _elementwise("Sign", np.sign, "-1, 0 or 1", flatness=_spread),
    _elementwise("Log", np.log, "natural logarithm", flatness=_level),
    _elementwise("Sqrt", np.sqrt, "square root", flatness=_same),
    _elementwise("Greater", np.maximum, "the larger of x and y", series=_XY, flatness=flatness_of_sum),
    _elementwise("Less", np.minimum, "the smaller of x and y", series=_XY, flatness=_any_spread),
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
