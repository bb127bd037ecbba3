"""The tensors and parameters of a request.

A small request is parsed. In a large request, the tensors are located by tags and lengths: no values are parsed, and
memory use stays constant.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final, Self, final

from predictor._pb import inference_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.instance import GapPolicy
from predictor.wire.kserve.tensors import CONTENTS, InputTensor
from predictor.wire.limits import (
    MAX_AXES,
    MAX_CELLS,
    MAX_HEAD,
    MAX_INPUTS,
    MAX_INSTANCES,
    MAX_PARTS,
    MAX_ROWS,
    MAX_SESSIONS,
    check_count,
    check_text,
)
from predictor.wire.request_counts import BYTES, FieldReader, make_malformed_message_error, parse, parse_small

WINDOWS, BARS = "observed", "close"
"""The input that only windows have, and the input that only bars have."""
_INPUTS: Final = pb.ModelInferRequest.INPUTS_FIELD_NUMBER
_RAW: Final = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_CONTENTS: Final = pb.ModelInferRequest.InferInputTensor.CONTENTS_FIELD_NUMBER
_WINDOW_AXES: Final = 3


@final
@dataclass(frozen=True, slots=True)
class TensorValues:
    """Position of the values of a tensor."""

    body: bytes
    position: slice

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Create it for bytes that are entirely values."""
        return cls(body, slice(0, len(body)))


_NO_VALUES: Final = TensorValues.of(b"")

SentInput = tuple[pb.ModelInferRequest.InferInputTensor, TensorValues | None]
"""Name, type and shape of an input, and its values unless they are raw."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferRequest:
    """A request; its values are not decoded yet."""

    head: pb.ModelInferRequest
    """The request without its inputs."""
    tensors: Mapping[str, InputTensor]
    """Inputs by name."""
    rows: int
    """Total symbols of all rows."""

    @property
    def reference(self) -> str:
        """Reference of the model: NAME, NAME@VERSION or NAME@ALIAS."""
        return join_reference(self.head.model_name, self.head.model_version)

    @property
    def are_bars(self) -> bool:
        """Whether the request has bars rather than feature windows."""
        return BARS in self.tensors

    @property
    def count(self) -> int:
        """Number of rows; each row is forecast separately."""
        return self.tensors[BARS if self.are_bars else WINDOWS].shape[0]

    @property
    def symbols(self) -> int:
        """Symbols per row, padding included."""
        return self.tensors[BARS].shape[1] if self.are_bars else 1


def join_reference(name: str, version: str) -> str:
    """Join the name and the version of a model to a reference.

    Raises:
        MalformedRequestError: a version is given although the name already includes one.
        RequestTooLargeError: the name or the version is too long.
    """
    check_text("model_name", name)
    check_text("model_version", version)
    if version and "@" in name:
        raise MalformedRequestError(
            f"model_name {name!r} has a version already; leave model_version empty", metadata={"field": "model_version"}
        )
    return f"{name}@{version}" if version else name


def read_request(body: bytes, max_parts: int = MAX_PARTS) -> InferRequest:
    """Locate the tensors of a ModelInferRequest.

    Raises:
        RequestTooLargeError: the request has too many inputs, rows, values or fields.
        MalformedRequestError: the bytes are malformed, inputs contradict each other, or they are neither bars nor
            windows.
        TooManyPartsError: the request has more than `max_parts` fields, if that is less than MAX_PARTS.
    """
    head = parse_small(body, pb.ModelInferRequest)
    if head is not None:
        check_count("inputs", max(len(head.inputs), len(head.raw_input_contents)), MAX_INPUTS)
        inputs: list[SentInput] = [
            (tensor, TensorValues.of(tensor.contents.SerializeToString()) if tensor.HasField("contents") else None)
            for tensor in head.inputs
        ]
        raw = [*map(TensorValues.of, head.raw_input_contents)]
    else:
        reader = FieldReader(body, max_parts)
        located: dict[int, list[slice]] = {_INPUTS: [], _RAW: []}
        rest: list[bytes] = []
        try:
            for start, number, form, at, end in reader.between(0, len(body)):
                if number in located and form == BYTES:
                    located[number].append(slice(at, end))
                    check_count("inputs", len(located[number]), MAX_INPUTS)
                else:
                    rest.append(body[start:end])
            head_bytes = _join_small("the request without its inputs", rest)
            inputs = [_locate_input(body, reader, position) for position in located[_INPUTS]]
        except IndexError:
            raise make_malformed_message_error(pb.ModelInferRequest, len(body)) from None
        raw = [TensorValues(body, position) for position in located[_RAW]]
        head = parse(head_bytes, pb.ModelInferRequest)
    tensors = _build_tensors(inputs, raw)
    return InferRequest(head=head, tensors=tensors, rows=_count_rows(tensors))


def _locate_input(body: bytes, reader: FieldReader, position: slice) -> SentInput:
    """Locate the values of an input in a large request."""
    contents: TensorValues | None = None
    rest: list[bytes] = []
    for start, number, form, at, end in reader.between(position.start, position.stop):
        if number != _CONTENTS or form != BYTES:
            rest.append(body[start:end])
        elif contents is None:
            contents = TensorValues(body, slice(at, end))
            deque(reader.between(at, end), maxlen=0)  # count unpacked values
        else:
            raise IndexError  # protobuf would merge them, but no client sends two
    return parse(_join_small("an input without its values", rest), pb.ModelInferRequest.InferInputTensor), contents


def _build_tensors(inputs: Sequence[SentInput], raw: Sequence[TensorValues]) -> dict[str, InputTensor]:
    if raw and len(raw) != len(inputs):
        raise MalformedRequestError(
            f"raw_input_contents: have {len(raw)}, need {len(inputs)}, one for each input, or none",
            metadata={"field": "raw_input_contents", "have": str(len(raw)), "need": str(len(inputs))},
        )
    tensors: dict[str, InputTensor] = {}
    for index, (head, contents) in enumerate(inputs):
        tensor = _build_tensor(head, contents, raw[index] if raw else None)
        if tensor.name in tensors:
            raise MalformedRequestError(f"input {tensor.name!r} is sent twice", metadata={"field": tensor.name})
        tensors[tensor.name] = tensor
    texts = sum(prod(tensor.shape) for tensor in tensors.values() if tensor.datatype == "BYTES")
    check_count("values of BYTES", texts, MAX_PARTS)
    return tensors


def _build_tensor(
    head: pb.ModelInferRequest.InferInputTensor, contents: TensorValues | None, raw: TensorValues | None
) -> InputTensor:
    values = raw or contents or _NO_VALUES
    tensor = InputTensor(
        name=head.name,
        datatype=head.datatype,
        shape=tuple(head.shape),
        body=values.body,
        position=values.position,
        is_raw=raw is not None,
    )
    _check_shape(tensor.name, tensor.datatype, tensor.shape)
    if head.parameters:
        parameters = ", ".join(sorted(head.parameters))[:80]
        raise MalformedRequestError(
            f"{head.name}: parameters {parameters} of an input are not supported; leave them out",
            metadata={"field": head.name},
        )
    if contents is not None and raw is not None:
        raise MalformedRequestError(
            f"{tensor.name}: has both contents and raw_input_contents; send one of them",
            metadata={"field": tensor.name},
        )
    return tensor


@lru_cache(maxsize=256)
def _check_shape(name: str, datatype: str, shape: tuple[int, ...]) -> None:
    check_text("input name", name)
    if datatype not in CONTENTS:
        raise MalformedRequestError(
            f"{name}: has datatype {datatype[:20]!r}; inputs have {', '.join(CONTENTS)}",
            metadata={"field": name, "have": datatype[:20]},
        )
    check_count(f"{name}: axes", len(shape), MAX_AXES)
    if min(shape, default=0) < 0:
        raise MalformedRequestError(
            f"{name}: has shape {list(shape)}; no length may be below 0", metadata={"field": name}
        )
    check_count(f"{name}: values", prod(shape), MAX_CELLS)


def _count_rows(tensors: Mapping[str, InputTensor]) -> int:
    """Check the main input and return the total symbols of all rows."""
    if (WINDOWS in tensors) == (BARS in tensors):
        count = "both" if BARS in tensors else "neither"
        raise MalformedRequestError(
            f"the request has {count} of the inputs {WINDOWS!r} and {BARS!r}; send feature windows, which have the "
            "first, or bars, which have the second",
            metadata={"field": "inputs"},
        )
    main = tensors.get(WINDOWS) or tensors[BARS]
    if len(main.shape) != _WINDOW_AXES or not prod(main.shape[:2]):
        expected_axes = "rows, sessions, features" if main.name == WINDOWS else "rows, symbols, sessions"
        raise MalformedRequestError(
            f"{main.name}: has shape {list(main.shape)}, need 3 axes: {expected_axes}", metadata={"field": main.name}
        )
    rows = main.shape[0] if main.name == WINDOWS else main.shape[0] * main.shape[1]
    check_count("rows", main.shape[0], MAX_INSTANCES)
    check_count("symbols of all rows", rows, MAX_ROWS)
    check_count("rows x inputs", main.shape[0] * len(tensors), MAX_PARTS)
    check_count(f"{main.name}: sessions", main.shape[1 if main.name == WINDOWS else 2], MAX_SESSIONS)
    return rows


def _join_small(field: str, pieces: Sequence[bytes]) -> bytes:
    """Join the pieces after a check of their total size."""
    data = b"".join(pieces)
    check_count(f"{field}: bytes", len(data), MAX_HEAD)
    return data


_BAR_PARAMETERS: Final[Mapping[str, str]] = {
    "accept_suspect_bars": "bool_param",
    "allow_incomplete_last_bar": "bool_param",
    "calendar": "string_param",
    "gap_policy": "string_param",
    "max_age_sessions": "int64_param",
}

_WINDOW_PARAMETERS: Final[Mapping[str, str]] = {"schema_hash": "string_param", "max_age_sessions": "int64_param"}
"""Parameters of a request and their types."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameters:
    """Options of a request for all its rows."""

    accept_suspect_bars: bool = False
    allow_incomplete_last_bar: bool = False
    calendar: str = ""
    """Exchange code of the bars; empty: unknown."""
    gap_policy: GapPolicy = GapPolicy.REFUSE
    max_age_sessions: int | None = None
    """See `Instance.max_age_sessions`."""
    schema_hash: str = ""
    """Feature schema of windows; empty: the model's."""


def decode_parameters(head: pb.ModelInferRequest, *, are_bars: bool) -> RequestParameters:
    """Decode the parameters of a request.

    Raises:
        MalformedRequestError: a parameter is unknown, or its value has the wrong type.
        RequestTooLargeError: a text is too long.
    """
    if not head.parameters:
        return RequestParameters()
    allowed = _BAR_PARAMETERS if are_bars else _WINDOW_PARAMETERS
    for name, value in head.parameters.items():
        if name not in allowed:
            raise MalformedRequestError(
                f"unknown parameter {name[:80]!r}; these inputs allow {', '.join(allowed)}",
                metadata={"field": "parameters"},
            )
        kind = value.WhichOneof("parameter_choice")
        if kind != allowed[name]:
            raise MalformedRequestError(
                f"parameter {name}: has {kind or 'no value'}, need {allowed[name]}", metadata={"field": "parameters"}
            )
    parameters = head.parameters
    return RequestParameters(
        accept_suspect_bars=parameters["accept_suspect_bars"].bool_param,
        allow_incomplete_last_bar=parameters["allow_incomplete_last_bar"].bool_param,
        calendar=_read_text(head, "calendar"),
        gap_policy=_decode_gap_policy(_read_text(head, "gap_policy")),
        max_age_sessions=parameters["max_age_sessions"].int64_param if "max_age_sessions" in parameters else None,
        schema_hash=_read_text(head, "schema_hash"),
    )


def _read_text(head: pb.ModelInferRequest, name: str) -> str:
    text = head.parameters[name].string_param if name in head.parameters else ""
    check_text(f"parameter {name}", text)
    return text


def _decode_gap_policy(text: str) -> GapPolicy:
    if not text:
        return GapPolicy.REFUSE
    try:
        return GapPolicy(text)
    except ValueError:
        names = ", ".join(policy.value for policy in GapPolicy)
        raise MalformedRequestError(
            f"parameter gap_policy: {text!r} is unknown; use one of {names}", metadata={"field": "parameters"}
        ) from None
