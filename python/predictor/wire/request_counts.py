"""Counting of a request's fields before it is parsed.

An empty message takes two bytes on the wire and about a hundred in memory, and parsing holds the GIL. A large request
of empty messages would block the process for seconds. Counting reads only tags and lengths and stops at the first
exceeded limit. It also locates each instance, so that instances are parsed one at a time. A small, well-formed request
is parsed at once, because that is faster than counting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar, cast, final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError, QuantraError, RequestTooLargeError
from predictor.wire.limits import (
    MAX_AXES,
    MAX_FEATURES,
    MAX_HEAD,
    MAX_INSTANCES,
    MAX_PARTS,
    MAX_PRICES,
    MAX_ROWS,
    MAX_SESSIONS,
    MAX_SYMBOLS,
    MAX_TARGETS,
    check_count,
    make_too_many_error,
)

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of a field; the other types are groups, which Quantra's messages do not use."""
REQUEST: Final = "request"
"""Value of "field" in the metadata of the error about too many fields."""
LONG: Final = 0x80
"""Continuation bit of a varint: a byte of this value or above is not the last. One-byte varints are read inline."""
MAX_VARINT_BYTES: Final = 10
_FIXED: Final = {FIXED64: 8, FIXED32: 4}
_LAST_FIELD: Final = (1 << 29) - 1

Field = tuple[int, int, int, int, int]
"""Offset of the tag, field number, wire type, and start and end of the content."""


class TooManyPartsError(Exception):
    """The request has more fields than `max_parts`."""


@final
class FieldReader:
    """Iterates over the fields of one request and counts them at every depth.

    Args:
        body: encoded request.
        max_parts: number of fields after which reading stops with an error.
    """

    def __init__(self, body: bytes, max_parts: int) -> None:
        self._body = body
        self._max_parts = max_parts
        self.parts = 0
        """Number of fields read so far."""

    def between(self, at: int, end: int) -> Iterator[Field]:
        """Yield each field of the message from `at` to `end`.

        Raises:
            IndexError: the bytes end within a field, or a field is malformed.
            RequestTooLargeError: the request has more than MAX_PARTS fields.
            TooManyPartsError: the request has more than `max_parts` fields, if that is less than MAX_PARTS.
        """
        body = self._body
        while at < end:
            self.parts += 1
            if self.parts > self._max_parts:
                raise _too_many_parts_error(self._max_parts)
            start = at
            tag, at = (body[at], at + 1) if body[at] < LONG else _read_varint(body, at)
            form = tag & 7
            if form == BYTES:
                length, at = (body[at], at + 1) if body[at] < LONG else _read_varint(body, at)
                stop = at + length
            elif form == VARINT:
                stop = at + 1 if body[at] < LONG else _read_varint(body, at)[1]
            elif form in _FIXED:
                stop = at + _FIXED[form]
            else:
                raise IndexError  # a group: Quantra has no such fields, and its content would not be counted
            if stop > end or not 0 < tag >> 3 <= _LAST_FIELD:
                raise IndexError
            yield start, tag >> 3, form, at, stop
            at = stop


def _too_many_parts_error(max_parts: int) -> Exception:
    if max_parts < MAX_PARTS:
        return TooManyPartsError()
    return RequestTooLargeError(
        f"the request holds more than {MAX_PARTS} fields; send several requests",
        metadata={"field": REQUEST, "most": str(MAX_PARTS)},
    )


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return the varint at an offset and the offset after it."""
    value = 0
    for k in range(MAX_VARINT_BYTES):
        byte = body[at + k]
        value |= (byte & 0x7F) << (7 * k)
        if byte < LONG:
            return value, at + k + 1
    raise IndexError


MAX_COUNTS: Final[Mapping[str, int]] = {
    "PredictRequest.instances": MAX_INSTANCES,
    "ExplainRequest.targets": MAX_TARGETS,
    "ExplainRequest.symbols": MAX_SYMBOLS,
    "ExplainGlobalRequest.instances": MAX_INSTANCES,
    "ExplainGlobalRequest.targets": MAX_TARGETS,
    "SimulatePathsRequest.holdings": MAX_SYMBOLS,
    "SimulatePathsRequest.prices": MAX_PRICES,
    "BarPanel.symbols": MAX_SYMBOLS,
    "BarPanel.session_yyyymmdd": MAX_SESSIONS,
    "FeatureWindow.symbols": MAX_SYMBOLS,
    "FeatureWindow.anchor_price": MAX_SYMBOLS,
    "FeatureWindow.features": MAX_FEATURES,
    "Tensor.shape": MAX_AXES,
    "Covariates.observed": MAX_FEATURES,
    "Covariates.known": MAX_FEATURES,
    "Covariates.future_yyyymmdd": MAX_SESSIONS,
    "Covariates.numbers": MAX_FEATURES,
    "Covariates.categories": MAX_FEATURES,
    "CovariateTexts.values": MAX_SYMBOLS,
}
"""Most elements of each repeated field of a request; a test checks that no field is missing."""
_ROWS: Final = frozenset({"BarPanel.symbols", "FeatureWindow.symbols"})
"""Fields with one element per row."""
_INSTANCES: Final = {
    "PredictRequest": "instances",
    "ExplainGlobalRequest": "instances",
    "StreamPredict": "instance",
}
"""Field with the instances, which are parsed one at a time."""
_CONTINUED: Final = bytes(range(LONG, 256))
SMALL: Final = 16 * 1024
"""Bytes up to which a request is parsed without counting.

In the worst case, parsing takes 0.2 ms and a megabyte, which is freed at once. The decoders still check the number of
tensor axes.
"""

MessageT = TypeVar("MessageT", bound=Message)


def parse_small(body: bytes, kind: type[MessageT]) -> MessageT | None:
    """Parse a small request; None if it must be counted to find its contents or its error.

    A request that repeats a singular field must be counted too, because parsing would keep only the last occurrence.
    """
    if len(body) > SMALL:
        return None
    try:
        message = kind.FromString(body)
    except DecodeError:
        return None
    return message if message.ByteSize() == len(body) else None


_MAX_TEXTS: Final = 128


def is_plain(message: pb.Instance) -> bool:
    """Whether an instance takes little more memory when it is decoded: it has few texts and no covariates."""
    window = message.window
    texts = len(window.symbols) + len(window.features) + len(message.bars.symbols)
    return texts <= _MAX_TEXTS and not message.HasField("covariates")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Fields, rows and instances of a request."""

    parts: int
    """Number of fields, nested ones included."""
    rows: int
    """Total symbols of all accepted instances."""
    instances: tuple[slice | QuantraError, ...]
    """Position of each instance in the bytes, or its error."""
    head: bytes
    """Encoded request without the instances."""


def count_parts(
    body: bytes, kind: type[Message], max_parts: int = MAX_PARTS, *, position: slice | None = None
) -> RequestCounts:
    """Count the fields of a request. A limit exceeded within an instance becomes the error of that instance.

    Args:
        body: bytes that hold the request.
        kind: message type of the request.
        max_parts: most fields to count.
        position: position of the request in the bytes; None: the bytes are the request.

    Raises:
        RequestTooLargeError: the request has too many instances, rows or fields.
        MalformedRequestError: the bytes are malformed.
        TooManyPartsError: the request has more than `max_parts` fields, if that is less than MAX_PARTS.
    """
    position = position or slice(0, len(body))
    try:
        return _CountingPass(body, max_parts).count(cast("Descriptor", kind.DESCRIPTOR), position)
    except IndexError:
        raise make_malformed_message_error(kind, position.stop - position.start) from None


@final
class _CountingPass:
    """One pass over the bytes of a request. Methods raise IndexError for truncated or malformed fields."""

    def __init__(self, body: bytes, max_parts: int) -> None:
        self._body = body
        self._reader = FieldReader(body, max_parts)

    def count(self, kind: Descriptor, position: slice) -> RequestCounts:
        instance_field = kind.fields_by_name.get(_INSTANCES.get(kind.name, ""))
        instance_number = 0 if instance_field is None else instance_field.number
        positions: list[slice] = []
        head: list[bytes] = []
        rows, counts, fields = 0, dict[int, int](), _list_counted_fields(kind)
        for start, number, form, at, end in self._reader.between(position.start, position.stop):
            if number == instance_number and form == BYTES:
                positions.append(slice(at, end))
                if len(positions) > MAX_INSTANCES:
                    raise make_too_many_error("instances", f"more than {MAX_INSTANCES}", MAX_INSTANCES)
                continue
            head.append(self._body[start:end])
            if number in fields:
                rows += self._count_field(fields[number], counts, form, at, end)
        instances: list[slice | QuantraError] = []
        for instance_position in positions:
            instance, instance_rows = self._count_instance(instance_position)
            instances.append(instance)
            rows += instance_rows
            if rows > MAX_ROWS:
                raise make_too_many_error("symbols of all instances", f"more than {MAX_ROWS}", MAX_ROWS)
        return RequestCounts(parts=self._reader.parts, rows=rows, instances=tuple(instances), head=b"".join(head))

    def _count_instance(self, position: slice) -> tuple[slice | QuantraError, int]:
        """Return the position of an instance or its error, and its number of rows."""
        try:
            return position, self._count_rows(position.start, position.stop, cast("Descriptor", pb.Instance.DESCRIPTOR))
        except RequestTooLargeError as error:
            if error.metadata["field"] == REQUEST:
                raise
            return error.without_frames(), 0
        except IndexError:
            return make_malformed_message_error(pb.Instance, position.stop - position.start), 0

    def _count_rows(self, at: int, end: int, kind: Descriptor) -> int:
        """Check the counts of the message from `at` to `end` and return its number of rows."""
        fields, counts, rows = _list_counted_fields(kind), dict[int, int](), 0
        for _, number, form, first, last in self._reader.between(at, end):
            if number in fields:
                rows += self._count_field(fields[number], counts, form, first, last)
        return rows

    def _count_field(self, field: "_Field", counts: dict[int, int], form: int, at: int, end: int) -> int:
        """Check the count of a field and return its number of rows."""
        if field.max_count:
            have = counts[field.number] = counts.get(field.number, 0) + self._count_elements(field, form, at, end)
            if have > field.max_count:
                raise make_too_many_error(field.name, f"more than {field.max_count}", field.max_count)
        if field.message is not None and form == BYTES:
            return self._count_rows(at, end, field.message)
        return 1 if field.is_row else 0

    def _count_elements(self, field: "_Field", form: int, at: int, end: int) -> int:
        """Count the elements of a repeated field at this position: one, or several if packed."""
        if form != BYTES or field.element_bytes is None:
            return 1
        if field.element_bytes:
            return (end - at) // field.element_bytes
        if end - at > MAX_VARINT_BYTES * field.max_count:
            return field.max_count + 1
        return len(self._body[at:end].translate(None, _CONTINUED))


def parse(body: bytes, kind: type[MessageT]) -> MessageT:
    """Parse a message; raises MalformedRequestError if the bytes are another one."""
    try:
        return kind.FromString(body)
    except DecodeError:
        raise make_malformed_message_error(kind, len(body)) from None


def make_malformed_message_error(kind: type[Message], size: int) -> MalformedRequestError:
    """Return the error of bytes that cannot be parsed."""
    name, file = kind.DESCRIPTOR.full_name, kind.DESCRIPTOR.file.name.rpartition("/")[2]
    return MalformedRequestError(
        f"the {size} bytes of the request are not a {name}; encode it from {file}",
        metadata={"message": name, "bytes": str(size)},
    )


@final
@dataclass(frozen=True, slots=True)
class _Field:
    """Properties of a field that counting needs."""

    number: int
    name: str
    max_count: int
    """Most elements; 0: not repeated."""
    is_row: bool
    element_bytes: int | None
    """Size of an element that may be packed, 0 if it varies; None for other fields."""
    message: Descriptor | None


@cache
def _list_counted_fields(kind: Descriptor) -> dict[int, _Field]:
    """Return the fields of a message type that are repeated or contain messages; the others need no check."""
    return {
        field.number: field
        for field in map(_describe_field, kind.fields)
        if field.max_count or field.message is not None
    }


def _describe_field(field: FieldDescriptor) -> _Field:
    name = ".".join(field.full_name.split(".")[-2:])
    return _Field(
        number=field.number,
        name=name,
        max_count=MAX_COUNTS.get(name, 0),
        is_row=name in _ROWS,
        element_bytes=_ELEMENT_BYTES.get(field.type, 0),
        message=field.message_type,
    )


_ELEMENT_BYTES: Final[Mapping[int, int | None]] = {
    FieldDescriptor.TYPE_STRING: None,
    FieldDescriptor.TYPE_BYTES: None,
    FieldDescriptor.TYPE_MESSAGE: None,
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_SFIXED32: 4,
}
"""Other types are varints, with 0."""
_MAX_FIELDS: Final = 64
"""This version sends three; a newer client may send more."""
_ACTIONS: Final = {
    field.number: field.name for field in pb.PredictStreamRequest.DESCRIPTOR.oneofs_by_name["action"].fields
}


@final
@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request on a stream; its action is not decoded yet."""

    request_id: str
    timeout_s: float
    """0: limited only by the deadline of the call."""
    actions: tuple[tuple[str, slice], ...]
    """Name of each action, such as `predict`, and its position; a valid request has one."""
    prediction: pb.StreamPredict | None = None
    """The action of a small prediction request."""

    def action(self) -> tuple[str, slice]:
        """Return the action; raises MalformedRequestError if the request does not have exactly one action."""
        if len(self.actions) != 1:
            raise MalformedRequestError(
                f"the request has {len(self.actions)} actions, need 1 of {', '.join(_ACTIONS.values())}",
                metadata={"field": "action", "have": str(len(self.actions))},
            )
        return self.actions[0]


def read_request(body: bytes) -> StreamRequest:
    """Parse a request without its action; parse a small prediction request entirely.

    Raises:
        MalformedRequestError: the bytes are malformed, so the request id is unknown.
    """
    small = parse_small(body, pb.PredictStreamRequest)
    if small is not None and small.predict.HasField("instance") and is_plain(small.predict.instance):
        return StreamRequest(small.request_id, small.timeout_s, (), small.predict)
    actions, rest = list[tuple[str, slice]](), list[bytes]()
    try:
        for start, number, form, at, end in FieldReader(body, _MAX_FIELDS).between(0, len(body)):
            if number in _ACTIONS and form == BYTES:
                actions.append((_ACTIONS[number], slice(at, end)))
            else:
                rest.append(body[start:end])
        head = pb.PredictStreamRequest.FromString(b"".join(rest))
    except (IndexError, TooManyPartsError, DecodeError):
        raise make_malformed_message_error(pb.PredictStreamRequest, len(body)) from None
    return StreamRequest(head.request_id, head.timeout_s, tuple(actions))


def parse_short(body: bytes, kind: type[MessageT]) -> MessageT:
    """Parse a request that has only a few short fields."""
    check_count("the request: bytes", len(body), MAX_HEAD)
    return parse(body, kind)


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a field of text, bytes or a message around encoded bytes, which saves a copy; its number is at most 15."""
    header, size = bytearray((number << 3 | BYTES,)), len(content)
    while size >= LONG:
        header.append(size & 0x7F | LONG)
        size >>= 7
    header.append(size)
    return bytes(header) + content
