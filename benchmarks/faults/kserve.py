"""Forecasts by the public inference protocol, for the same instances as ours."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from benchmarks.faults.models import NAME, Material
from benchmarks.faults.mutants import delimited, group, tag, varint
from benchmarks.faults.speech import UNKNOWN, Facts, filled, within
from predictor._pb import inference_pb2 as pb
from predictor._pb import prediction_pb2 as native_pb

INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
_LOAD: Final = "/inference.GRPCInferenceService/RepositoryModelLoad"
_NUMBERS: Final = frozenset({"values", "returns", "prices", "error", "refusal"})
"""The outputs that tell what was forecast."""
_COLUMNS: Final = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")
_KINDS: Final = {
    native_pb.DATA_TYPE_FLOAT32: ("<f4", "FP32"),
    native_pb.DATA_TYPE_FLOAT64: ("<f8", "FP64"),
    native_pb.DATA_TYPE_BOOL: ("?", "BOOL"),
}
_INPUTS: Final = pb.ModelInferRequest.INPUTS_FIELD_NUMBER
_MANY: Final = 256
_RAW: Final = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_PARAMETERS: Final = pb.ModelInferRequest.PARAMETERS_FIELD_NUMBER
_CONTENTS: Final = pb.ModelInferRequest.InferInputTensor.CONTENTS_FIELD_NUMBER
_TEXTS: Final = pb.InferTensorContents.BYTES_CONTENTS_FIELD_NUMBER
_WHOLE: Final = pb.InferTensorContents.INT64_CONTENTS_FIELD_NUMBER

Tensor: TypeAlias = tuple[str, Sequence[int], bytes]
"""Datatype, shape and values of an input."""


@final
class KServe:
    """GRPCInferenceService; see `speech.Speech`."""

    predict = INFER

    def request(self, *instances: native_pb.Instance, model: str = "") -> bytes:
        """As `Speech`: each instance is a row, so they have as many symbols and sessions."""
        rows = [_tensors(one) for one in instances]
        tensors = {name: _stacked([row[name] for row in rows]) for name in rows[0]}
        inputs = [
            pb.ModelInferRequest.InferInputTensor(name=name, datatype=kind, shape=shape)
            for name, (kind, shape, _) in tensors.items()
        ]
        raw = [values for _, _, values in tensors.values()]
        return pb.ModelInferRequest(
            model_name=model or NAME, inputs=inputs, raw_input_contents=raw, parameters=_parameters(instances[0])
        ).SerializeToString()

    def values_of(self, answer: bytes) -> bytes:
        """As `Speech`."""
        return _values_in(pb.ModelInferResponse.FromString(answer))

    def facts_of(self, answer: bytes) -> Facts:
        """As `Speech`; an answer names one model."""
        told = pb.ModelInferResponse.FromString(answer)
        weights = told.parameters["weights_hash"].string_param
        return frozenset({(told.model_name, int(told.model_version), weights, _values_in(told))})

    def reload(self) -> tuple[str, bytes]:
        """As `Speech`."""
        return _LOAD, pb.RepositoryModelLoadRequest(model_name=NAME).SerializeToString()

    def wordy(self, material: Material) -> tuple[str, bytes]:
        """As `Speech`: many forecasts."""
        return INFER, self.request(*[material.one_stock()] * _MANY)

    def emptiest(self, size: int) -> Mapping[str, tuple[str, bytes]]:
        """As `Speech`."""
        empty = delimited(_INPUTS, b"")
        texts = filled(delimited(_TEXTS, b""), size - 64)
        return {
            "empty inputs": (INFER, filled(empty, size)),
            "empty raw values": (INFER, filled(delimited(_RAW, b""), size)),
            "one input of empty texts": (INFER, within(texts, _INPUTS, _CONTENTS)),
            "packed days of one byte": (INFER, within(b"\x01" * (size - 64), _INPUTS, _CONTENTS, _WHOLE)),
            "empty parameters": (INFER, filled(delimited(_PARAMETERS, b""), size)),
            "unknown fields": (INFER, filled(tag(UNKNOWN, 0) + varint(1), size)),
            "a group, then empty inputs": (INFER, group(UNKNOWN) + filled(empty, size - 8)),
            "groups alone": (INFER, filled(group(UNKNOWN), size)),
        }


def _tensors(instance: native_pb.Instance) -> dict[str, Tensor]:
    """One row of each input."""
    return _of_bars(instance.bars) if instance.HasField("bars") else _of_window(instance.window)


def _of_bars(panel: native_pb.BarPanel) -> dict[str, Tensor]:
    symbols, sessions = len(panel.symbols), len(panel.session_yyyymmdd)
    columns = {name: getattr(panel, name) for name in _COLUMNS}
    return {
        **{name: ("FP64", (1, symbols, sessions), values) for name, values in columns.items() if values},
        "symbol": ("BYTES", (1, symbols), _texts(panel.symbols)),
        "date": ("INT64", (1, sessions), _days(panel.session_yyyymmdd)),
    }


def _of_window(window: native_pb.FeatureWindow) -> dict[str, Tensor]:
    names = ("observed", "known", "static", "mask", "location", "scale")
    sent = {name: getattr(window, name) for name in names if getattr(window, name).data}
    tensors: dict[str, Tensor] = {name: (_KINDS[one.type][1], one.shape, one.data) for name, one in sent.items()}
    if window.anchor_price:
        anchors = np.array(window.anchor_price, "<f8")
        tensors["anchor_price"] = ("FP64", anchors.shape, anchors.tobytes())
    return {
        **tensors,
        "symbol": ("BYTES", (len(window.symbols), 1), _texts(window.symbols)),
        "date": ("INT64", (len(window.symbols), 1), _days([window.as_of_session])),
    }


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    kind, shape, _ = rows[0]
    return kind, (len(rows) * shape[0], *shape[1:]), b"".join(values for _, _, values in rows)


def _texts(texts: Sequence[str]) -> bytes:
    encoded = (text.encode() for text in texts)
    return b"".join(len(one).to_bytes(4, "little") + one for one in encoded)


def _days(sessions: Sequence[int]) -> bytes:
    """Yyyymmdd as days since 1970-01-01."""
    texts = [f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}" for day in sessions]
    return np.array(texts, "datetime64[D]").astype("<i8").tobytes()


def _parameters(instance: native_pb.Instance) -> dict[str, pb.InferParameter]:
    """How all rows' bars are read; windows have their schema."""
    if instance.HasField("window"):
        return {"schema_hash": pb.InferParameter(string_param=instance.window.schema_hash)}
    panel, found = instance.bars, dict[str, pb.InferParameter]()
    if panel.gap_policy:
        name = native_pb.GapPolicy.Name(panel.gap_policy).removeprefix("GAP_POLICY_").lower()
        found["gap_policy"] = pb.InferParameter(string_param=name)
    if panel.calendar:
        found["calendar"] = pb.InferParameter(string_param=panel.calendar)
    return found


def _values_in(answer: pb.ModelInferResponse) -> bytes:
    pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return b"|".join(values for output, values in pairs if output.name in _NUMBERS)
