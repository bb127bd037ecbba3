"""How many parts a request's bytes hold, counted before they become messages.

An empty message takes two bytes on the wire and some hundred in memory, so that the largest request would become
gigabytes; the counts of `limits` can be checked on messages alone.
"""

from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from predictor.errors import RequestTooLargeError
from predictor.wire.limits import MAX_PARTS

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_LONG: Final = 0x80
"""A byte of this value or above is followed by another of the same number. Most fit one: they are read in place."""
_LONGEST_VARINT: Final = 10


def check_parts(body: bytes, kind: type[Message]) -> None:
    """Refuse a message of too many parts: its own fields and those of the messages in it. Array elements do not count.

    Bytes that are not a message pass: parsing says what is wrong with them.

    Raises:
        RequestTooLargeError: more than MAX_PARTS.
    """
    if len(body) <= MAX_PARTS:  # a part has at least one byte
        return
    try:
        _check(body, cast("Descriptor", kind.DESCRIPTOR))
    except (IndexError, KeyError):  # it ends within a field, or has a field of no known type
        return


def _check(body: bytes, kind: Descriptor) -> None:
    parts, spans = 0, [(0, len(body), kind)]
    while spans:
        at, end, message = spans.pop()
        inner = _messages_in(message)
        while at < end:
            parts += 1
            if parts > MAX_PARTS:
                raise RequestTooLargeError(
                    f"the request holds more than {MAX_PARTS} fields; send several requests",
                    metadata={"field": "request", "most": str(MAX_PARTS)},
                )
            tag, at = (body[at], at + 1) if body[at] < _LONG else _varint(body, at)
            form = tag & 7
            if form == _BYTES:
                length, at = (body[at], at + 1) if body[at] < _LONG else _varint(body, at)
                if length and tag >> 3 in inner:
                    spans.append((at, min(at + length, end), inner[tag >> 3]))
                at += length
            elif form == _VARINT:
                _, at = _varint(body, at)
            else:
                at += _FIXED[form]


@cache
def _messages_in(kind: Descriptor) -> dict[int, Descriptor]:
    """Which of its fields hold messages."""
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it."""
    value = 0
    for k in range(_LONGEST_VARINT):
        byte = body[at + k]
        value |= (byte & 0x7F) << (7 * k)
        if byte < _LONG:
            return value, at + k + 1
    raise IndexError
