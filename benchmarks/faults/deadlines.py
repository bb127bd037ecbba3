"""The fault of callers that have gone by the time it is their turn: does the network still run for them?"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import grpc

from benchmarks.faults.calls import Ended, ask, ask_once, codes
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import Server, serving
from benchmarks.report import at_most, shown

CALLS, QUICK_CALLS = 200, 50
DEADLINE_S: Final = 0.05
PATIENCE_S: Final = 120.0
LONG_S, QUICK_LONG_S = 2.5, 1.0
"""How long the request takes that keeps the model busy while the others wait."""
TRIED_ROWS, MOST_ROWS = 64, 1500
LEAD_S: Final = 0.2
"""How long before the others it is sent."""
ROUNDS, QUICK_ROUNDS = 3, 1
_FAIR: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED})


@final
@dataclass(frozen=True, slots=True)
class Wait:
    """One round: a long request, calls behind it, and one call behind these."""

    last_s: float
    """From the long request's answer to the last call's; if that came first, from the start to the last answer."""
    cpu_s: float
    """What the server used in the whole round."""
    ends: tuple[Ended, ...]
    """Of the calls in between."""


def run(place: Place) -> Iterator[Finding]:
    """Rounds without calls in between, with calls that expire, and with calls that do not."""
    calls = place.count(CALLS, QUICK_CALLS)
    with serving(place.material.heavy, place.log, "--log-level", "error", secured=place.door.secured) as server:
        rounds = place.count(ROUNDS, QUICK_ROUNDS)
        speech = place.door.speech
        request = speech.request(place.material.one_stock())
        asked = Asked(server, speech.predict, request, long_request(place, server))
        alone = _quickest([asyncio.run(asked.round(0, PATIENCE_S)) for _ in range(rounds)])
        expired = _quickest([asyncio.run(asked.round(calls, DEADLINE_S)) for _ in range(rounds)])
        patient = asyncio.run(asked.round(calls, PATIENCE_S))
    yield judged(calls, alone, expired, patient)


def long_request(place: Place, server: Server) -> bytes:
    """As many instances as keep the model busy long enough."""
    one, wanted_s = place.material.one_stock(), QUICK_LONG_S if place.quick else LONG_S
    speech = place.door.speech
    tried = speech.request(*[one] * TRIED_ROWS)
    took_s = min(asyncio.run(ask_once(server.target, speech.predict, tried, PATIENCE_S)).took_s for _ in range(2))
    return speech.request(*[one] * min(MOST_ROWS, math.ceil(TRIED_ROWS * wanted_s / took_s)))


def _quickest(rounds: list[Wait]) -> Wait:
    """The one that other programs disturbed least; work that is done is done in all."""
    return min(rounds, key=lambda one: one.last_s)


def judged(calls: int, alone: Wait, expired: Wait, patient: Wait) -> Finding:
    """How often the network ran for callers that had gone, from what their calls cost a call behind them."""
    late = [end for end in expired.ends if end.code is grpc.StatusCode.DEADLINE_EXCEEDED]
    share = (expired.last_s - alone.last_s) / (patient.last_s - alone.last_s)
    used = (expired.cpu_s - alone.cpu_s) / (patient.cpu_s - alone.cpu_s)
    ran = max(0, round(calls * share))
    waits = f"{expired.last_s:.3f} s, {alone.last_s:.3f} s if there are none, {patient.last_s:.3f} s if none expires"
    detail = f"the wait of a call behind them: {waits}; {calls} x (first - second) / (third - second), rounded"
    return Finding(
        fault="deadlines that pass in the queue",
        done=f"{calls} calls of {1000 * DEADLINE_S:g} ms behind a request of seconds; the wait of a call behind them",
        calls=2 * calls,
        wrong=ran + sum(end.code not in _FAIR for end in expired.ends),
        lost=sum(end.code is not grpc.StatusCode.OK for end in patient.ends),
        rows=[
            at_most("expired calls for which the network ran", ran, 0, detail=detail),
            shown("expired calls", len(late), detail=codes(expired.ends)),
            shown("CPU for them, share of that for as many answers", used, detail="reading requests is part of it"),
        ],
        detail=f"{codes(expired.ends)}; the same calls without a deadline: {codes(patient.ends)}",
        naive="naive: gRPC drops calls whose body has not begun; a queue behind it must do so itself",
    )


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """What is sent in each round."""

    server: Server
    path: str
    request: bytes
    long: bytes

    async def round(self, calls: int, timeout_s: float) -> Wait:
        """Send the long request, the calls, and after their time one more; wait for all."""
        used = self.server.vitals().cpu_s
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        async with self.server.target.channel() as channel:
            first = asyncio.ensure_future(ask(channel, self.path, self.long, PATIENCE_S))
            answered: asyncio.Future[float] = loop.create_future()
            first.add_done_callback(lambda _: answered.set_result(loop.time()))
            await asyncio.sleep(LEAD_S)
            between = [asyncio.ensure_future(ask(channel, self.path, self.request, timeout_s)) for _ in range(calls)]
            await asyncio.sleep(2 * DEADLINE_S)
            await ask(channel, self.path, self.request, PATIENCE_S)
            after_s = loop.time()
            ends = await asyncio.gather(*between)
            begun_s = await answered
            last_s = after_s - begun_s if begun_s < after_s else loop.time() - start_s
        return Wait(last_s, self.server.vitals().cpu_s - used, tuple(ends))
