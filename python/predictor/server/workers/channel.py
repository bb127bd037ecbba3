"""The message channel between supervisor and worker, over a socket pair."""

import asyncio
import contextlib
import socket
from typing import Final, Self, final

from predictor.server.workers.messages import Message, line_of, read

_LONGEST: Final = 256 << 20
"""Bytes of a line: an answer of the admin service holds the cards of models."""


@final
class Channel:
    """Messages both ways, on the running event loop.

    Args:
        reader: what the other end sends.
        writer: to the other end.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """The channel over this socket, which is closed with it."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    async def send(self, message: Message) -> None:
        """Send one message; nothing if the other end is gone, which whoever receives is told."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(line_of(message))
            await self._writer.drain()

    def put(self, message: Message) -> None:
        """Send a short message without waiting until others before it have gone; nothing if this end is closed."""
        if not self._writer.is_closing():
            self._writer.write(line_of(message))

    async def receive(self) -> Message | None:
        """The next message; None after the other end closed.

        Raises:
            ArtifactError: what comes is no message.
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
