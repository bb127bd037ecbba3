"""What stands beside bars, on the wire."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor._pb import prediction_pb2 as pb
from predictor.covariates import Covariates
from predictor.errors import MalformedRequestError
from predictor.wire import arrays
from predictor.wire.limits import MAX_CELLS, MAX_FEATURES, MAX_SESSIONS, check_count, check_text

FloatArray = NDArray[np.float64]


def encode(covariates: Covariates) -> pb.Covariates | None:
    """The message of covariates; None where there are none."""
    if not covariates.names:
        return None
    return pb.Covariates(
        observed=_encode_values(covariates.observed),
        known=_encode_values(covariates.known),
        future_yyyymmdd=covariates.future_sessions.tolist(),
        numbers=_encode_values(covariates.numbers),
        categories=(pb.CovariateTexts(name=name, values=texts) for name, texts in covariates.categories.items()),
    )


def decode(message: pb.Covariates, symbols: int, sessions: int) -> Covariates:
    """The covariates of a message.

    Args:
        message: what came beside bars of so many symbols and sessions.
        symbols: S.
        sessions: T.

    Raises:
        MalformedRequestError: an array has another length than the bars need, or a name stands twice.
        RequestTooLargeError: more of anything than one request may have.
        CovariatesError: what the arrays hold cannot be.
    """
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
    return (pb.CovariateValues(name=name, values=arrays.encode_float64(one)) for name, one in values.items())


def _decode_values(group: str, messages: Sequence[pb.CovariateValues], shape: tuple[int, ...]) -> dict[str, FloatArray]:
    check_count(f"covariates.{group}", len(messages), MAX_FEATURES)
    check_count(f"covariates.{group}: values", len(messages) * int(np.prod(shape)), MAX_CELLS)
    names = _names(group, [message.name for message in messages])
    values = (arrays.decode_float64(one.values, shape, f"covariates.{group} {one.name}") for one in messages)
    return dict(zip(names, values, strict=True))


def _decode_texts(messages: Sequence[pb.CovariateTexts], symbols: int) -> dict[str, tuple[str, ...]]:
    check_count("covariates.categories", len(messages), MAX_FEATURES)
    names = _names("categories", [message.name for message in messages])
    for message in messages:
        have = len(message.values)
        if have != symbols:
            raise MalformedRequestError(
                f"covariates.categories {message.name}: have {have} texts, need {symbols}, one a symbol",
                metadata={"field": "covariates.categories", "have": str(have), "need": str(symbols)},
            )
        for text in message.values:
            check_text("covariates.categories", text)
    return {name: tuple(message.values) for name, message in zip(names, messages, strict=True)}


def _names(group: str, names: list[str]) -> list[str]:
    field = f"covariates.{group}"
    for name in names:
        check_text(field, name)
    if len(set(names)) != len(names):
        raise MalformedRequestError(f"{field}: a name stands twice; send each once", metadata={"field": field})
    return names
