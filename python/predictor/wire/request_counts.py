"""What a request's bytes hold, counted before any of them becomes a message.

An empty message takes two bytes on the wire and some hundred in memory, and parsing holds the interpreter, so that the
largest request of the emptiest content would stop the process for seconds. Counting looks at tags and lengths alone,
stops at the first limit, and finds where each instance lies, so that each is parsed by itself. What is small and plain
is parsed without: that takes less time than to count it.
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
    MAX_INSTANCES,
    MAX_PARTS,
    MAX_ROWS,
    MAX_SESSIONS,
    MAX_SYMBOLS,
    MAX_TARGETS,
    too_many,
)

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Forms of a field on the wire; the others are groups, which no message of ours has."""


WHOLE: Final = "request"
"""What too many fields are told of."""


LONG: Final = 0x80
"""A byte of this value or above is followed by another of the same number. Most fit one: they are read in place."""

LONGEST_VARINT: Final = 10

_FIXED: Final = {FIXED64: 8, FIXED32: 4}

_LAST_FIELD: Final = (1 << 29) - 1


Field = tuple[int, int, int, int, int]
"""Where its tag is, its number, its form, where its content begins, and where it ends."""


class TooManyPartsError(Exception):
    """The request has more parts than were to be counted at once."""


@final
class FieldReader:
    """The fields of one request, counted at every depth; IndexError means that the bytes end within one.

    Args:
        body: the request.
        most_parts: fields after which it is given up.
    """

    def __init__(self, body: bytes, most_parts: int) -> None:
        self._body = body
        self._most_parts = most_parts
        self.parts = 0
        """Fields so far."""

    def between(self, at: int, end: int) -> Iterator[Field]:
        """Each field of the message that lies there.

        Raises:
            IndexError: the bytes end within a field, or none may look so.
            RequestTooLargeError: more fields than a request may have.
            TooManyPartsError: more than `most_parts`, where that is less.
        """
        body = self._body
        while at < end:
            self.parts += 1
            if self.parts > self._most_parts:
                raise _too_many_parts(self._most_parts)
            start = at
            tag, at = (body[at], at + 1) if body[at] < LONG else _varint(body, at)
            form = tag & 7
            if form == BYTES:
                length, at = (body[at], at + 1) if body[at] < LONG else _varint(body, at)
                stop = at + length
            elif form == VARINT:
                stop = at + 1 if body[at] < LONG else _varint(body, at)[1]
            elif form in _FIXED:
                stop = at + _FIXED[form]
            else:
                raise IndexError  # groups: no field of ours is one, and what is within would go uncounted
            if stop > end or not 0 < tag >> 3 <= _LAST_FIELD:
                raise IndexError
            yield start, tag >> 3, form, at, stop
            at = stop


def _too_many_parts(most: int) -> Exception:
    if most < MAX_PARTS:
        return TooManyPartsError()
    return RequestTooLargeError(
        f"the request holds more than {MAX_PARTS} fields; send several requests",
        metadata={"field": WHOLE, "most": str(MAX_PARTS)},
    )


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it."""
    value = 0
    for k in range(LONGEST_VARINT):
        byte = body[at + k]
        value |= (byte & 0x7F) << (7 * k)
        if byte < LONG:
            return value, at + k + 1
    raise IndexError


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


_MOST_FIELDS: Final = 64
"""Three are ours; a newer client may send a few more."""

_ACTIONS: Final = {
    field.number: field.name for field in pb.PredictStreamRequest.DESCRIPTOR.oneofs_by_name["action"].fields
}


@final
@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One request; what it asks is not read yet."""

    request_id: str
    timeout_s: float
    """0 = as long as the call lasts."""
    actions: tuple[tuple[str, slice], ...]
    """What it asks, such as `predict`, and where that lies; one in a request that is right."""
    plain: pb.StreamPredict | None = None
    """All that it asks, if it is a small request for a prediction."""

    def action(self) -> tuple[str, slice]:
        """The one action.

        Raises:
            MalformedRequestError: there is none, or several.
        """
        if len(self.actions) != 1:
            raise MalformedRequestError(
                f"a request has one action ({', '.join(_ACTIONS.values())}), this one has {len(self.actions)}",
                metadata={"field": "action", "have": str(len(self.actions))},
            )
        return self.actions[0]


def instance_of(body: bytes) -> tuple[pb.Instance]:
    """The instance of a small request for a prediction, once more."""
    return (pb.PredictStreamRequest.FromString(body).predict.instance,)


def read_request(body: bytes) -> StreamRequest:
    """Read all of a request but its action, unless it is small.

    Raises:
        MalformedRequestError: the bytes are no request, so that nobody can be told by id.
    """
    plain = parsed_if_plain(body, pb.PredictStreamRequest)
    if plain is not None and plain.predict.HasField("instance"):
        return StreamRequest(plain.request_id, plain.timeout_s, (), plain.predict)
    actions, pieces = list[tuple[str, slice]](), list[bytes]()
    for field in top_fields(body, pb.PredictStreamRequest, _MOST_FIELDS):
        if field.number in _ACTIONS and field.content is not None:
            actions.append((_ACTIONS[field.number], field.content))
        else:
            pieces.append(body[field.whole])
    try:
        head = pb.PredictStreamRequest.FromString(b"".join(pieces))
    except DecodeError:
        raise no_message(pb.PredictStreamRequest, len(body)) from None
    return StreamRequest(head.request_id, head.timeout_s, tuple(actions))
