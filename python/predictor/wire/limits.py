"""Size limits of a request and their checks, which run before memory for it is allocated."""

from dataclasses import dataclass
from typing import Final, final

from predictor.errors import RequestTooLargeError

DEFAULT_BYTES: Final = 16 * 1024 * 1024
"""Default limit of a server on the bytes of one request."""
MAX_INSTANCES: Final = 4096
MAX_ROWS: Final = 20_000
"""Total symbols of all instances of a request."""
MAX_SYMBOLS: Final = 10_000
MAX_SESSIONS: Final = 20_000
"""Also the limit of each axis of a window."""
MAX_FEATURES: Final = 10_000
MAX_CELLS: Final = 8_000_000
"""Values of one array: symbols x sessions, or symbols x sessions x features."""
MAX_TARGETS: Final = 256
MAX_PRICES: Final = 64
MAX_AXES: Final = 8
"""Axes of a tensor."""
MAX_PARTS: Final = 200_000
"""Fields of a request, nested ones included: three times as many as in the largest watch list."""
MAX_INPUTS: Final = 1024
"""Tensors of a KServe request."""
MAX_HEAD: Final = 16_384
"""Bytes of a KServe request without its tensors, and of a tensor without its values."""
MAX_TEXT: Final = 256
"""Characters of a name, such as a symbol, a model, a request id or a currency."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Size limits of one request, which the server reports with each model."""

    size: int = DEFAULT_BYTES
    """Bytes of the request."""
    instances: int = MAX_INSTANCES
    rows: int = MAX_ROWS
    """Total symbols of all instances."""
    symbols: int = MAX_SYMBOLS
    """Symbols per panel."""
    cells: int = MAX_CELLS
    """Symbols x sessions per panel."""


def check_count(field: str, have: int, max_count: int) -> None:
    """Check a count against its limit; raises RequestTooLargeError if `have` exceeds `max_count`."""
    if have > max_count:
        raise make_too_many_error(field, str(have), max_count)


def make_too_many_error(field: str, have: str, max_count: int) -> RequestTooLargeError:
    """Return the error of an exceeded limit; `have` may be a text such as "more than 7"."""
    return RequestTooLargeError(
        f"{field}: have {have}, at most {max_count} in one request; send several requests",
        metadata={"field": field, "have": have, "most": str(max_count)},
    )


def check_text(field: str, text: str) -> None:
    """Check the length of a name; raises RequestTooLargeError if it is longer than MAX_TEXT characters."""
    if len(text) > MAX_TEXT:
        raise RequestTooLargeError(
            f"{field}: {text[:20]!r}... has {len(text)} characters, at most {MAX_TEXT}",
            metadata={"field": field, "have": str(len(text)), "most": str(MAX_TEXT)},
        )


def check_reference(reference: str) -> str:
    """Check the length of a model reference and return it."""
    check_text("model", reference)
    return reference
