"""Adaptive widths of a model's bands, as `quantra daily --adaptive` records them in a ledger."""

import hashlib
import logging
import threading
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.canonical import Json
from predictor.dates import to_date_number
from predictor.errors import LedgerError, format_count, format_date
from predictor.forecast import Forecast
from predictor.ledger import Ledger, LedgerEvent
from predictor.model import compute_prices
from predictor.model_health import ModelVersion
from predictor.networks import find_anchor_index, remove_crossings_in_place

_log = logging.getLogger(__name__)

WIDTHS: Final = "widths"
"""Kind of the event that records the factors of an evening."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptiveWidths:
    """Factors of the distances between the outer quantiles and the median, after one session.

    Raises:
        LedgerError: A factor is negative or not finite, or the horizons do not fit.
    """

    version: ModelVersion
    weights_hash: str
    """Weights of the model version."""
    session: int
    """Last session, yyyymmdd, whose outcomes the factors follow."""
    horizons: tuple[int, ...]
    factors: FloatArray
    """[H, Q] 0 or more; 1 at the median."""

    def __post_init__(self) -> None:
        """Check values that were read."""
        if self.factors.ndim != 2 or len(self.factors) != len(self.horizons):  # noqa: PLR2004 - [H, Q]
            raise LedgerError(
                f"the adaptive widths of {self._of} have the shape {self.factors.shape} for {len(self.horizons)} "
                "horizons; they were not written by quantra daily"
            )
        if not (np.isfinite(self.factors) & (self.factors >= 0)).all():
            raise LedgerError(f"an adaptive width of {self._of} is negative or not finite: {self.factors.tolist()}")

    @property
    def _of(self) -> str:
        return f"{self.version.reference} on {format_date(self.session)}"

    def apply(self, forecast: Forecast) -> Forecast:
        """The forecast with these widths and a new id.

        Raises:
            LedgerError: The widths are those of other weights, horizons or quantiles.
        """
        self._check(forecast)
        values = np.asarray(forecast.values, np.float64)
        anchor = find_anchor_index(forecast.quantiles)
        distance = values - values[..., anchor : anchor + 1]
        adapted = remove_crossings_in_place(values + (self.factors - 1) * distance, anchor)
        identity = forecast.forecast_id.encode() + self.factors.tobytes()
        return replace(
            forecast,
            values=adapted,
            returns=None if forecast.returns is None else adapted,
            prices=None
            if forecast.prices is None or forecast.anchor_price is None
            else compute_prices(forecast.anchor_price, adapted),
            forecast_id=hashlib.sha256(identity).hexdigest()[:16],
        )

    def _check(self, forecast: Forecast) -> None:
        if self.weights_hash != forecast.weights_hash:
            raise LedgerError(
                f"the adaptive widths of {self._of} are those of other weights: {self.weights_hash[:12]}, not "
                f"{forecast.weights_hash[:12]}; use the ledger of this model"
            )
        shape = (len(forecast.horizons), len(forecast.quantiles))
        if self.horizons != forecast.horizons or self.factors.shape != shape:
            raise LedgerError(
                f"the adaptive widths of {self._of} are for the horizons {list(self.horizons)} and "
                f"{self.factors.shape[1]} quantiles, not for {list(forecast.horizons)} and {shape[1]}"
            )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The factors of the outermost quantiles at each horizon."""
        return tuple(
            f"{format_count(horizon, 'session')} ahead: the band is adaptive, {row[0]:.2f} times as wide below the "
            f"median and {row[-1]:.2f} times above it as calibrated"
            for horizon, row in zip(self.horizons, self.factors, strict=True)
        )

    @property
    def event(self) -> LedgerEvent:
        """The record of the factors that an evening used."""
        pairs = zip(self.horizons, self.factors, strict=True)
        short = "; ".join(f"{row[0]:.2f} and {row[-1]:.2f}, {horizon} ahead" for horizon, row in pairs)
        return LedgerEvent(
            kind=WIDTHS,
            model=self.version.model,
            version=self.version.number,
            session=self.session,
            reason=f"width below and above the median: {short}",
            detail={"horizons": list(self.horizons), "factors": self.to_json(), "weights_hash": self.weights_hash},
            key=f"{WIDTHS} {self.version.reference} {self.session}",
        )

    def to_json(self) -> list[Json]:
        """The factors as rows."""
        return [list(row) for row in self.factors.tolist()]

    @classmethod
    def of(cls, event: LedgerEvent) -> Self:
        """The factors of an event.

        Raises:
            LedgerError: The event is malformed.
        """
        version = ModelVersion(event.model, event.version)
        try:
            horizons, factors = (np.array(event.detail[name], np.float64) for name in ("horizons", "factors"))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"the adaptive widths of {version.reference} on {format_date(event.session)} cannot be read: {error!r}"
            ) from error
        return cls(
            version=version,
            weights_hash=str(event.detail.get("weights_hash")),
            session=event.session,
            horizons=tuple(map(int, horizons.ravel().tolist())),
            factors=factors,
        )

    @classmethod
    def read(cls, ledger: Ledger, version: ModelVersion, session: int) -> Self | None:
        """The factors that an evening used; None if its forecasts were not adaptive."""
        condition = "kind = ? and model = ? and version = ? and session = ?"
        events = ledger.records(LedgerEvent, condition, (WIDTHS, *version, session))
        return cls.of(events[-1]) if events else None


@final
class RecordedWidths:
    """The adaptive widths of all evenings and models in a ledger, as of the last `refresh`. Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last_event = 0
        self._by_version: dict[ModelVersion, list[AdaptiveWidths]] = {}
        """In the order of their sessions."""
        self._refreshing = threading.Lock()
        self._failure = ""

    def follow(self) -> None:
        """Refresh; if the ledger cannot be read, keep the widths and log why, once for each reason."""
        try:
            self.refresh()
        except LedgerError as error:
            reason = " ".join(error.without_address().message.split())
            if reason != self._failure:
                _log.warning("adaptive widths stay as they are: %s", reason)
            self._failure = reason

    def refresh(self) -> None:
        """Read the widths that were recorded since the last call, and log malformed ones, which are left out.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        with self._refreshing:
            newest = int(self._ledger.query("select max(id) as last from event")[0]["last"] or 0)
            condition = "kind = ? and id > ? and id <= ?"
            events = self._ledger.records(LedgerEvent, condition, (WIDTHS, self._last_event, newest))
            added: dict[ModelVersion, list[AdaptiveWidths]] = {}
            for event in events:
                try:
                    widths = AdaptiveWidths.of(event)
                except LedgerError as error:
                    _log.warning("not used: %s", error.message)
                else:
                    added.setdefault(widths.version, list(self._by_version.get(widths.version, ()))).append(widths)
            for history in added.values():
                history.sort(key=lambda widths: widths.session)
            self._by_version = {**self._by_version, **added}
            self._last_event, self._failure = newest, ""

    def find(self, forecast: Forecast) -> AdaptiveWidths:
        """The widths of the forecast's last bar, or the newest ones before it, which know no later outcome.

        Raises:
            LedgerError: There are none.
        """
        version = ModelVersion(forecast.model, forecast.version)
        history = self._by_version.get(version, ())
        if not history:
            raise LedgerError(
                f"the ledger has no adaptive widths of {version.reference}; run quantra daily --adaptive with it"
            )
        if forecast.as_of_session is None:
            raise LedgerError("the session of the last bar is unknown, and widths belong to a session; send bars")
        earlier = bisect_right(history, to_date_number(forecast.as_of_session), key=lambda widths: widths.session)
        if not earlier:
            raise LedgerError(
                f"the first adaptive widths of {version.reference} are of {format_date(history[0].session)}, after the "
                f"last bar, {forecast.as_of_session}"
            )
        return history[earlier - 1]
