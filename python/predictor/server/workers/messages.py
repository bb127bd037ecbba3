"""What a supervisor and a worker say to each other, as lines of JSON."""

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
    """To a worker, first of all: load the models."""

    settings: ServerSettings
    log: LogSettings


@final
@dataclass(frozen=True, slots=True)
class ModelsLoaded:
    """From a worker: the models are there, and it listens nowhere yet."""


@final
@dataclass(frozen=True, slots=True)
class StartListening:
    """To a worker: take your share of the calls."""


@final
@dataclass(frozen=True, slots=True)
class ListeningStarted:
    """From a worker: it does."""


@final
@dataclass(frozen=True, slots=True)
class StartFailed:
    """From a worker: it cannot serve, and ends."""

    message: str


@final
@dataclass(frozen=True, slots=True)
class AdminRequest:
    """To a worker: answer a call of the admin service."""

    number: int
    """That its answer has too."""
    name: str
    request: str
    """Bytes, as `text_of` writes them."""
    is_change: bool
    """Whether the answer is followed by `ConfirmChange`; else it changes nothing."""


@final
@dataclass(frozen=True, slots=True)
class AdminResponse:
    """From a worker: what it answers."""

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
    """To a worker, after the answer to a change: whether it stays. The answer to this is empty."""

    number: int
    stays: bool


@final
@dataclass(frozen=True, slots=True)
class CollectMetrics:
    """To a worker: tell what was counted for Prometheus, as the text of the answer."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class SyncModels:
    """To a worker: look at the folder of models if you follow it, and answer with what you serve."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class MatchModels:
    """To a worker: serve what another does, as far as the folder has it. The answer is empty."""

    number: int
    served: str
    """What that one answered to `SyncModels`."""


@final
@dataclass(frozen=True, slots=True)
class Ping:
    """To a worker: say `Pong` at once."""


@final
@dataclass(frozen=True, slots=True)
class Pong:
    """From a worker: its event loop runs."""


Question: TypeAlias = AdminRequest | ConfirmChange | CollectMetrics | SyncModels | MatchModels
"""What a worker answers, with the question's number."""
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
    """One line."""
    value = {"is": type(message).__name__, **asdict(message)}
    return json.dumps(value, default=_text_of_path, allow_nan=False).encode() + b"\n"


def read(line: bytes) -> Message:
    """What `line_of` wrote.

    Raises:
        ArtifactError: something else has.
    """
    record = Record.from_bytes(line, _SOURCE)
    kind = _KINDS.get(record.text("is"))
    if kind is None:
        raise record.refusal("is", "is no message of this version")
    return read_as(record, kind)


def text_of(content: bytes) -> str:
    """Bytes, as text that a message can hold."""
    return base64.b64encode(content).decode("ascii")


def bytes_of(text: str) -> bytes:
    """What `text_of` made a text of."""
    return base64.b64decode(text)


def _text_of_path(value: object) -> "Json":
    if not isinstance(value, Path):
        raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
    return str(value)
