"""The faults of messages far beyond the limit, sent as they are or compressed, and of streams begun before all else."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

import grpc

from benchmarks.faults import http2
from benchmarks.faults.calls import (
    EXPLAIN,
    LIST,
    NO_ANSWER,
    PREDICT,
    Ended,
    ask,
    ask_once,
    codes,
    predict_request,
)
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import MIB, Server, forget_peak
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_most, shown

LARGE: Final = 64 * MIB
BOMB, QUICK_BOMB = 512 * MIB, 32 * MIB
GROWN_MIB: Final = 64.0
"""What the server may take meanwhile, of one message at a time: four times the limit."""
STREAMS, QUICK_STREAMS = 10_000, 1_000
TIMES, QUICK_TIMES = 8, 1
PATIENCE_S: Final = 60.0
ADMIN_LOAD: Final = "/quantra.v1.ModelAdminService/LoadModel"
GZIP, DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
_ENCODINGS: Final = {"gzip": GZIP, "deflate": DEFLATE}
_OK, _EXHAUSTED = "0", "8"
_REFUSALS: Final = frozenset({"3", "8", "12", "13"})
"""What gRPC itself may call bytes that it cannot expand: it never hands them on."""


def faults(place: Place, server: Server) -> Iterator[Finding]:
    """A large message, a bomb, many streams."""
    yield _large(place, server)
    yield _bomb(place, server)
    yield _streams(place, server)


def _large(place: Place, server: Server) -> Finding:
    """Messages of four times the limit, at three methods of two addresses."""
    admin = Target(int(str(server.ready["admin_port"])))
    targets = ((server.target, PREDICT), (server.target, EXPLAIN), (admin, ADMIN_LOAD))
    before, body = _watch(server), bytes(LARGE)
    ends = [
        asyncio.run(ask_once(target, path, body, PATIENCE_S))
        for _ in range(place.count(TIMES, QUICK_TIMES))
        for target, path in targets
    ]
    after = asyncio.run(ask_once(server.target, PREDICT, predict_request(place.material.one_stock())))
    strange = sum(end.code not in NO_ANSWER | {grpc.StatusCode.RESOURCE_EXHAUSTED} for end in ends)
    return Finding(
        fault="messages of 64 MiB",
        done=f"{len(ends)} of them, one after the other, where 16 MiB are the limit",
        calls=len(ends) + 1,
        wrong=strange + (after.code is not grpc.StatusCode.OK) + (not server.is_alive),
        lost=sum(end.code in NO_ANSWER for end in ends),
        rows=[_grown(server, before)],
        detail=codes(ends),
        naive="naive: gRPC's own limit is 4 MiB, and refuses it too, with 2 MiB more of memory",
    )


def _watch(server: Server) -> int:
    forget_peak(server.popen.pid)
    return server.vitals().resident


def _grown(server: Server, before: int) -> Row:
    grown = (server.vitals().peak - before) / MIB
    return at_most("memory grown at most, MiB", grown, GROWN_MIB, detail="above what it held before")


@final
@dataclass(frozen=True, slots=True)
class Packed:
    """A message that says that it is compressed.

    Attributes:
        what: In words.
        encoding: As the headers name it.
        body: What was made of it.
        right: The statuses that it may end with.
    """

    what: str
    encoding: str
    body: bytes
    right: frozenset[str]


def bomb(size: int, window: int) -> bytes:
    """Zeros, compressed to about a thousandth."""
    packer, block = zlib.compressobj(1, zlib.DEFLATED, window), bytes(MIB)
    return b"".join([*(packer.compress(block) for _ in range(size // MIB)), packer.flush()])


def packed(content: bytes, window: int) -> bytes:
    """The content, compressed."""
    packer = zlib.compressobj(6, zlib.DEFLATED, window)
    return packer.compress(content) + packer.flush()


def messages(size: int, valid: bytes) -> list[Packed]:
    """Bombs, sound messages, and such as are not what they say."""
    bombs = [Packed(f"{name} bomb", name, bomb(size, way), frozenset({_EXHAUSTED})) for name, way in _ENCODINGS.items()]
    sound = [Packed(f"{name}, sound", name, packed(valid, way), frozenset({_OK})) for name, way in _ENCODINGS.items()]
    return [
        *bombs,
        *sound,
        Packed("gzip that is none", "gzip", b"\x1f\x8b" + bytes(100), _REFUSALS),
        Packed("gzip that is cut off", "gzip", packed(valid, GZIP)[:-20], _REFUSALS),
        Packed("an unknown encoding", "zip", packed(valid, GZIP), _REFUSALS),
        Packed("compressed, without an encoding", "identity", packed(valid, GZIP), _REFUSALS),
    ]


def _bomb(place: Place, server: Server) -> Finding:
    """Small messages that become large, or nothing, when they are expanded."""
    size, times = place.count(BOMB, QUICK_BOMB), place.count(TIMES, QUICK_TIMES)
    before = _watch(server)
    sent = messages(size, predict_request(place.material.one_stock())) * times
    found = [send(server.port, one) for one in sent]
    after = asyncio.run(ask_once(server.target, PREDICT, predict_request(place.material.one_stock())))
    lost = [end for end in found if not end.isdecimal()]
    strange = [f"{one.what}: status {end}" for one, end in zip(sent, found, strict=True) if end not in one.right]
    return Finding(
        fault="messages that expand",
        done=f"{size / MIB:g} MiB of zeros in {len(sent[0].body) / MIB:.2g}, gzip and deflate; 6 others; {times} times",
        calls=len(sent) + 1,
        wrong=len(strange) - len(lost) + (after.code is not grpc.StatusCode.OK) + (not server.is_alive),
        lost=len(lost),
        rows=[_grown(server, before)],
        detail="; ".join(strange[:3]) or _statuses(found),
        naive="naive: gRPC stops to expand at its own limit too, with 5 MiB more of memory",
    )


def send(port: int, message: Packed) -> str:
    """The status that one message got; how the stream ended if it got none."""
    try:
        with http2.Connection(port, timeout_s=PATIENCE_S) as connection:
            stream = connection.call(PREDICT, grpc_encoding=message.encoding)
            connection.send(stream, http2.message(message.body, compressed=True), last=True)
            connection.finish(stream)
    except OSError as error:
        return type(error).__name__
    return stream.status or stream.ended


def _statuses(found: Sequence[str]) -> str:
    counted = Counter(found)
    return "grpc-status " + ", ".join(f"{count} of {status}" for status, count in counted.most_common())


def _streams(place: Place, server: Server) -> Finding:
    """Thousands of calls over one connection, all of them on their way before the server's settings were read."""
    count = place.count(STREAMS, QUICK_STREAMS)
    ends = burst(server.port, count)
    counted = Counter(ends)
    after = asyncio.run(_again(server, place))
    reset = sum(count for end, count in counted.items() if end.startswith("reset"))
    lost = sum(count for end, count in counted.items() if not end.isdecimal()) + counted["14"]
    return Finding(
        fault="streams sent before the settings arrive",
        done=f"{count} calls over one connection, whole, before a byte of the server's is read",
        calls=len(ends) + len(after),
        wrong=len(ends)
        - lost
        - counted[_OK]
        - counted[_EXHAUSTED]
        + sum(end.code is not grpc.StatusCode.OK for end in after),
        lost=lost,
        rows=[
            at_most("streams refused by RST", reset, 0, detail="a client's library tells them as UNAVAILABLE"),
            shown("answered", counted[_OK], detail=_statuses(ends)),
        ],
        detail=_statuses(ends),
        naive="naive: with grpc.max_concurrent_streams=100, 165 of 1,000 to 6,967 of 10,000 were UNAVAILABLE",
    )


async def _again(server: Server, place: Place) -> list[Ended]:
    body = predict_request(place.material.one_stock())
    async with server.target.channel() as channel:
        return [await ask(channel, PREDICT, body) for _ in range(3)]


def burst(port: int, count: int) -> list[str]:
    """Begin so many calls at once; the status of each, or how its stream ended."""
    with http2.Connection(port, timeout_s=PATIENCE_S) as connection:
        streams = connection.call_together(LIST, http2.message(b""), count)
        with suppress(OSError):  # the streams that have not ended tell it
            for stream in streams:
                connection.finish(stream)
    return [stream.status or stream.ended or "nothing" for stream in streams]
