"""The messages between supervisor and worker, as lines of JSON over a socket pair."""

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, final, get_args

from predictor.canonical import Record, read_as
from predictor.server.logs import LogSettings
from predictor.server.settings import ServerSettings

if TYPE_CHECKING:
    from predictor.canonical import Json


_MAX_LINE_BYTES: Final = 256 << 20
"""Longest line in bytes; responses of the admin service contain model cards."""


@final
@dataclass(frozen=True, slots=True)
class LoadModels:
    """To a worker, first: load the models."""

    settings: ServerSettings
    log: LogSettings


WorkerTask = Literal[
    "listen",
    "ping",
    "call",
    "change",
    "keep_change",
    "undo_change",
    "metrics",
    "reload_and_list_models",
    "copy_served_models",
]
"""What the supervisor asks of a worker.

- `listen`: start listening; the event `listening` follows.
- `ping`: respond immediately.
- `call`, `change`: answer a call of the admin service. After the response to a change, keep or undo it.
- `metrics`: respond with the Prometheus metrics as text.
- `reload_and_list_models`: apply changes of a watched models folder, and respond with the served models.
- `copy_served_models`: serve the models of another worker, which are in the body, as far as the folder has them.
"""


@final
@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """To a worker."""

    number: int
    task: WorkerTask
    name: str = ""
    """Name of the admin call."""
    body: str = ""
    """Bytes, as `encode_bytes` writes them."""


@final
@dataclass(frozen=True, slots=True)
class WorkerResponse:
    """From a worker: the response to the request of the same number."""

    number: int
    body: str = ""
    """Bytes, as `encode_bytes` writes them."""
    failure: str = ""
    """If the request failed: a google.rpc.Status, as `encode_bytes` writes it."""


@final
@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """From a worker: its models are loaded, it listens, or it cannot serve and exits."""

    kind: Literal["loaded", "listening", "failed"]
    problem: str = ""


Message: TypeAlias = LoadModels | WorkerRequest | WorkerResponse | WorkerEvent

_KINDS: Final[Mapping[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}
_SOURCE: Final = "a message between processes"


def encode_message(message: Message) -> bytes:
    """Encode a message as one line."""
    value = {"is": type(message).__name__, **asdict(message)}
    return json.dumps(value, default=_encode_path, allow_nan=False).encode() + b"\n"


def decode_message(line: bytes) -> Message:
    """Decode a line written by `encode_message`; raises ArtifactError if the line is not a valid message."""
    record = Record.from_bytes(line, _SOURCE)
    kind = _KINDS.get(record.text("is"))
    if kind is None:
        raise record.make_error("is", "is not a message of this version")
    return read_as(record, kind)


def encode_bytes(content: bytes) -> str:
    """Encode bytes as text for a message."""
    return base64.b64encode(content).decode("ascii")


def decode_bytes(text: str) -> bytes:
    """Decode text written by `encode_bytes`."""
    return base64.b64decode(text)


def _encode_path(value: object) -> "Json":
    if not isinstance(value, Path):
        raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
    return str(value)


@final
class Channel:
    """Messages in both directions, on the running event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Create a channel over a socket, which it closes."""
        return cls(*await asyncio.open_connection(sock=end, limit=_MAX_LINE_BYTES))

    async def send(self, message: Message) -> None:
        """Send one message. If the other end is closed, do nothing: `receive` reports it."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(encode_message(message))
            await self._writer.drain()

    def send_now(self, message: Message) -> None:
        """Send a short message without waiting for earlier ones; do nothing if this end is closed."""
        if not self._writer.is_closing():
            self._writer.write(encode_message(message))

    async def receive(self) -> Message | None:
        """Return the next message; None after the other end has closed.

        Raises:
            ArtifactError: the message is malformed.
        """
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return decode_message(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Signal the end of messages to the other end."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Close this end and wait for it."""
        self.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
