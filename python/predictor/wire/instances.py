"""Conversion of instances: bars with covariates, or feature windows.

The model, not this module, checks that the shapes of a window match its schema.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from math import prod
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor._pb import prediction_pb2 as pb
from predictor.arrays import FloatArray
from predictor.bars import OPTIONAL_FIELDS, PRICE_FIELDS, BarPanel, BarTable
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.dates import is_valid_date, to_optional_date, to_optional_date_number
from predictor.errors import InvalidInputError, MalformedRequestError, QuantraError
from predictor.instance import FeatureWindow, GapPolicy, Instance, InstanceOrError
from predictor.subscription import Push
from predictor.wire import arrays
from predictor.wire.arrays import FLOAT32, FLOAT64, Shape
from predictor.wire.limits import (
    MAX_AXES,
    MAX_CELLS,
    MAX_FEATURES,
    MAX_SESSIONS,
    MAX_SYMBOLS,
    MAX_TEXT,
    check_count,
    check_text,
)
from predictor.wire.request_counts import RequestCounts, parse

_TYPES: Final = {pb.DATA_TYPE_FLOAT32: FLOAT32, pb.DATA_TYPE_FLOAT64: FLOAT64}
_TENSORS: Final[tuple[tuple[str, pb.DataType, tuple[int, ...]], ...]] = (
    ("observed", pb.DATA_TYPE_FLOAT32, (3,)),
    ("known", pb.DATA_TYPE_FLOAT32, (3,)),
    ("static", pb.DATA_TYPE_FLOAT32, (2,)),
    ("location", pb.DATA_TYPE_FLOAT64, (1, 2)),
    ("scale", pb.DATA_TYPE_FLOAT64, (1, 2)),
)
"""Name, type and possible ranks of each tensor but the mask. Levels have one number per symbol, or one per symbol and
horizon."""
_FULL_MASK: Final = np.frombuffer(b"\1" * 65536, np.bool_)
"""The masks of small windows that are sent without one."""
_DAILY = frozenset({pb.BAR_INTERVAL_UNSPECIFIED, pb.BAR_INTERVAL_DAY})
_POLICIES: Final[Mapping[int, GapPolicy]] = {
    pb.GAP_POLICY_UNSPECIFIED: GapPolicy.REFUSE,
    pb.GAP_POLICY_REFUSE: GapPolicy.REFUSE,
    pb.GAP_POLICY_MASK: GapPolicy.MASK,
    pb.GAP_POLICY_IGNORE: GapPolicy.IGNORE,
}
_POLICY_NUMBERS: Final[Mapping[GapPolicy, pb.GapPolicy]] = {
    GapPolicy.REFUSE: pb.GAP_POLICY_REFUSE,
    GapPolicy.MASK: pb.GAP_POLICY_MASK,
    GapPolicy.IGNORE: pb.GAP_POLICY_IGNORE,
}


def encode(instance: Instance) -> pb.Instance:
    """Encode an instance."""
    request_id, max_age = instance.request_id, instance.max_age_sessions
    if not isinstance(instance.input, BarPanel):
        return pb.Instance(request_id=request_id, window=encode_window(instance.input), max_age_sessions=max_age)
    bars = encode_bars(instance.input)
    bars.allow_incomplete_last_bar = instance.allow_incomplete_last_bar
    bars.accept_suspect_bars = instance.accept_suspect_bars
    bars.gap_policy = _POLICY_NUMBERS[instance.gap_policy]
    covariates = encode_covariates(instance.covariates)
    return pb.Instance(request_id=request_id, bars=bars, covariates=covariates, max_age_sessions=max_age)


def decode(message: pb.Instance) -> Instance:
    """Decode an instance.

    Raises:
        MalformedRequestError: it has no input, or the input is malformed.
        RequestTooLargeError: it exceeds a limit.
        BarsError: the bars are invalid.
        CovariatesError: the covariates are invalid.
    """
    check_text("request_id", message.request_id)
    kind = message.WhichOneof("input")
    max_age = message.max_age_sessions if message.HasField("max_age_sessions") else None
    if kind == "bars":
        panel, symbol_errors = BarPanel.of_possible_bars(
            _decode_table(message.bars), calendar=message.bars.calendar, currency=message.bars.currency
        )
        return Instance(
            request_id=message.request_id,
            input=panel,
            symbol_errors=symbol_errors,
            covariates=decode_covariates(message.covariates, len(panel.symbols), len(panel.sessions)),
            allow_incomplete_last_bar=message.bars.allow_incomplete_last_bar,
            accept_suspect_bars=message.bars.accept_suspect_bars,
            gap_policy=decode_policy(message.bars.gap_policy),
            max_age_sessions=max_age,
        )
    if kind == "window":
        if message.HasField("covariates"):
            raise MalformedRequestError(
                "a window cannot have covariates; send them with bars", metadata={"field": "covariates"}
            )
        window = decode_window(message.window)
        return Instance(request_id=message.request_id, input=window, max_age_sessions=max_age)
    raise MalformedRequestError("the instance has no input; send bars or a window", metadata={"field": "input"})


def decode_each(messages: Iterable[pb.Instance]) -> tuple[Instance | QuantraError, ...]:
    """Decode each instance, or return its error, in order."""
    return tuple(map(decode_or_error, messages))


def decode_or_error(message: pb.Instance) -> Instance | QuantraError:
    """Decode an instance, or return its error."""
    try:
        return decode(message)
    except QuantraError as error:
        return error.without_frames()


def decode_policy(number: int) -> GapPolicy:
    """Return the policy of an enum value; raises MalformedRequestError if it is unknown."""
    if number not in _POLICIES:
        raise MalformedRequestError(
            f"bars.gap_policy: {number} is unknown; use 1 (refuse), 2 (mask) or 3 (ignore)",
            metadata={"field": "bars.gap_policy", "value": str(number)},
        )
    return _POLICIES[number]


def decode_symbols(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of symbols; at least one is required.

    Raises:
        MalformedRequestError: the names are empty.
        RequestTooLargeError: there are too many names, or one is too long.
    """
    if not names:
        raise MalformedRequestError("symbols: have 0, need at least 1; name each row", metadata={"field": "symbols"})
    return decode_any_symbols(names)


def decode_any_symbols(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of symbols; there may be none.

    Raises:
        RequestTooLargeError: there are too many names, or one is too long.
    """
    check_count("symbols", len(names), MAX_SYMBOLS)
    symbols = tuple(names)
    if max(map(len, symbols), default=0) > MAX_TEXT:
        for name in symbols:
            check_text("symbols", name)
    return symbols


def encode_bars(panel: BarPanel) -> pb.BarPanel:
    """Encode a panel; `encode` sets the gap policy."""
    return pb.BarPanel(
        symbols=panel.symbols,
        session_yyyymmdd=panel.sessions.tolist(),
        open=arrays.encode_float64(panel.open),
        high=arrays.encode_float64(panel.high),
        low=arrays.encode_float64(panel.low),
        close=arrays.encode_float64(panel.close),
        volume=arrays.encode_float64(panel.volume),
        adj_close=arrays.encode_float64(panel.adj_close),
        split_ratio=arrays.encode_float64(panel.split_ratio),
        cash_dividend=arrays.encode_float64(panel.cash_dividend),
        calendar=panel.calendar,
        currency=panel.currency,
        interval=pb.BAR_INTERVAL_DAY,
    )


def decode_bars(message: pb.BarPanel) -> BarPanel:
    """Decode a panel.

    Raises:
        MalformedRequestError: the length of a field does not match the symbols and sessions, or bars are not daily.
        RequestTooLargeError: there are too many symbols or sessions.
        BarsError: the bars are invalid.
    """
    return BarPanel.of_columns(_decode_table(message), calendar=message.calendar, currency=message.currency)


def _decode_table(message: pb.BarPanel) -> BarTable:
    names = decode_symbols(message.symbols)
    shape = (len(names), len(message.session_yyyymmdd))
    _check_bars(message, shape)
    columns = {name: arrays.decode_float64(getattr(message, name), shape, f"bars.{name}") for name in PRICE_FIELDS}
    for name in OPTIONAL_FIELDS:
        if data := getattr(message, name):
            columns[name] = arrays.decode_float64(data, shape, f"bars.{name}")
    sessions = np.array(message.session_yyyymmdd, np.int32)
    return BarTable(symbols=names, sessions=sessions, columns=columns)


def _check_bars(message: pb.BarPanel, shape: tuple[int, int]) -> None:
    check_count("bars.session_yyyymmdd", shape[1], MAX_SESSIONS)
    check_count("bars: symbols x sessions", shape[0] * shape[1], MAX_CELLS)
    check_text("bars.calendar", message.calendar)
    check_text("bars.currency", message.currency)
    if message.interval not in _DAILY:
        raise MalformedRequestError(
            f"bars.interval: {message.interval} is not supported; send daily bars (1)",
            metadata={"field": "bars.interval", "value": str(message.interval)},
        )


def encode_covariates(covariates: Covariates) -> pb.Covariates | None:
    """Encode covariates; None without covariates."""
    if not covariates.names:
        return None
    return pb.Covariates(
        observed=_encode_values(covariates.observed),
        known=_encode_values(covariates.known),
        future_yyyymmdd=covariates.future_sessions.tolist(),
        numbers=_encode_values(covariates.numbers),
        categories=(pb.CovariateTexts(name=name, values=texts) for name, texts in covariates.categories.items()),
    )


def decode_covariates(message: pb.Covariates, symbols: int, sessions: int) -> Covariates:
    """Decode covariates.

    Args:
        message: covariates of a panel.
        symbols: number of symbols of the panel.
        sessions: number of sessions of the panel.

    Raises:
        MalformedRequestError: the length of an array does not match the panel, or a name appears twice.
        RequestTooLargeError: the covariates exceed a limit.
        CovariatesError: the values are invalid.
    """
    if not message.ByteSize():
        return NO_COVARIATES
    future = len(message.future_yyyymmdd)
    check_count("covariates.future_yyyymmdd", future, MAX_SESSIONS)
    return Covariates(
        observed=_decode_values("observed", message.observed, (symbols, sessions)),
        known=_decode_values("known", message.known, (symbols, sessions + future)),
        future_sessions=arrays.decode_int32(message.future_yyyymmdd, (future,), "covariates.future_yyyymmdd"),
        numbers=_decode_values("numbers", message.numbers, (symbols,)),
        categories=_decode_texts(message.categories, symbols),
    )


def _encode_values(values: Mapping[str, FloatArray]) -> Iterable[pb.CovariateValues]:
    return (pb.CovariateValues(name=name, values=arrays.encode_float64(array)) for name, array in values.items())


def _decode_values(group: str, messages: Sequence[pb.CovariateValues], shape: tuple[int, ...]) -> dict[str, FloatArray]:
    check_count(f"covariates.{group}", len(messages), MAX_FEATURES)
    check_count(f"covariates.{group}: values", len(messages) * int(np.prod(shape)), MAX_CELLS)
    names = _check_names(group, [message.name for message in messages])
    values = (arrays.decode_float64(item.values, shape, f"covariates.{group} {item.name}") for item in messages)
    return dict(zip(names, values, strict=True))


def _decode_texts(messages: Sequence[pb.CovariateTexts], symbols: int) -> dict[str, tuple[str, ...]]:
    check_count("covariates.categories", len(messages), MAX_FEATURES)
    names = _check_names("categories", [message.name for message in messages])
    for message in messages:
        have = len(message.values)
        if have != symbols:
            raise MalformedRequestError(
                f"covariates.categories {message.name}: have {have} texts, need {symbols}, one per symbol",
                metadata={"field": "covariates.categories", "have": str(have), "need": str(symbols)},
            )
        for text in message.values:
            check_text("covariates.categories", text)
    return {name: tuple(message.values) for name, message in zip(names, messages, strict=True)}


def _check_names(group: str, names: list[str]) -> list[str]:
    field = f"covariates.{group}"
    for name in names:
        check_text(field, name)
    if len(set(names)) != len(names):
        raise MalformedRequestError(f"{field}: a name appears twice; send each once", metadata={"field": field})
    return names


def encode_window(window: FeatureWindow) -> pb.FeatureWindow:
    """Encode a window; a mask that is True everywhere is omitted."""
    return pb.FeatureWindow(
        symbols=window.symbols,
        observed=_encode_tensor(window.observed, pb.DATA_TYPE_FLOAT32, FLOAT32),
        known=_encode_tensor(window.known, pb.DATA_TYPE_FLOAT32, FLOAT32),
        static=_encode_tensor(window.static, pb.DATA_TYPE_FLOAT32, FLOAT32),
        mask=_encode_mask(window),
        location=_encode_tensor(window.location, pb.DATA_TYPE_FLOAT64, FLOAT64),
        scale=_encode_tensor(window.scale, pb.DATA_TYPE_FLOAT64, FLOAT64),
        schema_hash=window.schema_hash,
        anchor_price=None if window.anchor_price is None else window.anchor_price.tolist(),
        as_of_session=to_optional_date_number(window.as_of_session),
        features=window.features,
    )


def _encode_mask(window: FeatureWindow) -> pb.Tensor | None:
    """None if every cell is known; a mask of the wrong shape is sent, so that the server rejects it."""
    if window.mask.shape == window.observed.shape and window.mask.all():
        return None
    return _encode_tensor(window.mask, pb.DATA_TYPE_BOOL, np.dtype(np.bool_))


def _encode_tensor(values: NDArray[np.generic], kind: pb.DataType, dtype: np.dtype[np.generic]) -> pb.Tensor:
    return pb.Tensor(type=kind, shape=values.shape, data=arrays.encode(values, dtype))


def decode_window(message: pb.FeatureWindow) -> FeatureWindow:
    """Decode a window.

    Raises:
        MalformedRequestError: a tensor is missing, has the wrong type or rank, does not have one row per symbol, or its
            number of bytes does not match its shape.
        RequestTooLargeError: it exceeds a limit.
    """
    names = decode_symbols(message.symbols)
    rows = len(names)
    check_text("window.schema_hash", message.schema_hash)
    values: list[Any] = []
    for name, need, ranks in _TENSORS:
        tensor: pb.Tensor = getattr(message, name)
        kind, data = tensor.type, tensor.data  # each access copies the bytes
        if not kind and not message.HasField(name):  # pyright: ignore[reportArgumentType] - a field of the message
            raise MalformedRequestError(f"window.{name}: is missing", metadata={"field": f"window.{name}"})
        shape = _check_shape(name, kind, tuple(tensor.shape[: MAX_AXES + 1]), len(data), need, ranks, rows)
        values.append(np.ndarray(shape, _TYPES[need], data))
    observed, known, static, location, scale = values
    features = tuple(message.features)
    check_count("window.features", len(features), MAX_FEATURES)
    for feature in features:
        check_text("window.features", feature)
    return FeatureWindow(
        symbols=names,
        observed=observed,
        known=known,
        static=static,
        mask=_decode_mask(message, observed.shape),
        location=location,
        scale=scale,
        schema_hash=message.schema_hash,
        anchor_price=_decode_anchor_price(message, rows),
        as_of_session=_decode_as_of_session(message.as_of_session),
        features=features,
    )


@lru_cache(maxsize=256)
def _decode_as_of_session(day: int) -> date | None:
    if day and not is_valid_date(day):
        raise InvalidInputError(
            f"as_of_session {day} is not a date; send the session of the last row, yyyymmdd, or 0 if it is unknown"
        )
    return to_optional_date(day)


def _decode_mask(message: pb.FeatureWindow, shape: Shape) -> NDArray[np.bool_]:
    if not message.HasField("mask"):
        cells = prod(shape)
        mask = _FULL_MASK[:cells] if cells <= len(_FULL_MASK) else np.frombuffer(b"\1" * cells, np.bool_)
        return mask.reshape(shape)
    tensor = message.mask
    _check_type("mask", tensor.type, pb.DATA_TYPE_BOOL)
    if tuple(tensor.shape) != shape:
        raise MalformedRequestError(
            f"window.mask: has shape {list(tensor.shape)[:4]}, need the shape of observed {list(shape)}",
            metadata={"field": "window.mask"},
        )
    return arrays.decode_bool(tensor.data, shape, "window.mask")


def _decode_anchor_price(message: pb.FeatureWindow, rows: int) -> NDArray[np.float64] | None:
    have = len(message.anchor_price)
    if have == 0:
        return None
    if have != rows:
        raise MalformedRequestError(
            f"window.anchor_price: have {have} prices, need {rows}, one per symbol, or none",
            metadata={"field": "window.anchor_price", "have": str(have), "need": str(rows)},
        )
    return np.fromiter(message.anchor_price, np.float64, rows)


def _check_type(name: str, have: int, need: pb.DataType) -> None:
    if have != need:
        raise MalformedRequestError(
            f"window.{name}: has data type {have}, need {need} ({pb.DataType.Name(need)})",
            metadata={"field": f"window.{name}", "have": str(have), "need": str(need)},
        )


@lru_cache(maxsize=256)
def _check_shape(
    name: str, kind: int, shape: Shape, size: int, need: pb.DataType, ranks: tuple[int, ...], rows: int
) -> Shape:
    """Check a tensor's type, its shape and its bytes: one row per symbol, no axis below 0 or too long.

    Cached, because the requests to a model have few shapes.
    """
    _check_type(name, kind, need)
    if len(shape) not in ranks or shape[0] != rows or min(shape) < 0:
        raise MalformedRequestError(
            f"window.{name}: has shape {list(shape)}, need {ranks[0]} axes, the first of length {rows}, one row per "
            "symbol",
            metadata={"field": f"window.{name}", "need": str(rows)},
        )
    check_count(f"window.{name}", max(shape), MAX_SESSIONS)
    check_count(f"window.{name}: values", prod(shape), MAX_CELLS)
    arrays.check_length(size, shape, _TYPES[need], f"window.{name}")
    return shape


@final
class InstanceDecoder:
    """Decodes the instances of a request; raises MalformedRequestError if it has no instance."""

    def __init__(self, body: bytes, counts: RequestCounts) -> None:
        if not counts.instances:
            raise MalformedRequestError("instances: have 0, need at least 1", metadata={"field": "instances"})
        self._body, self._positions = body, counts.instances
        self.request_ids: Sequence[str] = ()
        """Id of each decoded instance; empty if it failed to decode."""

    def decode(self) -> tuple[InstanceOrError, ...]:
        """Decode each instance, or return its error; call it once, because it frees the bytes."""
        body, self._body = self._body, b""
        messages = [p if isinstance(p, QuantraError) else _parse_instance(body[p]) for p in self._positions]
        del body  # the messages have copies
        self.request_ids = tuple("" if isinstance(item, QuantraError) else item.request_id for item in messages)
        return tuple(item if isinstance(item, QuantraError) else decode_or_error(item) for item in messages)


def _parse_instance(body: bytes) -> pb.Instance | QuantraError:
    try:
        return parse(body, pb.Instance)
    except MalformedRequestError as error:
        return error


def encode_push(session_id: str, push: Push) -> pb.PushBars:
    """Encode a push to a session."""
    return pb.PushBars(
        session_id=session_id,
        bars=None if push.bars is None else encode_bars(push.bars),
        covariates=encode_covariates(push.covariates),
        flush=push.flush,
    )


def decode_push(message: pb.PushBars) -> Push:
    """Decode a push.

    Raises:
        MalformedRequestError: it has covariates but no bars, or a field is malformed.
        RequestTooLargeError: the request exceeds a limit.
        BarsError: the bars are invalid.
        CovariatesError: the covariates are invalid.
    """
    if not message.HasField("bars"):
        if message.HasField("covariates"):
            raise MalformedRequestError("covariates need bars; push both", metadata={"field": "covariates"})
        return Push(flush=message.flush)
    bars = decode_bars(message.bars)
    return Push(
        bars=bars,
        covariates=decode_covariates(message.covariates, len(bars.symbols), len(bars.sessions)),
        flush=message.flush,
        gap_policy=decode_policy(message.bars.gap_policy) if message.bars.gap_policy else None,
        allow_incomplete_last_bar=message.bars.allow_incomplete_last_bar,
        accept_suspect_bars=message.bars.accept_suspect_bars,
    )
