"""Canonical JSON: one way to write it, and a strict reader. All text of an artifact is read and written here.

Canonical form is UTF-8 without BOM, sorted keys, two spaces of indentation, numbers in shortest round-trip form and no
NaN. The reader rejects everything that two parsers could interpret differently: duplicate keys, NaN and infinity,
integers beyond 64 bits, lone surrogates, a byte order mark and deep nesting.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

from predictor.errors import ArtifactError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
ValueT = TypeVar("ValueT")
FactsT = TypeVar("FactsT", bound="DataclassInstance")

MAX_DEPTH = 64
"""Levels of nested objects and lists."""

_MAX_INTEGER = 2**63 - 1
_MAX_SHOWN_CHARACTERS = 40
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def to_bytes(value: Json) -> bytes:
    """Encode a value in canonical form; equal values give equal bytes.

    Raises:
        ValueError: `from_bytes` would reject the value: it has a number that is not finite, an integer beyond 64 bits,
            a lone surrogate, or too many levels.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True)
    _parse(text)
    return (text + "\n").encode()


def from_bytes(data: bytes, source: str) -> Json:
    """Decode a value; `source` names the file in errors.

    Raises:
        ArtifactError: the text is not strict JSON.
    """
    try:
        return _parse(data.decode("utf-8"))
    except ValueError as error:
        raise ArtifactError(f"{source}: is not strict JSON: {error}", metadata={"file": source}) from error


def _parse(text: str) -> Json:
    _check_depth(text)
    value: Json = json.loads(
        text,
        object_pairs_hook=_check_unique,
        parse_constant=_refuse_constant,
        parse_float=_parse_finite,
        parse_int=_parse_integer,
    )
    if _ESCAPED_SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError for a lone surrogate
    return value


def _check_depth(text: str) -> None:
    """Count the brackets outside of strings, which cannot overflow the stack as the parser could."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _check_unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    record: dict[str, Json] = {}
    for key, value in pairs:
        if key in record:
            raise ValueError(f"key {key!r} appears twice")
        record[key] = value
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _parse_finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is beyond the range of a double")
    return number


def _parse_integer(text: str) -> int:
    number = int(text)
    if not -_MAX_INTEGER - 1 <= number <= _MAX_INTEGER:
        raise ValueError(f"{text} is beyond 64 bits")
    return number


@final
class Record:
    """A reader of one JSON object: each key must exist with the right type, and `end` rejects keys that were not read.

    Args:
        value: the JSON value, expected to be an object.
        source: the file's name, for errors.
        path: the object's location in the file, such as "network.config"; empty for the root.

    Raises:
        ArtifactError: the value is not an object. This error and those of all methods name the file and the key, in
            the message and as `metadata["file"]` and `metadata["key"]`.
    """

    def __init__(self, value: Json, source: str, path: str = "") -> None:
        self._source = source
        self._path = path
        if not isinstance(value, Mapping):
            raise self._make_error(path, f"is {_format(value)}, expected an object")
        self._value = value
        self._read_keys: set[str] = set()

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Self:
        """Read the root object of a file."""
        return cls(from_bytes(data, source), source)

    def text(self, key: str) -> str:
        """Read a string."""
        return self._check(self.json(key), key, "a string", _take_text)

    def integer(self, key: str) -> int:
        """Read an integer, written without a fraction."""
        return self._check(self.json(key), key, "an integer", _take_integer)

    def number(self, key: str) -> float:
        """Read a finite number."""
        return self._check(self.json(key), key, "a number", _take_number)

    def flag(self, key: str) -> bool:
        """Read true or false."""
        return self._check(self.json(key), key, "true or false", _take_flag)

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings."""
        return self._read_all(self.json(key), key, "a string", _take_text)

    def integers(self, key: str) -> tuple[int, ...]:
        """Read a list of integers."""
        return self._read_all(self.json(key), key, "an integer", _take_integer)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Read a list of finite numbers."""
        return self._read_all(self.json(key), key, "a number", _take_number)

    def record(self, key: str) -> "Record":
        """Read an object."""
        return Record(self.json(key), self._source, self._join_path(key))

    def group(self, prefix: str) -> "Record":
        """Read all keys that begin with a prefix as one object, with the prefix removed."""
        names = [name for name in self.keys() if name.startswith(prefix)]
        return Record({name.removeprefix(prefix): self.json(name) for name in names}, self._source, prefix.strip("_"))

    def records(self, key: str) -> tuple["Record", ...]:
        """Read a list of objects."""
        items, path = self._list(self.json(key), key), self._join_path(key)
        return tuple(Record(item, self._source, f"{path}[{k}]") for k, item in enumerate(items))

    def rows(self, key: str) -> tuple[tuple[float, ...], ...]:
        """Read a list of lists of finite numbers."""
        rows = self._list(self.json(key), key)
        return tuple(self._read_all(row, f"{key}[{k}]", "a number", _take_number) for k, row in enumerate(rows))

    def json(self, key: str) -> Json:
        """Read a value of any type."""
        if key not in self._value:
            raise self.make_error(key, "is missing")
        self._read_keys.add(key)
        return self._value[key]

    def keys(self) -> tuple[str, ...]:
        """All keys, sorted."""
        return tuple(sorted(self._value))

    def has(self, key: str) -> bool:
        """Whether an optional key is present."""
        return key in self._value

    def end(self) -> None:
        """Raise ArtifactError if a key was not read."""
        unknown = sorted(set(self._value) - self._read_keys)
        if unknown:
            raise self.make_error(unknown[0], "is an unknown key")

    def make_error(self, key: str, problem: str) -> ArtifactError:
        """The error for a wrong value of the right type; `problem` reads like "is 7, but must be ..."."""
        return self._make_error(self._join_path(key), problem)

    def _make_error(self, path: str, problem: str) -> ArtifactError:
        prefix = f"{path} " if path else ""
        return ArtifactError(f"{self._source}: {prefix}{problem}", metadata={"file": self._source, "key": path})

    def _join_path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _list(self, value: Json, key: str) -> Sequence[Json]:
        if not isinstance(value, list):
            raise self.make_error(key, f"is {_format(value)}, expected a list")
        return value

    def _read_all(
        self, value: Json, key: str, expected: str, read: Callable[[Json], ValueT | None]
    ) -> tuple[ValueT, ...]:
        items = self._list(value, key)
        return tuple(self._check(item, f"{key}[{k}]", expected, read) for k, item in enumerate(items))

    def _check(self, value: Json, key: str, expected: str, read: Callable[[Json], ValueT | None]) -> ValueT:
        result = read(value)
        if result is None:
            raise self.make_error(key, f"is {_format(value)}, expected {expected}")
        return result


def read_as(record: Record, kind: type[FactsT], *, strict: bool = False) -> FactsT:
    """Read an object as a dataclass, one key per field.

    Args:
        record: the object.
        kind: the dataclass. Its fields are strings, paths, numbers, booleans, enumerations, literals, other such
            dataclasses, or tuples of these. A field with a default may be missing; one of type `X | None` may be null.
        strict: reject keys that the dataclass does not have.

    Raises:
        ArtifactError: a value is missing or has the wrong type, or a key is unknown; the message names the key.
    """
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if record.has(field.name) or field.default is MISSING:
            values[field.name] = _read(record, field.name, types[field.name], strict=strict)
    if strict:
        record.end()
    return kind(**values)


def _read(record: Record, key: str, kind: Any, *, strict: bool) -> object:
    if kind in _PLAIN:
        return _PLAIN[kind](record, key)
    arguments = get_args(kind)
    if get_origin(kind) is UnionType:
        return None if record.json(key) is None else _read(record, key, arguments[0], strict=strict)
    if get_origin(kind) is tuple:
        return tuple(read_as(item, arguments[0], strict=strict) for item in record.records(key))
    if get_origin(kind) is Literal:
        return _read_choice(record, key, arguments)
    if issubclass(kind, StrEnum):
        return kind(_read_choice(record, key, [member.value for member in kind]))
    return read_as(record.record(key), kind, strict=strict)


def _read_choice(record: Record, key: str, choices: Sequence[str]) -> str:
    text = record.text(key)
    if text not in choices:
        raise record.make_error(key, f"is {text!r}, expected one of {list(choices)}")
    return text


_PLAIN: Final[Mapping[object, Callable[[Record, str], object]]] = {
    str: Record.text,
    int: Record.integer,
    float: Record.number,
    bool: Record.flag,
    Path: lambda record, key: Path(record.text(key)),
    tuple[str, ...]: Record.texts,
    tuple[int, ...]: Record.integers,
    tuple[float, ...]: Record.numbers,
    tuple[tuple[float, ...], ...]: Record.rows,
}


def _take_text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _take_flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _take_integer(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _take_number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _format(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"
