"""Conversion of global explanation queries and their progress reports."""

from predictor._pb import prediction_pb2 as pb
from predictor.errors import QuantraError
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance, Refusal, TargetImportance
from predictor.instance import InstanceOrError
from predictor.wire import arrays, attributions, errors, instances
from predictor.wire.limits import MAX_INSTANCES, check_count


def encode_query(query: GlobalExplanationQuery, model: str) -> pb.ExplainGlobalRequest:
    """Encode a query to `model`.

    Raises:
        ExplainUnsupportedError: the method is unknown.
        QuantraError: an instance is an error.
    """
    return pb.ExplainGlobalRequest(
        model=model,
        instances=map(_encode_instance, query.instances),
        targets=attributions.encode_targets(query.targets),
        method=attributions.encode_method(query.method),
        tolerance=query.tolerance,
    )


def decode_query(message: pb.ExplainGlobalRequest) -> GlobalExplanationQuery:
    """Decode a query; an instance that cannot be decoded is replaced by its error.

    Raises:
        MalformedRequestError: the tolerance is neither 0 nor in [MIN_TOLERANCE, 1).
        RequestTooLargeError: there are too many instances or targets.
        ExplainUnsupportedError: the method is unknown.
    """
    check_count("instances", len(message.instances), MAX_INSTANCES)
    return GlobalExplanationQuery(
        targets=attributions.decode_targets(message.targets),  # first, because counting is cheaper than decoding
        instances=instances.decode_each(message.instances),
        method=attributions.decode_method(message.method),
        tolerance=attributions.decode_tolerance(message.tolerance),
    )


def encode(importance: GlobalImportance) -> pb.ExplainGlobalProgress:
    """Encode a progress report."""
    return pb.ExplainGlobalProgress(
        model=importance.model,
        version=importance.version,
        weights_hash=importance.weights_hash,
        targets=map(_encode_target, importance.targets),
        done=importance.done,
        total=importance.total,
        refused=importance.refused,
        refused_symbols=importance.refused_symbols,
        refusals=[
            pb.Refusal(place=refusal.place, symbol=refusal.symbol, error=errors.encode(refusal.error))
            for refusal in importance.refusals
        ],
    )


def decode(message: pb.ExplainGlobalProgress) -> GlobalImportance:
    """Decode a progress report; its arrays are read-only.

    Raises:
        MalformedRequestError: the length of an array is not the number of rows, or the kind of a row is unknown.
    """
    return GlobalImportance(
        model=message.model,
        version=message.version,
        weights_hash=message.weights_hash,
        targets=tuple(map(_decode_target, message.targets)),
        done=message.done,
        total=message.total,
        refused=message.refused,
        refused_symbols=message.refused_symbols,
        refusals=tuple(
            Refusal(refusal.place, refusal.symbol, errors.decode(refusal.error)) for refusal in message.refusals
        ),
    )


def _encode_instance(instance: InstanceOrError) -> pb.Instance:
    if isinstance(instance, QuantraError):
        raise instance
    return instances.encode(instance)


def _encode_target(target: TargetImportance) -> pb.TargetImportance:
    return pb.TargetImportance(
        horizon=target.horizon,
        quantile=target.quantile,
        unit=target.unit,
        row_names=target.row_names,
        row_kinds=attributions.encode_kinds(target.row_kinds),
        mean_size=arrays.encode_float64(target.mean_size),
        standard_error=arrays.encode_float64(target.standard_error),
        windows=target.windows,
        converged=target.converged_share,
    )


def _decode_target(message: pb.TargetImportance) -> TargetImportance:
    names = tuple(message.row_names)
    rows = (len(names),)
    arrays.check_values(message.row_kinds, rows, "targets.row_kinds")
    return TargetImportance(
        horizon=message.horizon,
        quantile=message.quantile,
        unit=message.unit,
        row_names=names,
        row_kinds=attributions.decode_kinds(message.row_kinds),
        mean_size=arrays.decode_float64(message.mean_size, rows, "targets.mean_size"),
        standard_error=arrays.decode_float64(message.standard_error, rows, "targets.standard_error"),
        windows=message.windows,
        converged_share=message.converged,
    )
