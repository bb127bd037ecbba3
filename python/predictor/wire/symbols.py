"""The names of a panel's rows."""

from collections.abc import Sequence

from predictor.errors import MalformedRequestError
from predictor.wire.limits import MAX_SYMBOLS, check_count, check_text


def decode(names: Sequence[str]) -> tuple[str, ...]:
    """The names, of which there is at least one.

    Raises:
        MalformedRequestError: there is none.
        RequestTooLargeError: too many, or one is too long to be a name.
    """
    if not names:
        raise MalformedRequestError("symbols: have 0, need at least 1; name each row", metadata={"field": "symbols"})
    return decode_any(names)


def decode_any(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or none.

    Raises:
        RequestTooLargeError: too many, or one is too long to be a name.
    """
    check_count("symbols", len(names), MAX_SYMBOLS)
    for name in names:
        check_text("symbols", name)
    return tuple(names)
