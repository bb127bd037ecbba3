"""Validation of queries, and global importance over many instances."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from predictor.call_context import Deadline
from predictor.errors import (
    CallCancelledError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    InvalidInputError,
    QuantraError,
    UnknownHorizonError,
    UnknownQuantileError,
)
from predictor.explain import ExplanationCost
from predictor.explain.integration import Point
from predictor.forecast import TargetPoint
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance, ImportanceTally
from predictor.instance import MIN_TOLERANCE, ExplanationQuery
from predictor.model.predictor import Predictor
from predictor.networks import Target


def check_tolerance(tolerance: float) -> None:
    """Check a tolerance for relative gaps.

    Raises:
        InvalidInputError: it is out of range, for example below the limit of float32.
    """
    if not MIN_TOLERANCE <= tolerance < 1:
        raise InvalidInputError(
            f"tolerance is {tolerance:g}, but must be from {MIN_TOLERANCE:g} to below 1: float32 has no finer gaps"
        )


def choose_method(method: str, supported: Sequence[str]) -> str:
    """Return the method of a query; by default, the first one that the model supports.

    Raises:
        ExplainUnsupportedError: the model does not support it.
    """
    if method and method not in supported:
        raise ExplainUnsupportedError(f"unknown method {method!r}; the model supports {list(supported)}")
    return method or supported[0]


def index_targets(targets: Sequence[TargetPoint], target: Target, levels: Sequence[float]) -> list[Point]:
    """Return the indices (h, q) of the targets in a forecast.

    Raises:
        UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
    """
    return [point.index_in(target.horizons, levels) for point in targets]


def compute_cost(
    query: ExplanationQuery, points: Sequence[Point], rows_per_window: int, *, forecasts: int = 0
) -> ExplanationCost:
    """Compute the cost of a query; equal points count once."""
    symbols = query.symbols or query.instance.input.symbols
    return ExplanationCost(
        symbols=len(symbols), targets=len(set(points)), rows_per_window=rows_per_window, forecasts=forecasts
    )


QUERY_ERRORS: Final = (
    CallCancelledError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    UnknownHorizonError,
    UnknownQuantileError,
)
"""Errors that every further instance would raise too."""


def explain_each(
    model: Predictor, query: GlobalExplanationQuery, now: datetime, deadline: Deadline
) -> Iterator[GlobalImportance]:
    """Yield a report after each instance; counts one that cannot be explained as refused, with its reason.

    Args:
        model: the model to explain.
        query: instances and targets.
        now: the present, with a time zone; decides whether the last bar's session has closed.
        deadline: checked before every instance and every forward pass.

    Raises:
        InvalidInputError: the query has no instance, or the tolerance is invalid.
        ExplainUnsupportedError: the model does not support the method.
        UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
        DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
    """
    check_tolerance(query.tolerance)
    if not query.instances:
        raise InvalidInputError("the request has no instance to explain; send at least one")
    identity = model.identity
    tally = ImportanceTally(
        len(query.instances), model=identity.name, version=identity.version, weights_hash=identity.weights_hash
    )
    for instance in query.instances:
        deadline.check()
        if isinstance(instance, QuantraError):
            tally.refuse(instance)
        else:
            single = ExplanationQuery(
                instance=instance, targets=query.targets, method=query.method, tolerance=query.tolerance
            )
            _explain(model, single, tally, now, deadline)
        yield tally.report()


def _explain(
    model: Predictor, query: ExplanationQuery, tally: ImportanceTally, now: datetime, deadline: Deadline
) -> None:
    """Add the explanation of one instance, or its error."""
    try:
        tally.add(model.explain(query, now, deadline))
    except QUERY_ERRORS:
        raise
    except QuantraError as error:
        tally.refuse(error)
