"""What the network says of itself, where an attribution carries it."""

from dataclasses import dataclass

import numpy as np

from predictor import charts
from predictor.forecast import Attribution
from predictor.internals import Internal, InternalAxis
from predictor.report.drawing import Drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalView:
    """One set of shares as the page shows it."""

    name: str
    chart: str


def internal_views(found: Attribution, s: int, drawing: Drawing) -> tuple[InternalView, ...]:
    """Those of the symbol in row `s`; none of a network that tells nothing of itself."""
    told = (one for one in found.internals if np.isfinite(one.values[s]).all())
    return tuple(InternalView(name=one.name, chart=_chart(one, s, drawing)) for one in told)


def _chart(one: Internal, s: int, drawing: Drawing) -> str:
    figure = charts.attention_line if one.axis is InternalAxis.SESSIONS else charts.selection_bars
    return drawing.html(figure(one.labels, one.values[s]), top=12)
