"""Conversion of explanation queries and explanations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.dates import to_date_number, to_optional_date_number
from predictor.errors import ExplainUnsupportedError, MalformedRequestError
from predictor.forecast import Attribution, Detail, Explanation, RowKind, TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, MIN_TOLERANCE, OCCLUSION, SHAPLEY, TREE_SHAP, ExplanationQuery
from predictor.internals import Internal, InternalAxis
from predictor.wire import arrays, errors, forecasts, instances
from predictor.wire.limits import MAX_TARGETS, check_count

_METHOD_NUMBERS: Final[Mapping[str, pb.ExplainMethod]] = {
    "": pb.EXPLAIN_METHOD_UNSPECIFIED,
    INTEGRATED_GRADIENTS: pb.EXPLAIN_METHOD_INTEGRATED_GRADIENTS,
    TREE_SHAP: pb.EXPLAIN_METHOD_TREE_SHAP,
    OCCLUSION: pb.EXPLAIN_METHOD_OCCLUSION,
    SHAPLEY: pb.EXPLAIN_METHOD_SHAPLEY,
}
_METHODS: Final[Mapping[int, str]] = {number: name for name, number in _METHOD_NUMBERS.items()}
DEFAULT_TOLERANCE: Final = 0.01
"""Tolerance of the relative completeness gap for requests that set 0."""
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

_KIND_NUMBERS: Final[Mapping[RowKind, pb.RowKind]] = {
    RowKind.OBSERVED: pb.ROW_KIND_OBSERVED,
    RowKind.KNOWN: pb.ROW_KIND_KNOWN,
    RowKind.STATIC: pb.ROW_KIND_STATIC,
    RowKind.LOCATION: pb.ROW_KIND_LOCATION,
    RowKind.SCALE: pb.ROW_KIND_SCALE,
    RowKind.CONFORMAL: pb.ROW_KIND_CONFORMAL,
    RowKind.NEIGHBOURS: pb.ROW_KIND_NEIGHBOURS,
}
_KINDS: Final[Mapping[int, RowKind]] = {number: kind for kind, number in _KIND_NUMBERS.items()}
_AXIS_NUMBERS: Final[Mapping[InternalAxis, pb.InternalAxis]] = {
    InternalAxis.INPUTS: pb.INTERNAL_AXIS_INPUTS,
    InternalAxis.SESSIONS: pb.INTERNAL_AXIS_SESSIONS,
}
_AXES: Final[Mapping[int, InternalAxis]] = {number: axis for axis, number in _AXIS_NUMBERS.items()}


def encode_method(name: str) -> pb.ExplainMethod:
    """Return the enum value of a method; raises ExplainUnsupportedError if the method is unknown."""
    if name not in _METHOD_NUMBERS:
        raise _make_unknown_method_error(repr(name[:40]))
    return _METHOD_NUMBERS[name]


def decode_method(number: int) -> str:
    """Return the method of an enum value; empty for 0, which means the method of the model.

    Raises:
        ExplainUnsupportedError: the enum value is unknown.
    """
    if number not in _METHODS:
        raise _make_unknown_method_error(str(number))
    return _METHODS[number]


def _make_unknown_method_error(method: str) -> ExplainUnsupportedError:
    return ExplainUnsupportedError(
        f"unknown explanation method {method}; use one of {', '.join(filter(None, _METHOD_NUMBERS))}",
        metadata={"method": method},
    )


def encode_query(query: ExplanationQuery, model: str) -> pb.ExplainRequest:
    """Encode a query to `model`; raises ExplainUnsupportedError if the method is unknown."""
    return pb.ExplainRequest(
        model=model,
        instance=instances.encode(query.instance),
        targets=encode_targets(query.targets),
        method=encode_method(query.method),
        detail=_DETAIL_NUMBERS[query.detail],
        tolerance=query.tolerance,
        symbols=query.symbols,
    )


def decode_query(message: pb.ExplainRequest) -> ExplanationQuery:
    """Decode a query.

    Raises:
        MalformedRequestError: the tolerance is neither 0 nor in [MIN_TOLERANCE, 1), the detail is unknown, or the
            instance is malformed.
        RequestTooLargeError: the request exceeds a limit.
        ExplainUnsupportedError: the method is unknown.
        BarsError: the bars are invalid.
    """
    if message.detail not in _DETAILS:
        raise MalformedRequestError(
            f"detail: {message.detail} is unknown; use 1 (features), 2 (times) or 3 (cells)",
            metadata={"field": "detail", "value": str(message.detail)},
        )
    return ExplanationQuery(
        targets=decode_targets(message.targets),  # first, because counting is cheaper than decoding an instance
        instance=instances.decode(message.instance),
        method=decode_method(message.method),
        detail=_DETAILS[message.detail],
        tolerance=decode_tolerance(message.tolerance),
        symbols=instances.decode_any_symbols(message.symbols),
    )


def encode_targets(targets: Sequence[TargetPoint]) -> list[pb.ExplainTarget]:
    """Encode targets."""
    return [pb.ExplainTarget(horizon=point.horizon, quantile=point.quantile) for point in targets]


def decode_targets(messages: Sequence[pb.ExplainTarget]) -> tuple[TargetPoint, ...]:
    """Decode targets; raises RequestTooLargeError if there are more than MAX_TARGETS."""
    check_count("targets", len(messages), MAX_TARGETS)
    return tuple(TargetPoint(target.horizon, target.quantile) for target in messages)


def decode_tolerance(value: float) -> float:
    """Check a tolerance; 0 means DEFAULT_TOLERANCE.

    Raises:
        MalformedRequestError: it is neither 0 nor in [MIN_TOLERANCE, 1).
    """
    if value != 0 and not MIN_TOLERANCE <= value < 1:
        raise MalformedRequestError(
            f"tolerance: {value:g} is out of range; use a value from {MIN_TOLERANCE:g} to below 1, which float32 can "
            f"resolve, or 0 for the default {DEFAULT_TOLERANCE:g}",
            metadata={"field": "tolerance", "value": repr(value)},
        )
    return value or DEFAULT_TOLERANCE


def encode(explanation: Explanation, request_id: str) -> pb.ExplainResponse:
    """Encode an explanation as the response to a request."""
    return pb.ExplainResponse(
        request_id=request_id,
        attributions=[_encode(attribution) for attribution in explanation.attributions],
        queue_ms=explanation.queue_ms,
        compute_ms=explanation.compute_ms,
    )


def decode(message: pb.ExplainResponse) -> Explanation:
    """Decode an explanation; its arrays are read-only.

    Raises:
        MalformedRequestError: the length of an array does not match its fields, or the kind of a row is unknown.
    """
    return Explanation(
        attributions=tuple(_decode(attribution) for attribution in message.attributions),
        queue_ms=message.queue_ms,
        compute_ms=message.compute_ms,
    )


def _encode(attribution: Attribution) -> pb.Attribution:
    return pb.Attribution(
        symbols=attribution.symbols,
        as_of_session=to_optional_date_number(attribution.as_of_session),
        horizon=attribution.horizon,
        quantile=attribution.quantile,
        method=encode_method(attribution.method),
        baseline=attribution.baseline,
        unit=attribution.unit,
        row_names=attribution.row_names,
        row_kinds=encode_kinds(attribution.row_kinds),
        per_row=arrays.encode_float64(attribution.per_row),
        sessions=[to_date_number(day) for day in attribution.sessions],
        per_time=arrays.encode_float64(attribution.per_time),
        cells=arrays.encode_float64(attribution.cells),
        prediction=arrays.encode_float64(attribution.prediction),
        baseline_prediction=arrays.encode_float64(attribution.baseline_prediction),
        relative_gap=arrays.encode_float64(attribution.relative_gap),
        converged=attribution.converged.tolist(),
        nodes=attribution.nodes.tolist(),
        model=attribution.model,
        version=attribution.version,
        weights_hash=attribution.weights_hash,
        warnings=attribution.warnings,
        internals=map(_encode_internal, attribution.internals),
        skill=forecasts.encode_skill(attribution.skill),
        refusals=errors.encode_each(attribution.refusals),
    )


def _encode_internal(internal: Internal) -> pb.Internal:
    return pb.Internal(
        name=internal.name,
        axis=_AXIS_NUMBERS[internal.axis],
        labels=internal.labels,
        values=arrays.encode_float64(internal.values),
    )


def _decode(message: pb.Attribution) -> Attribution:
    count = len(message.symbols)
    kinds = decode_kinds(message.row_kinds)
    arrays.check_values(message.row_names, (len(kinds),), "attribution.row_names")
    times = len(message.sessions) or len(message.per_time) // (8 * max(count, 1))  # sessions may be unknown
    cells = (count, times, kinds.count(RowKind.OBSERVED))
    return Attribution(
        symbols=tuple(message.symbols),
        as_of_session=arrays.decode_session(message.as_of_session, "attribution.as_of_session"),
        horizon=message.horizon,
        quantile=message.quantile,
        method=decode_method(message.method),
        baseline=message.baseline,
        unit=message.unit,
        row_names=tuple(message.row_names),
        row_kinds=kinds,
        per_row=arrays.decode_float64(message.per_row, (count, len(kinds)), "attribution.per_row"),
        sessions=arrays.decode_sessions(message.sessions, len(message.sessions), "attribution.sessions"),
        per_time=arrays.decode_optional_float64(message.per_time, (count, times), "attribution.per_time"),
        cells=arrays.decode_optional_float64(message.cells, cells, "attribution.cells"),
        prediction=arrays.decode_float64(message.prediction, (count,), "attribution.prediction"),
        baseline_prediction=arrays.decode_float64(
            message.baseline_prediction, (count,), "attribution.baseline_prediction"
        ),
        relative_gap=arrays.decode_float64(message.relative_gap, (count,), "attribution.relative_gap"),
        converged=arrays.decode_flags(message.converged, count, "attribution.converged"),
        nodes=arrays.decode_int32(message.nodes, (count,), "attribution.nodes"),
        model=message.model,
        version=message.version,
        weights_hash=message.weights_hash,
        warnings=tuple(message.warnings),
        internals=tuple(_decode_internal(internal, count) for internal in message.internals),
        skill=forecasts.decode_skill(message.skill) if message.HasField("skill") else None,
        refusals=errors.decode_each(message.refusals),
    )


def _decode_internal(message: pb.Internal, count: int) -> Internal:
    if message.axis not in _AXES:
        raise MalformedRequestError(
            f"attribution.internals: axis {message.axis} is unknown; the server is newer than this client"
        )
    return Internal(
        name=message.name,
        axis=_AXES[message.axis],
        labels=tuple(message.labels),
        values=arrays.decode_float64(message.values, (count, len(message.labels)), "attribution.internals"),
    )


def encode_kinds(kinds: Iterable[RowKind]) -> list[pb.RowKind]:
    """Encode the kinds of rows."""
    return [_KIND_NUMBERS[kind] for kind in kinds]


def decode_kinds(numbers: Iterable[int]) -> tuple[RowKind, ...]:
    """Decode the kinds of rows; raises MalformedRequestError if a kind is unknown."""
    return tuple(map(_decode_kind, numbers))


def _decode_kind(number: int) -> RowKind:
    if number not in _KINDS:
        raise MalformedRequestError(f"row_kinds: {number} is unknown; the server is newer than this client")
    return _KINDS[number]
