"""The ledger: an append-only record of bars, forecasts, outcomes, evidence and events, chained by SHA-256.

Every write is one batch. It is stored completely or not at all, gets the next batch number, and its hash covers the
previous hash. Batch numbers are the ledger's clock; wall-clock times are only for information.
"""

from predictor.ledger.forecast_listing import (
    ForecastFilter,
    ForecastListing,
    RecordedForecast,
    RecordedOutcome,
    read_outcomes,
)
from predictor.ledger.ledger import SESSION_COLUMNS, TIME_COLUMNS, BarsAdded, KnownBars, Ledger, LedgerTable
from predictor.ledger.records import (
    ClientRequest,
    EvidenceRecord,
    ForecastRecord,
    ForecastRole,
    Label,
    LabelStatus,
    LedgerEvent,
    Score,
    are_scorable,
)
from predictor.ledger.schema import LedgerRow
from predictor.ledger.store import Receipt, Verification

__all__ = [
    "SESSION_COLUMNS",
    "TIME_COLUMNS",
    "BarsAdded",
    "ClientRequest",
    "EvidenceRecord",
    "ForecastFilter",
    "ForecastListing",
    "ForecastRecord",
    "ForecastRole",
    "KnownBars",
    "Label",
    "LabelStatus",
    "Ledger",
    "LedgerEvent",
    "LedgerRow",
    "LedgerTable",
    "Receipt",
    "RecordedForecast",
    "RecordedOutcome",
    "Score",
    "Verification",
    "are_scorable",
    "read_outcomes",
]
