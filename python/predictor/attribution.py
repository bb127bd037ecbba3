"""What moved a forecast: `Attribution` and what a network tells of itself, plain values, equal at every door."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from predictor import charts
from predictor.arrays import BoolArray, FloatArray, IntArray
from predictor.errors import UnknownHorizonError, UnknownQuantileError
from predictor.skill import Skill, line_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
from predictor.forecast import row_of, session_in_words


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


class TargetPoint(NamedTuple):
    """One output of a model: a horizon in trading days and a quantile's level."""

    horizon: int
    quantile: float

    def index_in(self, horizons: Sequence[int], quantiles: Sequence[float]) -> tuple[int, int]:
        """Position of this point in a forecast's arrays.

        Raises:
            UnknownHorizonError: the model does not forecast that horizon; the message lists those it does.
            UnknownQuantileError: the same for the quantile.
        """
        if self.horizon not in horizons:
            raise UnknownHorizonError(f"horizon {self.horizon} is not forecast; the model has {list(horizons)}")
        for q, level in enumerate(quantiles):
            if abs(level - self.quantile) < _SAME_LEVEL:
                return list(horizons).index(self.horizon), q
        raise UnknownQuantileError(f"quantile {self.quantile:g} is not forecast; the model has {list(quantiles)}")


_SAME_LEVEL = 1e-9


class Contribution(NamedTuple):
    """One row of an attribution: a named input and what it added, in the target's unit."""

    name: str
    kind: RowKind
    value: float


INTERNALS_NOTE = "what the network turned to, not what moved the forecast"
"""Stands wherever internals are shown."""


class InternalAxis(StrEnum):
    """What an internal's shares are shares of."""

    INPUTS = "inputs"
    """Labels are names of variables."""
    SESSIONS = "sessions"
    """Labels count sessions from the last bar's, such as `-59`, `0` and `+5`."""


class Share(NamedTuple):
    """One entry of an internal, and its share of the whole."""

    label: str
    """A variable, or a session in words, such as `26 sessions before the last`."""
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Internal:
    """Weights of a network's own, such as attention: what it turned to on the way to one target, for S symbols.

    They are no contributions, and say nothing of what moved the forecast. Measured on fitted networks, the order of
    selection weights agreed with that of the true weights by anything from 0.1 to 1.0 (rank correlation), and
    attention found the true lags in 0 to 0.6 of the cases: by the time that it looks, the layers before it have moved
    information between variables and sessions, and a linear map beside the network passes all of it by.
    """

    name: str
    """Such as `attention`; that of an ensemble's member has the member's name in front."""
    axis: InternalAxis
    labels: tuple[str, ...]
    """[L] variables, or sessions by their distance from the last bar's; `table` puts these into words."""
    values: FloatArray
    """[S, L] shares that add up to 1; NaN for a symbol that could not be forecast."""

    def table(self, s: int = 0) -> list[Share]:
        """The shares of the symbol in row `s`, largest first."""
        order = np.argsort(-self.values[s], kind="stable")
        return [Share(self._in_words(self.labels[k]), float(self.values[s, k])) for k in order]

    def _in_words(self, label: str) -> str:
        return session_in_words(int(label)) if self.axis is InternalAxis.SESSIONS else label


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """Signed contributions of each input to one target, for S symbols.

    A symbol's rows add up to `prediction - baseline_prediction` within `relative_gap`.
    """

    symbols: tuple[str, ...]
    as_of_session: int
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
    sessions: IntArray
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
    """What the network says of itself, where it does: the selection of past, future and static variables, attention."""
    skill: Skill | None = None
    """How the model did on days that it had not seen; None if its card does not tell."""

    def to_numpy(self) -> FloatArray:
        """`per_row`, [S, R]."""
        return self.per_row

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


_SHOWN_SHARES = 5


def largest_shares(internal: Internal, s: int) -> str:
    """The largest shares of one symbol as text, such as `last session: 41 %, 1 session before the last: 12 %`.

    Empty if the symbol could not be forecast.
    """
    shown = [one for one in internal.table(s)[:_SHOWN_SHARES] if one.share > 0]
    return ", ".join(f"{one.label}: {100 * one.share:.0f} %" for one in shown)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """The attributions of one query, one a target in the order asked, and the time they took."""

    attributions: tuple[Attribution, ...]
    queue_ms: float
    compute_ms: float
