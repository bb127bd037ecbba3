"""Networks that fail: a connection that dies without a word, and more calls at once than a server takes on."""

import asyncio
import statistics
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from benchmarks.interop.program import asked, found_of, running, told
from benchmarks.report import Row, at_most, shown

SILENT_REACH_S: Final = 6.0
AT_ONCE: Final = 2000


@final
class Relay:
    """Passes connections on to a server until they are silenced: what is sent then goes nowhere, and nobody hears it.

    Args:
        port: of the server, on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._silent: set[int] = set()
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def silence(self) -> None:
        """All connections that there are now."""
        self._silent.update(range(self._count + 1))

    def stop(self) -> None:
        """End."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for connection in asyncio.all_tasks(self._loop):
            connection.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        # Cancelled when the relay stops, reset when a caller gives up: neither is an error of the benchmark.
        with suppress(asyncio.CancelledError, ConnectionError):
            await asyncio.gather(self._pass(self._count, reader, back), self._pass(self._count, there, writer))

    async def _pass(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if number not in self._silent:
                writer.write(data)


@contextmanager
def relay(target: str) -> Generator[Relay]:
    """A relay to this server."""
    made = Relay(int(target.rpartition(":")[2]))
    try:
        yield made
    finally:
        made.stop()


def network_rows(target: str, file: Path, times: int, *, judged: bool) -> list[Row]:
    """Both."""
    (burst,) = found_of("burst", "grpc", f"http://{target}", file, AT_ONCE)
    took_s = [*_silences(target, file, times)]
    return [
        at_most(
            "a connection dies in silence, until there is an answer again, s",
            statistics.median(took_s),
            SILENT_REACH_S,
            detail=f"pings after 2 s, 2 s for the answer; of {times}, slowest {max(took_s):.2f}",
            judged=judged,
        ),
        at_most(
            f"{AT_ONCE:,} calls at once, failed",
            burst["failed"],
            0,
            detail=f"with retries, within 30 s; took {burst['seconds']:.1f} s",
            judged=judged,
        ),
        shown(f"{AT_ONCE:,} calls at once, s", burst["seconds"], detail=""),
    ]


def _silences(target: str, file: Path, times: int) -> Generator[float]:
    with relay(target) as between, running("silent", "grpc", f"http://127.0.0.1:{between.port}", file) as client:
        told(client)
        for _ in range(times):
            between.silence()
            yield asked(client, "again")["seconds"]
