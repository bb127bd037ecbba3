"""The message channel between supervisor and worker, over a socket pair."""

import asyncio
import contextlib
import socket
from typing import Final, Self, final

from predictor.server.workers.messages import Message, line_of, read

_LONGEST: Final = 256 << 20
"""Longest line in bytes; responses of the admin service contain model cards."""


@final
class Channel:
    """Messages in both directions, on the running event loop.

    Args:
        reader: stream from the other end.
        writer: stream to the other end.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Create a channel over a socket, which it closes."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    async def send(self, message: Message) -> None:
        """Send one message. If the other end is closed, do nothing: `receive` reports it."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(line_of(message))
            await self._writer.drain()

    def put(self, message: Message) -> None:
        """Send a short message without waiting for earlier ones; do nothing if this end is closed."""
        if not self._writer.is_closing():
            self._writer.write(line_of(message))

    async def receive(self) -> Message | None:
        """Return the next message; None after the other end has closed.

        Raises:
            ArtifactError: the message is malformed.
        """
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return read(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Signal the end of messages to the other end."""
        self._writer.close()

    async def closed(self) -> None:
        """Close this end and wait for it."""
        self.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
