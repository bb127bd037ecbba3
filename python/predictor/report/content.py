"""What a report shows."""

from dataclasses import dataclass

from predictor.audit_record import AuditRecord
from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.forecast import Attribution, Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """What a report shows.

    Attributes:
        info: the model; its card holds data, splits, scores, calibration and skill, each section if there is one.
        bars: the bars that the forecast was made from, raw.
        forecast: of a panel that holds the symbols.
        attributions: one a horizon and quantile, with cells where a heat map is wanted; may be empty.
        symbols: whose forecasts are shown, in this order; at least one.
        audit: what stands beside the artifact, if anything does.
    """

    info: ModelInfo
    bars: BarPanel
    forecast: Forecast
    attributions: tuple[Attribution, ...]
    symbols: tuple[str, ...]
    audit: AuditRecord | None = None
