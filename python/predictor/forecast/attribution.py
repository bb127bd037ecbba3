"""`Attribution`, the signed contributions of a model's inputs to a forecast."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from predictor import charts
from predictor.arrays import BoolArray, FloatArray, IntArray
from predictor.errors import QuantraError, format_names
from predictor.forecast.forecast import find_row
from predictor.internals import INTERNALS_NOTE, Internal, format_largest_shares
from predictor.skill import Skill, format_skill

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class RowKind(StrEnum):
    """The kind of input in a row of an attribution."""

    OBSERVED = "observed"
    KNOWN = "known"
    STATIC = "static"
    LOCATION = "location"
    SCALE = "scale"
    CONFORMAL = "conformal"
    NEIGHBOURS = "neighbours"


_SHOWN_ROWS: Final = 15
"""Rows of a picture; the others are summed."""
_OF_WINDOW: Final = frozenset({RowKind.LOCATION, RowKind.SCALE, RowKind.CONFORMAL})
"""Rows that a model without a network has too."""


class Detail(StrEnum):
    """Level of detail of an attribution: per feature, plus per session, plus per cell."""

    FEATURES = "features"
    TIMES = "times"
    CELLS = "cells"


class Contribution(NamedTuple):
    """One row of an attribution: an input and its contribution, in the target's unit."""

    name: str
    kind: RowKind
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Attribution:
    """Signed contributions of each input to one target, for S symbols.

    A symbol's rows add up to `prediction - baseline_prediction` within `relative_gap`, which is large for occlusion.
    """

    symbols: tuple[str, ...]
    as_of_session: date | None
    horizon: int
    quantile: float
    method: str
    baseline: str
    """Name of the baseline that the forecast is compared with."""
    unit: str
    row_names: tuple[str, ...]
    row_kinds: tuple[RowKind, ...]
    per_row: FloatArray
    """[S, R]"""
    sessions: tuple[date, ...]
    """[T] encoder sessions; empty if unknown."""
    per_time: FloatArray | None
    """[S, T] contributions of observed and known inputs by encoder session; None unless requested."""
    cells: FloatArray | None
    """[S, T, F] contributions of observed features by cell; None unless requested."""
    prediction: FloatArray
    """[S] in the target's unit."""
    baseline_prediction: FloatArray
    """[S]"""
    relative_gap: FloatArray
    """[S] completeness gap: |sum of rows - (prediction - baseline_prediction)| / |prediction - baseline_prediction|.

    The denominator is at least a twentieth of the window's volatility.
    """
    converged: BoolArray
    """[S] whether the gap is within the requested tolerance."""
    nodes: IntArray
    """[S] quadrature nodes used."""
    model: str
    version: int
    weights_hash: str
    warnings: tuple[str, ...]
    internals: tuple[Internal, ...] = ()
    """The network's internals, if any: selection of past, future and static variables, and attention."""
    skill: Skill | None = None
    """The model's skill on unseen days; None if its card does not state it."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol without a forecast; its rows are NaN."""

    def to_numpy(self) -> FloatArray:
        """`per_row`, [S, R]."""
        return self.per_row

    def __repr__(self) -> str:
        """Summarise the attribution in one line."""
        return (
            f"<Attribution of {format_names(self.symbols)}: horizon {self.horizon}, quantile {self.quantile:g}, "
            f"{len(self.row_names)} inputs; {self.model} version {self.version}>"
        )

    @property
    def importance(self) -> FloatArray:
        """[S, R] share of each row in the sum of absolute contributions; the shares of a symbol add up to 1.

        If the forecast equals the baseline's and every contribution is 0, every share is 0.
        """
        size = np.abs(self.per_row)
        total = size.sum(axis=1, keepdims=True)
        return np.divide(size, total, out=np.zeros_like(size), where=total != 0)

    def has_moving_inputs(self, s: int) -> bool:
        """Whether an input of row `s` contributed, apart from the window's level, volatility and the calibration."""
        inputs = [kind not in _OF_WINDOW for kind in self.row_kinds]
        return bool(np.any(self.per_row[s, inputs] != 0))

    def table(self, symbol: str | None = None) -> list[Contribution]:
        """Return the rows of one symbol (default: the first), largest absolute contribution first."""
        s = find_row(symbol, self.symbols)
        order = np.argsort(-np.abs(self.per_row[s]), kind="stable")
        return [Contribution(self.row_names[r], self.row_kinds[r], float(self.per_row[s, r])) for r in order]

    def plot(self, symbol: str | None = None) -> "Figure":
        """Plot the rows of one symbol as bars; needs the extra `report`."""
        rows = self.table(symbol)
        notes = (self._describe_subject(symbol), format_skill(self.skill))
        return charts.draw_importance_bars(
            [r.name for r in rows], np.array([r.value for r in rows]), self.unit, notes=notes
        )

    def to_png(self, symbol: str | None = None) -> bytes:
        """Return the largest rows of one symbol (default: the first) as a PNG file; needs the extra `plot`."""
        return charts.draw_picture([self._build_panel(symbol)], "png", self.warnings)

    def to_svg(self, symbol: str | None = None) -> bytes:
        """Return the largest rows of one symbol (default: the first) as an SVG file; needs the extra `plot`."""
        return charts.draw_picture([self._build_panel(symbol)], "svg", self.warnings)

    def _build_panel(self, symbol: str | None) -> charts.BarsPanel:
        rows = [row for row in self.table(symbol) if row.value]
        names, values = charts.select_largest([r.name for r in rows], np.array([r.value for r in rows]), _SHOWN_ROWS)
        notes = (format_skill(self.skill),)
        return charts.BarsPanel(
            names=names, values=values, unit=self.unit, title=self._describe_subject(symbol), notes=notes
        )

    def _describe_subject(self, symbol: str | None) -> str:
        return f"{self.symbols[find_row(symbol, self.symbols)]}, {self.horizon} sessions ahead, q{self.quantile:g}"

    def _repr_html_(self) -> str:
        rows = [r for r in self.table() if r.value]
        body = "".join(f"<tr><td>{escape(r.name)}</td><td>{r.value:+.3e}</td></tr>" for r in rows)
        if unmoved := len(self.row_names) - len(rows):
            body += f"<tr><td>others ({unmoved})</td><td>0</td></tr>"
        head = f"<tr><th>input</th><th>contribution ({escape(self.unit)})</th></tr>"
        notes = "".join(f"<p>{escape(note)}</p>" for note in (*self.warnings, format_skill(self.skill)))
        return f"<table>{head}{body}</table>{self._render_internals()}{notes}"

    def _render_internals(self) -> str:
        """Render a heading and the largest shares of each internal; empty without internals."""
        if not self.internals or not self.has_moving_inputs(0):
            return ""
        body = "".join(
            f"<tr><td>{escape(internal.name)}</td><td>{escape(format_largest_shares(internal, 0))}</td></tr>"
            for internal in self.internals
        )
        head = "<tr><th>internal</th><th>largest shares</th></tr>"
        return f"<p>Internals: {INTERNALS_NOTE}</p><table>{head}{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """The attributions of one query, one per target in request order, and the time they took."""

    attributions: tuple[Attribution, ...]
    queue_ms: float
    compute_ms: float
