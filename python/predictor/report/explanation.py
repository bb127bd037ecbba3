"""Explanations in a report: contributions as bars, table and heat map, and the network's internals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from predictor import charts
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.errors import ConfigurationError
from predictor.forecast import Attribution, RowKind
from predictor.instance import OCCLUSION
from predictor.internals import InternalAxis, describe_baseline
from predictor.report.templates import PageBuilder, format_horizon, format_level

BASIS_POINTS: Final = 10_000.0

SHOWN_INPUTS: Final = 15
"""Number of inputs with a separate bar and a description; also the number of rows of the heat map."""

ROW_MEANINGS: Final = {
    RowKind.LOCATION: "the window's level, from which every forecast starts",
    RowKind.SCALE: "the window's volatility, which sets the width of every forecast",
    RowKind.CONFORMAL: "the calibration, added to each quantile at the end",
    RowKind.NEIGHBOURS: "all inputs of the other symbols that the model reads",
}
"""Meanings of the rows that are not features."""


def list_input_meanings(attribution: Attribution, info: ModelInfo, names: Sequence[str]) -> tuple[FeatureInfo, ...]:
    """Definitions of rows of an attribution, in order; rows without description and expression are left out."""
    parts = {
        RowKind.OBSERVED: info.observed_features,
        RowKind.KNOWN: info.known_features,
        RowKind.STATIC: info.static_features,
    }
    features = {(kind, feature.name): feature for kind, part in parts.items() for feature in part}
    kinds = dict(zip(attribution.row_names, attribution.row_kinds, strict=True))
    meanings = (
        features.get((kinds[name], name))
        or FeatureInfo(name=name, meaning=ROW_MEANINGS.get(kinds[name], ""), expression="", unit="")
        for name in names
    )
    return tuple(feature for feature in meanings if feature.meaning or feature.expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalChart:
    """The chart of an internal's shares."""

    name: str
    chart: str


def draw_internals(attribution: Attribution, s: int, page: PageBuilder) -> tuple[InternalChart, ...]:
    """Internals of the symbol in row `s`; empty if the network has no internals, or no input contributed."""
    if not attribution.has_moving_inputs(s):
        return ()
    internal_charts: list[InternalChart] = []
    for internal in attribution.internals:
        shares = internal.values[s]
        if np.isfinite(shares).all():
            is_by_session = internal.axis is InternalAxis.SESSIONS
            draw = charts.draw_attention_line if is_by_session else charts.draw_selection_bars
            title = f"{internal.name}: shares by {'session' if is_by_session else 'input'}"
            chart = page.chart(draw(internal.labels, shares), title, top=12)
            internal_charts.append(InternalChart(name=internal.name, chart=chart))
    return tuple(internal_charts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """One input's contribution, in the view's unit."""

    name: str
    kind: str
    value: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContributionView:
    """An attribution on the page; `heatmap` is empty without cells."""

    label: str
    unit: str
    method: str
    baseline: str
    prediction: float
    baseline_prediction: float
    relative_gap: float
    is_converged: bool
    is_additive: bool
    """Whether the rows add up to the difference from the baseline."""
    rows: tuple[ReasonRow, ...]
    unmoved: int
    """Number of inputs without a row, because they contributed exactly 0."""
    bar_chart: str
    """Empty if every input contributed 0."""
    meanings: tuple[FeatureInfo, ...]
    """Meanings of the inputs with a bar."""
    heatmap: str
    internals: tuple[InternalChart, ...]


def find_nearest_to_median(attributions: tuple[Attribution, ...]) -> int:
    """Position of the attribution to show first, from 1; the first of equally near ones; 0 without attributions."""
    nearest = [is_nearest_to_median(attribution, attributions) for attribution in attributions]
    return 1 + nearest.index(True) if nearest else 0


def is_nearest_to_median(attribution: Attribution, among: tuple[Attribution, ...]) -> bool:
    """Whether no other attribution explains a quantile nearer to the median."""
    return abs(attribution.quantile - 0.5) == min(abs(other.quantile - 0.5) for other in among)


def make_reason_view(
    attribution: Attribution, symbol: str, info: ModelInfo, page: PageBuilder, *, in_detail: bool = True
) -> ContributionView:
    """Build the view of an attribution for a symbol; with `in_detail` it has a heat map and internals.

    Raises:
        ConfigurationError: the attribution does not have the symbol.
    """
    if symbol not in attribution.symbols:
        raise ConfigurationError(f"the attribution has no symbol {symbol!r}; it has {list(attribution.symbols)}")
    s = attribution.symbols.index(symbol)
    factor, unit = choose_display_unit(attribution.unit)
    values = factor * attribution.per_row[s]
    movers = np.flatnonzero(values)
    label = f"{format_horizon(attribution.horizon)}, {format_level(attribution.quantile)}"
    total = float(np.abs(values).sum()) or 1.0
    reasons = [
        ReasonRow(name=name, kind=kind.value, value=value, share=abs(value) / total)
        for name, kind, value in zip(attribution.row_names, attribution.row_kinds, values.tolist(), strict=True)
        if value
    ]
    rows = tuple(sorted(reasons, key=lambda row: -row.share))
    is_additive = attribution.method != OCCLUSION
    return ContributionView(
        label=label,
        unit=unit,
        method=attribution.method,
        baseline=describe_baseline(attribution.baseline, is_additive=is_additive),
        prediction=factor * float(attribution.prediction[s]),
        baseline_prediction=factor * float(attribution.baseline_prediction[s]),
        relative_gap=float(attribution.relative_gap[s]),
        is_converged=bool(attribution.converged[s]),
        is_additive=is_additive,
        rows=rows,
        unmoved=values.size - movers.size,
        bar_chart=page.chart(
            charts.draw_importance_bars(
                [attribution.row_names[r] for r in movers], values[movers], unit, top=SHOWN_INPUTS
            ),
            f"What moved the forecast of {symbol}, {label}: the largest contributions as bars, in {unit}",
            top=12,
        )
        if movers.size
        else "",
        meanings=list_input_meanings(attribution, info, [row.name for row in rows[:SHOWN_INPUTS]]),
        heatmap=_draw_heatmap(attribution, s, page) if in_detail else "",
        internals=draw_internals(attribution, s, page) if in_detail else (),
    )


def _draw_heatmap(attribution: Attribution, s: int, page: PageBuilder) -> str:
    """Observed features by session, most important first; empty without sessions, or cells that contributed."""
    if attribution.cells is None or not attribution.sessions or not attribution.cells[s].any():
        return ""
    observed = [r for r, kind in enumerate(attribution.row_kinds) if kind is RowKind.OBSERVED]
    names = [attribution.row_names[r] for r in observed]
    order = np.argsort(-np.abs(attribution.per_row[s, observed]), kind="stable")[:SHOWN_INPUTS]
    factor, unit = choose_display_unit(attribution.unit)
    cells = factor * attribution.cells[s][:, order]
    heatmap = charts.draw_importance_heatmap(attribution.sessions, [names[f] for f in order.tolist()], cells, unit)
    label = f"When each input moved the forecast of {attribution.symbols[s]}: a heat map by session, in {unit}"
    return page.chart(heatmap, label, top=70)


def choose_display_unit(unit: str) -> tuple[float, str]:
    """Factor and unit for display; log returns are shown in basis points."""
    return (BASIS_POINTS, "basis points of log return") if unit == "log return" else (1.0, unit)
