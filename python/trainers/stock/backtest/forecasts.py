"""Forecasts of many days and stocks, each made from bars that end with its own session, as serving makes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, NoUsableSymbolError, QuantraError, shown_date
from predictor.forecast import Forecast
from predictor.golden import LONG_AFTER
from predictor.instance import Deadline, GapPolicy, Instance
from predictor.model import Answering
from predictor.networks import TargetKind, anchor_index
from trainers.progress import Stepwise, unwatched
from trainers.stock.data import NO_SOURCE

DAYS_AT_ONCE = 64
"""Days that one pass of the network answers; bounds the memory of a wide panel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DailyForecasts:
    """Forecasts of S stocks after the closes of D sessions, for H horizons and Q quantiles; NaN where there is none."""

    sessions: NDArray[np.int32]
    """[D] yyyymmdd of the decisions."""
    kind: TargetKind
    horizons: tuple[int, ...]
    """[H] sessions."""
    levels: tuple[float, ...]
    """[Q]"""
    values: FloatArray
    """[D, S, H, Q] in the target's unit."""
    scores: FloatArray | None = None
    """[D, S, H] of a ranking model: larger is expected to do better than the others that day."""

    @property
    def median(self) -> FloatArray:
        """[D, S, H] the quantile nearest to the median."""
        return self.values[..., anchor_index(self.levels)]

    @property
    def ranking(self) -> FloatArray:
        """[D, S, H] what stocks are ordered by: the model's score where it gives one, else the median."""
        return self.median if self.scores is None else self.scores

    def place(self, horizon: int) -> int:
        """Where a horizon stands among the H.

        Raises:
            ConfigurationError: it is not forecast.
        """
        if horizon not in self.horizons:
            raise ConfigurationError(f"horizon {horizon} is not forecast; the model has {list(self.horizons)}")
        return self.horizons.index(horizon)


def joined_folds(parts: Sequence[DailyForecasts]) -> DailyForecasts:
    """The forecasts of folds that follow one another."""
    first = parts[0]
    scores = [part.scores for part in parts if part.scores is not None]
    return DailyForecasts(
        sessions=np.concatenate([part.sessions for part in parts]),
        kind=first.kind,
        horizons=first.horizons,
        levels=first.levels,
        values=np.concatenate([part.values for part in parts]),
        scores=np.concatenate(scores) if scores else None,
    )


def daily_forecasts(
    model: Answering,
    bars: BarPanel,
    sessions: NDArray[np.int32],
    covariates: CovariateSource = NO_SOURCE,
    *,
    stepwise: Stepwise = unwatched,
) -> DailyForecasts:
    """What the model forecasts after the close of each of the sessions [D]; nothing later exists for it.

    Sessions of the exchange that the bars lack are passed over. A day on which no stock can be forecast is NaN.
    `stepwise` shows how far the work is.

    Raises:
        TooFewBarsError: there are too few bars before the first session.
        QuantraError: the model cannot read these bars; see predictor.errors.
    """
    info = model.info((), is_default=False)
    asking = _Questions(info=info, bars=bars, covariates=covariates)
    shape = (len(sessions), len(bars.symbols), len(info.horizons))
    values = np.full((*shape, len(info.quantiles)), np.nan)
    scores = np.full(shape, np.nan)
    first_days = range(0, len(sessions), DAYS_AT_ONCE)
    for k in stepwise(first_days, title="forecasting", tell=lambda k: shown_date(int(sessions[k]))):
        for day, forecast in enumerate(_answers(model, asking, sessions[k : k + DAYS_AT_ONCE]), start=k):
            if forecast is not None:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Questions:
    """What a model is asked about."""

    info: ModelInfo
    bars: BarPanel
    covariates: CovariateSource

    def at(self, session: int) -> Instance:
        """The question of one session: its bars and those before it, and what was known of the rest by then."""
        recent = self.bars.until(session).last(self.info.bars_needed)
        return Instance(
            input=recent,
            allow_incomplete_last_bar=True,
            gap_policy=GapPolicy.IGNORE,
            covariates=self.covariates.for_model(self.info, recent),
        )


def _answers(model: Answering, asking: _Questions, sessions: NDArray[np.int32]) -> tuple[Forecast | None, ...]:
    asked = [asking.at(int(session)) for session in sessions]
    return tuple(_forecast_or_none(outcome) for outcome in model.predict(asked, LONG_AFTER, Deadline()))


def _forecast_or_none(outcome: Forecast | QuantraError) -> Forecast | None:
    """None where no stock can be forecast; any other refusal is an error here too."""
    if isinstance(outcome, NoUsableSymbolError):
        return None
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome
