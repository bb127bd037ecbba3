"""The fault of ten thousand calls at one moment, over one connection and over four, beside a plain server."""

import asyncio
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Final

import grpc
import grpc.aio

from benchmarks.faults.calls import NO_ANSWER, PREDICT, Ended, ask_all, ask_once, codes
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import Server, serving
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_most, shown

CALLS, QUICK_CALLS = 10_000, 1_200
PATIENCE_S: Final = 120.0
PLAIN_WORK_S: Final = 0.2
"""How long the plain server takes for each call, of which it does any number at once."""
_TAKEN: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})


def run(place: Place) -> Iterator[Finding]:
    """Over one connection, then over four."""
    calls = place.count(CALLS, QUICK_CALLS)
    naive = _naive(calls) if place.door.is_plain else ""
    with serving(place.material.small, place.log, "--log-level", "error", secured=place.door.secured) as server:
        for connections in (1, 4):
            yield _finding(place, server, calls, connections, naive if connections == 1 else "")


def _finding(place: Place, server: Server, calls: int, connections: int, naive: str) -> Finding:
    path, body = place.door.speech.predict, place.door.speech.request(place.material.one_stock())
    before = server.vitals()
    ends = asyncio.run(_burst(server.target, path, [body] * calls, connections))
    after = [asyncio.run(ask_once(server.target, path, body)) for _ in range(10)]
    strange = sum(end.code not in _TAKEN | NO_ANSWER for end in ends)
    refused = [end for end in ends if end.code is grpc.StatusCode.RESOURCE_EXHAUSTED]
    silent = sum(end.retry_s is None or not end.has_pushback for end in refused)
    later = sum(end.code is not grpc.StatusCode.OK for end in after)
    return Finding(
        fault=f"burst over {connections} connection{'s' if connections > 1 else ''}",
        done=f"{calls} predictions at once from one process",
        calls=len(ends) + len(after),
        wrong=strange + silent + later,
        lost=sum(end.code in NO_ANSWER for end in ends),
        rows=[*_rows(ends, refused, later), _memory(server, before.resident)],
        detail=f"{codes(ends)}; calls afterwards: {codes(after)}",
        naive=naive,
    )


def _rows(ends: Sequence[Ended], refused: Sequence[Ended], later: int) -> list[Row]:
    told = [end.retry_s for end in refused if end.retry_s is not None]
    return [
        at_most("CANCELLED without a reason", sum(end.is_bare for end in ends), 0, detail=codes(ends)),
        at_most("refused without RetryInfo", len(refused) - len(told), 0, detail=f"of {len(refused)} refused"),
        at_most(
            "refused without grpc-retry-pushback-ms",
            sum(not end.has_pushback for end in refused),
            0,
            detail=f"of {len(refused)} refused",
        ),
        at_most("calls afterwards that are not OK", later, 0, detail="each over a connection of its own"),
        shown("longest delay that RetryInfo names, s", max(told, default=0.0), detail=""),
        shown("slowest answer, s", max(end.took_s for end in ends), detail=""),
    ]


def _memory(server: Server, before: int) -> Row:
    grown = (server.vitals().resident - before) / (1 << 20)
    return shown("memory kept afterwards, MiB", grown, detail="of the server process, beyond what it had before")


async def _burst(target: Target, path: str, bodies: Sequence[bytes], connections: int) -> list[Ended]:
    channels = [target.channel() for _ in range(connections)]
    try:
        return await ask_all(channels, path, bodies, PATIENCE_S)
    finally:
        for channel in channels:
            await channel.close()


def _naive(calls: int) -> str:
    """What becomes of them at a server with gRPC's own settings."""
    with _plain_server() as target:
        return "naive: a grpc.aio server with default options, in the same run: " + codes(
            asyncio.run(_burst(target, PREDICT, [b""] * calls, 1))
        )


@contextmanager
def _plain_server() -> Generator[Target]:
    command = [sys.executable, "-m", "benchmarks.faults.burst"]
    with Popen(command, stdout=PIPE, text=True) as popen:
        try:
            assert popen.stdout is not None
            yield Target(int(popen.stdout.readline()))
        finally:
            popen.kill()


async def serve_plainly() -> None:
    """Answer every Predict with nothing, as gRPC does by default; prints its port."""

    async def answered(_body: bytes, _context: object) -> bytes:
        await asyncio.sleep(PLAIN_WORK_S)
        return b""

    service, _, method = PREDICT.strip("/").partition("/")
    plain = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answered)
    plain.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    print(plain.add_insecure_port("127.0.0.1:0"), flush=True)
    await plain.start()
    await plain.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve_plainly())
