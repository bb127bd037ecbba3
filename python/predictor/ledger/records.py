"""The records of a ledger: forecasts, labels, scores, evidence and events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from predictor.arrays import FloatArray
from predictor.canonical import Json
from predictor.dates import to_date_number, to_optional_date_number
from predictor.evidence import Lamp
from predictor.forecast import Forecast


class ForecastRole(StrEnum):
    """Why a forecast was made."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    BASELINE = "baseline"
    CLIENT = "client"
    """A client asked for it, so it carries no evidence."""


class LabelStatus(StrEnum):
    """Whether the outcome of a forecast is known."""

    SCORED = "scored"
    UNSCORABLE = "unscorable"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastRecord:
    """A forecast of one symbol.

    Forecasts with the same id, symbol and role are the same. Except in the role CLIENT, a model version has one
    forecast per symbol and `as_of`: the first one.
    """

    forecast_id: str
    """The id of the call's `Forecast`."""
    symbol: str
    role: ForecastRole
    model: str
    version: int
    weights_hash: str
    engine: str
    """The engine, such as `eager` or `onnx`, with the versions that determine the bits."""
    batch_rows: int
    """Rows of its batch, which may affect the last bits."""
    as_of: int
    """Session of the last bar, yyyymmdd, like all sessions."""
    base_session: int
    """Session that horizons count from."""
    target_kind: str
    horizons: tuple[int, ...]
    target_sessions: tuple[int, ...]
    """[H] session that each horizon ends on."""
    quantiles: tuple[float, ...]
    values: FloatArray
    """[H, Q] in the target's unit."""
    anchor: float | None
    """Raw close of `as_of`; None if unknown."""
    bars_batch: int
    """The ledger's batch whose bars were the input; 0 if the bars are not in the ledger."""
    made_at: int
    """Nanoseconds since 1970 by the machine's clock; for information."""
    regime: str = ""
    number: int = 0
    """The row's number, given by the ledger."""
    is_prospective: bool = False
    """Whether no later bar was in the ledger; set by the ledger when it is written."""

    @property
    def problem(self) -> str:
        """Why the forecast can never be scored; empty if it can."""
        sessions, horizons = len(self.target_sessions), len(self.horizons)
        has_days = bool(self.as_of) or self.role is not ForecastRole.CLIENT  # windows of a client may have none
        if has_days and sessions != horizons:
            return f"it has {horizons} horizons, but {sessions} target sessions"
        if any(session <= self.base_session for session in self.target_sessions):
            return f"its target sessions {list(self.target_sessions)} are not all after its base {self.base_session}"
        if self.values.shape != (horizons, len(self.quantiles)):
            return f"its values have the shape {self.values.shape}, but must have {(horizons, len(self.quantiles))}"
        if not np.isfinite(self.values).all():
            return "a value is not finite"
        if (np.diff(self.values) < 0).any():
            return "its quantiles cross"
        return ""

    @classmethod
    def of(
        cls, forecast: Forecast, *, role: ForecastRole, engine: str, batch_rows: int, bars_batch: int, made_at: int
    ) -> "Iterator[ForecastRecord]":
        """The records of a forecast with dates, without its refused symbols."""
        for row, symbol in enumerate(forecast.symbols):
            if symbol in forecast.refusals:
                continue
            yield cls(
                forecast_id=forecast.forecast_id,
                symbol=symbol,
                role=role,
                model=forecast.model,
                version=forecast.version,
                weights_hash=forecast.weights_hash,
                engine=engine,
                batch_rows=batch_rows,
                as_of=to_optional_date_number(forecast.as_of_session),
                base_session=to_optional_date_number(forecast.base_session or forecast.as_of_session),
                target_kind=forecast.target_kind,
                horizons=forecast.horizons,
                target_sessions=tuple(map(to_date_number, forecast.target_sessions)),
                quantiles=forecast.quantiles,
                values=np.asarray(forecast.values[row], np.float64),
                anchor=None if forecast.anchor_price is None else float(forecast.anchor_price[row]),
                bars_batch=bars_batch,
                made_at=made_at,
            )


def are_scorable(forecasts: Sequence[ForecastRecord]) -> bool:
    """Whether no forecast has a `problem`, for many forecasts together."""
    by_shape: dict[tuple[int, ...], list[FloatArray]] = {}
    for forecast in forecasts:
        shape = (len(forecast.target_sessions), len(forecast.quantiles))
        if (
            forecast.values.shape != shape
            or len(forecast.horizons) != shape[0]
            or min(forecast.target_sessions, default=0) <= forecast.base_session
        ):
            return False
        by_shape.setdefault(shape, []).append(forecast.values)
    stacks = map(np.stack, by_shape.values())
    return all(bool(np.isfinite(stack).all() and (np.diff(stack) >= 0).all()) for stack in stacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The outcome of one horizon of a forecast, or the reason why it has none."""

    forecast: int
    """Number of the forecast."""
    horizon: int
    session: int
    """The target session."""
    revision: int = 0
    """0 for the first label, which the evidence uses; later ones follow revised bars."""
    status: LabelStatus = LabelStatus.SCORED
    value: float | None
    """In the target's unit; None if unscorable."""
    reason: str = ""
    """Why it is unscorable."""
    bars_batch: int
    """The batch that the bars were read at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good one horizon of a forecast was."""

    forecast: int
    horizon: int
    revision: int = 0
    pinball: float
    """Mean over the quantiles."""
    below: str
    """One digit per quantile: 1 if the outcome is at or below it."""
    is_inside: bool
    """Whether the outcome lies between the lowest and the highest quantile."""
    pit: float
    """The outcome's level in the forecast distribution, interpolated between quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """The state of one monitor of a model after one session; only the first one of a session is recorded."""

    model: str
    version: int
    monitor: str
    """What is tested, such as `coverage` or `skill against har`."""
    horizon: int
    session: int
    lamp: Lamp
    state: Mapping[str, Json]
    """Its numbers."""

    def number(self, name: str) -> float | None:
        """A number of the state; None if it is missing."""
        value = self.state.get(name)
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """An event of a model or of the ledger: an alarm, a promotion, a large revision."""

    kind: str
    """Such as `promotion`, `alarm` or `retraining`."""
    model: str = ""
    version: int = 0
    session: int = 0
    reason: str = ""
    detail: Mapping[str, Json] = field(default_factory=dict[str, Json])
    key: str = ""
    """Events with the same key are recorded once; empty to record every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """How often a client asked for a forecast since the last write.

    The same request gets the same forecast, which is recorded once, and many calls in a tenth of a second are one row.
    """

    forecast_id: str
    """The id of its forecasts, in the role CLIENT."""
    asked_at: int
    """Nanoseconds since 1970 by the machine's clock, when the last of the calls was answered."""
    caller: str
    """Name of the caller's token; empty without tokens."""
    calls: int = 1
    """Number of the calls."""


LedgerRecord = ForecastRecord | Label | Score | EvidenceRecord | LedgerEvent | ClientRequest
