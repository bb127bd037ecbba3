"""The faults of callers that go away, that never read their answers, and that connect and say nothing."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.faults import http2
from benchmarks.faults.calls import EXPLAIN, ask_once, codes, until_answered
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.served import MIB, Server, Vitals, forget_peak, serving
from benchmarks.faults.sizes import BUDGET_MIB, LARGEST, PART, SLACK
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_most, shown
from predictor._pb import prediction_pb2 as pb

RECOVERY_S: Final = 2.0
"""Within which calls must be answered again."""
SETTLE_S, QUICK_SETTLE_S = 60.0, 2.0
"""Within which threads and descriptors must be those of before: gRPC keeps the threads of a burst for half a minute."""
PATIENCE_S: Final = 15.0
LEFT_S: Final = 0.3
"""How long callers stay when they have sent what they send."""
CALLERS, QUICK_CALLERS = 50, 10
SILENT: Final = 300
DESCRIPTORS: Final = 256
BUSY_S: Final = 2.0
"""How long the CPU of a server that nobody asks is watched."""
MOST_CPU: Final = 0.1


@final
@dataclass(frozen=True, slots=True)
class Recovery:
    """What a server was before, and how it came back."""

    before: Vitals
    peak: int
    """Bytes, from the fault on."""
    answered_s: float | None
    """Seconds from the fault's end to an answer; None = none came."""
    after: Vitals
    settled_s: float
    """Seconds to that state, in which threads and descriptors are those of before, or as long as was waited."""

    def rows(self, *, judged: bool) -> list[Row]:
        """Time to an answer, and what is left over."""
        states = f"before {self.before}; after {self.after}; {self.settled_s:.1f} s later"
        grown = (self.peak - self.before.resident) / MIB
        return [
            at_most("a call answered again, s", self._answered_s, RECOVERY_S, detail=states, judged=judged),
            at_most("threads left over", self.after.threads - self.before.threads, 0, detail=states, judged=judged),
            at_most("descriptors left over", self.after.descriptors - self.before.descriptors, 0, detail=states),
            at_most("memory grown at most, MiB", grown, BUDGET_MIB * SLACK, detail=states),
            shown("memory left over, MiB", (self.after.resident - self.before.resident) / MIB, detail=states),
        ]

    @property
    def _answered_s(self) -> float:
        return PATIENCE_S if self.answered_s is None else self.answered_s


def recovered(place: Place, server: Server, do: Callable[[], None]) -> Recovery:
    """Do it, then wait until the server is as it was."""
    path, request = place.door.speech.predict, _request(place)
    asyncio.run(ask_once(server.target, path, request))  # so that all threads there are have begun
    before = server.vitals()
    forget_peak(server.popen.pid)
    do()
    answered_s = asyncio.run(until_answered(server.target, path, request, PATIENCE_S))
    time.sleep(RECOVERY_S)
    after, settled_s = server.settled(before, QUICK_SETTLE_S if place.quick else SETTLE_S)
    return Recovery(before, after.peak, answered_s, after, RECOVERY_S + settled_s)


def run(place: Place) -> Iterator[Finding]:
    """Each with a server of its own, or in a short run with one for all."""
    material = place.material
    explained = [(_explaining, material.heavy)] if place.door.explains else []
    faults = [(_sending, material.small), *explained, (_unread, material.many), (_silent, material.small)]
    if place.quick:
        with _served(place, material.many) as server:
            yield from (fault(place, server) for fault, _ in faults)
        return
    for fault, models in faults:
        with _served(place, models) as server:
            yield fault(place, server)


def _served(place: Place, models: Path) -> AbstractContextManager[Server]:
    """With so few descriptors that a leak of them shows."""
    secured = place.door.secured
    return serving(models, place.log, "--log-level", "error", secured=secured, descriptors=DESCRIPTORS)


def _sending(place: Place, server: Server) -> Finding:
    """Callers whose connection is reset while they send."""
    count = place.count(CALLERS, QUICK_CALLERS)
    start = b"\0" + LARGEST.to_bytes(4, "big") + bytes(PART // 2)

    def do() -> None:
        reset_together(server.target, place.door.speech.predict, start, count)

    do()  # gRPC has another thread ever after; what a caller leaves behind shows the second time too
    found = recovered(place, server, do)
    return Finding(
        fault="callers gone while they send",
        done=f"{count} connections reset at once, each after half of a request of {LARGEST / MIB:.0f} MiB",
        calls=count + 1,
        wrong=int(not server.is_alive),
        lost=int(found.answered_s is None),
        rows=found.rows(judged=not place.quick),
    )


def _request(place: Place) -> bytes:
    return place.door.speech.request(place.material.one_stock(), model=NAME)


def reset_together(target: Target, path: str, content: bytes, count: int, *, whole: bool = False) -> None:
    """Send content over as many connections, leave it some time, and go away without a word, all at once."""
    together = threading.Barrier(count)

    def one() -> None:
        try:
            with target.connection(timeout_s=PATIENCE_S) as connection:
                connection.send(connection.call(path), content, last=whole)
                together.wait(PATIENCE_S)
                time.sleep(LEFT_S)
                connection.reset()
        except (OSError, threading.BrokenBarrierError):
            together.abort()  # the server ended one of them first, which is no worse

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(one) for _ in range(count)]:
            done.result()


def _explaining(place: Place, server: Server) -> Finding:
    """Callers whose connection is reset while the server explains; its CPU must be idle soon."""
    count = place.count(CALLERS, QUICK_CALLERS)
    question = pb.ExplainRequest(model=NAME, instance=place.material.bars()).SerializeToString()
    whole = asyncio.run(ask_once(server.target, EXPLAIN, question)).took_s
    sent = http2.message(question)
    found = recovered(place, server, lambda: reset_together(server.target, EXPLAIN, sent, count, whole=True))
    used_before = server.vitals().cpu_s
    time.sleep(BUSY_S)
    busy = (server.vitals().cpu_s - used_before) / BUSY_S
    detail = f"over {BUSY_S:g} s, which begin {found.settled_s:.1f} s after the callers left"
    return Finding(
        fault="callers gone while it explains",
        done=f"{count} connections reset {LEFT_S:g} s after a question whose answer takes {whole:.2f} s alone",
        calls=count + 1,
        wrong=int(not server.is_alive),
        lost=int(found.answered_s is None),
        rows=[
            *found.rows(judged=not place.quick),
            at_most("CPU of the server then, cores", busy, MOST_CPU, detail=detail, judged=not place.quick),
        ],
    )


def _unread(place: Place, server: Server) -> Finding:
    """Callers that read nothing, beside one who does."""
    count = place.count(CALLERS, QUICK_CALLERS)
    path, request = place.door.speech.predict, _request(place)
    wordy, question = place.door.speech.wordy(place.material)
    size = len(asyncio.run(ask_once(server.target, wordy, question)).body)
    meanwhile: list[float | None] = []

    def do() -> None:
        with ExitStack() as readers:
            for _ in range(count):
                connection = readers.enter_context(server.target.connection(window=0))
                stream = connection.call(wordy)
                connection.send(stream, http2.message(question), last=True)
                while not stream.headers:  # the answer has begun
                    connection.read()
            time.sleep(LEFT_S)
            meanwhile.append(asyncio.run(until_answered(server.target, path, request, PATIENCE_S)))

    found = recovered(place, server, do)
    return Finding(
        fault="callers that never read",
        done=f"{count} answers of {size:,} bytes begun, with a window of 0; then they hang up",
        calls=count + 2,
        wrong=int(not server.is_alive),
        lost=sum(taken is None for taken in (*meanwhile, found.answered_s)),
        rows=[
            at_most(
                "another caller meanwhile, s",
                meanwhile[0] or PATIENCE_S,
                RECOVERY_S,
                detail="to its answer",
                judged=not place.quick,
            ),
            *found.rows(judged=not place.quick),
        ],
        naive="naive: grpc.aio buffers 64 KiB of each stream and serves others; a synchronous server with one thread "
        "serves nobody else",
    )


def _silent(place: Place, server: Server) -> Finding:
    """More connections than the server has descriptors, of callers that say nothing."""
    path, request = place.door.speech.predict, _request(place)
    meanwhile: list[str] = []

    def do() -> None:
        with connected(server.port, SILENT):
            end = asyncio.run(ask_once(server.target, path, request, RECOVERY_S))
            meanwhile.append(codes([end]))

    found = recovered(place, server, do)
    return Finding(
        fault="connections that say nothing",
        done=f"{SILENT} connections to a server that may have {DESCRIPTORS} descriptors; a call over a new one; closed",
        calls=2,
        wrong=int(not server.is_alive),
        lost=int(found.answered_s is None),
        rows=found.rows(judged=not place.quick),
        detail=f"the call meanwhile: {meanwhile[0]}",
        naive="naive: calls time out meanwhile and are answered afterwards",
    )


@contextmanager
def connected(port: int, count: int) -> Generator[None]:
    """As many connections as the server's queue takes, for the block."""
    with ExitStack() as silent:
        for _ in range(count):
            client = silent.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(("127.0.0.1", port))
            except OSError:
                continue  # nobody accepts any more: that is what is wanted
        yield
