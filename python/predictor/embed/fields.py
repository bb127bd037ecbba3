"""Strict reading of one JSON object and the buffers beside it: nothing is guessed, and nothing converted."""

import json
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, cast, final

import numpy as np
from numpy.typing import NDArray

from predictor.errors import MalformedRequestError
from predictor.wire.limits import MAX_CELLS, MAX_SESSIONS, check_count

AnyArray = NDArray[Any]
Json = dict[str, object]
Items = list[object]

FLOAT64: Final = np.dtype(np.float64)
FLOAT32: Final = np.dtype(np.float32)
INT32: Final = np.dtype(np.int32)
BYTE: Final = np.dtype(np.uint8)

_SHOWN: Final = 80
_SHORT: Final = reprlib.Repr()
"""Never looks at more of a value than it shows, however long or deep that is."""
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = _SHOWN


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object of a request. A field that is missing or of another type is refused by its path."""

    path: str
    values: Mapping[str, object]
    buffers: Sequence[Any] = ()

    @classmethod
    def parse(cls, path: str, text: str, buffers: Sequence[Any] = ()) -> "Fields":
        """Read JSON text that must be an object.

        Raises:
            MalformedRequestError: it is not.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise MalformedRequestError(f"{path}: is not JSON: {error}", metadata={"field": path}) from None
        except RecursionError:
            raise MalformedRequestError(f"{path}: nests too deeply", metadata={"field": path}) from None
        if not isinstance(values, dict):
            raise wrong(path, values, "an object")
        return cls(path, cast("Json", values), buffers)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        """A field of text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise wrong(self._at(name), value, "text")
        return value

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A list of texts, at most `most`."""
        values = self._at_most(name, most)
        for value in values:
            if not isinstance(value, str):
                raise wrong(self._at(name), value, "text")
        return tuple(cast("list[str]", values))

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise wrong(self._at(name), value, "true or false")
        return value

    def whole(self, name: str) -> int:
        """A whole number."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(self._at(name), value, "a whole number")
        return value

    def number(self, name: str) -> float:
        """Any number that a double holds; never NaN."""
        value = self.values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
            raise wrong(self._at(name), value, "a finite number")
        return float(value)

    def nested(self, name: str) -> "Fields":
        """A nested object."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise wrong(self._at(name), value, "an object")
        return Fields(self._at(name), cast("Json", value), self.buffers)

    def objects(self, name: str, most: int) -> list["Fields"]:
        """A list of objects, at most `most`."""
        parts = self._at_most(name, most)
        named = [Fields(self.path, {f"{name}[{place}]": part}, self.buffers) for place, part in enumerate(parts)]
        return [one.nested(f"{name}[{place}]") for place, one in enumerate(named)]

    def array(self, name: str, kind: np.dtype[Any], *ranks: int) -> AnyArray:
        """An array among the request's buffers: not a copy, so read it only while the call lasts.

        Args:
            name: the field.
            kind: the dtype that it must have.
            ranks: how many axes its shape may have.

        Raises:
            MalformedRequestError: the field, the buffer, its dtype or its shape is wrong.
            RequestTooLargeError: an axis is longer than one request may have.
        """
        place = self.nested(name)
        shape = place.shape(*ranks)
        index = place.whole("buffer")
        if not 0 <= index < len(self.buffers):
            raise wrong(f"{place.path}.buffer", index, f"one of {len(self.buffers)} buffers")
        values = _contents(place.path, self.buffers[index])
        if values.dtype != kind or values.size != prod(shape):
            have = f"{values.size} values of {values.dtype}"
            raise wrong(place.path, have, f"{prod(shape)} values of {kind} for shape {list(shape)}")
        return values.reshape(shape)

    def truths(self, name: str, rank: int) -> NDArray[np.bool_]:
        """An array of truth values, of any shape of this rank, one byte each, 0 or 1: hosts agree on no other form."""
        values = self.array(name, BYTE, rank)
        if values.max(initial=0) > 1:
            raise wrong(self._at(name), int(values.max()), "0 or 1 in each byte")
        return values.view(np.bool_)

    def shape(self, *ranks: int) -> tuple[int, ...]:
        """A shape of one of these ranks, each of its axes within the limits of one request."""
        axes = self._list("shape")
        if len(axes) not in ranks or not all(type(length) is int and length >= 0 for length in axes):
            raise wrong(self._at("shape"), axes, f"{' or '.join(map(str, ranks))} lengths, each 0 or more")
        shape = tuple(cast("list[int]", axes))
        for length in shape:
            check_count(self.path, length, MAX_SESSIONS)
        check_count(f"{self.path}: values", prod(shape), MAX_CELLS)
        return shape

    def _at_most(self, name: str, most: int) -> Items:
        values = self._list(name)
        check_count(self._at(name), len(values), most)
        return values

    def _list(self, name: str) -> Items:
        value = self.values.get(name)
        if not isinstance(value, list):
            raise wrong(self._at(name), value, "a list")
        return cast("Items", value)

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}"


def _contents(path: str, buffer: object) -> AnyArray:
    """What a host's buffer holds; a view, not a copy."""
    try:
        return np.asarray(memoryview(cast("Any", buffer)))
    except (TypeError, ValueError) as error:  # it offers no buffer, or one of a type that NumPy does not know
        raise wrong(path, type(buffer).__name__, f"a buffer of numbers: {error}") from None


def wrong(path: str, have: object, need: str) -> MalformedRequestError:
    """The error that says what a field holds, and what it must hold."""
    shown = _SHORT.repr(have)[:_SHOWN]
    return MalformedRequestError(f"{path}: have {shown}, need {need}", metadata={"field": path, "have": shown})
