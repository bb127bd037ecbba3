"""Widths of a model's bands that follow how often outcomes fell below its quantiles since its training.

Every outer quantile moves to or from the median by a factor per horizon. The factors come from adaptive conformal
inference (trainers.stock.evaluation.calibration) on the model's forecasts of all days since its calibration split. So
they need only the artifact and the bars, and a new champion has them on its first evening.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, counted, shown_date
from predictor.forecast import Forecast
from predictor.ledger import Ledger, LedgerEvent
from predictor.model.predictor import compute_prices
from predictor.model_health import ModelVersion
from predictor.networks import anchor_index
from trainers.stock.daily.recorded_models import RecordedModel
from trainers.stock.data_warnings import drop_before_calendar
from trainers.stock.evaluation.bound_model import BoundModel, bind_model, find_calendar
from trainers.stock.evaluation.calibration import OutcomeDelay, QuantileResiduals, adapt_offsets, shift_quantiles
from trainers.stock.evaluation.evaluated_days import read_splits
from trainers.stock.splits import SplitPart

WIDTHS: Final = "widths"
"""Kind of the event that records the factors of an evening; its detail has them as `factors`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptiveWidths:
    """Factors of the distances between the outer quantiles and the median."""

    horizons: tuple[int, ...]
    factors: FloatArray
    """[H, Q] 0 or more; 1 at the median."""

    def apply(self, forecast: Forecast) -> Forecast:
        """The forecast with these widths and an id of its own."""
        values = np.asarray(forecast.values, np.float64)
        distance = values - _medians(values, forecast.quantiles)
        adapted = shift_quantiles(values, (self.factors - 1) * distance, forecast.quantiles)
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

    @property
    def sentences(self) -> tuple[str, ...]:
        """The factors of the outermost quantiles at each horizon."""
        return tuple(
            f"{counted(horizon, 'session')} ahead: the band is adaptive, {row[0]:.2f} times as wide below the median "
            f"and {row[-1]:.2f} times above it as calibrated"
            for horizon, row in zip(self.horizons, self.factors, strict=True)
        )

    def _list_short(self) -> Iterator[str]:
        for horizon, row in zip(self.horizons, self.factors, strict=True):
            yield f"{row[0]:.2f} and {row[-1]:.2f}, {horizon} ahead"

    def event(self, version: ModelVersion, session: int) -> LedgerEvent:
        """The record of the factors that an evening used."""
        return LedgerEvent(
            kind=WIDTHS,
            model=version.model,
            version=version.version,
            session=session,
            reason=f"width below and above the median: {'; '.join(self._list_short())}",
            detail={"horizons": list(self.horizons), "factors": self.to_json()},
            key=f"{WIDTHS} {version.reference} {session}",
        )

    def to_json(self) -> list[Json]:
        """The factors as rows."""
        return [list(row) for row in self.factors.tolist()]

    @classmethod
    def read(cls, ledger: Ledger, version: ModelVersion, session: int) -> Self | None:
        """The factors that an evening used; None if its forecasts were not adaptive."""
        where = "kind = ? and model = ? and version = ? and session = ?"
        found = ledger.records(LedgerEvent, where, (WIDTHS, *version, session))
        if not found:
            return None
        detail = found[-1].detail
        return cls(
            horizons=tuple(np.array(detail["horizons"]).tolist()), factors=np.array(detail["factors"], np.float64)
        )


def adapt_widths(recorded: RecordedModel, bars: BarPanel, covariates: CovariateSource) -> AdaptiveWidths:
    """The widths after the last session of the bars.

    Raises:
        ConfigurationError: The bars do not reach back to the model's calibration split, or it has none.
    """
    manifest, calendar = recorded.model.manifest, find_calendar(recorded.model)
    target, levels = manifest.target, manifest.quantiles
    calibration = read_splits(manifest.card).calibration
    known = drop_before_calendar(bars, calendar)
    try:
        bound = bind_model(recorded.model, known, covariates)
        seen = _measure_residuals(bound, calibration, levels)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"adaptive widths of {recorded.reference} need its calibration days, from "
            f"{shown_date(calibration.first)} to {shown_date(calibration.last)}, but {error.message}; give bars that "
            "begin earlier, or leave out --adaptive"
        ) from error
    later = known.sessions[known.sessions > calibration.last]
    test = _append_tonight(
        _measure_residuals(bound, SplitPart("later", int(later[0]), int(later[-1])), levels)
        if len(later) > target.reach
        else replace(seen, positions=seen.positions[:0], values=seen.values[:0]),
        position=len(known.sessions) - 1,
    )
    outer = [q for q in range(len(levels)) if q != anchor_index(levels)]
    factors = np.ones((len(target.horizons), len(levels)))
    offsets = adapt_offsets(
        replace(seen, values=seen.values[..., outer]),
        replace(test, values=test.values[..., outer]),
        tuple(levels[q] for q in outer),
        OutcomeDelay(lag=target.lag, horizons=target.horizons),
    )[-1]
    side = np.where(np.array(levels)[outer] > levels[anchor_index(levels)], 1.0, -1.0)
    factors[:, outer] = np.maximum(1 + side * offsets, 0.0)
    return AdaptiveWidths(horizons=target.horizons, factors=factors)


def _medians(values: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    anchor = anchor_index(levels)
    return values[..., anchor : anchor + 1]


def _measure_residuals(bound: BoundModel, part: SplitPart, levels: tuple[float, ...]) -> QuantileResiduals:
    """Outcomes minus quantiles, in units of each quantile's distance from the median."""
    windows = bound.windows(part)
    quantiles = bound.forecasts(windows).calibrated
    missed = bound.history.outcomes(windows)[..., None] - quantiles
    distance = np.abs(quantiles - _medians(quantiles, levels))
    units = np.full_like(missed, np.nan)
    np.divide(missed, distance, out=units, where=distance > 0)
    return QuantileResiduals(positions=windows.positions, values=units)


def _append_tonight(past: QuantileResiduals, *, position: int) -> QuantileResiduals:
    """Add a decision without an outcome."""
    unknown = np.full((1, *past.values.shape[1:]), np.nan)
    return QuantileResiduals(
        positions=np.append(past.positions, position), values=np.concatenate([past.values, unknown])
    )
