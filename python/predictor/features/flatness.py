"""What an expression becomes where prices do not move, which decides whether it may stand below a division.

At a flat price a difference or a standard deviation is no clean zero but rounding, and something divided by rounding
is a number that means nothing. So a spread may be a denominator only with something of the prices' own size added.
"""

from enum import Enum, auto


class Flatness(Enum):
    """What is left at a flat price."""

    NUMBER = auto()
    """A constant other than zero."""
    LEVEL = auto()
    """Something of the series' own size."""
    SPREAD = auto()
    """Nothing but rounding."""


def of_sum(left: Flatness, right: Flatness) -> Flatness:
    """A level saves a spread; a number does not, because it is not relative to the prices."""
    if Flatness.LEVEL in (left, right):
        return Flatness.LEVEL
    return left if left is right else Flatness.SPREAD


def of_product(left: Flatness, right: Flatness) -> Flatness:
    """A spread stays one, whatever it is multiplied with."""
    if Flatness.SPREAD in (left, right):
        return Flatness.SPREAD
    return Flatness.NUMBER if left is right is Flatness.NUMBER else Flatness.LEVEL


def of_quotient(above: Flatness, below: Flatness) -> Flatness:
    """What stands above decides; below there is no spread."""
    return Flatness.LEVEL if (above, below) == (Flatness.NUMBER, Flatness.LEVEL) else above
