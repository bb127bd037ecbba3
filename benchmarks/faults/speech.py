"""In which protocol callers ask for forecasts: ours here, the public one in `kserve`."""

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias, final

from benchmarks.faults.calls import EXPLAIN, LIST, PREDICT, predict_request, values_of
from benchmarks.faults.models import NAME, Material
from benchmarks.faults.mutants import delimited, group, tag, varint
from predictor._pb import prediction_pb2 as pb

Facts: TypeAlias = frozenset[tuple[str, int, str, bytes]]
"""Of each forecast in an answer: model, version, hash of its weights, values."""

UNKNOWN: Final = 1000
"""The number of a field that no message has."""
_RELOAD: Final = "/quantra.v1.ModelAdminService/ReloadModel"
_INSTANCES: Final = pb.PredictRequest.INSTANCES_FIELD_NUMBER
_BARS: Final = pb.Instance.BARS_FIELD_NUMBER
_SYMBOLS: Final = pb.BarPanel.SYMBOLS_FIELD_NUMBER
_SESSIONS: Final = pb.BarPanel.SESSION_YYYYMMDD_FIELD_NUMBER
_TARGETS: Final = pb.ExplainRequest.TARGETS_FIELD_NUMBER


class Speech(Protocol):
    """One protocol."""

    @property
    def predict(self) -> str:
        """The method that forecasts."""
        ...

    def request(self, *instances: pb.Instance, model: str = "") -> bytes:
        """What it reads: instances of one kind and shape; of the only model if none is named."""
        ...

    def values_of(self, answer: bytes) -> bytes:
        """The numbers of every forecast in an answer, and the errors, as bytes to compare; not the answer's name."""
        ...

    def facts_of(self, answer: bytes) -> Facts:
        """What an answer says of where it comes from, and its numbers."""
        ...

    def reload(self) -> tuple[str, bytes]:
        """The method that reads the model again, and the request."""
        ...

    def wordy(self, material: Material) -> tuple[str, bytes]:
        """The method that answers at the greatest length, and the request."""
        ...

    def emptiest(self, size: int) -> Mapping[str, tuple[str, bytes]]:
        """Requests of so many bytes that hardly mean anything: method and request, by what they consist of."""
        ...


@final
class Native:
    """PredictionService."""

    predict = PREDICT

    def request(self, *instances: pb.Instance, model: str = "") -> bytes:
        """As `Speech`."""
        return predict_request(*instances, model=model)

    def values_of(self, answer: bytes) -> bytes:
        """As `Speech`."""
        return values_of(answer)

    def facts_of(self, answer: bytes) -> Facts:
        """As `Speech`."""
        forecasts = [result.forecast for result in pb.PredictResponse.FromString(answer).results]
        return frozenset((one.model, one.version, one.weights_hash, one.values) for one in forecasts)

    def reload(self) -> tuple[str, bytes]:
        """As `Speech`."""
        return _RELOAD, pb.ReloadModelRequest(model=NAME).SerializeToString()

    def wordy(self, material: Material) -> tuple[str, bytes]:  # noqa: ARG002 - the list needs none
        """As `Speech`: the cards of all models."""
        return LIST, b""

    def emptiest(self, size: int) -> Mapping[str, tuple[str, bytes]]:
        """As `Speech`."""
        empty = delimited(_INSTANCES, b"")
        symbols = filled(delimited(_SYMBOLS, b""), size - 64)
        return {
            "empty instances": (PREDICT, filled(empty, size)),
            "instances of empty bars": (PREDICT, filled(within(b"", _INSTANCES, _BARS), size)),
            "one instance of empty symbols": (PREDICT, within(symbols, _INSTANCES, _BARS)),
            "packed sessions of one byte": (PREDICT, within(b"\x01" * (size - 64), _INSTANCES, _BARS, _SESSIONS)),
            "unknown fields": (PREDICT, filled(tag(UNKNOWN, 0) + varint(1), size)),
            "a group, then empty instances": (PREDICT, group(UNKNOWN) + filled(empty, size - 8)),
            "groups alone": (PREDICT, filled(group(UNKNOWN), size)),
            "a group, then empty targets": (EXPLAIN, group(UNKNOWN) + filled(delimited(_TARGETS, b""), size - 8)),
        }


def filled(part: bytes, size: int) -> bytes:
    """As many of it as fit."""
    return part * (size // len(part))


def within(content: bytes, *fields: int) -> bytes:
    """The content in a field within fields."""
    for field in reversed(fields):
        content = delimited(field, content)
    return content
