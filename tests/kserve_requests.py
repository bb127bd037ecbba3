"""KServe requests as other clients send them, with raw or typed tensors."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from request_bytes import flat_window

from predictor._pb import inference_pb2 as pb
from predictor.bars import BarPanel
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.dates import to_optional_date_number
from predictor.instance import FeatureWindow

Values = NDArray[Any]
DATATYPES: Final = {"f4": "FP32", "f8": "FP64", "b1": "BOOL", "i8": "INT64"}
CONTENTS: Final = {
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BOOL": "bool_contents",
    "INT64": "int64_contents",
    "BYTES": "bytes_contents",
}
NUMPY: Final = {"FP32": "<f4", "FP64": "<f8", "BOOL": "?", "INT64": "<i8", "INT32": "<i4"}
COLUMNS: Final = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")
GROUPS: Final = ("observed", "known", "static", "mask", "location", "scale", "anchor_price")


def days_of(sessions: Values) -> Values:
    """Convert yyyymmdd to days since 1970-01-01."""
    texts = [f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}" for day in sessions.ravel().tolist()]
    return np.array(texts, "datetime64[D]").astype(np.int64).reshape(sessions.shape)


def texts(values: Sequence[Sequence[str]]) -> Values:
    return np.array([[value.encode() for value in row] for row in values], np.object_)


def windows(*sent: FeatureWindow) -> dict[str, Values]:
    """Tensors of windows of one symbol each, one row per window."""
    groups = {name: [getattr(window, name) for window in sent] for name in GROUPS}
    tensors = {name: np.concatenate(values) for name, values in groups.items() if values[0] is not None}
    tensors["symbol"] = texts([window.symbols for window in sent])
    tensors["date"] = days_of(np.array([[to_optional_date_number(window.as_of_session)] for window in sent]))
    return tensors


def bars(*panels: BarPanel, beside: Covariates = NO_COVARIATES) -> dict[str, Values]:
    """Tensors of panels of equal length, one row per panel; those with fewer symbols are padded."""
    most = max(len(panel.symbols) for panel in panels)
    tensors = {
        name: np.stack([_padded(getattr(panel, name), most) for panel in panels])
        for name in COLUMNS
        if getattr(panels[0], name) is not None
    }
    names = [[*panel.symbols, *[""] * (most - len(panel.symbols))] for panel in panels]
    days = days_of(np.stack([panel.sessions for panel in panels]))
    return {**tensors, "symbol": texts(names), "date": days, **_covariates(beside)}


def _padded(values: Values, symbols: int) -> Values:
    return np.pad(values, ((0, symbols - len(values)), (0, 0)), constant_values=np.nan)


def _covariates(beside: Covariates) -> dict[str, Values]:
    if not beside.names:
        return {}
    return {
        **{f"observed.{name}": values[None] for name, values in beside.observed.items()},
        **{f"known.{name}": values[None] for name, values in beside.known.items()},
        **{f"static.{name}": values[None] for name, values in beside.numbers.items()},
        **{f"static.{name}": texts([values]) for name, values in beside.categories.items()},
        "future_date": days_of(beside.future_sessions[None]),
    }


def tensor_of(name: str, values: Values) -> pb.ModelInferRequest.InferInputTensor:
    """An input without its values."""
    datatype = "BYTES" if values.dtype == np.object_ else DATATYPES[values.dtype.str[1:]]
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=values.shape)


def raw_of(values: Values) -> bytes:
    if values.dtype != np.object_:
        return values.tobytes()
    return b"".join(len(one).to_bytes(4, "little") + one for one in values.ravel())


def infer_request(
    tensors: Mapping[str, Values], model: str = "small", *, is_raw: bool = True, **fields: Any
) -> pb.ModelInferRequest:
    """A request of these tensors."""
    request = pb.ModelInferRequest(model_name=model, inputs=[tensor_of(*one) for one in tensors.items()], **fields)
    for tensor, values in zip(request.inputs, tensors.values(), strict=True):
        if is_raw:
            request.raw_input_contents.append(raw_of(values))
        else:
            getattr(tensor.contents, CONTENTS[tensor.datatype]).extend(values.ravel().tolist())
    return request


def parameters(**sent: bool | str | int) -> dict[str, pb.InferParameter]:
    return {name: _parameter(value) for name, value in sent.items()}


def _parameter(value: bool | str | int) -> pb.InferParameter:  # noqa: FBT001 - a value as it is
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, str):
        return pb.InferParameter(string_param=value)
    return pb.InferParameter(int64_param=value)


def wanting(*names: str) -> list[pb.ModelInferRequest.InferRequestedOutputTensor]:
    return [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in names]


def outputs_in(answer: pb.ModelInferResponse) -> dict[str, Values]:
    """Tensors of a response; BYTES as lists of strings."""
    pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return {one.name: _values(one.datatype, data).reshape(tuple(one.shape)) for one, data in pairs}


def _values(datatype: str, data: bytes) -> Values:
    if datatype != "BYTES":
        return np.frombuffer(data, NUMPY[datatype])
    found: list[str] = []
    while data:
        length = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + length].decode())
        data = data[4 + length :]
    return np.array(found, np.object_)


def a_window() -> dict[str, Values]:
    """A window for the model `small`, which has no static features."""
    tensors = windows(flat_window())
    del tensors["static"]
    return tensors
