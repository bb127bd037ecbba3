"""Arrays as raw little-endian bytes in row-major order; decoded arrays are read-only views."""

from collections.abc import Collection, Sized
from datetime import date
from math import prod
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictor.dates import is_valid_date, to_optional_date
from predictor.errors import MalformedRequestError

FLOAT64: Final = np.dtype("<f8")
FLOAT32: Final = np.dtype("<f4")

Shape = tuple[int, ...]
ScalarT = TypeVar("ScalarT", bound=np.generic)


def encode(values: NDArray[np.generic], kind: np.dtype[np.generic]) -> bytes:
    """Encode an array of any shape as little-endian, row-major bytes."""
    return np.ascontiguousarray(values, kind).tobytes()


def encode_float64(values: NDArray[np.float64] | None) -> bytes:
    """Encode an array of any shape as float64; None becomes no bytes."""
    if values is None:
        return b""
    return values.tobytes() if values.dtype is FLOAT64 else encode(values, FLOAT64)


def decode_float64(data: bytes, shape: Shape, field: str) -> NDArray[np.float64]:
    """Decode a float64 array of this shape.

    Raises:
        MalformedRequestError: the number of bytes does not match the shape.
    """
    check_length(len(data), shape, FLOAT64, field)
    return np.ndarray(shape, FLOAT64, data)


def decode_optional_float64(data: bytes, shape: Shape, field: str) -> NDArray[np.float64] | None:
    """Decode a float64 array of this shape; no bytes mean None."""
    return decode_float64(data, shape, field) if data else None


def decode_float32(data: bytes, shape: Shape, field: str) -> NDArray[np.float32]:
    """Decode a float32 array of this shape; raises as `decode_float64`."""
    check_length(len(data), shape, FLOAT32, field)
    return np.ndarray(shape, FLOAT32, data)


def decode_bool(data: bytes, shape: Shape, field: str) -> NDArray[np.bool_]:
    """Decode a boolean array of this shape, one byte per value.

    Raises:
        MalformedRequestError: the number of bytes does not match the shape, or a byte is neither 0 nor 1.
    """
    check_length(len(data), shape, np.dtype(np.bool_), field)
    if data.translate(None, b"\x00\x01"):
        raise MalformedRequestError(
            f"{field}: has a byte that is neither 0 nor 1; send one byte per truth value", metadata={"field": field}
        )
    return np.frombuffer(data, np.bool_).reshape(shape)


def decode_int32(values: Collection[int], shape: Shape, field: str) -> NDArray[np.int32]:
    """Convert a repeated int32 field to an array of this shape.

    Raises:
        MalformedRequestError: the number of values does not match the shape.
    """
    check_values(values, shape, field)
    return np.array(values, np.int32).reshape(shape)


def decode_optional_int32(values: Collection[int], shape: Shape, field: str) -> NDArray[np.int32] | None:
    """Convert a repeated int32 field to an array of this shape; no values mean None."""
    return decode_int32(values, shape, field) if values else None


def decode_session(day: int, field: str) -> date | None:
    """Decode a session, yyyymmdd; 0 means unknown and becomes None.

    Raises:
        MalformedRequestError: it is not a date.
    """
    if day and not is_valid_date(day):
        raise MalformedRequestError(f"{field} is {day}, which is not a date yyyymmdd")
    return to_optional_date(day)


def decode_sessions(values: Collection[int], count: int, field: str) -> tuple[date, ...]:
    """Decode `count` sessions, yyyymmdd; no values mean unknown and become ().

    Raises:
        MalformedRequestError: their number is not `count`, or one is not a date.
    """
    check_values(values, (count if values else 0,), field)
    days = tuple(decode_session(day, field) for day in values)
    return tuple(day for day in days if day)


def decode_flags(values: Collection[bool], count: int, field: str) -> NDArray[np.bool_]:
    """Convert a repeated bool field to an array [count]; raises as `decode_int32`."""
    check_values(values, (count,), field)
    return np.fromiter(values, np.bool_, count)


def check_values(values: Sized, shape: Shape, field: str) -> None:
    """Check that the length of a repeated field matches a shape; raises MalformedRequestError if they differ."""
    have, need = len(values), prod(shape)
    if have != need:
        raise MalformedRequestError(
            f"{field}: have {have} values, need {need}",
            metadata={"field": field, "have": str(have), "need": str(need)},
        )


def check_length(size: int, shape: Shape, kind: np.dtype[np.generic], field: str) -> None:
    """Check that the number of bytes matches a shape, before an array is built.

    Raises:
        MalformedRequestError: they differ.
    """
    need = prod(shape) * kind.itemsize
    if size != need:
        values = " x ".join(str(length) for length in shape)
        raise MalformedRequestError(
            f"{field}: have {size} bytes, need {need} ({values} values of {kind.itemsize} bytes, {kind.name}, "
            "little-endian, row-major)",
            metadata={"field": field, "have": str(size), "need": str(need)},
        )
