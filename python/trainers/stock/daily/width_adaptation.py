"""Widths of a model's bands that follow how often outcomes fell below its quantiles since its training.

Every outer quantile moves to or from the median by a factor per horizon. The factors come from adaptive conformal
inference (trainers.stock.evaluation.calibration) on the model's forecasts of all days since its calibration split. So
they need only the artifact and the bars, and a new champion has them on its first evening.
"""

from dataclasses import replace

import numpy as np

from predictor.adaptive_widths import AdaptiveWidths
from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, shown_date
from predictor.networks import anchor_index
from trainers.stock.daily.recorded_models import RecordedModel
from trainers.stock.data_warnings import drop_before_calendar
from trainers.stock.evaluation.bound_model import BoundModel, bind_model, find_calendar
from trainers.stock.evaluation.calibration import OutcomeDelay, QuantileResiduals, adapt_offsets
from trainers.stock.evaluation.evaluated_days import read_splits
from trainers.stock.splits import SplitPart


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
    return AdaptiveWidths(
        version=recorded.version,
        weights_hash=recorded.model.identity.weights_hash,
        session=int(known.sessions[-1]),
        horizons=target.horizons,
        factors=factors,
    )


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
