"""Forecasts for tests of a ledger."""

from collections.abc import Sequence

import numpy as np

from predictor.bars import BarPanel
from predictor.ledger import ForecastRecord, ForecastRole


def forecast_record(
    panel: BarPanel, day: int, symbol: str = "IBM", horizons: Sequence[int] = (1, 5), *, width: float = 0.02
) -> ForecastRecord:
    """A forecast of `mine@1` around 0 from a panel's bars up to a day, twice as wide at each further horizon."""
    sessions = panel.sessions.tolist()
    return ForecastRecord(
        forecast_id=f"{day}",
        symbol=symbol,
        role=ForecastRole.CHAMPION,
        model="mine",
        version=1,
        weights_hash="ab",
        engine="eager",
        batch_rows=1,
        as_of=sessions[day],
        base_session=sessions[day],
        target_kind="log-return",
        horizons=tuple(horizons),
        target_sessions=tuple(sessions[day + h] for h in horizons),
        quantiles=(0.1, 0.5, 0.9),
        values=np.array([[-width * 2**k, 0.0, width * 2**k] for k in range(len(horizons))]),
        anchor=100.0,
        bars_batch=0,
        made_at=0,
    )
