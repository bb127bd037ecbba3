"""What a query asks of a model, checked and measured before its instance is prepared."""

from collections.abc import Sequence

from predictor.errors import InvalidInputError
from predictor.explain import ExplanationCost
from predictor.explain.integration import Point
from predictor.forecast import TargetPoint
from predictor.instance import LEAST_TOLERANCE, Query
from predictor.networks import Target


def check_tolerance(tolerance: float) -> None:
    """Refuse what is no relative gap, or finer than float32 can tell.

    Raises:
        InvalidInputError: naming the least.
    """
    if not LEAST_TOLERANCE <= tolerance < 1:
        raise InvalidInputError(
            f"tolerance is {tolerance:g}, but must be from {LEAST_TOLERANCE:g} to below 1: float32 tells no finer gap"
        )


def points_of(targets: Sequence[TargetPoint], target: Target, levels: Sequence[float]) -> list[Point]:
    """Places (h, q) of the targets in a forecast.

    Raises:
        UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
    """
    return [one.index_in(target.horizons, levels) for one in targets]


def work_of(query: Query, points: Sequence[Point], rows_per_window: int) -> ExplanationCost:
    """What a query asks for; equal points count once."""
    symbols = query.symbols or query.instance.input.symbols
    return ExplanationCost(symbols=len(symbols), targets=len(set(points)), rows_per_window=rows_per_window)
