"""Compiles expressions to a list of steps, which is then evaluated over many panels.

Equal sub-expressions become one step. Internally, a series is [rows, symbols] and its rows begin at its own look-back:
every value has a full window, and the rows before, which are NaN by definition, are not computed.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.features.expression import Binary, Call, Expression, Field, Negative, Number, collect_fields
from predictor.features.kernels import Kernel
from predictor.features.operators import BINARY_KERNELS, OPERATORS

NOTHING: Final = np.zeros(0)
"""The content of an empty or released slot."""


class _Source(NamedTuple):
    """A step's input: its slot, and the number of its oldest rows to skip."""

    slot: int
    skipped: int


class _Step(NamedTuple):
    """One operation; stores its result in `slot` and releases the slots that no later step needs."""

    kernel: Kernel
    sources: tuple[_Source, ...]
    """One or two."""
    slot: int
    reach: int
    """Number of earlier rows of its inputs that a value depends on."""
    released: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Series:
    """A slot while the plan is being built."""

    slot: int
    lookback: int
    is_constant: bool


@final
class EvaluationPlan:
    """The steps that evaluate several expressions together.

    Attributes:
        fields: The columns that the expressions read.
        fields_of_each: The columns that each expression reads.
        lookbacks: Look-back of each expression in bars, including the current one.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        builder = _PlanBuilder()
        outputs = [builder.series_of(expression) for expression in expressions]
        self.fields: tuple[str, ...] = tuple(builder.fields)
        self.fields_of_each: tuple[frozenset[str], ...] = tuple(map(collect_fields, expressions))
        self.lookbacks: tuple[int, ...] = tuple(series.lookback for series in outputs)
        self._field_slots = tuple(builder.fields.values())
        self._outputs = tuple(series.slot for series in outputs)
        self._slots: list[FloatArray] = list(builder.constants)
        self._steps = _mark_releases(builder.steps, (*self._outputs, *builder.number_slots))
        self._rows_before = _count_rows_before(self._steps, self._outputs, builder.constant_slots)
        # the same steps for series that begin at their first needed row; all end on the last session
        before = self._rows_before
        self._steps_of_last = tuple(
            step._replace(
                sources=tuple(
                    _Source(source.slot, max(0, before[source.slot] - before[step.slot] - step.reach))
                    for source in step.sources
                )
            )
            for step in self._steps
        )

    @property
    def lookback(self) -> int:
        """The longest look-back of the expressions; 1 without expressions."""
        return max(self.lookbacks, default=1)

    def evaluate(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """Run the steps.

        Args:
            columns: At least `fields`, each [S, T], NaN = unknown.

        Returns:
            [F, T, S] for F expressions; NaN where a window is incomplete or contains NaN.
        """
        symbols, sessions = next(iter(columns.values())).shape
        missing = max(0, self.lookback - sessions)
        slots = self._slots.copy()
        for name, slot in zip(self.fields, self._field_slots, strict=True):
            slots[slot] = _transpose(columns[name], missing)
        _run(self._steps, slots)
        result = np.empty((len(self._outputs), sessions + missing, symbols))
        for values, slot, lookback in zip(result, self._outputs, self.lookbacks, strict=True):
            values[: lookback - 1] = np.nan
            values[lookback - 1 :] = slots[slot]
        return result[:, missing:]

    def evaluate_last(self, columns: Mapping[str, FloatArray], rows: int) -> FloatArray:
        """As `evaluate`, for the last `rows` sessions only, [F, rows, S]; computes only what they depend on."""
        symbols, sessions = next(iter(columns.values())).shape
        if sessions < rows + self.lookback - 1:
            return self.evaluate(columns)[:, -rows:]
        slots = self._slots.copy()
        for name, slot in zip(self.fields, self._field_slots, strict=True):
            slots[slot] = _transpose(columns[name][:, -rows - self._rows_before[slot] :])
        _run(self._steps_of_last, slots)
        result = np.empty((len(self._outputs), rows, symbols))
        for values, slot in zip(result, self._outputs, strict=True):
            values[:] = slots[slot][self._rows_before[slot] :] if self._rows_before[slot] else slots[slot]
        return result


def _transpose(column: FloatArray, missing: int = 0) -> FloatArray:
    """Transpose to a contiguous [T, S], after `missing` rows of NaN."""
    if missing:
        column = np.pad(column, ((0, 0), (missing, 0)), constant_values=np.nan)
    return np.ascontiguousarray(column.T)


def _run(steps: Sequence[_Step], slots: list[FloatArray]) -> None:
    with np.errstate(all="ignore"):
        for kernel, sources, slot, _, released in steps:
            source, skipped = sources[0]
            x = slots[source][skipped:] if skipped else slots[source]
            if len(sources) == 1:  # as most; a comprehension over the sources would take as long as a short kernel
                slots[slot] = kernel(x)
            else:
                source, skipped = sources[1]
                slots[slot] = kernel(x, slots[source][skipped:] if skipped else slots[source])
            for unneeded in released:
                slots[unneeded] = NOTHING


def _mark_releases(steps: Sequence[_Step], kept_slots: Sequence[int]) -> tuple[_Step, ...]:
    """Mark the slots that no later step reads for release, so that memory is reused while it is in cache."""
    live_slots = set(kept_slots)
    result: list[_Step] = []
    for step in reversed(steps):
        unneeded = {source.slot for source in step.sources} - live_slots
        live_slots |= unneeded
        result.append(step._replace(released=tuple(sorted(unneeded))))
    return tuple(reversed(result))


def _count_rows_before(steps: Sequence[_Step], outputs: Sequence[int], constants: Collection[int]) -> Mapping[int, int]:
    """The number of earlier rows of each slot that the outputs' last row depends on; 0 for a constant."""
    before = dict.fromkeys((*outputs, *constants), 0)
    for step in reversed(steps):
        for source in step.sources:
            if source.slot not in constants:
                before[source.slot] = max(before.get(source.slot, 0), before[step.slot] + step.reach)
    return before


@final
class _PlanBuilder:
    """Assigns one slot to every distinct sub-expression, children before parents."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self.constants: list[FloatArray] = []
        self.steps: list[_Step] = []
        self._series_by_key: dict[Hashable, _Series] = {}

    @property
    def number_slots(self) -> tuple[int, ...]:
        """The slots of numbers, which are never released."""
        return tuple(slot for slot, value in enumerate(self.constants) if value is not NOTHING)

    @property
    def constant_slots(self) -> frozenset[int]:
        """The slots of numbers and of expressions of only numbers."""
        return frozenset(series.slot for series in self._series_by_key.values() if series.is_constant)

    def series_of(self, expression: Expression) -> _Series:
        """Return the slot of an expression, creating its steps if necessary."""
        match expression:
            case Number(value):
                return self._get_or_add_leaf(("number", value), np.array(value))
            case Field(name):
                series = self._get_or_add_leaf(("field", name), NOTHING)
                self.fields[name] = series.slot
                return series
            case Negative(operand):
                return self._apply_kernel("-", np.negative, (self.series_of(operand),))
            case Binary(operator, left, right):
                parts = (self.series_of(left), self.series_of(right))
                return self._apply_kernel(operator, BINARY_KERNELS[operator], parts)
            case Call():
                operator = OPERATORS[expression.operator]
                parts = tuple(self.series_of(argument) for argument in expression.arguments)
                settings = (*expression.windows, *expression.numbers)
                return self._apply_kernel(
                    expression.operator, operator.kernel(*settings), parts, settings, operator.reach(expression.windows)
                )

    def _get_or_add_leaf(self, key: Hashable, value: FloatArray) -> _Series:
        if key not in self._series_by_key:
            self._series_by_key[key] = _Series(len(self.constants), 1, is_constant=value is not NOTHING)
            self.constants.append(value)
        return self._series_by_key[key]

    def _apply_kernel(
        self, name: str, kernel: Kernel, parts: tuple[_Series, ...], settings: tuple[float, ...] = (), reach: int = 0
    ) -> _Series:
        key = (name, tuple(part.slot for part in parts), settings)
        if key not in self._series_by_key:
            lookback = max(part.lookback for part in parts)
            constant = all(part.is_constant for part in parts)
            slot = len(self.constants)
            self.constants.append(NOTHING)
            sources = tuple(_Source(part.slot, 0 if part.is_constant else lookback - part.lookback) for part in parts)
            self.steps.append(_Step(kernel, sources, slot, reach))
            self._series_by_key[key] = _Series(slot, lookback + reach, constant)
        return self._series_by_key[key]
