"""The explanation: each input's contribution as bars, table and heat map, and the network's internals."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError
from predictor.forecast import Attribution, RowKind
from predictor.internals import Internal, InternalAxis
from predictor.report.templates import PageBuilder, level, sessions

BASIS_POINTS: Final = 10_000.0

_FEATURES_IN_HEATMAP: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalView:
    """One set of shares as the page shows it."""

    name: str
    chart: str


def internal_views(attribution: Attribution, s: int, page: PageBuilder) -> tuple[InternalView, ...]:
    """Those of the symbol in row `s`; none if the network has no internals."""
    known = (one for one in attribution.internals if np.isfinite(one.values[s]).all())
    return tuple(InternalView(name=one.name, chart=_chart(one, s, page)) for one in known)


def _chart(one: Internal, s: int, page: PageBuilder) -> str:
    figure = charts.attention_line if one.axis is InternalAxis.SESSIONS else charts.selection_bars
    return page.chart(figure(one.labels, one.values[s]), top=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """One input's contribution, in the view's unit."""

    name: str
    kind: str
    value: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView:
    """One attribution as the page shows it; `heatmap` is empty without cells."""

    label: str
    unit: str
    method: str
    baseline: str
    prediction: float
    baseline_prediction: float
    relative_gap: float
    converged: bool
    rows: tuple[ReasonRow, ...]
    bars: str
    heatmap: str
    internals: tuple[InternalView, ...]


def nearest_to_median(attributions: tuple[Attribution, ...]) -> int:
    """Position of the attribution to show first, from 1; the first of those that are equally near."""
    distances = [abs(attribution.quantile - 0.5) for attribution in attributions]
    return 1 + distances.index(min(distances)) if distances else 0


def reason_view(attribution: Attribution, symbol: str, page: PageBuilder) -> ReasonView:
    """One attribution of one symbol.

    Raises:
        ConfigurationError: the attribution has no such symbol.
    """
    if symbol not in attribution.symbols:
        raise ConfigurationError(f"the attribution has no symbol {symbol!r}; it has {list(attribution.symbols)}")
    s = attribution.symbols.index(symbol)
    factor, unit = _display_unit(attribution.unit)
    values = factor * attribution.per_row[s]
    return ReasonView(
        label=f"{sessions(attribution.horizon)}, {level(attribution.quantile)}",
        unit=unit,
        method=attribution.method,
        baseline=attribution.baseline,
        prediction=factor * float(attribution.prediction[s]),
        baseline_prediction=factor * float(attribution.baseline_prediction[s]),
        relative_gap=float(attribution.relative_gap[s]),
        converged=bool(attribution.converged[s]),
        rows=_reason_rows(attribution, values),
        bars=page.chart(charts.importance_bars(attribution.row_names, values, unit), top=12),
        heatmap=_heatmap(attribution, s, page),
        internals=internal_views(attribution, s, page),
    )


def _reason_rows(attribution: Attribution, values: FloatArray) -> tuple[ReasonRow, ...]:
    """Largest first."""
    total = float(np.abs(values).sum()) or 1.0
    rows = [
        ReasonRow(name=name, kind=kind.value, value=value, share=abs(value) / total)
        for name, kind, value in zip(attribution.row_names, attribution.row_kinds, values.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _heatmap(attribution: Attribution, s: int, page: PageBuilder) -> str:
    """Observed features by session, the most important on top; empty without cells or sessions."""
    if attribution.cells is None or not len(attribution.sessions):
        return ""
    observed = [r for r, kind in enumerate(attribution.row_kinds) if kind is RowKind.OBSERVED]
    names = [attribution.row_names[r] for r in observed]
    order = np.argsort(-np.abs(attribution.per_row[s, observed]), kind="stable")[:_FEATURES_IN_HEATMAP]
    factor, unit = _display_unit(attribution.unit)
    cells = factor * attribution.cells[s][:, order]
    figure = charts.importance_heatmap(attribution.sessions, [names[f] for f in order.tolist()], cells, unit)
    return page.chart(figure, top=70)


def _display_unit(unit: str) -> tuple[float, str]:
    """Log returns are small numbers; people read them in basis points."""
    return (BASIS_POINTS, "basis points of log return") if unit == "log return" else (1.0, unit)
