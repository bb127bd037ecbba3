"""Model metadata, configuration and index, and the messages of streams."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from predictor._pb import inference_pb2 as pb
from predictor.bars import OPTIONAL_FIELDS, PRICE_FIELDS
from predictor.catalog import CovariateGroup, CovariateInfo, ModelInfo
from predictor.errors import QuantraError, get_error_status
from predictor.forecast import LOG_RETURN
from predictor.wire.errors import MAX_INSTANCE_MESSAGE, shortened
from predictor.wire.kserve import inputs
from predictor.wire.kserve.answers import list_output_names
from predictor.wire.kserve.requests import WINDOWS
from predictor.wire.limits import MAX_TEXT
from predictor.wire.request_counts import BYTES, FieldReader, TooManyPartsError, encode_field

PLATFORM: Final = "quantra"
EXTENSIONS: Final = ("model_configuration", "model_repository")
READY: Final = "READY"
ANY: Final = -1
"""Length of a variable axis."""

_DATA_TYPES: Final[Mapping[str, pb.DataType]] = {
    "BOOL": pb.TYPE_BOOL,
    "INT32": pb.TYPE_INT32,
    "INT64": pb.TYPE_INT64,
    "FP32": pb.TYPE_FP32,
    "FP64": pb.TYPE_FP64,
    "BYTES": pb.TYPE_STRING,
}


@final
@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """Name, type and shape of an input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    with_bars: bool | None = None
    """Whether requests with bars must have it; None: they must not have it."""
    with_windows: bool | None = None
    """Whether requests with windows must have it; None: they must not have it."""


def list_inputs(info: ModelInfo) -> list[TensorMetadata]:
    """List the inputs of a model: those of windows, of bars, and of both."""
    return [
        *_list_window_inputs(info),
        *_list_bar_inputs(),
        *map(_describe_covariate, info.covariates),
        TensorMetadata(inputs.SYMBOL, "BYTES", (ANY, ANY), with_bars=True, with_windows=False),
        TensorMetadata(inputs.DATE, "INT64", (ANY, ANY), with_bars=True, with_windows=False),
    ]


def _list_window_inputs(info: ModelInfo) -> Iterator[TensorMetadata]:
    sessions, features = info.encoder_length, len(info.observed_features)
    yield TensorMetadata(WINDOWS, "FP32", (ANY, sessions, features), None, with_windows=True)
    if info.known_features:
        known = (ANY, sessions + info.future_length, len(info.known_features))
        yield TensorMetadata("known", "FP32", known, None, with_windows=True)
    if info.static_features:
        yield TensorMetadata("static", "FP32", (ANY, ANY), None, with_windows=True)
    yield TensorMetadata("mask", "BOOL", (ANY, sessions, features), None, with_windows=False)
    levels = (ANY, len(info.horizons) if info.is_scaled_per_horizon else 1)
    yield TensorMetadata("location", "FP64", levels, None, with_windows=True)
    yield TensorMetadata("scale", "FP64", levels, None, with_windows=True)
    yield TensorMetadata("anchor_price", "FP64", (ANY,), None, with_windows=False)


def _list_bar_inputs() -> Iterator[TensorMetadata]:
    for name in PRICE_FIELDS:
        yield TensorMetadata(name, "FP64", (ANY, ANY, ANY), with_bars=True)
    for name in OPTIONAL_FIELDS:
        yield TensorMetadata(name, "FP64", (ANY, ANY, ANY), with_bars=False)
    yield TensorMetadata(inputs.FUTURE_DATE, "INT64", (ANY, ANY), with_bars=False)


def _describe_covariate(info: CovariateInfo) -> TensorMetadata:
    if info.group is not CovariateGroup.STATIC:
        prefix = inputs.OBSERVED if info.group is CovariateGroup.OBSERVED else inputs.KNOWN
        return TensorMetadata(prefix + info.name, "FP64", (ANY, ANY, ANY), with_bars=True)
    return TensorMetadata(inputs.STATIC + info.name, "BYTES" if info.categories else "FP64", (ANY, ANY), with_bars=True)


_CELLS: Final = frozenset({"values", "returns", "prices"})


def list_outputs(info: ModelInfo) -> list[TensorMetadata]:
    """List the outputs of a model."""
    names = list_output_names(returns=info.target_kind == LOG_RETURN, lag=info.lag, ranks=info.is_panel_model)
    horizons, quantiles = len(info.horizons), len(info.quantiles)
    types = {
        **dict.fromkeys(_CELLS, ("FP64", (ANY, ANY, horizons, quantiles))),
        "scores": ("FP64", (ANY, ANY, horizons)),
        "ranks": ("INT32", (ANY, ANY, horizons)),
        "as_of": ("INT64", (ANY,)),
        "target_date": ("INT64", (ANY, horizons)),
        "error": ("BYTES", (ANY,)),
        "refusal": ("BYTES", (ANY, ANY)),
    }
    return [TensorMetadata(name, *types[name]) for name in names]


def encode_metadata(info: ModelInfo, versions: Iterable[int]) -> pb.ModelMetadataResponse:
    """Encode the metadata of a model and its served versions."""
    return pb.ModelMetadataResponse(
        name=info.name,
        versions=map(str, versions),
        platform=PLATFORM,
        inputs=map(_encode_tensor, list_inputs(info)),
        outputs=map(_encode_tensor, list_outputs(info)),
    )


def _encode_tensor(tensor: TensorMetadata) -> pb.ModelMetadataResponse.TensorMetadata:
    needs = {"bars": tensor.with_bars, "windows": tensor.with_windows}
    texts = {name: "required" if need else "optional" for name, need in needs.items() if need is not None}
    return pb.ModelMetadataResponse.TensorMetadata(
        name=tensor.name,
        datatype=tensor.datatype,
        shape=tensor.shape,
        parameters={name: pb.InferParameter(string_param=text) for name, text in texts.items()},
    )


def encode_config(info: ModelInfo) -> pb.ModelConfig:
    """Encode the configuration of a model. Every input is optional, because a request sends windows or bars."""
    inputs, outputs = list_inputs(info), list_outputs(info)
    return pb.ModelConfig(
        name=info.name,
        platform=PLATFORM,
        backend=PLATFORM,
        max_batch_size=0,
        input=[
            pb.ModelInput(name=item.name, data_type=_DATA_TYPES[item.datatype], dims=item.shape, optional=True)
            for item in inputs
        ],
        output=[
            pb.ModelOutput(name=item.name, data_type=_DATA_TYPES[item.datatype], dims=item.shape) for item in outputs
        ],
        parameters={
            name: pb.ModelParameter(string_value=value if isinstance(value, str) else json.dumps(value))
            for name, value in {
                "version": info.version,
                "kind": info.kind,
                "horizons": info.horizons,
                "quantiles": info.quantiles,
                "lag": info.lag,
                "target_kind": info.target_kind,
                "calendar": info.calendar,
                "calendar_ends": info.calendar_ends,
                "encoder_length": info.encoder_length,
                "bars_needed": info.bars_needed,
                "observed_features": [feature.name for feature in info.observed_features],
                "known_features": [feature.name for feature in info.known_features],
                "required_with_bars": [tensor.name for tensor in inputs if tensor.with_bars],
                "required_with_windows": [tensor.name for tensor in inputs if tensor.with_windows],
                "schema_hash": info.schema_hash,
                "weights_hash": info.weights_hash,
            }.items()
        },
    )


def encode_index(infos: Iterable[ModelInfo]) -> pb.RepositoryIndexResponse:
    """Encode the index of all served versions."""
    return pb.RepositoryIndexResponse(
        models=[
            pb.RepositoryIndexResponse.ModelIndex(name=info.name, version=str(info.version), state=READY)
            for info in infos
        ]
    )


_ID: Final = pb.ModelInferRequest.ID_FIELD_NUMBER
_SEARCHED_FIELDS: Final = 64
"""Number of fields to search for the id of a request; encoders write it early."""


def read_request_id(request: bytes) -> str:
    """Return the id of a ModelInferRequest; empty if it has no id or is malformed."""
    try:
        for _, number, form, at, end in FieldReader(request, _SEARCHED_FIELDS).between(0, len(request)):
            if number == _ID and form == BYTES:
                return request[at:end][: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
            if number > _ID:
                return ""
    except (IndexError, TooManyPartsError):
        return ""
    return ""


def encode_response(answer: bytes) -> bytes:
    """Wrap an encoded ModelInferResponse in a ModelStreamInferResponse."""
    return encode_field(pb.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER, answer)


def encode_error(request_id: str, error: QuantraError) -> bytes:
    """Encode an error as a ModelStreamInferResponse: a message, and status and reason as parameters."""
    answer = get_error_status(error)
    texts = {"status": answer.status.value, "reason": answer.reason}
    return pb.ModelStreamInferResponse(
        error_message=shortened(error.message, MAX_INSTANCE_MESSAGE),
        infer_response=pb.ModelInferResponse(
            id=request_id, parameters={name: pb.InferParameter(string_param=text) for name, text in texts.items()}
        ),
    ).SerializeToString()
