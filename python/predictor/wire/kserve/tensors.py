"""Decoding of input tensors to arrays.

Values are either raw, little-endian, or in the repeated field of their type. Both are read as one array after a check
of their size. Protobuf does not parse them, because it would create millions of Python numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from math import prod
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor._pb import inference_pb2 as pb
from predictor.arrays import BoolArray, FloatArray
from predictor.errors import MalformedRequestError
from predictor.wire import arrays
from predictor.wire.arrays import Shape
from predictor.wire.limits import MAX_CELLS, MAX_PARTS, check_count, check_text
from predictor.wire.request_counts import (
    BYTES,
    FIXED32,
    FIXED64,
    LONG,
    MAX_VARINT_BYTES,
    VARINT,
    FieldReader,
    make_malformed_message_error,
)

CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of InferTensorContents for each datatype that an input may have."""
_WIRE_TYPES: Final = {"BOOL": VARINT, "INT64": VARINT, "FP32": FIXED32, "FP64": FIXED64, "BYTES": BYTES}
"""Wire type of one unpacked value of each datatype; packed values have wire type BYTES."""
_FIELD_NAMES: Final = {field.number: field.name for field in pb.InferTensorContents.DESCRIPTOR.fields}
INT64: Final = np.dtype("<i8")
"""Little-endian."""
_LENGTH_BYTES: Final = 4
"""Length prefix of each raw value of BYTES."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InputTensor:
    """An input of a request; its values are not decoded yet."""

    name: str
    datatype: str
    shape: Shape
    body: bytes
    """Bytes of the whole request, or only of this input's values."""
    position: slice
    """Position of the values in the body."""
    is_raw: bool

    def decode_float32(self, shape: Shape) -> NDArray[np.float32]:
        """Decode FP32 values of this shape; this and the other methods raise MalformedRequestError."""
        return arrays.decode_float32(self._read_values("FP32", shape), shape, self.name)

    def decode_float64(self, shape: Shape) -> FloatArray:
        """Decode FP64 values of this shape."""
        return arrays.decode_float64(self._read_values("FP64", shape), shape, self.name)

    def decode_bools(self, shape: Shape) -> BoolArray:
        """Decode BOOL values of this shape."""
        return arrays.decode_bool(self._read_values("BOOL", shape), shape, self.name)

    def decode_sessions(self, shape: Shape) -> NDArray[np.int32]:
        """Decode INT64 days since 1970-01-01 of this shape to yyyymmdd."""
        self.check("INT64", shape)
        if self.is_raw:
            data = self.body[self.position]
            arrays.check_length(len(data), shape, INT64, self.name)
            return _convert_days(np.frombuffer(data, INT64), self.name).reshape(shape)
        data = b"".join(self._read_contents())
        check_count(f"{self.name}: bytes", len(data), MAX_VARINT_BYTES * prod(shape))
        days = decode_varints(data, self.name)
        arrays.check_values(days, shape, self.name)
        return _convert_days(days, self.name).reshape(shape)

    def decode_texts(self, shape: Shape) -> list[str]:
        """Decode BYTES values of this shape, each UTF-8, in row-major order."""
        self.check("BYTES", shape)
        values = self._split_raw_texts(prod(shape)) if self.is_raw else self._read_contents()
        arrays.check_values(values, shape, self.name)
        return [self._decode_text(value) for value in values]

    def check(self, datatype: str, shape: Shape) -> None:
        """Check the type and the shape; raises MalformedRequestError if they differ."""
        if self.datatype != datatype:
            raise MalformedRequestError(
                f"{self.name}: has datatype {self.datatype!r}, need {datatype}",
                metadata={"field": self.name, "have": self.datatype, "need": datatype},
            )
        if self.shape != shape:
            have, need = list(self.shape), list(shape)
            raise MalformedRequestError(
                f"{self.name}: has shape {have}, need {need}",
                metadata={"field": self.name, "have": str(have), "need": str(need)},
            )

    def _read_values(self, datatype: str, shape: Shape) -> bytes:
        """Return the bytes of values of fixed size; varints of truth values take one byte each, too."""
        self.check(datatype, shape)
        check_count(f"{self.name}: values", prod(shape), MAX_CELLS)
        return self.body[self.position] if self.is_raw else b"".join(self._read_contents())

    def _read_contents(self) -> list[bytes]:
        """Return the contents of the repeated field: packed values, or one value each."""
        need, parts = CONTENTS[self.datatype], list[bytes]()
        try:
            for _, number, form, at, end in FieldReader(self.body, MAX_PARTS).between(
                self.position.start, self.position.stop
            ):
                if _FIELD_NAMES.get(number) != need or form not in {BYTES, _WIRE_TYPES[self.datatype]}:
                    have = _FIELD_NAMES.get(number, f"field {number}")
                    raise MalformedRequestError(
                        f"{self.name}: has {have}, need {need} for {self.datatype}",
                        metadata={"field": self.name, "have": have, "need": need},
                    )
                parts.append(self.body[at:end])
        except IndexError:
            raise make_malformed_message_error(
                pb.InferTensorContents, self.position.stop - self.position.start
            ) from None
        return parts

    def _split_raw_texts(self, max_count: int) -> list[bytes]:
        data, at, texts = self.body[self.position], 0, list[bytes]()
        while at < len(data):
            begin = at + _LENGTH_BYTES
            at = begin + int.from_bytes(data[at:begin], "little")
            if at > len(data) or len(texts) == max_count:
                raise MalformedRequestError(
                    f"{self.name}: raw values do not match their lengths; send each as its number of bytes, uint32 "
                    "little-endian, followed by the bytes",
                    metadata={"field": self.name},
                )
            texts.append(data[begin:at])
        return texts

    def _decode_text(self, value: bytes) -> str:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise MalformedRequestError(
                f"{self.name}: {value[:20]!r} is not UTF-8; send text", metadata={"field": self.name}
            ) from None
        check_text(self.name, text)
        return text


def decode_varints(data: bytes, field: str) -> NDArray[np.int64]:
    """Decode a packed repeated field of int64, [N].

    Raises:
        MalformedRequestError: a varint is truncated or too long.
    """
    encoded = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(encoded < LONG)
    first = np.concatenate([np.zeros(min(1, len(last)), last.dtype), last[:-1] + 1])
    lengths = last - first + 1
    if (len(data) and (not len(last) or last[-1] + 1 != len(data))) or (lengths > MAX_VARINT_BYTES).any():
        raise MalformedRequestError(f"{field}: values are not valid varints", metadata={"field": field})
    numbers = np.zeros(len(last), np.uint64)
    for k in range(int(lengths.max(initial=0))):
        longer = lengths > k
        part = (encoded[first[longer] + k] & 0x7F).astype(np.uint64)
        numbers[longer] |= part << np.uint64(7 * k)
    return numbers.view(np.int64)


_FIRST_DAY: Final = int(np.datetime64("0001-01-01").astype(np.int64))
_LAST_DAY: Final = int(np.datetime64("9999-12-31").astype(np.int64))
_ORDINAL_1970: Final = date(1970, 1, 1).toordinal()
_FEW_DAYS: Final = 8
"""Number of days up to which single look-ups are faster than NumPy."""
_NOT_A_TIME: Final = -(1 << 63)


def _convert_days(days: NDArray[np.int64], field: str) -> NDArray[np.int32]:
    """Convert days since 1970-01-01 to yyyymmdd."""
    if len(days) <= _FEW_DAYS:
        return np.array([_convert_day(int(day), field) for day in days], np.int32)
    wrong = np.flatnonzero((days < _FIRST_DAY) | (days > _LAST_DAY))
    if wrong.size:
        raise _make_invalid_day_error(days[wrong[0]], field)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    month, day = months.astype(np.int64) % 12 + 1, (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    return (10_000 * years + 100 * month + day).astype(np.int32)


@lru_cache(maxsize=4096)
def _convert_day(day: int, field: str) -> int:
    """Convert one day since 1970-01-01 to yyyymmdd."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise _make_invalid_day_error(day, field)
    calendar_day = date.fromordinal(day + _ORDINAL_1970)
    return 10_000 * calendar_day.year + 100 * calendar_day.month + calendar_day.day


def _make_invalid_day_error(day: object, field: str) -> MalformedRequestError:
    return MalformedRequestError(f"{field}: {day} is not a day; send days since 1970-01-01", metadata={"field": field})


@lru_cache(maxsize=4096)
def count_epoch_days(session: int) -> int:
    """Convert a session, yyyymmdd, to days since 1970-01-01; 0 becomes NumPy's NaT, the least int64."""
    if not session:
        return _NOT_A_TIME
    return date(session // 10_000, session // 100 % 100, session % 100).toordinal() - _ORDINAL_1970


def encode_texts(values: list[str]) -> bytes:
    """Encode texts as raw BYTES."""
    data = [value.encode() for value in values]
    return b"".join(len(text).to_bytes(_LENGTH_BYTES, "little") + text for text in data)
