"""What a request's bytes hold, counted before any of them becomes a message.

An empty message takes two bytes on the wire and some hundred in memory, and parsing holds the interpreter, so that the
largest request of the emptiest content would stop the process for seconds. Counting looks at tags and lengths alone,
stops at the first limit, and finds where each instance lies, so that each is parsed by itself. What is small and plain
is parsed without: that takes less time than to count it.
"""

from collections.abc import Mapping
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
    MAX_INSTANCES,
    MAX_PARTS,
    MAX_ROWS,
    MAX_SESSIONS,
    MAX_SYMBOLS,
    MAX_TARGETS,
    too_many,
)
from predictor.wire.tags import BYTES, LONG, LONGEST_VARINT, WHOLE, FieldReader, TooManyPartsError

MOST: Final[Mapping[str, int]] = {
    "PredictRequest.instances": MAX_INSTANCES,
    "ExplainRequest.targets": MAX_TARGETS,
    "ExplainRequest.symbols": MAX_SYMBOLS,
    "ExplainGlobalRequest.instances": MAX_INSTANCES,
    "ExplainGlobalRequest.targets": MAX_TARGETS,
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
"""How many elements each repeated field of a request may have; a test holds that every one has a row."""

_ROWS: Final = frozenset({"BarPanel.symbols", "FeatureWindow.symbols"})
"""Fields whose elements are rows."""
_INSTANCES: Final = {
    "PredictRequest": "instances",
    "ExplainGlobalRequest": "instances",
    "StreamPredict": "instance",
}
"""The field whose elements are parsed one by one, in their turn."""

_CONTINUED: Final = bytes(range(LONG, 256))


SMALL: Final = 16 * 1024
"""Bytes of a request that need not be counted: the emptiest of so many is parsed in a fifth of a millisecond, into a
megabyte that is free again at once. It may hold too many instances, or axes of a tensor: whoever reads it looks."""

MessageT = TypeVar("MessageT", bound=Message)


def parsed_if_plain(body: bytes, kind: type[MessageT]) -> MessageT | None:
    """The message of a small request; None where counting has to say what it holds, or what is wrong with it.

    That is so where something comes twice that should come once, too, of which parsing would keep the last alone.
    """
    if len(body) > SMALL:
        return None
    try:
        message = kind.FromString(body)
    except DecodeError:
        return None
    return message if message.ByteSize() == len(body) else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """What a request holds."""

    parts: int
    """Fields, at every depth."""
    rows: int
    """Symbols of all instances that were not refused."""
    instances: tuple[slice | QuantraError, ...]
    """Where each instance that is parsed by itself lies in the bytes, or what is wrong with it."""
    head: bytes
    """The request without these instances."""


def count_parts(
    body: bytes, kind: type[Message], most_parts: int = MAX_PARTS, *, within: slice | None = None
) -> RequestCounts:
    """Count a request. Too much of something within one of several instances is that instance's own error.

    Args:
        body: the bytes.
        kind: what they should be.
        most_parts: how many fields are counted.
        within: where the request lies in the bytes; None = they are the request.

    Raises:
        RequestTooLargeError: more instances, rows or parts than one request may have.
        MalformedRequestError: the bytes are no message.
        TooManyPartsError: more than `most_parts`, where that is less than a request may have.
    """
    counting, place = _CountingPass(body, most_parts), within or slice(0, len(body))
    try:
        return counting.request(cast("Descriptor", kind.DESCRIPTOR), place)
    except IndexError:
        raise no_message(kind, place.stop - place.start) from None


@final
@dataclass(frozen=True, slots=True)
class TopField:
    """One field of a message, nothing within it being looked at."""

    number: int
    whole: slice
    """Where it lies, its tag included."""
    content: slice | None
    """Where its content lies, if that may be a message or a text."""


def top_fields(body: bytes, kind: type[Message], most: int) -> list[TopField]:
    """The fields of a message.

    Raises:
        MalformedRequestError: the bytes are no message, or have more than `most` fields.
    """
    try:
        return [
            TopField(number, slice(start, end), slice(at, end) if form == BYTES else None)
            for start, number, form, at, end in FieldReader(body, most).between(0, len(body))
        ]
    except (IndexError, TooManyPartsError):
        raise no_message(kind, len(body)) from None


@final
class _CountingPass:
    """One pass over a request's bytes; IndexError means that they end within a field, or that none may look so."""

    def __init__(self, body: bytes, most_parts: int) -> None:
        self._body = body
        self._tags = FieldReader(body, most_parts)

    def request(self, kind: Descriptor, place: slice) -> RequestCounts:
        split = kind.fields_by_name.get(_INSTANCES.get(kind.name, ""))
        number = 0 if split is None else split.number
        spans: list[slice] = []
        pieces: list[bytes] = []
        rows, counts, fields = 0, dict[int, int](), _fields(kind)
        for start, field, form, at, end in self._tags.between(place.start, place.stop):
            if field == number and form == BYTES:
                spans.append(slice(at, end))
                if len(spans) > MAX_INSTANCES:
                    raise too_many("instances", f"more than {MAX_INSTANCES}", MAX_INSTANCES)
                continue
            pieces.append(self._body[start:end])
            if field in fields:
                rows += self._field(fields[field], counts, form, at, end)
        instances: list[slice | QuantraError] = []
        for span in spans:
            found, more = self._instance(span)
            instances.append(found)
            rows += more
            if rows > MAX_ROWS:
                raise too_many("symbols of all instances", f"more than {MAX_ROWS}", MAX_ROWS)
        return RequestCounts(parts=self._tags.parts, rows=rows, instances=tuple(instances), head=b"".join(pieces))

    def _instance(self, span: slice) -> tuple[slice | QuantraError, int]:
        """Where it lies and how many rows it has, or its error."""
        try:
            return span, self._rows(span.start, span.stop, cast("Descriptor", pb.Instance.DESCRIPTOR))
        except RequestTooLargeError as error:
            if error.metadata["field"] == WHOLE:
                raise
            return error, 0
        except IndexError:
            return no_message(pb.Instance, span.stop - span.start), 0

    def _rows(self, at: int, end: int, kind: Descriptor) -> int:
        """Rows of the message from `at` to `end`, after its counts were checked."""
        fields, counts, rows = _fields(kind), dict[int, int](), 0
        for _, number, form, first, last in self._tags.between(at, end):
            if number in fields:
                rows += self._field(fields[number], counts, form, first, last)
        return rows

    def _field(self, field: "_Field", counts: dict[int, int], form: int, at: int, end: int) -> int:
        """Rows of one field, after the elements of it so far were checked."""
        if field.most:
            have = counts[field.number] = counts.get(field.number, 0) + self._elements(field, form, at, end)
            if have > field.most:
                raise too_many(field.name, f"more than {field.most}", field.most)
        if field.message is not None and form == BYTES:
            return self._rows(at, end, field.message)
        return 1 if field.is_row else 0

    def _elements(self, field: "_Field", form: int, at: int, end: int) -> int:
        """How many elements of a repeated field lie here: one, or several packed."""
        if form != BYTES or field.element_bytes is None:
            return 1
        if field.element_bytes:
            return (end - at) // field.element_bytes
        if end - at > LONGEST_VARINT * field.most:
            return field.most + 1
        return len(self._body[at:end].translate(None, _CONTINUED))


def no_message(kind: type[Message], size: int) -> MalformedRequestError:
    """The error of bytes that cannot be parsed."""
    name, file = kind.DESCRIPTOR.full_name, kind.DESCRIPTOR.file.name.rpartition("/")[2]
    return MalformedRequestError(
        f"the {size} bytes of the request are not a {name}; encode it from {file}",
        metadata={"message": name, "bytes": str(size)},
    )


@final
@dataclass(frozen=True, slots=True)
class _Field:
    """What counting knows of a field."""

    number: int
    name: str
    most: int
    """Elements; 0 = not repeated."""
    is_row: bool
    element_bytes: int | None
    """Of numbers that may lie packed: their size, 0 where it varies; None for all else."""
    message: Descriptor | None


@cache
def _fields(kind: Descriptor) -> dict[int, _Field]:
    """The fields of a message that are repeated or hold messages; no other needs to be looked at."""
    return {one.number: one for one in map(_field_of, kind.fields) if one.most or one.message is not None}


def _field_of(field: FieldDescriptor) -> _Field:
    name = ".".join(field.full_name.split(".")[-2:])
    return _Field(
        number=field.number,
        name=name,
        most=MOST.get(name, 0),
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
"""All others are varints."""
