"""The faults of streams that nobody ends: sessions whose callers go away, and callers who never read their answers."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final
from urllib.request import urlopen

from benchmarks.faults import http2, talks
from benchmarks.faults.calls import PREDICT, STREAM, predict_request, until_answered
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME, Material
from benchmarks.faults.served import MIB, Server, Vitals, serving, wait_for
from benchmarks.report import Row, at_most, shown

STREAMS, QUICK_STREAMS = 1_000, 50
PER_CONNECTION: Final = 50
CONNECTIONS: Final = 5
"""At one time: with fewer than 256 streams, as many as a server has."""
QUESTIONS: Final = 4
"""Of a stream whose answers nobody reads."""
LEFT_S: Final = 0.3
"""How long callers who never read stay when they have sent what they send."""
PATIENCE_S: Final = 30.0
SETTLE_S, QUICK_SETTLE_S = 60.0, 2.0
"""As `benchmarks.faults.gone` waits for gRPC's own threads."""
SESSION_KIB, UNREAD_KIB = 5.0, 20.0
"""What a stream may leave behind once memory has been used before: half of what it held, which are a session's bars, or
its questions of 10 KiB each."""

Leave = Callable[[http2.Connection, Sequence[http2.Stream]], None]
"""How a caller goes away."""


def run(place: Place) -> Iterator[Finding]:
    """Sessions first, then answers that nobody reads."""
    options = ("--log-level", "error", "--metrics-port", "0")
    with serving(place.material.small, place.log, *options) as server:
        yield _finding(
            place,
            server,
            _abandon_sessions,
            "sessions that are abandoned",
            "streams with an open session and a push under way: the connection is reset, closed, or the call cancelled",
            SESSION_KIB,
        )
        yield _finding(
            place,
            server,
            _never_read,
            "streams whose callers never read",
            f"streams of {QUESTIONS} questions each, with a window of 0; then the callers hang up",
            UNREAD_KIB,
        )


def _finding(
    place: Place,
    server: Server,
    abandon: Callable[[Server, Material, int], int],
    fault: str,
    done: str,
    most_kib: float,
) -> Finding:
    count, request = place.count(STREAMS, QUICK_STREAMS), predict_request(place.material.one_stock(), model=NAME)
    settle_s = QUICK_SETTLE_S if place.quick else SETTLE_S
    before = server.vitals()
    unanswered = abandon(server, place.material, count)  # so that all threads and buffers are there
    levels(server)
    between, _ = server.settled(before, settle_s)
    unanswered += abandon(server, place.material, count)
    answered_s = asyncio.run(until_answered(server.target, PREDICT, request, PATIENCE_S))
    wait_for(lambda: not any(levels(server).values()), settle_s)
    after, _ = server.settled(between, settle_s)
    log = server.log.read_text(encoding="utf-8")
    return Finding(
        fault=fault,
        done=f"twice {count} {done}",
        calls=2 * count + 1,
        wrong=int(not server.is_alive),
        lost=unanswered + int(answered_s is None),
        rows=[
            *(at_most(f"{name} left over", held, 0, detail="by its metrics") for name, held in levels(server).items()),
            at_most("incidents in the server's log", log.count("incident"), 0, detail=""),
            *_left(count, between, after, most_kib, judged=not place.quick),
            shown("a call answered again, s", PATIENCE_S if answered_s is None else answered_s, detail=""),
        ],
        naive="naive: a server without bounds and keepalive keeps each until its connection is known to be dead",
    )


def _left(count: int, between: Vitals, after: Vitals, most_kib: float, *, judged: bool) -> list[Row]:
    detail = f"after the first time {between}; after the second {after}"
    kept_kib = (after.resident - between.resident) / 1024 / count
    return [
        at_most("threads left over", after.threads - between.threads, 0, detail=detail, judged=judged),
        at_most("descriptors left over", after.descriptors - between.descriptors, 0, detail=detail),
        at_most("memory kept, KiB a stream", kept_kib, most_kib, detail=detail, judged=judged),
        shown("memory at most, MiB", after.peak / MIB, detail="of the process"),
    ]


def levels(server: Server) -> dict[str, float]:
    """What the server says that it holds: open sessions, and what waits for an answer."""
    with urlopen(f"http://127.0.0.1:{server.ready['metrics_port']}/metrics") as answer:
        told = answer.read().decode()
    return {name: _total(told, name) for name in _LEVELS}


def _total(told: str, name: str) -> float:
    """Of a metric, whatever its labels."""
    return sum(map(float, re.findall(rf"^quantra_{name}(?:{{.*}})? (\S+)$", told, re.MULTILINE)))


_LEVELS: Final = ("sessions", "queue_calls", "queue_bytes")


def _abandon_sessions(server: Server, material: Material, count: int) -> int:
    """Open them, push, and go away before the answer; how many were not opened."""
    one, unanswered = material.one_stock(), 0
    opened, pushed = (http2.message(make("r", "s", one)) for make in (talks.opening, talks.pushing))
    ways: Sequence[Leave] = (_reset, _close, _cancel)
    for number, streams in enumerate(_shares(count)):
        with server.target.connection(timeout_s=PATIENCE_S) as connection:
            calls = [connection.call(STREAM) for _ in range(streams)]
            for call in calls:
                connection.send(call, opened)
            unanswered += _unanswered(connection, calls)
            for call in calls:
                connection.send(call, pushed)
            ways[number % len(ways)](connection, calls)
    return unanswered


def _shares(count: int) -> list[int]:
    """So many streams over connections of at most some each."""
    return [min(PER_CONNECTION, count - first) for first in range(0, count, PER_CONNECTION)]


def _unanswered(connection: http2.Connection, calls: Sequence[http2.Stream]) -> int:
    """Read until each has an answer; how many have none."""
    try:
        while not all(call.answer or call.ended for call in calls):
            connection.read()
    except TimeoutError:
        pass
    return sum(not call.answer for call in calls)


def _reset(connection: http2.Connection, _: Sequence[http2.Stream]) -> None:
    connection.reset()


def _close(connection: http2.Connection, _: Sequence[http2.Stream]) -> None:
    connection.close()


def _cancel(connection: http2.Connection, calls: Sequence[http2.Stream]) -> None:
    for call in calls:
        connection.cancel(call)


def _never_read(server: Server, material: Material, count: int) -> int:
    """Ask over several connections at a time, take no answer, and hang up; how many streams were refused."""
    asked = [http2.message(talks.predict(f"r{number}", material.one_stock())) for number in range(QUESTIONS)]
    shares, refused = _shares(count), 0
    for first in range(0, len(shares), CONNECTIONS):
        with ExitStack() as silent:
            for streams in shares[first : first + CONNECTIONS]:
                connection = silent.enter_context(server.target.connection(window=0, timeout_s=PATIENCE_S))
                calls = [connection.call(STREAM) for _ in range(streams)]
                for call in calls:
                    connection.send(call, b"".join(asked))
                refused += sum(bool(call.ended) for call in calls)
            time.sleep(LEFT_S)
    return refused
