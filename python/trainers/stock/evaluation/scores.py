"""Everything that one forecaster scores, horizon by horizon."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines import Fit
from trainers.stock.evaluation.correlation import Correlation, correlations
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import (
    absolute_error,
    below,
    crps,
    inside,
    median,
    overall,
    pinball,
    pinball_at,
    qlike,
    winkler,
)
from trainers.stock.evaluation.resampling import (
    Interval,
    interval,
    intervals,
    quotient,
    resampled_mean,
)

FloatArray = NDArray[np.float64]


class Role(StrEnum):
    """What a row of scores stands for."""

    MODEL = "model"
    VARIANT = "variant"
    """The model, treated otherwise."""
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonScores:
    """Means over the windows of one horizon. Losses are in the target's unit; less is better."""

    horizon: int
    windows: int
    """Windows whose outcome is known."""
    pinball: Interval
    """Mean over the quantiles."""
    pinball_by_level: tuple[float, ...]
    """[Q]"""
    risk: tuple[float, ...]
    """[Q] q-risk (Lim et al. 2021, eq. 25): twice the sum of pinball losses over the sum of the outcomes' sizes."""
    crps: Interval
    below: tuple[Interval, ...]
    """[Q] share of outcomes at or below each quantile."""
    band: Interval
    """Share of outcomes inside the band, from the lowest to the highest quantile."""
    winkler: Interval
    mae: Interval
    """Distance from the median."""
    qlike: Interval | None
    """For forecasts of volatility."""
    correlation: Correlation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScores:
    """One row of scores."""

    name: str
    role: Role
    fit: Fit | None
    """What of the model's information a baseline was given; None of the model itself."""
    mean: Interval
    """Pinball loss over all horizons, each divided by its spread so that they weigh alike."""
    horizons: tuple[HorizonScores, ...]


def score(
    judged: Judged,
    forecasts: FloatArray,
    *,
    name: str,
    role: Role,
    fit: Fit | None = None,
    ranking: FloatArray | None = None,
) -> ModelScores:
    """All scores of forecasts.

    Args:
        judged: the windows.
        forecasts: [N, H, Q]
        name: whose they are.
        role: what for.
        fit: of a baseline, what it was given.
        ranking: [N, H] what is correlated with the outcomes in place of the medians.
    """
    centres = median(judged, forecasts) if ranking is None else ranking
    mean, resamples = resampled_mean(judged, overall(judged, pinball(judged, forecasts)))
    return ModelScores(
        name=name,
        role=role,
        fit=fit,
        mean=interval(float(mean), resamples),
        horizons=_by_horizon(judged, forecasts, correlations(judged, centres)),
    )


def _by_horizon(
    judged: Judged, forecasts: FloatArray, correlated: tuple[Correlation, ...]
) -> tuple[HorizonScores, ...]:
    band = _each(judged, inside(judged, forecasts))
    widths = _each(judged, winkler(judged, forecasts))
    losses = _each(judged, pinball(judged, forecasts))
    ranked = _each(judged, crps(judged, forecasts))
    errors = _each(judged, absolute_error(judged, forecasts))
    shares = below_by_level(judged, forecasts)
    by_level, risk = _by_level(judged, forecasts)
    is_volatility = judged.target.kind is TargetKind.LOG_VOLATILITY
    ratios = _each(judged, qlike(judged, forecasts)) if is_volatility else (None,) * len(band)
    return tuple(
        HorizonScores(
            horizon=horizon,
            windows=int(np.isfinite(judged.outcomes[:, h]).sum()),
            pinball=losses[h],
            pinball_by_level=tuple(by_level[h].tolist()),
            risk=tuple(risk[h].tolist()),
            crps=ranked[h],
            below=shares[h],
            band=band[h],
            winkler=widths[h],
            mae=errors[h],
            qlike=ratios[h],
            correlation=correlated[h],
        )
        for h, horizon in enumerate(judged.horizons)
    )


def below_by_level(judged: Judged, forecasts: FloatArray) -> tuple[tuple[Interval, ...], ...]:
    """[H][Q] share of outcomes at or below each quantile."""
    levels = range(len(judged.levels))
    shares = (_each(judged, below(judged, forecasts[..., [level]])[..., 0]) for level in levels)
    return tuple(zip(*shares, strict=True))


def _each(judged: Judged, values: FloatArray) -> tuple[Interval, ...]:
    """[H] means of values [N, H]."""
    return intervals(*resampled_mean(judged, values))


def _by_level(judged: Judged, forecasts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean pinball loss and q-risk, [H, Q] both."""
    sizes, _ = _sums(np.abs(judged.outcomes))
    levels = range(len(judged.levels))
    totals, counts = zip(*(_sums(pinball_at(judged, forecasts, level)) for level in levels), strict=True)
    total = np.stack(totals, axis=1)
    return quotient(total, np.stack(counts, axis=1)), quotient(2 * total, sizes[:, None])


def _sums(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of values [N, H]: the sum of those that are known, and how many they are, [H] both."""
    return np.nansum(values, axis=0), np.isfinite(values).sum(axis=0).astype(np.float64)
