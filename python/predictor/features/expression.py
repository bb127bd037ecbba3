"""A feature's expression as a tree of immutable nodes, and the one text that prints it.

The tree is what a feature means. Its text is fully resolved: no defaults, whole numbers for windows, numbers as the
shortest decimals that read back to the same bits, and parentheses only where the tree needs them.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, final

BinaryOperator = Literal[">", "<", "+", "-", "*", "/"]

_COMPARISON, _SUM, _PRODUCT, _NEGATIVE, _ATOM = 1, 2, 3, 4, 5
_BINDING: Final = {">": _COMPARISON, "<": _COMPARISON, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}
_LARGEST_PLAIN_WHOLE_NUMBER: Final = 1e15


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A constant, finite and not negative (a negative one is a `Negative` of it)."""

    value: float

    def __post_init__(self) -> None:
        """Refuse what the text cannot say."""
        if not math.isfinite(self.value) or math.copysign(1.0, self.value) < 0:
            raise ValueError(f"a number in an expression must be finite and not negative, but is {self.value}")

    def __str__(self) -> str:
        """Shortest decimal, without a fraction of zero."""
        return _text_of_number(self.value)


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A column of the bars or of the calendar; `name` is without the dollar."""

    name: str

    def __str__(self) -> str:
        """The name with its dollar."""
        return f"${self.name}"


@final
@dataclass(frozen=True, slots=True)
class Negative:
    """The operand with the other sign."""

    operand: "Expression"

    def __str__(self) -> str:
        """A minus before the operand."""
        return f"-{_within(self.operand, _NEGATIVE)}"


@final
@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands, element by element."""

    operator: BinaryOperator
    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        """Both operands; the right one in parentheses if it binds no tighter, because operators group from the left.

        A comparison does not group at all, so its left operand obeys the same rule.
        """
        binding = _BINDING[self.operator]
        left = _within(self.left, binding + (binding == _COMPARISON))
        return f"{left} {self.operator} {_within(self.right, binding + 1)}"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A named operator over series; `windows` holds the whole numbers of its signature, `numbers` the others."""

    operator: str
    arguments: tuple["Expression", ...]
    windows: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Series first, then windows, then numbers."""
        texts = (*map(str, self.arguments), *map(str, self.windows), *map(_text_of_number, self.numbers))
        return f"{self.operator}({', '.join(texts)})"


Expression = Number | Field | Negative | Binary | Call


def fields_of(expression: Expression) -> frozenset[str]:
    """The columns that an expression reads."""
    match expression:
        case Number():
            return frozenset()
        case Field(name):
            return frozenset((name,))
        case Negative(operand):
            return fields_of(operand)
        case Binary(_, left, right):
            return fields_of(left) | fields_of(right)
        case Call():
            return frozenset[str]().union(*map(fields_of, expression.arguments))


def _within(expression: Expression, binding: int) -> str:
    """The text, in parentheses if it binds less tightly than its place demands."""
    return f"({expression})" if _binding_of(expression) < binding else str(expression)


def _binding_of(expression: Expression) -> int:
    if isinstance(expression, Binary):
        return _BINDING[expression.operator]
    return _NEGATIVE if isinstance(expression, Negative) else _ATOM


def _text_of_number(value: float) -> str:
    """`5`, `0.25`, `1e-9`: the digits of Python's shortest form, the exponent without plus and zeros."""
    if value.is_integer() and value <= _LARGEST_PLAIN_WHOLE_NUMBER:
        return str(int(value))
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits
