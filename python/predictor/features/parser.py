"""Parser for feature expressions. Nothing is executed as code; errors show the position with a caret.

comparison = sum [ (">" | "<") sum ]
sum        = product { ("+" | "-") product }
product    = unary { ("*" | "/") unary }
unary      = "-" unary | atom
atom       = number | "$" field | operator "(" arguments ")" | "(" comparison ")"
"""

import math
import re
from dataclasses import dataclass
from typing import Final, cast, final

from predictor.errors import ExpressionError
from predictor.features import operators
from predictor.features.expression import Binary, BinaryOperator, Call, Expression, Field, FieldSet, Negative, Number
from predictor.features.operators import MAX_WINDOW, OPERATORS, Constant, Flatness, Operator, Window

MAX_TEXT_LENGTH: Final = 2000
DEEPEST_NESTING: Final = 32
MAX_NODES: Final = 500
MAX_LOOKBACK: Final = 2000

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<field>\$[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>[-+*/(),<>])"
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_WHOLE: Final = re.compile(r"[0-9]+")


def parse(text: str, fields: FieldSet) -> Expression:
    """Parse an expression and make all checks that do not need bars.

    Args:
        text: The expression, with at most 2000 characters, also in canonical form, 500 nodes, 32 levels of nesting and
            a look-back of 2000 bars.
        fields: The columns that it may read.

    Raises:
        ExpressionError: The expression is invalid; the error has the first invalid position.
    """
    return _Parser(text, fields).parse()


@final
@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedTerm:
    """A parsed subexpression with its position and the properties that are checked."""

    tree: Expression
    position: int
    height: int
    lookback: int
    flatness: Flatness
    is_constant: bool


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


@final
class _Parser:
    """A recursive-descent parser."""

    def __init__(self, text: str, fields: FieldSet) -> None:
        self._text = text
        self._fields = fields
        if len(text) > MAX_TEXT_LENGTH:
            raise ExpressionError.at(text, MAX_TEXT_LENGTH, f"an expression has at most {MAX_TEXT_LENGTH} characters")
        tokens: list[_Token] = []
        position = _skip_space(text, 0)
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ExpressionError.at(text, position, f"unexpected {text[position]!r}")
            tokens.append(_Token(match.lastgroup or "", match.group(), position))
            position = _skip_space(text, match.end())
        self._tokens = [*tokens, _Token("end", "", len(text))]
        self._position = 0
        self._nodes = 0

    def parse(self) -> Expression:
        part = self._parse_comparison(0)
        if self._token.kind != "end":
            raise self._make_error(self._token.position, f"expected an operator or the end, found {self._token.text!r}")
        if part.is_constant:
            raise self._make_error(part.position, "a feature must read at least one field")
        length = len(str(part.tree))
        if length > MAX_TEXT_LENGTH:  # an artifact stores the canonical text and must be able to parse it
            problem = f"in canonical form it has {length} characters, at most {MAX_TEXT_LENGTH} are allowed"
            raise self._make_error(part.position, problem)
        return part.tree

    @property
    def _token(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        token = self._token
        self._position += 1
        return token

    def _take_symbol(self, symbol: str) -> bool:
        """Consume the symbol if it comes next."""
        is_there = self._token.kind == "symbol" and self._token.text == symbol
        self._position += is_there
        return is_there

    def _make_error(self, position: int, problem: str) -> ExpressionError:
        return ExpressionError.at(self._text, position, problem)

    def _parse_comparison(self, depth: int) -> _ParsedTerm:
        left = self._sum(depth)
        if self._token.text not in (">", "<"):
            return left
        return self._build_binary(self._take(), left, self._sum(depth))

    def _sum(self, depth: int) -> _ParsedTerm:
        left = self._parse_product(depth)
        while self._token.text in ("+", "-"):
            operator = self._take()
            left = self._build_binary(operator, left, self._parse_product(depth))
        return left

    def _parse_product(self, depth: int) -> _ParsedTerm:
        left = self._parse_unary(depth)
        while self._token.text in ("*", "/"):
            operator = self._take()
            left = self._build_binary(operator, left, self._parse_unary(depth))
        return left

    def _parse_unary(self, depth: int) -> _ParsedTerm:
        position = self._token.position
        if not self._take_symbol("-"):
            return self._parse_atom(depth)
        operand = self._parse_unary(self._check_depth(depth, position))
        return self._build_node(
            Negative(operand.tree), (operand,), position, flatness=operand.flatness, lookback=operand.lookback
        )

    def _parse_atom(self, depth: int) -> _ParsedTerm:
        token = self._take()
        if token.kind == "number":
            value = float(token.text)
            if not math.isfinite(value):
                raise self._make_error(token.position, f"{token.text} is too large for a number")
            kind = Flatness.NUMBER if value else Flatness.SPREAD
            return self._build_node(Number(value), (), token.position, flatness=kind, lookback=1)
        if token.kind == "field":
            name = token.text[1:]
            if name not in self._fields.formulas:
                have = ", ".join(f"${field}" for field in self._fields.formulas)
                raise self._make_error(
                    token.position, f"unknown field {token.text}; {self._fields.name} fields are {have}"
                )
            return self._build_node(Field(name), (), token.position, flatness=Flatness.LEVEL, lookback=1)
        if token.kind == "name":
            return self._call(token, self._check_depth(depth, token.position))
        if token.text == "(":
            part = self._parse_comparison(self._check_depth(depth, token.position))
            self._close(token)
            return part
        text = "the end" if token.kind == "end" else repr(token.text)
        raise self._make_error(token.position, f"expected a number, a field or an operator, found {text}")

    def _check_depth(self, depth: int, position: int) -> int:
        if depth >= DEEPEST_NESTING:
            raise self._make_error(position, f"an expression may be nested at most {DEEPEST_NESTING} deep")
        return depth + 1

    def _close(self, opening: _Token) -> None:
        if not self._take_symbol(")"):
            opened = f"the parenthesis of column {opening.position + 1}"
            raise self._make_error(self._token.position, f"expected ')' to close {opened}")

    def _build_binary(self, operator: _Token, left: _ParsedTerm, right: _ParsedTerm) -> _ParsedTerm:
        if operator.text == "/":
            if right.tree == Number(0.0):
                raise self._make_error(right.position, "division by zero")
            if right.flatness is Flatness.SPREAD:
                problem = "this denominator is only rounding at flat prices; add a term of their size"
                raise self._make_error(
                    right.position, f"{problem}, as in x / (Std($close, 20) + 1e-9 * Mean($close, 20))"
                )
        combine = {
            "+": operators.derive_sum_flatness,
            "*": operators.derive_product_flatness,
            "/": operators.derive_quotient_flatness,
        }
        derive = combine.get(operator.text)
        kind = Flatness.SPREAD if derive is None else derive(left.flatness, right.flatness)
        tree = Binary(cast("BinaryOperator", operator.text), left.tree, right.tree)
        lookback = max(left.lookback, right.lookback)
        return self._build_node(
            tree, (left, right), operator.position, flatness=kind, lookback=lookback, start=left.position
        )

    def _call(self, name: _Token, depth: int) -> _ParsedTerm:
        operator = OPERATORS.get(name.text)
        if operator is None:
            hint = f"; did you mean ${name.text}?" if name.text in self._fields.formulas else ""
            raise self._make_error(
                name.position, f"unknown operator {name.text}; use one of {', '.join(OPERATORS)}{hint}"
            )
        if not self._take_symbol("("):
            raise self._make_error(self._token.position, f"expected '(' after {name.text}: {operator.signature}")
        series = tuple(self._parse_series(operator, position, depth) for position in range(len(operator.series)))
        windows = tuple(
            self._parse_window(operator, window, len(series) + position)
            for position, window in enumerate(operator.windows)
        )
        numbers = tuple(
            self._parse_constant(operator, constant, len(series) + len(windows) + position)
            for position, constant in enumerate(operator.numbers)
        )
        if not self._take_symbol(")"):
            raise self._make_error(
                self._token.position, f"expected ')' after the last argument of {operator.signature}"
            )
        return self._build_node(
            Call(operator.name, tuple(part.tree for part in series), windows, numbers),
            series,
            name.position,
            flatness=operator.flatness(*(part.flatness for part in series)),
            lookback=max(part.lookback for part in series) + operator.reach(windows),
        )

    def _start_argument(self, operator: Operator, index: int) -> None:
        """Consume the comma before every argument except the first; raise if the arguments end here."""
        token = self._token
        is_end = token.text == ")"
        if not is_end and index and not self._take_symbol(","):
            raise self._make_error(token.position, f"expected ',' between the arguments of {operator.signature}")
        if is_end:
            count = len(operator.series) + len(operator.windows) + len(operator.numbers)
            raise self._make_error(token.position, f"{operator.signature} has {count} arguments, found {index}")

    def _parse_series(self, operator: Operator, index: int, depth: int) -> _ParsedTerm:
        self._start_argument(operator, index)
        part = self._parse_comparison(depth)
        if operator.windows and part.is_constant:
            problem = f"{operator.name} looks back over a series, but this is a number"
            raise self._make_error(part.position, problem)
        return part

    def _parse_window(self, operator: Operator, window: Window, index: int) -> int:
        self._start_argument(operator, index)
        token = self._token
        if token.text == "-" and operator.name in ("Ref", "Delta"):
            raise self._make_error(
                token.position, f"{operator.name} with a negative {window.name} would read the future"
            )
        allowed = f"{window.name} of {operator.signature} must be a whole number from {window.smallest} to"
        if not _WHOLE.fullmatch(token.text):
            raise self._make_error(token.position, f"{allowed} {MAX_WINDOW}, found {token.text or 'the end'!r}")
        value = int(self._take().text)
        if not window.smallest <= value <= MAX_WINDOW:
            raise self._make_error(token.position, f"{allowed} {MAX_WINDOW}, but is {token.text}")
        if self._token.text not in (",", ")"):
            raise self._make_error(token.position, f"{allowed} {MAX_WINDOW}, not an expression")
        return value

    def _parse_constant(self, operator: Operator, constant: Constant, index: int) -> float:
        self._start_argument(operator, index)
        token = self._token
        allowed = f"{constant.name} of {operator.signature} must be a number from {constant.smallest:g} to"
        if token.kind != "number":
            raise self._make_error(token.position, f"{allowed} {constant.largest:g}, found {token.text or 'the end'!r}")
        value = float(self._take().text)
        if not constant.smallest <= value <= constant.largest:
            raise self._make_error(token.position, f"{allowed} {constant.largest:g}, but is {token.text}")
        return value

    def _build_node(
        self,
        tree: Expression,
        parts: tuple[_ParsedTerm, ...],
        position: int,
        *,
        flatness: Flatness,
        lookback: int,
        start: int | None = None,
    ) -> _ParsedTerm:
        """Create a node after checking the limits of size, depth and look-back."""
        self._nodes += 1
        height = 1 + max((part.height for part in parts), default=0)
        if self._nodes > MAX_NODES:
            raise self._make_error(position, f"an expression has at most {MAX_NODES} nodes")
        if height > DEEPEST_NESTING:
            problem = f"an expression may be nested at most {DEEPEST_NESTING} deep; group long sums with parentheses"
            raise self._make_error(position, problem)
        if lookback > MAX_LOOKBACK:
            raise self._make_error(position, f"this looks back {lookback} bars, at most {MAX_LOOKBACK} are allowed")
        return _ParsedTerm(
            tree=tree,
            position=position if start is None else start,
            height=height,
            lookback=lookback,
            flatness=flatness,
            is_constant=not isinstance(tree, Field) and all(part.is_constant for part in parts),
        )
