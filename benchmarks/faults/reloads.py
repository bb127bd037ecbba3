"""The fault of artifacts that are exchanged while callers ask: does any answer fail, or consist of two models?"""

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import grpc

from benchmarks.faults.calls import Ended, ask, ask_once, codes
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.served import Server, free_port, serving
from benchmarks.faults.speech import Facts, Speech
from benchmarks.faults.target import Target
from benchmarks.report import at_least, at_most, shown

RELOADS, QUICK_RELOADS, ELSEWHERE = 1_000, 4, 50
CALLERS, INSTANCES = 4, 4
PATIENCE_S: Final = 30.0
FAULT: Final = "reloads under load"


def run(place: Place) -> Iterator[Finding]:
    """Exchange two artifacts of one version in the folder, over and over."""
    models = place.work / "models"
    exchange = Exchange(models / NAME / "1", place.work / "aside")
    shutil.copytree(place.material.version(1), exchange.served)
    shutil.copytree(place.material.version(2), exchange.aside)
    port = free_port()
    # One row a forward, so that a forecast has the same bits whatever is asked beside it.
    options = ("--log-level", "error", "--max-batch-rows", "1", "--admin-listen", f"127.0.0.1:{port}")
    with serving(models, place.log, *options, secured=place.door.secured) as server:
        admin = Admin(Target(port, place.door.secured), place.door.speech)
        yield _finding(place, server, exchange, admin)


@final
@dataclass(frozen=True, slots=True)
class Exchange:
    """Two artifacts of which one is in the folder that is served."""

    served: Path
    """Where the one is."""
    aside: Path
    """Where the other is."""

    def turn(self) -> None:
        """Let them change places."""
        between = self.aside.with_name("between")
        self.served.rename(between)
        self.aside.rename(self.served)
        between.rename(self.aside)


@final
@dataclass(frozen=True, slots=True)
class Admin:
    """Tells the server to read its model again."""

    target: Target
    """Where it listens for that."""
    speech: Speech
    """In which protocol it is told."""

    def reload(self) -> str:
        """The status, and what it says beside it."""
        path, body = self.speech.reload()
        with self.target.blocking_channel() as channel:
            try:
                channel.unary_unary(path)(body, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                failure: Any = error
                return f"{failure.code().name}: {str(failure.details())[:120]}"
        return "OK"


def _finding(place: Place, server: Server, exchange: Exchange, admin: Admin) -> Finding:
    speech = place.door.speech
    path, request = speech.predict, speech.request(*[place.material.one_stock()] * INSTANCES)
    known, told = set[Facts](), Counter[str]()

    def reload() -> None:
        exchange.turn()
        told[admin.reload()] += 1

    for _ in range(2):
        known.add(speech.facts_of(asyncio.run(ask_once(server.target, path, request)).body))
        reload()
    count = place.count(RELOADS, QUICK_RELOADS, ELSEWHERE)
    ends = asyncio.run(_load(server.target, path, request, lambda: repeat(reload, count)))
    failed = sum(end.code is not grpc.StatusCode.OK for end in ends)
    mixed, seen = judged(map(speech.facts_of, answers_of(ends)), known)
    refused = told.total() - told["OK"]
    return Finding(
        fault=FAULT,
        done=f"{told.total()} reloads of two artifacts in turn, while {CALLERS} callers ask for {INSTANCES} forecasts",
        calls=len(ends) + told.total(),
        wrong=mixed + refused,
        lost=failed,
        rows=[
            at_most("predictions that fail", failed, 0, detail=codes(ends)),
            at_most("answers that are no one model's", mixed, 0, detail="model, version, hash of weights and values"),
            at_most("reloads that fail", refused, 0, detail=", ".join(f"{n} {what}" for what, n in told.items())),
            at_least("models that answered", seen, 2, detail="two artifacts take turns"),
            shown("slowest prediction, ms", 1000 * max(end.took_s for end in ends), detail=""),
        ],
        detail=codes(ends),
        naive="naive: new weights loaded into the model that answers: 1,542 of 6,242 answers were of two models",
    )


def answers_of(ends: Iterable[Ended]) -> Iterator[bytes]:
    """Of those calls that have one."""
    return (end.body for end in ends if end.code is grpc.StatusCode.OK)


def judged(told: Iterable[Facts], known: set[Facts]) -> tuple[int, int]:
    """How many answers are none of those that one model gives, and how many models gave the others."""
    answers = Counter(told)
    return sum(count for facts, count in answers.items() if facts not in known), len(answers.keys() & known)


def repeat(do: Callable[[], None], count: int) -> None:
    """Do it so often."""
    for _ in range(count):
        do()


async def _load(target: Target, path: str, request: bytes, work: Callable[[], None]) -> list[Ended]:
    """Ask from several connections while the work is done in a thread of its own."""
    done, ends = threading.Event(), list[Ended]()

    async def caller() -> None:
        async with target.channel() as channel:
            while not done.is_set():
                ends.append(await ask(channel, path, request, PATIENCE_S))

    async def worker() -> None:
        try:
            await asyncio.to_thread(work)
        finally:
            done.set()

    await asyncio.gather(worker(), *(caller() for _ in range(CALLERS)))
    return ends
