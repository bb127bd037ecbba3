"""Attributions and explanations on the wire."""

from collections.abc import Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.forecast import Attribution, Explanation, Internal, InternalAxis, RowKind
from predictor.wire import arrays, methods, skills

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
_NEWER: Final = "the server is newer than this client"
_AXES: Final[Mapping[int, InternalAxis]] = {number: axis for axis, number in _AXIS_NUMBERS.items()}


def encode(explanation: Explanation, request_id: str) -> pb.ExplainResponse:
    """The answer to the request of that id."""
    return pb.ExplainResponse(
        request_id=request_id,
        attributions=[_encode(attribution) for attribution in explanation.attributions],
        queue_ms=explanation.queue_ms,
        compute_ms=explanation.compute_ms,
    )


def decode(message: pb.ExplainResponse) -> Explanation:
    """The explanation of an answer; its arrays are read-only.

    Raises:
        MalformedRequestError: an array has another length than its fields say, or a row's kind is unknown.
    """
    return Explanation(
        attributions=tuple(_decode(attribution) for attribution in message.attributions),
        queue_ms=message.queue_ms,
        compute_ms=message.compute_ms,
    )


def _encode(attribution: Attribution) -> pb.Attribution:
    return pb.Attribution(
        symbols=attribution.symbols,
        as_of_session=attribution.as_of_session,
        horizon=attribution.horizon,
        quantile=attribution.quantile,
        method=methods.encode(attribution.method),
        baseline=attribution.baseline,
        unit=attribution.unit,
        row_names=attribution.row_names,
        row_kinds=[_KIND_NUMBERS[kind] for kind in attribution.row_kinds],
        per_row=arrays.encode_float64(attribution.per_row),
        sessions=attribution.sessions.tolist(),
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
        skill=skills.encode(attribution.skill),
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
    kinds = tuple(_kind(number) for number in message.row_kinds)
    arrays.check_values(message.row_names, (len(kinds),), "attribution.row_names")
    times = len(message.sessions) or len(message.per_time) // (8 * max(count, 1))  # the sessions may be unknown
    cells = (count, times, kinds.count(RowKind.OBSERVED))
    return Attribution(
        symbols=tuple(message.symbols),
        as_of_session=message.as_of_session,
        horizon=message.horizon,
        quantile=message.quantile,
        method=methods.decode(message.method),
        baseline=message.baseline,
        unit=message.unit,
        row_names=tuple(message.row_names),
        row_kinds=kinds,
        per_row=arrays.decode_float64(message.per_row, (count, len(kinds)), "attribution.per_row"),
        sessions=arrays.decode_int32(message.sessions, (len(message.sessions),), "attribution.sessions"),
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
        internals=tuple(_decode_internal(one, count) for one in message.internals),
        skill=skills.decode(message.skill) if message.HasField("skill") else None,
    )


def _decode_internal(message: pb.Internal, count: int) -> Internal:
    if message.axis not in _AXES:
        raise MalformedRequestError(f"attribution.internals: axis {message.axis} is unknown; {_NEWER}")
    return Internal(
        name=message.name,
        axis=_AXES[message.axis],
        labels=tuple(message.labels),
        values=arrays.decode_float64(message.values, (count, len(message.labels)), "attribution.internals"),
    )


def _kind(number: int) -> RowKind:
    if number not in _KINDS:
        raise MalformedRequestError(f"attribution.row_kinds: {number} is unknown; {_NEWER}")
    return _KINDS[number]
