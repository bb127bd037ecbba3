"""How large one request may be. Checked before anything of that size is built."""

from dataclasses import dataclass
from typing import Final, final

from predictor.errors import RequestTooLargeError

USUAL_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one request that a server takes which was told nothing else."""

MAX_INSTANCES: Final = 4096
MAX_ROWS: Final = 20_000
"""Symbols of all instances of a request together."""
MAX_SYMBOLS: Final = 10_000
MAX_SESSIONS: Final = 20_000
"""Also the bound of every axis of a window."""
MAX_FEATURES: Final = 10_000
MAX_CELLS: Final = 8_000_000
"""Values of one array: symbols x sessions, or symbols x sessions x features."""
MAX_TARGETS: Final = 256
MAX_AXES: Final = 8
"""Numbers in a tensor's shape."""
MAX_PARTS: Final = 200_000
"""Fields of a request's message and of those in it, whatever they hold: three times what the largest watch list has."""
MAX_INPUTS: Final = 1024
"""Tensors of a request of the public inference protocol."""
MAX_HEAD: Final = 16_384
"""Bytes of such a request beside its values, and of a tensor's name, type, shape and parameters."""
MAX_TEXT: Final = 256
"""Characters of a name: a symbol, a model, a request id, a currency."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How large one request of somebody may be; what a server tells with each of its models."""

    size: int = USUAL_BYTES
    """Bytes of the whole request."""
    instances: int = MAX_INSTANCES
    rows: int = MAX_ROWS
    """Symbols of all instances together."""
    symbols: int = MAX_SYMBOLS
    """Symbols of one panel."""
    cells: int = MAX_CELLS
    """Symbols x sessions of one panel."""


def check_count(what: str, have: int, most: int) -> None:
    """Refuse more than the wire takes.

    Raises:
        RequestTooLargeError: `have` exceeds `most`.
    """
    if have > most:
        raise too_many(what, str(have), most)


def too_many(what: str, have: str, most: int) -> RequestTooLargeError:
    """The error that says what there is too much of; `have` may be a text such as "more than 7"."""
    return RequestTooLargeError(
        f"{what}: have {have}, at most {most} in one request; send several requests",
        metadata={"field": what, "have": have, "most": str(most)},
    )


def check_text(what: str, text: str) -> None:
    """Refuse a name that is too long.

    Raises:
        RequestTooLargeError: longer than MAX_TEXT.
    """
    if len(text) > MAX_TEXT:
        raise RequestTooLargeError(
            f"{what}: {text[:20]!r}... has {len(text)} characters, at most {MAX_TEXT}",
            metadata={"field": what, "have": str(len(text)), "most": str(MAX_TEXT)},
        )
