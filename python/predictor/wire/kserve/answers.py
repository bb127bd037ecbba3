"""Conversion of forecasts to output tensors. Shapes: N rows, S symbols, H horizons, Q quantiles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, final

import numpy as np

from predictor._pb import inference_pb2 as pb
from predictor.arrays import FloatArray, PositionArray
from predictor.dates import to_date_number, to_optional_date_number
from predictor.errors import InvalidInputError, MalformedRequestError, QuantraError
from predictor.forecast import Forecast, Outcome
from predictor.wire import arrays
from predictor.wire.arrays import FLOAT64, Shape
from predictor.wire.kserve.tensors import INT64, count_epoch_days, encode_texts

_INT32: Final = np.dtype("<i4")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowOutcomes:
    """Outcomes of the rows of a request."""

    outcomes: Sequence[Outcome]
    """[N], at least one of them a forecast."""
    positions: Sequence[PositionArray]
    """[N] positions of each row's symbols among the S symbols of the request."""
    symbols: int
    """S, padding included."""
    first: Forecast
    """The first forecast; all forecasts are from the same model."""

    def stack(self, shape: Shape, pick: Callable[[Forecast], FloatArray | None]) -> FloatArray:
        """[N, S, ...] the array that `pick` selects from each forecast; NaN for rows and symbols without values."""
        is_single = len(self.outcomes) == 1 and len(self.positions[0]) == self.symbols
        single = pick(self.first) if is_single else None
        if single is not None:
            return single[None]
        stacked = np.full((len(self.outcomes), self.symbols, *shape), np.nan)
        for row, (outcome, positions) in enumerate(zip(self.outcomes, self.positions, strict=True)):
            values = pick(outcome) if isinstance(outcome, Forecast) else None
            if values is not None:
                stacked[row, positions] = values
        return stacked


@final
@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One tensor of a response."""

    datatype: str
    shape: Shape
    data: bytes


def _encode_quantiles(pick: Callable[[Forecast], FloatArray | None]) -> "Callable[[RowOutcomes], OutputTensor]":
    """[N, S, H, Q]."""
    return lambda rows: _encode_float64(rows.stack(rows.first.values.shape[1:], pick))


def _encode_float64(values: FloatArray) -> OutputTensor:
    return OutputTensor("FP64", values.shape, arrays.encode(values, FLOAT64))


def _encode_scores(rows: RowOutcomes) -> OutputTensor:
    """[N, S, H]."""
    return _encode_float64(rows.stack((len(rows.first.horizons),), lambda forecast: forecast.scores))


def _encode_ranks(rows: RowOutcomes) -> OutputTensor:
    """[N, S, H], 0 for symbols without a rank."""
    stacked = rows.stack(
        (len(rows.first.horizons),),
        lambda forecast: None if forecast.ranks is None else forecast.ranks.astype(np.float64),
    )
    ranks = np.nan_to_num(stacked).astype(_INT32)
    return OutputTensor("INT32", ranks.shape, ranks.tobytes())


def _encode_as_of(rows: RowOutcomes) -> OutputTensor:
    """[N]."""
    sessions = [
        to_optional_date_number(outcome.as_of_session) if isinstance(outcome, Forecast) else 0
        for outcome in rows.outcomes
    ]
    return _encode_days(sessions, (len(rows.outcomes),))


def _encode_target_dates(rows: RowOutcomes) -> OutputTensor:
    """[N, H]."""
    horizons = len(rows.first.horizons)
    sessions: list[int] = []
    for outcome in rows.outcomes:
        targets = [to_date_number(day) for day in outcome.target_sessions] if isinstance(outcome, Forecast) else []
        sessions += targets or [0] * horizons
    return _encode_days(sessions, (len(rows.outcomes), horizons))


def _encode_days(sessions: Sequence[int], shape: Shape) -> OutputTensor:
    """Encode sessions, yyyymmdd, as days since 1970-01-01; 0 becomes NaT."""
    days = np.array([count_epoch_days(session) for session in sessions], INT64)
    return OutputTensor("INT64", shape, days.tobytes())


def _encode_errors(rows: RowOutcomes) -> OutputTensor:
    """[N] error of each row; "" for a forecast."""
    texts = ["" if isinstance(outcome, Forecast) else outcome.message for outcome in rows.outcomes]
    return OutputTensor("BYTES", (len(texts),), encode_texts(texts))


def _encode_refusals(rows: RowOutcomes) -> OutputTensor:
    """[N, S] error of each symbol within a forecast; "" for a forecast symbol and for padding."""
    texts = [[""] * rows.symbols for _ in rows.outcomes]
    for row, outcome in enumerate(rows.outcomes):
        if isinstance(outcome, Forecast) and outcome.refusals:
            for position, symbol in zip(rows.positions[row], outcome.symbols, strict=True):
                error = outcome.refusals.get(symbol)
                texts[row][int(position)] = "" if error is None else error.message
    return OutputTensor("BYTES", (len(texts), rows.symbols), encode_texts(list(chain.from_iterable(texts))))


OUTPUTS: Final[Mapping[str, Callable[[RowOutcomes], OutputTensor]]] = {
    "values": _encode_quantiles(lambda forecast: forecast.values),
    "returns": _encode_quantiles(lambda forecast: forecast.returns),
    "prices": _encode_quantiles(lambda forecast: forecast.prices),
    "scores": _encode_scores,
    "ranks": _encode_ranks,
    "as_of": _encode_as_of,
    "target_date": _encode_target_dates,
    "error": _encode_errors,
    "refusal": _encode_refusals,
}
"""Encoder of each output, in the order of a response."""
RETURNS, PRICES, RANKING = frozenset({"returns"}), frozenset({"prices"}), frozenset({"scores", "ranks"})
"""Outputs that only some models have: of return models, of return models with lag 0, of ranking models."""


def list_output_names(*, returns: bool, lag: int, ranks: bool) -> list[str]:
    """List the outputs of a model.

    Args:
        returns: whether the model forecasts log returns.
        lag: sessions between the last bar and the close that returns count from.
        ranks: whether the model ranks symbols.
    """
    missing = (
        (frozenset() if returns else RETURNS)
        | (frozenset() if returns and not lag else PRICES)
        | (frozenset() if ranks else RANKING)
    )
    return [name for name in OUTPUTS if name not in missing]


def read_output_names(head: pb.ModelInferRequest) -> tuple[str, ...]:
    """List the outputs that a request names; an empty list means all.

    Raises:
        MalformedRequestError: an output is unknown, has parameters, or is named twice.
    """
    names = tuple(output.name for output in head.outputs)
    for output in head.outputs:
        if output.name not in OUTPUTS:
            raise _make_unknown_output_error(output.name, list(OUTPUTS))
        if output.parameters:
            parameters = ", ".join(sorted(output.parameters))[:80]
            raise MalformedRequestError(
                f"output {output.name}: parameters {parameters} are not supported; leave them out",
                metadata={"field": "outputs"},
            )
    if len(set(names)) != len(names):
        raise MalformedRequestError("outputs: an output is named twice; name each once", metadata={"field": "outputs"})
    return names


def encode_answer(
    outcomes: Sequence[Outcome],
    positions: Sequence[PositionArray],
    symbols: int,
    *,
    request_id: str,
    output_names: Sequence[str],
) -> bytes:
    """Encode the ModelInferResponse of a request.

    Args:
        outcomes: outcomes of the rows.
        positions: see `RowOutcomes.positions`.
        symbols: see `RowOutcomes.symbols`.
        request_id: id of the request.
        output_names: names of the outputs; empty: all outputs of the model.

    Raises:
        QuantraError: no row has a forecast; the error is that of the first row.
        InvalidInputError: the model lacks one of these outputs.
    """
    forecasts = [outcome for outcome in outcomes if isinstance(outcome, Forecast)]
    if not forecasts:
        raise next(outcome for outcome in outcomes if isinstance(outcome, QuantraError))
    rows = RowOutcomes(outcomes=outcomes, positions=positions, symbols=symbols, first=forecasts[0])
    available = list_output_names(
        returns=rows.first.returns is not None, lag=rows.first.lag, ranks=rows.first.scores is not None
    )
    for output in output_names:
        if output not in available:
            raise _make_unknown_output_error(output, available)
    names = output_names or available
    tensors = [OUTPUTS[name](rows) for name in names]
    first, warnings = rows.first, dict.fromkeys(chain.from_iterable(forecast.warnings for forecast in forecasts))
    message = pb.ModelInferResponse(id=request_id, raw_output_contents=[tensor.data for tensor in tensors])
    # Bytes of protobuf messages that are joined are the bytes of one message.
    return b"".join(
        (
            _encode_model(first.model, first.version, first.weights_hash, "\n".join(warnings)),
            _encode_outputs(
                tuple((name, tensor.datatype, tensor.shape) for name, tensor in zip(names, tensors, strict=True))
            ),
            message.SerializeToString(),
        )
    )


@lru_cache(maxsize=64)
def _encode_model(name: str, version: int, weights_hash: str, warnings: str) -> bytes:
    texts = {"model": f"{name}@{version}", "weights_hash": weights_hash}
    if warnings:
        texts["warnings"] = warnings
    parameters = {name: pb.InferParameter(string_param=text) for name, text in texts.items()}
    return pb.ModelInferResponse(model_name=name, model_version=str(version), parameters=parameters).SerializeToString()


@lru_cache(maxsize=64)
def _encode_outputs(outputs: tuple[tuple[str, str, Shape], ...]) -> bytes:
    """Encode names, types and shapes, which are the same in most responses."""
    tensors = [
        pb.ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=shape)
        for name, datatype, shape in outputs
    ]
    return pb.ModelInferResponse(outputs=tensors).SerializeToString()


def _make_unknown_output_error(name: str, available: Sequence[str]) -> InvalidInputError:
    return MalformedRequestError(
        f"unknown output {name[:80]!r}; use one of {', '.join(available)}", metadata={"field": "outputs"}
    )
