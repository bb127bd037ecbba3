"""Tensors of feature windows: each row is the window of one symbol. Legend: N rows, T sessions, F features."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError
from predictor.instance import FeatureWindow, Instance
from predictor.wire.kserve.choices import RequestParameters
from predictor.wire.kserve.requests import WINDOWS
from predictor.wire.kserve.tensors import InputTensor

NAMES: Final = (WINDOWS, "known", "static", "mask", "location", "scale", "anchor_price", "symbol", "date")
_LEVEL_AXES: Final = (1, 2)
"""Of a row, or of a row and a horizon."""
_GROUP_AXES: Final[Mapping[str, int]] = {"known": 3, "static": 2}


def read_windows(tensors: Mapping[str, InputTensor], info: ModelInfo, choices: RequestParameters) -> list[Instance]:
    """Each row.

    Args:
        tensors: the inputs.
        info: the model; an input that it reads nothing of may be left out.
        choices: for all rows.

    Raises:
        MalformedRequestError: an input is missing, unknown, of another type, or does not fit `observed`.
        RequestTooLargeError: more of anything than one request may have.
    """
    _check_names(tensors)
    shape = tensors[WINDOWS].shape
    rows, sessions, _ = shape
    observed = tensors[WINDOWS].float32(shape)
    known = _group(tensors, "known", (rows, sessions + info.future_length, 0))
    static = _group(tensors, "static", (rows, 0))
    mask = tensors["mask"].truths(shape) if "mask" in tensors else np.ones(shape, np.bool_)
    location, scale = _levels(tensors, "location", rows), _levels(tensors, "scale", rows)
    anchors = tensors["anchor_price"].float64((rows,)) if "anchor_price" in tensors else None
    symbols = tensors["symbol"].texts((rows, 1)) if "symbol" in tensors else [f"row {row}" for row in range(rows)]
    dates = tensors["date"].days((rows, 1))[:, 0].tolist() if "date" in tensors else [0] * rows
    return [
        Instance(
            input=FeatureWindow(
                symbols=(symbols[row],),
                observed=observed[row : row + 1],
                known=known[row : row + 1],
                static=static[row : row + 1],
                mask=mask[row : row + 1],
                location=location[row : row + 1],
                scale=scale[row : row + 1],
                schema_hash=choices.schema_hash or info.schema_hash,
                anchor_price=None if anchors is None else anchors[row : row + 1],
                as_of_session=dates[row],
            ),
            max_age_sessions=choices.max_age_sessions,
        )
        for row in range(rows)
    ]


def _check_names(tensors: Mapping[str, InputTensor]) -> None:
    for name in tensors:
        if name not in NAMES:
            raise MalformedRequestError(
                f"input {name!r} is unknown beside windows; there are {', '.join(NAMES)}", metadata={"field": name}
            )


def _group(tensors: Mapping[str, InputTensor], name: str, without: tuple[int, ...]) -> NDArray[np.float32]:
    """The values of an input that the model may read nothing of; `without` is its shape then."""
    if name not in tensors:
        return np.zeros(without, np.float32)
    tensor = tensors[name]
    _check_axes(tensor, without[0], (_GROUP_AXES[name],))
    return tensor.float32(tensor.shape)


def _levels(tensors: Mapping[str, InputTensor], name: str, rows: int) -> FloatArray:
    """[N] or [N, H], and [N, 1] as [N], which means the same."""
    if name not in tensors:
        raise MalformedRequestError(f"input {name!r} is missing; windows need it", metadata={"field": name})
    _check_axes(tensors[name], rows, _LEVEL_AXES)
    levels = tensors[name].float64(tensors[name].shape)
    return levels.reshape(rows) if levels.size == rows else levels


def _check_axes(tensor: InputTensor, rows: int, axes: tuple[int, ...]) -> None:
    if len(tensor.shape) not in axes or tensor.shape[0] != rows:
        wanted = " or ".join(map(str, axes))
        raise MalformedRequestError(
            f"{tensor.name}: has shape {list(tensor.shape)}, need {wanted} axes, the first of length {rows}",
            metadata={"field": tensor.name, "have": str(list(tensor.shape)), "need": str(rows)},
        )
