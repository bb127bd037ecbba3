"""Daily forecasts of many stocks, each from bars that end with its session, as in serving."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, NoUsableSymbolError, QuantraError, TooFewBarsError, format_date
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import GapPolicy, Instance
from predictor.model import Predictor
from predictor.networks import TargetKind, find_anchor_index
from trainers.progress import StepProgress, no_progress
from trainers.stock.data import NO_COVARIATE_FILES

DAYS_AT_ONCE = 64
"""Days per forward pass; bounds the memory of a wide panel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DailyForecasts:
    """Forecasts of S stocks after the closes of D sessions, for H horizons and Q quantiles; NaN if missing."""

    sessions: NDArray[np.int32]
    """[D] sessions of the decisions, yyyymmdd."""
    kind: TargetKind
    horizons: tuple[int, ...]
    """[H] sessions."""
    levels: tuple[float, ...]
    """[Q]"""
    values: FloatArray
    """[D, S, H, Q] in the target's unit."""
    scores: FloatArray | None = None
    """[D, S, H] scores of a ranking model; a larger score predicts a better outcome than the others of the day."""

    @property
    def median(self) -> FloatArray:
        """[D, S, H] the quantile nearest to the median."""
        return self.values[..., find_anchor_index(self.levels)]

    @property
    def ranking(self) -> FloatArray:
        """[D, S, H] ranking of stocks: the scores of a ranking model, else the medians."""
        return self.median if self.scores is None else self.scores

    def find_horizon(self, horizon: int) -> int:
        """Index of a horizon.

        Raises:
            ConfigurationError: The model does not forecast it.
        """
        if horizon not in self.horizons:
            raise ConfigurationError(f"horizon {horizon} is not forecast; the model has {list(self.horizons)}")
        return self.horizons.index(horizon)


def join_folds(parts: Sequence[DailyForecasts]) -> DailyForecasts:
    """Concatenate the forecasts of consecutive folds."""
    first = parts[0]
    scores = [np.full(part.values.shape[:-1], np.nan) if part.scores is None else part.scores for part in parts]
    has_scores = any(part.scores is not None for part in parts)
    return DailyForecasts(
        sessions=np.concatenate([part.sessions for part in parts]),
        kind=first.kind,
        horizons=first.horizons,
        levels=first.levels,
        values=np.concatenate([part.values for part in parts]),
        scores=np.concatenate(scores) if has_scores else None,
    )


def forecast_daily(
    model: Predictor,
    bars: BarPanel,
    sessions: NDArray[np.int32],
    covariates: CovariateSource = NO_COVARIATE_FILES,
    *,
    track_steps: StepProgress = no_progress,
) -> DailyForecasts:
    """Forecast after the close of each of the sessions [D], from bars up to that session.

    Gaps in the bars are ignored. A day on which no stock can be forecast is NaN. `track_steps` shows the progress.

    Raises:
        TooFewBarsError: There are too few bars before the first session.
        QuantraError: The model cannot read these bars; see predictor.errors.
    """
    info = model.info((), is_default=False)
    shape = (len(sessions), len(bars.symbols), len(info.horizons))
    values = np.full((*shape, len(info.quantiles)), np.nan)
    scores = np.full(shape, np.nan)
    first_days = range(0, len(sessions), DAYS_AT_ONCE)
    for k in track_steps(first_days, title="forecasting", tell=lambda k: format_date(int(sessions[k]))):
        panels = [bars.until(int(session)).last(info.bars_needed) for session in sessions[k : k + DAYS_AT_ONCE]]
        instances = [
            Instance(
                input=panel,
                allow_incomplete_last_bar=True,
                accept_suspect_bars=True,
                gap_policy=GapPolicy.IGNORE,
                covariates=covariates.for_model(info, panel),
            )
            for panel in panels
        ]
        for day, forecast in enumerate(model.predict(instances, AFTER_ALL_SESSIONS, NEVER), start=k):
            if isinstance(forecast, NoUsableSymbolError) or (day > 0 and isinstance(forecast, TooFewBarsError)):
                continue  # later days have enough bars, unless the stocks were halted
            if isinstance(forecast, QuantraError):
                raise forecast
            values[day] = forecast.values
            scores[day] = np.nan if forecast.scores is None else forecast.scores
    return DailyForecasts(
        sessions=sessions,
        kind=TargetKind(info.target_kind),
        horizons=info.horizons,
        levels=info.quantiles,
        values=values,
        scores=scores if np.isfinite(scores).any() else None,
    )
