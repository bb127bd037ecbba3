"""The reasons: what each input added, as bars, table and heat map."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor import charts
from predictor.errors import ConfigurationError
from predictor.forecast import Attribution, RowKind
from predictor.report.drawing import Drawing
from predictor.report.internals import InternalView, internal_views
from predictor.report.texts import level, sessions

BASIS_POINTS: Final = 10_000.0

_FEATURES_IN_HEATMAP: Final = 30


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
    """Position of the attribution to show first, from 1; of those as near as each other the first."""
    distances = [abs(found.quantile - 0.5) for found in attributions]
    return 1 + distances.index(min(distances)) if distances else 0


def reason_view(found: Attribution, symbol: str, drawing: Drawing) -> ReasonView:
    """One attribution of one symbol.

    Raises:
        ConfigurationError: the attribution has no such symbol.
    """
    if symbol not in found.symbols:
        raise ConfigurationError(f"the attribution has no symbol {symbol!r}; it has {list(found.symbols)}")
    s = found.symbols.index(symbol)
    factor, unit = _display_unit(found.unit)
    values = factor * found.per_row[s]
    return ReasonView(
        label=f"{sessions(found.horizon)}, {level(found.quantile)}",
        unit=unit,
        method=found.method,
        baseline=found.baseline,
        prediction=factor * float(found.prediction[s]),
        baseline_prediction=factor * float(found.baseline_prediction[s]),
        relative_gap=float(found.relative_gap[s]),
        converged=bool(found.converged[s]),
        rows=_reason_rows(found, values),
        bars=drawing.html(charts.importance_bars(found.row_names, values, unit), top=12),
        heatmap=_heatmap(found, s, drawing),
        internals=internal_views(found, s, drawing),
    )


def _reason_rows(found: Attribution, values: NDArray[np.float64]) -> tuple[ReasonRow, ...]:
    """Largest first."""
    total = float(np.abs(values).sum()) or 1.0
    rows = [
        ReasonRow(name=name, kind=kind.value, value=value, share=abs(value) / total)
        for name, kind, value in zip(found.row_names, found.row_kinds, values.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _heatmap(found: Attribution, s: int, drawing: Drawing) -> str:
    """Observed features by session, the most important on top; empty without cells or sessions."""
    if found.cells is None or not len(found.sessions):
        return ""
    observed = [r for r, kind in enumerate(found.row_kinds) if kind is RowKind.OBSERVED]
    names = [found.row_names[r] for r in observed]
    order = np.argsort(-np.abs(found.per_row[s, observed]), kind="stable")[:_FEATURES_IN_HEATMAP]
    factor, unit = _display_unit(found.unit)
    cells = factor * found.cells[s][:, order]
    figure = charts.importance_heatmap(found.sessions, [names[f] for f in order.tolist()], cells, unit)
    return drawing.html(figure, top=70)


def _display_unit(unit: str) -> tuple[float, str]:
    """Log returns are small numbers; people read them in basis points."""
    return (BASIS_POINTS, "basis points of log return") if unit == "log return" else (1.0, unit)
