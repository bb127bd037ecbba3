"""The fields of a message's bytes, one after the other, without parsing any: numbers, forms, and where they lie."""

from collections.abc import Iterator
from typing import Final, final

from predictor.errors import RequestTooLargeError
from predictor.wire.limits import MAX_PARTS

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
