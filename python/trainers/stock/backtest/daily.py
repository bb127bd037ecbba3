"""A model asked day by day: each forecast is made from bars that end with its own session, as serving makes it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.covariates import CovariateSource
from predictor.deadline import Deadline
from predictor.errors import NoUsableSymbolError, QuantraError
from predictor.forecast import Forecast
from predictor.golden import LONG_AFTER
from predictor.instance import GapPolicy, Instance
from predictor.model import Answering
from predictor.networks import TargetKind
from trainers.stock.backtest.forecasts import Forecasts
from trainers.stock.data import NO_SOURCE

DAYS_AT_ONCE = 64
"""Days that one pass of the network answers; bounds the memory of a wide panel."""


def daily_forecasts(
    model: Answering, bars: BarPanel, sessions: NDArray[np.int32], covariates: CovariateSource = NO_SOURCE
) -> Forecasts:
    """What the model says after the close of each of these sessions; nothing later exists for it.

    Sessions of the exchange that the bars lack are passed over. A day on which no stock can be forecast is NaN.

    Raises:
        TooFewBarsError: there are too few bars before the first session.
        QuantraError: the model cannot read these bars; see predictor.errors.
    """
    info = model.info((), is_default=False)
    asking = _Asking(info=info, bars=bars, covariates=covariates)
    shape = (len(sessions), len(bars.symbols), len(info.horizons))
    values = np.full((*shape, len(info.quantiles)), np.nan)
    scores = np.full(shape, np.nan)
    for k in range(0, len(sessions), DAYS_AT_ONCE):
        for day, forecast in enumerate(_answers(model, asking, sessions[k : k + DAYS_AT_ONCE]), start=k):
            if forecast is not None:
                values[day] = forecast.values
                scores[day] = np.nan if forecast.scores is None else forecast.scores
    return Forecasts(
        sessions=sessions,
        kind=TargetKind(info.target_kind),
        horizons=info.horizons,
        levels=info.quantiles,
        values=values,
        scores=scores if np.isfinite(scores).any() else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asking:
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


def _answers(model: Answering, asking: _Asking, sessions: NDArray[np.int32]) -> tuple[Forecast | None, ...]:
    asked = [asking.at(int(session)) for session in sessions]
    return tuple(_answer(outcome) for outcome in model.predict(asked, LONG_AFTER, Deadline()))


def _answer(outcome: Forecast | QuantraError) -> Forecast | None:
    """None where no stock can be forecast; any other refusal is an error here too."""
    if isinstance(outcome, NoUsableSymbolError):
        return None
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome
