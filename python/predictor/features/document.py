"""JSON read strictly: no unknown, missing or repeated key, no NaN, no number out of range, no guessing of types."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, Self, cast, final

from predictor.errors import QuantraError

LARGEST_DOCUMENT: Final = 4 * 1024 * 1024
"""Bytes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of a document, and where it stands there.

    Attributes:
        value: As JSON gave it.
        path: For messages, such as "features.json: observed[3].name".
        error: What to raise.
    """

    value: object
    path: str
    error: Callable[[str], QuantraError]

    @classmethod
    def parse(cls, data: bytes, source: str, error: Callable[[str], QuantraError]) -> Self:
        """The root of a UTF-8 document without byte order mark."""

        def refuse(problem: str) -> NoReturn:
            raise error(f"{source}: {problem}")

        def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
            keys = [key for key, _ in pairs]
            for key in keys:
                if keys.count(key) > 1:
                    refuse(f"the key {key!r} stands twice")
            return dict(pairs)

        def constant(text: str) -> NoReturn:
            refuse(f"{text} is not allowed; every number must be finite")

        if len(data) > LARGEST_DOCUMENT:
            refuse(f"it has {len(data)} bytes, at most {LARGEST_DOCUMENT} are allowed")
        try:
            value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
        except (ValueError, RecursionError) as cause:
            raise error(f"{source} is no JSON: {cause}") from cause
        return cls(value=value, path=source, error=error)

    def fail(self, problem: str) -> QuantraError:
        """The error that names this place."""
        return self.error(f"{self.path}: {problem}")

    def entries(self, *keys: str) -> tuple["Node", ...]:
        """The values of an object that has exactly these keys."""
        if not isinstance(self.value, dict):
            raise self.fail("must be an object")
        given = cast("dict[str, object]", self.value)
        missing = [key for key in keys if key not in given]
        unknown = [key for key in given if key not in keys]
        if missing or unknown:
            raise self.fail(f"keys missing: {missing}, unknown: {unknown}; expected {list(keys)}")
        return tuple(Node(value=given[key], path=f"{self.path}: {key}", error=self.error) for key in keys)

    def elements(self) -> tuple["Node", ...]:
        """The values of an array."""
        if not isinstance(self.value, list):
            raise self.fail("must be an array")
        values = cast("list[object]", self.value)
        return tuple(
            Node(value=value, path=f"{self.path}[{place}]", error=self.error) for place, value in enumerate(values)
        )

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            raise self.fail(f"must be text, found {self.value!r}")
        return self.value

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.fail(f"must be a number, found {self.value!r}")
        if not math.isfinite(self.value):
            raise self.fail("is too large for a number")
        return float(self.value)

    def expect(self, wanted: object, why: str) -> None:
        """Refuse anything but this value, of this very type."""
        if type(self.value) is not type(wanted) or self.value != wanted:
            raise self.fail(f"is {self.value!r}, but must be {wanted!r}: {why}")


def canonical(value: object) -> bytes:
    """The one way a document is written: ASCII, keys in the given order, shortest numbers, a line feed at the end."""
    return (json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1) + "\n").encode("ascii")
