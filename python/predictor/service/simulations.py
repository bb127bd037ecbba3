"""Jobs of the explanation worker that simulate price paths."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, final

from predictor.forecast import Forecast, forecast_or_raise
from predictor.instance import Cancellation, PathQuery, bars_of
from predictor.model import Predictor
from predictor.price_paths import PricePaths, simulate_paths
from predictor.service.explanations import QueryRequest

MOST_CELLS: Final = 2_000_000
"""Largest number of paths x symbols x days of one request: 16 MB."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """Price paths, and what they were made from."""

    query: PathQuery
    forecast: Forecast
    paths: PricePaths


@final
@dataclass(frozen=True, slots=True, eq=False)
class SimulationJob:
    """Price paths from one model."""

    model: Predictor
    request: QueryRequest[PathQuery]

    @property
    def rows(self) -> int:
        """Number of symbols."""
        return self.request.rows

    @property
    def size(self) -> int:
        """Bytes of the query."""
        return self.request.size

    def step(self, now: datetime, deadline: Cancellation) -> Simulation:
        """Forecast and simulate in one step."""
        query = self.request.query()
        past = bars_of(query.instance, "paths")
        forecast = forecast_or_raise(self.model.predict([query.instance], now, deadline)[0])
        paths = simulate_paths(
            forecast, past, paths=query.paths, seed=query.seed, most_cells=MOST_CELLS, check=deadline.check
        )
        return Simulation(query=query, forecast=forecast, paths=paths)
