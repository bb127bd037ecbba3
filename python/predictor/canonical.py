"""JSON in one form: written one way, read strictly. Everything that an artifact says in text passes through here.

Canonical form: UTF-8 without BOM, keys sorted, two spaces of indentation, numbers in shortest round-trip form, no NaN.
Reading refuses what two readers could understand differently: duplicate keys, NaN, infinity, a BOM, deep nesting.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TypeVar

from predictor.errors import ArtifactError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
ValueT = TypeVar("ValueT")

MAX_DEPTH = 64


def to_bytes(value: Json) -> bytes:
    """The canonical form of a value.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True)
    return (text + "\n").encode()


def from_bytes(data: bytes, source: str) -> Json:
    """A value from its text; `source` names the file in errors.

    Raises:
        ArtifactError: the text is not strict JSON.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ArtifactError(f"{source}: starts with a byte order mark, which JSON must not")
    try:
        text = data.decode("utf-8")
        _check_depth(text, source)
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError as error:
        raise ArtifactError(f"{source}: is not strict JSON: {error}") from error


def _check_depth(text: str, source: str) -> None:
    """Count brackets, those in strings included: a bound that needs no parser and cannot overflow the stack."""
    depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ArtifactError(f"{source}: nests deeper than {MAX_DEPTH} levels")
        elif character in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return record


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is beyond the range of a double")
    return number


class Record:
    """A JSON object read key by key: each key must be there, of its type, and none may be left over."""

    def __init__(self, value: Json, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ArtifactError(f"{where}: found {_kind(value)}, expected an object")
        self._value = value
        self._where = where
        self._read: set[str] = set()

    def text(self, key: str) -> str:
        """A string."""
        return self._take(key, "a text", lambda v: v if isinstance(v, str) else None)

    def integer(self, key: str) -> int:
        """An integer, written without a fraction."""
        return self._take(key, "an integer", _integer)

    def number(self, key: str) -> float:
        """A finite number."""
        return self._take(key, "a number", _number)

    def flag(self, key: str) -> bool:
        """True or false."""
        return self._take(key, "true or false", lambda v: v if isinstance(v, bool) else None)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        return self._all(key, "a list of texts", lambda v: v if isinstance(v, str) else None)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers."""
        return self._all(key, "a list of integers", _integer)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        return self._all(key, "a list of numbers", _number)

    def record(self, key: str) -> "Record":
        """An object."""
        return Record(self.json(key), f"{self._where}: {key}")

    def records(self, key: str) -> tuple["Record", ...]:
        """A list of objects."""
        items = self._items(key, "a list of objects")
        return tuple(Record(item, f"{self._where}: {key}[{k}]") for k, item in enumerate(items))

    def json(self, key: str) -> Json:
        """Whatever stands there."""
        if key not in self._value:
            raise ArtifactError(f"{self._where}: key {key!r} is missing")
        self._read.add(key)
        return self._value[key]

    def keys(self) -> tuple[str, ...]:
        """The keys there are, sorted."""
        return tuple(sorted(self._value))

    def end(self) -> None:
        """Raise ArtifactError if a key has not been read."""
        unknown = sorted(set(self._value) - self._read)
        if unknown:
            raise ArtifactError(f"{self._where}: unknown keys {unknown}")

    def _take(self, key: str, expected: str, read: Callable[[Json], ValueT | None]) -> ValueT:
        found = self.json(key)
        value = read(found)
        if value is None:
            raise ArtifactError(f"{self._where}: {key} is {_kind(found)}, expected {expected}")
        return value

    def _items(self, key: str, expected: str) -> Sequence[Json]:
        found = self.json(key)
        if not isinstance(found, list):
            raise ArtifactError(f"{self._where}: {key} is {_kind(found)}, expected {expected}")
        return found

    def _all(self, key: str, expected: str, read: Callable[[Json], ValueT | None]) -> tuple[ValueT, ...]:
        values = tuple(read(item) for item in self._items(key, expected))
        checked = tuple(value for value in values if value is not None)
        if len(checked) != len(values):
            raise ArtifactError(f"{self._where}: {key} holds something else than {expected}")
        return checked


def _integer(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _kind(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:40] + "…"  # noqa: PLR2004 - a glance is enough
