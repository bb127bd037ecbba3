"""Feature windows on the wire. Whether their shapes are the model's is judged where the model is known."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.instance import FeatureWindow
from predictor.wire import arrays, symbols
from predictor.wire.arrays import FLOAT32, FLOAT64, Shape
from predictor.wire.limits import MAX_CELLS, MAX_FEATURES, MAX_SESSIONS, check_count, check_text


def encode(window: FeatureWindow) -> pb.FeatureWindow:
    """The message of a window. A mask that knows every cell is left out."""
    return pb.FeatureWindow(
        symbols=window.symbols,
        observed=_tensor(window.observed, pb.DATA_TYPE_FLOAT32, FLOAT32),
        known=_tensor(window.known, pb.DATA_TYPE_FLOAT32, FLOAT32),
        static=_tensor(window.static, pb.DATA_TYPE_FLOAT32, FLOAT32),
        mask=None if window.mask.all() else _tensor(window.mask, pb.DATA_TYPE_BOOL, np.dtype(np.bool_)),
        location=_tensor(window.location, pb.DATA_TYPE_FLOAT64, FLOAT64),
        scale=_tensor(window.scale, pb.DATA_TYPE_FLOAT64, FLOAT64),
        schema_hash=window.schema_hash,
        anchor_price=None if window.anchor_price is None else window.anchor_price.tolist(),
        as_of_session=window.as_of_session,
        features=window.features,
    )


def _tensor(values: NDArray[np.generic], kind: pb.DataType, stored: np.dtype[np.generic]) -> pb.Tensor:
    return pb.Tensor(type=kind, shape=values.shape, data=arrays.encode(values, stored))


def decode(message: pb.FeatureWindow) -> FeatureWindow:
    """The window of a message.

    Raises:
        MalformedRequestError: a tensor is missing, has the wrong type or rank, not one row a symbol, or another
            number of bytes than its shape needs.
        RequestTooLargeError: more of anything than one request may have.
    """
    names = symbols.decode(message.symbols)
    rows = len(names)
    check_text("window.schema_hash", message.schema_hash)
    observed = _float32(message, "observed", 3, rows)
    return FeatureWindow(
        symbols=names,
        observed=observed,
        known=_float32(message, "known", 3, rows),
        static=_float32(message, "static", 2, rows),
        mask=_mask(message, observed.shape),
        location=_float64(message, "location", rows),
        scale=_float64(message, "scale", rows),
        schema_hash=message.schema_hash,
        anchor_price=_anchor_price(message, rows),
        as_of_session=message.as_of_session,
        features=_features(message),
    )


def _features(message: pb.FeatureWindow) -> tuple[str, ...]:
    check_count("window.features", len(message.features), MAX_FEATURES)
    for name in message.features:
        check_text("window.features", name)
    return tuple(message.features)


def _float32(message: pb.FeatureWindow, name: str, rank: int, rows: int) -> NDArray[np.float32]:
    tensor = _checked(message, name, pb.DATA_TYPE_FLOAT32)
    return arrays.decode_float32(tensor.data, _shape(tensor, name, rank, rows), f"window.{name}")


def _float64(message: pb.FeatureWindow, name: str, rows: int) -> NDArray[np.float64]:
    """Levels: one a symbol, or one a symbol and horizon."""
    tensor = _checked(message, name, pb.DATA_TYPE_FLOAT64)
    rank = 2 if len(tensor.shape) == 2 else 1  # noqa: PLR2004 - symbols and horizons
    return arrays.decode_float64(tensor.data, _shape(tensor, name, rank, rows), f"window.{name}")


def _mask(message: pb.FeatureWindow, shape: Shape) -> NDArray[np.bool_]:
    if not message.HasField("mask"):
        return np.ones(shape, np.bool_)
    tensor = _checked(message, "mask", pb.DATA_TYPE_BOOL)
    if tuple(tensor.shape) != shape:
        raise MalformedRequestError(
            f"window.mask: has shape {list(tensor.shape)[:4]}, need the shape of observed {list(shape)}",
            metadata={"field": "window.mask"},
        )
    return arrays.decode_bool(tensor.data, shape, "window.mask")


def _anchor_price(message: pb.FeatureWindow, rows: int) -> NDArray[np.float64] | None:
    have = len(message.anchor_price)
    if have == 0:
        return None
    if have != rows:
        raise MalformedRequestError(
            f"window.anchor_price: have {have} prices, need {rows}, one a symbol, or none",
            metadata={"field": "window.anchor_price", "have": str(have), "need": str(rows)},
        )
    return np.fromiter(message.anchor_price, np.float64, rows)


def _checked(message: pb.FeatureWindow, name: str, kind: pb.DataType) -> pb.Tensor:
    if not message.HasField(name):  # pyright: ignore[reportArgumentType] - the name is one of the message's fields
        raise MalformedRequestError(f"window.{name}: is missing", metadata={"field": f"window.{name}"})
    tensor: pb.Tensor = getattr(message, name)
    if tensor.type != kind:
        raise MalformedRequestError(
            f"window.{name}: has data type {tensor.type}, need {kind} ({pb.DataType.Name(kind)})",
            metadata={"field": f"window.{name}", "have": str(tensor.type), "need": str(kind)},
        )
    return tensor


def _shape(tensor: pb.Tensor, name: str, rank: int, rows: int) -> Shape:
    """The tensor's shape, sound by itself: the right rank, a row a symbol, no axis below 0 or too long."""
    shape = tuple(tensor.shape[: rank + 1])
    if len(shape) != rank or shape[0] != rows or min(shape) < 0:
        raise MalformedRequestError(
            f"window.{name}: has shape {list(shape)}, need {rank} axes, the first of length {rows}, one row a symbol",
            metadata={"field": f"window.{name}", "need": str(rows)},
        )
    for length in shape[1:]:
        check_count(f"window.{name}", length, MAX_SESSIONS)
    check_count(f"window.{name}: values", prod(shape), MAX_CELLS)
    return shape
