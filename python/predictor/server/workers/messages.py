"""The messages between supervisor and worker, as lines of JSON."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, final, get_args

from predictor.canonical import Record, read_as
from predictor.server.logs import LogSettings
from predictor.server.settings import ServerSettings

if TYPE_CHECKING:
    from predictor.canonical import Json


@final
@dataclass(frozen=True, slots=True)
class LoadModels:
    """To a worker, first: load the models."""

    settings: ServerSettings
    log: LogSettings


@final
@dataclass(frozen=True, slots=True)
class ModelsLoaded:
    """From a worker: the models are loaded; it does not listen yet."""


@final
@dataclass(frozen=True, slots=True)
class StartListening:
    """To a worker: start listening."""


@final
@dataclass(frozen=True, slots=True)
class ListeningStarted:
    """From a worker: it is listening."""


@final
@dataclass(frozen=True, slots=True)
class StartFailed:
    """From a worker: it cannot serve and exits."""

    message: str


@final
@dataclass(frozen=True, slots=True)
class AdminRequest:
    """To a worker: answer a call of the admin service."""

    number: int
    """Repeated in the response."""
    name: str
    request: str
    """Bytes, as `text_of` writes them."""
    is_change: bool
    """Whether it changes models; then `ConfirmChange` follows the response."""


@final
@dataclass(frozen=True, slots=True)
class AdminResponse:
    """From a worker: the response."""

    number: int
    answer: str
    """Bytes, as `text_of` writes them."""


@final
@dataclass(frozen=True, slots=True)
class AdminFailure:
    """From a worker: the call failed."""

    number: int
    details: str
    """A google.rpc.Status, as `text_of` writes it."""


@final
@dataclass(frozen=True, slots=True)
class ConfirmChange:
    """To a worker, after the response to a change: keep or undo it. The response is empty."""

    number: int
    stays: bool


@final
@dataclass(frozen=True, slots=True)
class CollectMetrics:
    """To a worker: respond with the Prometheus metrics as text."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class SyncModels:
    """To a worker: apply changes of a watched models folder, and respond with the served models."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class MatchModels:
    """To a worker: serve the models of another worker, as far as the folder has them. The response is empty."""

    number: int
    served: str
    """The other worker's response to `SyncModels`."""


@final
@dataclass(frozen=True, slots=True)
class Ping:
    """To a worker: respond with `Pong` immediately."""


@final
@dataclass(frozen=True, slots=True)
class Pong:
    """From a worker: its event loop is responsive."""


Question: TypeAlias = AdminRequest | ConfirmChange | CollectMetrics | SyncModels | MatchModels
"""Messages to a worker that it responds to, with the same number."""
Message: TypeAlias = (
    LoadModels
    | ModelsLoaded
    | StartListening
    | ListeningStarted
    | StartFailed
    | AdminResponse
    | AdminFailure
    | Ping
    | Pong
    | Question
)

_KINDS: Final[Mapping[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}
_SOURCE: Final = "a message between processes"


def line_of(message: Message) -> bytes:
    """Encode a message as one line."""
    value = {"is": type(message).__name__, **asdict(message)}
    return json.dumps(value, default=_text_of_path, allow_nan=False).encode() + b"\n"


def read(line: bytes) -> Message:
    """Decode a line written by `line_of`.

    Raises:
        ArtifactError: the line is not a valid message.
    """
    record = Record.from_bytes(line, _SOURCE)
    kind = _KINDS.get(record.text("is"))
    if kind is None:
        raise record.refusal("is", "is not a message of this version")
    return read_as(record, kind)


def text_of(content: bytes) -> str:
    """Encode bytes as text for a message."""
    return base64.b64encode(content).decode("ascii")


def bytes_of(text: str) -> bytes:
    """Decode text written by `text_of`."""
    return base64.b64decode(text)


def _text_of_path(value: object) -> "Json":
    if not isinstance(value, Path):
        raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
    return str(value)
