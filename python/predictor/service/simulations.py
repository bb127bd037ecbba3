"""Simulation of price paths."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, final

from predictor.call_context import Deadline
from predictor.forecast import Forecast, require_forecast
from predictor.instance import PathQuery, require_bars
from predictor.model import Predictor
from predictor.price_paths import PricePaths, simulate_paths

MAX_CELLS: Final = 2_000_000
"""Largest number of paths x symbols x days of one request: 16 MB."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """Price paths, and what they were made from."""

    query: PathQuery
    forecast: Forecast
    paths: PricePaths


def simulate_query(model: Predictor, decode: Callable[[], PathQuery], now: datetime, deadline: Deadline) -> Simulation:
    """Forecast and simulate."""
    query = decode()
    past = require_bars(query.instance, "paths")
    forecast = require_forecast(model.predict([query.instance], now, deadline)[0])
    paths = simulate_paths(
        forecast, past, paths=query.paths, seed=query.seed, max_cells=MAX_CELLS, check=deadline.check
    )
    return Simulation(query=query, forecast=forecast, paths=paths)
