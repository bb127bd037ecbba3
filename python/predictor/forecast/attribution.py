"""Why a forecast is what it is: `Attribution`, the signed contributions of a model's inputs, equal at every door."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from predictor import charts
from predictor.arrays import BoolArray, FloatArray, IntArray
from predictor.errors import QuantraError, listed
from predictor.forecast.forecast import row_of
from predictor.internals import INTERNALS_NOTE, Internal, largest_shares
from predictor.skill import Skill, line_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class RowKind(StrEnum):
    """Which kind of input an attribution's row stands for."""

    OBSERVED = "observed"
    KNOWN = "known"
    STATIC = "static"
    LOCATION = "location"
    SCALE = "scale"
    CONFORMAL = "conformal"
    NEIGHBOURS = "neighbours"


class Detail(StrEnum):
    """How fine an attribution is: per feature, also per session, also per cell."""

    FEATURES = "features"
    TIMES = "times"
    CELLS = "cells"


class Contribution(NamedTuple):
    """One row of an attribution: a named input and what it added, in the target's unit."""

    name: str
    kind: RowKind
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Attribution:
    """Signed contributions of each input to one target, for S symbols.

    A symbol's rows add up to `prediction - baseline_prediction` within `relative_gap`.
    """

    symbols: tuple[str, ...]
    as_of_session: date | None
    horizon: int
    quantile: float
    method: str
    baseline: str
    """What the forecast is compared with."""
    unit: str
    row_names: tuple[str, ...]
    row_kinds: tuple[RowKind, ...]
    per_row: FloatArray
    """[S, R]"""
    sessions: tuple[date, ...]
    """[T] of the encoder; empty if unknown."""
    per_time: FloatArray | None
    """[S, T] observed and known rows by encoder session; None unless asked for."""
    cells: FloatArray | None
    """[S, T, F] observed features; None unless asked for."""
    prediction: FloatArray
    """[S] in the target's unit."""
    baseline_prediction: FloatArray
    """[S]"""
    relative_gap: FloatArray
    """[S] completeness: |sum of rows - (prediction - baseline_prediction)| relative to that difference, or to a
    twentieth of the window's own volatility where the difference is smaller."""
    converged: BoolArray
    """[S] whether the gap is within the tolerance asked for."""
    nodes: IntArray
    """[S] quadrature nodes used."""
    model: str
    version: int
    weights_hash: str
    warnings: tuple[str, ...]
    internals: tuple[Internal, ...] = ()
    """The network's internals, where it has any: the selection of past, future and static variables, attention."""
    skill: Skill | None = None
    """How the model did on days that it had not seen; None if its card does not say."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol without a forecast, and so with NaN rows, has none."""

    def to_numpy(self) -> FloatArray:
        """`per_row`, [S, R]."""
        return self.per_row

    def __repr__(self) -> str:
        """What is explained of whom, by which model, in one line."""
        return (
            f"<Attribution of {listed(self.symbols)}: horizon {self.horizon}, quantile {self.quantile:g}, "
            f"{len(self.row_names)} inputs; {self.model} version {self.version}>"
        )

    @property
    def importance(self) -> FloatArray:
        """[S, R] share of each row in the sum of absolute contributions; a symbol's shares add up to 1.

        Where no row contributes anything, because the forecast is the baseline's, every share is 0.
        """
        size = np.abs(self.per_row)
        total = size.sum(axis=1, keepdims=True)
        return np.divide(size, total, out=np.zeros_like(size), where=total != 0)

    def table(self, symbol: str | None = None) -> list[Contribution]:
        """The rows of one symbol (the first if none is named), largest absolute contribution first."""
        s = row_of(symbol, self.symbols)
        order = np.argsort(-np.abs(self.per_row[s]), kind="stable")
        return [Contribution(self.row_names[r], self.row_kinds[r], float(self.per_row[s, r])) for r in order]

    def plot(self, symbol: str | None = None) -> "Figure":
        """Bars of the rows of one symbol; needs the extra `report`."""
        rows = self.table(symbol)
        whose = f"{self.symbols[row_of(symbol, self.symbols)]}, {self.horizon} sessions ahead, q{self.quantile:g}"
        notes = (whose, line_of(self.skill))
        return charts.importance_bars([r.name for r in rows], np.array([r.value for r in rows]), self.unit, notes=notes)

    def _repr_html_(self) -> str:
        body = "".join(f"<tr><td>{escape(r.name)}</td><td>{r.value:+.3e}</td></tr>" for r in self.table())
        head = f"<tr><th>input</th><th>contribution ({escape(self.unit)})</th></tr>"
        return f"<table>{head}{body}</table>{self._internals_html()}<p>{escape(line_of(self.skill))}</p>"

    def _internals_html(self) -> str:
        """A heading and the largest shares of each internal; empty where there are none."""
        if not self.internals:
            return ""
        body = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{escape(largest_shares(one, 0))}</td></tr>" for one in self.internals
        )
        head = "<tr><th>internal</th><th>largest shares</th></tr>"
        return f"<p>Internals: {INTERNALS_NOTE}</p><table>{head}{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """The attributions of one query, one per target in the order asked, and the time they took."""

    attributions: tuple[Attribution, ...]
    queue_ms: float
    compute_ms: float
