"""Baselines from quantiles of the past: by symbol, of the last days, or in units of the window."""

from collections.abc import Callable
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError
from predictor.networks import Normaliser, TargetKind
from predictor.windows import extract_trailing_windows
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    BaselineSample,
    FitScope,
    FittedBaseline,
    MeasuredWindows,
    NoForecastError,
    in_blocks,
    recent,
)
from trainers.stock.evaluation.evaluation_set import ForecastUnits, units_of
from trainers.stock.recipe import choose_window_normaliser
from trainers.stock.scale import fit_normaliser, sample_of

SESSIONS: Final = 60
LEARNT_FROM: Final = 200_000
"""Limit on windows; more would change a quantile by less than a hundredth of its unit."""

UnitsOf = Callable[[TrainingWindows], ForecastUnits]


def zero_return(sample: BaselineSample) -> FittedBaseline:
    """No change of the price, at every level."""
    shape = len(sample.target.horizons), len(sample.levels)
    return FittedBaseline(quantiles=lambda measured_windows: np.zeros((len(measured_windows), *shape)))


def last_value(sample: BaselineSample) -> FittedBaseline:
    """The last session's volatility, at every level."""
    shape = len(sample.target.horizons), len(sample.levels)

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        last = recent(sample.history, measured_windows.windows, 1)
        return np.broadcast_to(last[:, :, None], (len(measured_windows), *shape)).copy()

    return FittedBaseline(quantiles=quantiles)


ZERO_RETURN: Final = BaselineModel(
    name="zero return", estimator=zero_return, fits=(FitScope.UNCALIBRATED,), kinds=(TargetKind.LOG_RETURN,)
)
LAST_VALUE: Final = BaselineModel(
    name="last value", estimator=last_value, fits=(FitScope.UNCALIBRATED,), kinds=(TargetKind.LOG_VOLATILITY,)
)
NAIVE: Final = {kind: naive.name for naive in (ZERO_RETURN, LAST_VALUE) for kind in naive.kinds}
"""Name of the point forecast of each target kind. It is not calibrated, because it forecasts no spread."""


def unconditional(sample: BaselineSample) -> FittedBaseline:
    """Quantiles of the symbol's outcomes; of all symbols' if it has none."""
    labels = sample.history.labels
    by_symbol = np.empty((len(labels), len(sample.target.horizons), len(sample.levels)))
    for h in range(len(sample.target.horizons)):
        by_symbol[:, h] = np.nanquantile(labels[sample.mask, h], sample.levels)
        for symbol, mask in enumerate(sample.mask):
            outcomes = labels[symbol, mask, h]
            known_outcomes = outcomes[np.isfinite(outcomes)]
            if known_outcomes.size:
                by_symbol[symbol, h] = np.quantile(known_outcomes, sample.levels)
    return FittedBaseline(quantiles=lambda measured_windows: by_symbol[measured_windows.windows.symbols])


UNCONDITIONAL: Final = BaselineModel(name="unconditional quantiles", estimator=unconditional)


def empirical(sample: BaselineSample) -> FittedBaseline:
    """Quantiles of the last 60 values of the daily series; for returns, times the square root of the horizon.

    A window without values uses the quantiles of the sample's outcomes.
    """
    history, levels = sample.history, sample.levels
    otherwise = np.nanquantile(history.outcomes(sample.at_most(LEARNT_FROM)), levels, axis=0).T

    def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
        daily = _compute_known_quantiles(recent(history, measured_windows.windows, SESSIONS), np.array(levels))
        scaled = sample.target.spread[:, None] * daily[:, None]
        return np.where(np.isnan(scaled), otherwise, scaled)

    return FittedBaseline(quantiles=quantiles)


def _compute_known_quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """[n, Q] quantiles of the finite values [n, days]; vectorised, unlike `numpy.nanquantile`."""
    ordered, rows = np.sort(values, axis=1), np.arange(len(values))[:, None]  # NaN comes last
    last = np.maximum(np.isfinite(values).sum(axis=1) - 1, 0)[:, None]
    position = levels * last
    lower_index = position.astype(np.int64)
    lower, upper = ordered[rows, lower_index], ordered[rows, np.minimum(lower_index + 1, last)]
    return lower + (position - lower_index) * (upper - lower)


EMPIRICAL: Final = BaselineModel(
    name=f"{SESSIONS}-day empirical quantiles", estimator=empirical, fits=(FitScope.UNCALIBRATED, FitScope.CALIBRATED)
)
"""It always uses the last days, so it is never refitted."""


# --- quantiles in units of a volatility forecast: filtered historical simulation (Barone-Adesi et al. 1999)


def scaled(sample: BaselineSample) -> FittedBaseline:
    """In units of the window's volatility (RiskMetrics 1996), or of its level and deviation."""
    return _in_units(sample, _units_by(sample.history, choose_window_normaliser(sample.target.kind)))


def relative_har(sample: BaselineSample) -> FittedBaseline:
    """In units of a HAR forecast relative to the window's level: the start of a model with scale `har`."""
    try:
        sample_windows = sample_of(sample.history.bars, sample.history.pipeline, sample.part, sample.levels)
        normaliser = fit_normaliser(sample_windows, "har")
    except ConfigurationError as error:
        raise NoForecastError(error.message) from error
    return _in_units(sample, _units_by(sample.history, normaliser))


def own_scale(sample: BaselineSample) -> FittedBaseline:
    """In the model's own units: what a network knows that has learned nothing from its inputs."""
    return _in_units(sample, lambda windows: units_of(sample.history, windows))


def _in_units(sample: BaselineSample, units: UnitsOf) -> FittedBaseline:
    outcomes, windows = sample.history.outcomes, sample.at_most(LEARNT_FROM)
    normalised = in_blocks(windows, lambda block: units(block).normalise(outcomes(block)[..., None])[..., 0])
    quantiles = np.nanquantile(normalised, sample.levels, axis=0).T
    return FittedBaseline(quantiles=lambda measured_windows: units(measured_windows.windows).restore(quantiles))


def _units_by(history: History, normaliser: Normaliser) -> UnitsOf:
    target = history.pipeline.target
    stacked = history.compute_by_symbol(lambda bars: np.stack(normaliser.series(target, bars), axis=1))
    series = [stacked[:, k] for k in range(stacked.shape[1])]

    def units(windows: TrainingWindows) -> ForecastUnits:
        parts = tuple(
            extract_trailing_windows(values, windows.symbols, windows.positions, normaliser.window) for values in series
        )
        location, scale = normaliser.compute_levels(parts)
        return ForecastUnits(location=location[..., None], scale=(scale * target.spread)[..., None])

    return units


SCALED: Final = BaselineModel(name="volatility-scaled quantiles", estimator=scaled)
RELATIVE_HAR: Final = BaselineModel(name="relative HAR (1, 5, 22, 60 days)", estimator=relative_har)
OWN_SCALE: Final = BaselineModel(name="quantiles scaled by the model's own volatility", estimator=own_scale)
