"""Questions for an explanation on the wire."""

from collections.abc import Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.forecast import Detail, TargetPoint
from predictor.instance import Query
from predictor.wire import instances, methods, symbols
from predictor.wire.limits import MAX_TARGETS, check_count

DEFAULT_TOLERANCE: Final = 0.01
"""Of the relative completeness gap, where a request says 0."""

_DETAILS: Final[Mapping[int, Detail]] = {
    pb.EXPLAIN_DETAIL_UNSPECIFIED: Detail.FEATURES,
    pb.EXPLAIN_DETAIL_FEATURES: Detail.FEATURES,
    pb.EXPLAIN_DETAIL_TIMES: Detail.TIMES,
    pb.EXPLAIN_DETAIL_CELLS: Detail.CELLS,
}
_DETAIL_NUMBERS: Final[Mapping[Detail, pb.ExplainDetail]] = {
    Detail.FEATURES: pb.EXPLAIN_DETAIL_FEATURES,
    Detail.TIMES: pb.EXPLAIN_DETAIL_TIMES,
    Detail.CELLS: pb.EXPLAIN_DETAIL_CELLS,
}


def encode(query: Query, model: str) -> pb.ExplainRequest:
    """The request that asks `model` this question.

    Raises:
        ExplainUnsupportedError: the wire knows no such method.
    """
    return pb.ExplainRequest(
        model=model,
        instance=instances.encode(query.instance),
        targets=[pb.ExplainTarget(horizon=point.horizon, quantile=point.quantile) for point in query.targets],
        method=methods.encode(query.method),
        detail=_DETAIL_NUMBERS[query.detail],
        tolerance=query.tolerance,
        symbols=query.symbols,
    )


def decode(message: pb.ExplainRequest) -> Query:
    """The question of a request.

    Raises:
        MalformedRequestError: a tolerance outside [0, 1), an unknown detail, or a malformed instance.
        RequestTooLargeError: more of anything than one request may have.
        ExplainUnsupportedError: the wire knows no such method.
        BarsError: bars that no market can have made.
    """
    check_count("targets", len(message.targets), MAX_TARGETS)
    return Query(
        instance=instances.decode(message.instance),
        targets=tuple(TargetPoint(target.horizon, target.quantile) for target in message.targets),
        method=methods.decode(message.method),
        detail=_detail(message.detail),
        tolerance=_tolerance(message.tolerance),
        symbols=symbols.decode_any(message.symbols),
    )


def _detail(number: int) -> Detail:
    if number not in _DETAILS:
        raise MalformedRequestError(
            f"detail: {number} is unknown; have 1 features, 2 times, 3 cells",
            metadata={"field": "detail", "value": str(number)},
        )
    return _DETAILS[number]


def _tolerance(value: float) -> float:
    if not 0 <= value < 1:
        raise MalformedRequestError(
            f"tolerance: {value:g} is no relative gap; send a number between 0 and 1, or 0 for {DEFAULT_TOLERANCE:g}",
            metadata={"field": "tolerance", "value": repr(value)},
        )
    return value or DEFAULT_TOLERANCE
