"""Conversion of input tensors to instances: each row is a panel of bars with covariates, or a feature window.

Shapes: N rows, S symbols, T sessions, D future sessions, H horizons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, PositionArray
from predictor.bars import OPTIONAL_FIELDS, PRICE_FIELDS, BarPanel, BarTable
from predictor.catalog import ModelInfo
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.dates import to_optional_date
from predictor.errors import MalformedRequestError, QuantraError
from predictor.instance import FeatureWindow, Instance, InstanceOrError
from predictor.wire.kserve.requests import BARS, WINDOWS, RequestParameters
from predictor.wire.kserve.tensors import InputTensor
from predictor.wire.limits import MAX_SESSIONS, check_count

DATE, SYMBOL, FUTURE_DATE = "date", "symbol", "future_date"
OBSERVED, KNOWN, STATIC = "observed.", "known.", "static."
"""Name prefixes of covariates by group."""
_BAR_INPUTS: Final = frozenset({*PRICE_FIELDS, *OPTIONAL_FIELDS, DATE, SYMBOL, FUTURE_DATE})


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BarArrays:
    """Decoded arrays of a request with bars."""

    symbols: Sequence[Sequence[str]]
    """[N][S] names; "" for padding."""
    sessions: NDArray[np.int32]
    """[N, T]"""
    columns: Mapping[str, FloatArray]
    """Price and volume columns by name, each [N, S, T]."""
    future: NDArray[np.int32]
    """[N, D] sessions after the last bar, yyyymmdd."""
    observed: Mapping[str, FloatArray]
    """[N, S, T]"""
    known: Mapping[str, FloatArray]
    """[N, S, T + D]"""
    numbers: Mapping[str, FloatArray]
    """[N, S]"""
    categories: Mapping[str, Sequence[Sequence[str]]]
    """[N][S]"""


def read_bars(tensors: Mapping[str, InputTensor]) -> BarArrays:
    """Decode all inputs of a request with bars.

    Raises:
        MalformedRequestError: an input is missing, unknown, of the wrong type, or does not match the shape of `close`.
        RequestTooLargeError: the request exceeds a limit.
    """
    for sent_name in tensors:
        if sent_name not in _BAR_INPUTS and not sent_name.startswith((OBSERVED, KNOWN, STATIC)):
            raise MalformedRequestError(
                f"unknown input {sent_name!r} for bars; use {', '.join(sorted(_BAR_INPUTS))}, or covariates named "
                "observed.NAME, known.NAME or static.NAME",
                metadata={"field": sent_name},
            )
    rows, symbols, sessions = panel = tensors[BARS].shape
    future_length = _count_future_sessions(tensors, rows)
    return BarArrays(
        symbols=_split_rows(_require(tensors, SYMBOL).decode_texts((rows, symbols)), symbols),
        sessions=_require(tensors, DATE).decode_sessions((rows, sessions)),
        columns={
            name: _require(tensors, name).decode_float64(panel)
            for name in (*PRICE_FIELDS, *OPTIONAL_FIELDS)
            if name in PRICE_FIELDS or name in tensors
        },
        future=tensors[FUTURE_DATE].decode_sessions((rows, future_length))
        if future_length
        else np.zeros((rows, 0), np.int32),
        observed={name: tensor.decode_float64(panel) for name, tensor in _list_covariates(tensors, OBSERVED)},
        known={
            name: tensor.decode_float64((rows, symbols, sessions + future_length))
            for name, tensor in _list_covariates(tensors, KNOWN)
        },
        numbers={
            name: tensor.decode_float64((rows, symbols))
            for name, tensor in _list_covariates(tensors, STATIC)
            if tensor.datatype != "BYTES"
        },
        categories={
            name: _split_rows(tensor.decode_texts((rows, symbols)), symbols)
            for name, tensor in _list_covariates(tensors, STATIC)
            if tensor.datatype == "BYTES"
        },
    )


def find_symbols(arrays: BarArrays) -> list[PositionArray]:
    """[N] positions of the symbols of each row, without padding."""
    return [np.flatnonzero([bool(name) for name in names]) for names in arrays.symbols]


def build_instance(
    arrays: BarArrays, row: int, positions: PositionArray, parameters: RequestParameters
) -> InstanceOrError:
    """Build the instance of one row, or return its error.

    Args:
        arrays: arrays of all rows.
        row: index of the row.
        positions: positions of the row's symbols.
        parameters: parameters of the request.
    """
    try:
        panel, symbol_errors = _build_panel(arrays, row, positions, parameters.calendar)
        return Instance(
            input=panel,
            symbol_errors=symbol_errors,
            covariates=_build_covariates(arrays, row, positions),
            accept_suspect_bars=parameters.accept_suspect_bars,
            allow_incomplete_last_bar=parameters.allow_incomplete_last_bar,
            gap_policy=parameters.gap_policy,
            max_age_sessions=parameters.max_age_sessions,
        )
    except QuantraError as error:
        return error.without_frames()


def _build_panel(
    arrays: BarArrays, row: int, positions: PositionArray, calendar: str
) -> tuple[BarPanel, Mapping[str, QuantraError]]:
    if not len(positions):
        raise MalformedRequestError(
            f"row {row} has no symbol; name each, and pad with empty names", metadata={"field": SYMBOL}
        )
    table = BarTable(
        symbols=_select_names(arrays.symbols[row], positions),
        sessions=arrays.sessions[row],
        columns={name: values[row, positions] for name, values in arrays.columns.items()},
    )
    return BarPanel.of_possible_bars(table, calendar=calendar)


def _build_covariates(arrays: BarArrays, row: int, positions: PositionArray) -> Covariates:
    if not (arrays.observed or arrays.known or arrays.numbers or arrays.categories or arrays.future.size):
        return NO_COVARIATES
    return Covariates(
        observed=_select_row(arrays.observed, row, positions),
        known=_select_row(arrays.known, row, positions),
        future_sessions=arrays.future[row],
        numbers=_select_row(arrays.numbers, row, positions),
        categories={name: _select_names(texts[row], positions) for name, texts in arrays.categories.items()},
    )


def _select_row(values: Mapping[str, FloatArray], row: int, positions: PositionArray) -> dict[str, FloatArray]:
    return {name: array[row, positions] for name, array in values.items()}


def _select_names(names: Sequence[str], positions: PositionArray) -> tuple[str, ...]:
    return tuple(names[int(position)] for position in positions)


def _require(tensors: Mapping[str, InputTensor], name: str) -> InputTensor:
    if name not in tensors:
        raise MalformedRequestError(f"input {name!r} is missing; bars need it", metadata={"field": name})
    return tensors[name]


def _count_future_sessions(tensors: Mapping[str, InputTensor], rows: int) -> int:
    """D, the number of sessions after the last bar."""
    if FUTURE_DATE not in tensors:
        return 0
    shape = tensors[FUTURE_DATE].shape
    if len(shape) != len((rows, "D")):
        raise MalformedRequestError(
            f"{FUTURE_DATE}: has shape {list(shape)}, need 2 axes: rows, sessions", metadata={"field": FUTURE_DATE}
        )
    check_count(f"{FUTURE_DATE}: sessions", shape[1], MAX_SESSIONS)
    return shape[1]


def _list_covariates(tensors: Mapping[str, InputTensor], prefix: str) -> list[tuple[str, InputTensor]]:
    """List the covariates of one group by name, without the prefix."""
    return [(name.removeprefix(prefix), tensor) for name, tensor in tensors.items() if name.startswith(prefix)]


def _split_rows(texts: Sequence[str], symbols: int) -> list[Sequence[str]]:
    return [texts[first : first + symbols] for first in range(0, len(texts), symbols)]


WINDOW_INPUTS: Final = (WINDOWS, "known", "static", "mask", "location", "scale", "anchor_price", "symbol", "date")
_LEVEL_AXES: Final = (1, 2)
"""[N] or [N, H]."""
_GROUP_AXES: Final[Mapping[str, int]] = {"known": 3, "static": 2}


def read_windows(tensors: Mapping[str, InputTensor], info: ModelInfo, parameters: RequestParameters) -> list[Instance]:
    """Build the instance of each row.

    Args:
        tensors: inputs of the request.
        info: the model; `known` and `static` are optional if it has no such features.
        parameters: parameters of the request.

    Raises:
        MalformedRequestError: an input is missing, unknown, of the wrong type, or does not match `observed`.
        RequestTooLargeError: the request exceeds a limit.
    """
    for name in tensors:
        if name not in WINDOW_INPUTS:
            raise MalformedRequestError(
                f"unknown input {name!r} for windows; use one of {', '.join(WINDOW_INPUTS)}",
                metadata={"field": name},
            )
    shape = tensors[WINDOWS].shape
    rows, sessions, _ = shape
    observed = tensors[WINDOWS].decode_float32(shape)
    known = _decode_group(tensors, "known", (rows, sessions + info.future_length, 0))
    static = _decode_group(tensors, "static", (rows, 0))
    mask = tensors["mask"].decode_bools(shape) if "mask" in tensors else np.ones(shape, np.bool_)
    location, scale = _decode_levels(tensors, "location", rows), _decode_levels(tensors, "scale", rows)
    anchors = tensors["anchor_price"].decode_float64((rows,)) if "anchor_price" in tensors else None
    symbols = (
        tensors["symbol"].decode_texts((rows, 1)) if "symbol" in tensors else [f"row {row}" for row in range(rows)]
    )
    dates = tensors["date"].decode_sessions((rows, 1))[:, 0].tolist() if "date" in tensors else [0] * rows
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
                schema_hash=parameters.schema_hash or info.schema_hash,
                anchor_price=None if anchors is None else anchors[row : row + 1],
                as_of_session=to_optional_date(dates[row]),
            ),
            max_age_sessions=parameters.max_age_sessions,
        )
        for row in range(rows)
    ]


def _decode_group(tensors: Mapping[str, InputTensor], name: str, empty_shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Decode an optional input; without it, return an empty array of shape `empty_shape`."""
    if name not in tensors:
        return np.zeros(empty_shape, np.float32)
    tensor = tensors[name]
    _check_axes(tensor, empty_shape[0], (_GROUP_AXES[name],))
    return tensor.decode_float32(tensor.shape)


def _decode_levels(tensors: Mapping[str, InputTensor], name: str, rows: int) -> FloatArray:
    """Decode levels [N] or [N, H]; [N, 1] becomes [N]."""
    if name not in tensors:
        raise MalformedRequestError(f"input {name!r} is missing; windows need it", metadata={"field": name})
    _check_axes(tensors[name], rows, _LEVEL_AXES)
    levels = tensors[name].decode_float64(tensors[name].shape)
    return levels.reshape(rows) if levels.size == rows else levels


def _check_axes(tensor: InputTensor, rows: int, axes: tuple[int, ...]) -> None:
    if len(tensor.shape) not in axes or tensor.shape[0] != rows:
        allowed_counts = " or ".join(map(str, axes))
        raise MalformedRequestError(
            f"{tensor.name}: has shape {list(tensor.shape)}, need {allowed_counts} axes, the first of length {rows}",
            metadata={"field": tensor.name, "have": str(list(tensor.shape)), "need": str(rows)},
        )
