"""The fault of callers that have gone by the time it is their turn: does the network still run for them?"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import grpc

from benchmarks.faults.calls import PREDICT, Ended, ask, ask_once, codes, open_channel, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import Server, serving
from benchmarks.report import at_most, shown

CALLS, QUICK_CALLS = 200, 60
DEADLINE_S: Final = 0.05
PATIENCE_S: Final = 120.0
LONG_S, QUICK_LONG_S = 2.5, 1.5
"""How long the request takes that keeps the model busy while the others wait."""
TRIED_ROWS, MOST_ROWS = 64, 1500
LEAD_S: Final = 0.2
"""How long before the others it is sent."""
ROUNDS, QUICK_ROUNDS = 3, 2
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
    with serving(place.material.heavy, place.log, "--log-level", "error") as server:
        rounds = place.count(ROUNDS, QUICK_ROUNDS)
        asked = Asked(server, predict_request(place.material.one_stock()), long_request(place, server))
        alone = _quickest([asyncio.run(asked.round(0, PATIENCE_S)) for _ in range(rounds)])
        expired = _quickest([asyncio.run(asked.round(calls, DEADLINE_S)) for _ in range(rounds)])
        patient = asyncio.run(asked.round(calls, PATIENCE_S))
    yield _finding(calls, alone, expired, patient)


def long_request(place: Place, server: Server) -> bytes:
    """As many instances as keep the model busy long enough."""
    one, wanted_s = place.material.one_stock(), QUICK_LONG_S if place.quick else LONG_S
    tried = predict_request(*[one] * TRIED_ROWS)
    took_s = min(asyncio.run(ask_once(server.target, PREDICT, tried, PATIENCE_S)).took_s for _ in range(2))
    return predict_request(*[one] * min(MOST_ROWS, math.ceil(TRIED_ROWS * wanted_s / took_s)))


def _quickest(rounds: list[Wait]) -> Wait:
    """The one that other programs disturbed least; work that is done is done in all."""
    return min(rounds, key=lambda one: one.last_s)


def _finding(calls: int, alone: Wait, expired: Wait, patient: Wait) -> Finding:
    late = [end for end in expired.ends if end.code is grpc.StatusCode.DEADLINE_EXCEEDED]
    share = (expired.last_s - alone.last_s) / (patient.last_s - alone.last_s)
    used = (expired.cpu_s - alone.cpu_s) / (patient.cpu_s - alone.cpu_s)
    ran = max(0, round(calls * share))
    detail = (
        f"the call behind them is answered {1000 * expired.last_s:.0f} ms after the long one, {1000 * alone.last_s:.0f} "
        f"ms if there are none, {1000 * patient.last_s:.0f} ms if none expires: {calls} x ({expired.last_s:.3f} - "
        f"{alone.last_s:.3f}) / ({patient.last_s:.3f} - {alone.last_s:.3f}), rounded"
    )
    return Finding(
        fault="deadlines that pass in the queue",
        done=f"{calls} calls of {1000 * DEADLINE_S:g} ms behind a request of seconds; how long a call behind them waits",
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
    request: bytes
    long: bytes

    async def round(self, calls: int, timeout_s: float) -> Wait:
        """Send the long request, the calls, and after their time one more; wait for all."""
        used = self.server.vitals().cpu_s
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        async with open_channel(self.server.target) as channel:
            first = asyncio.ensure_future(ask(channel, PREDICT, self.long, PATIENCE_S))
            answered: asyncio.Future[float] = loop.create_future()
            first.add_done_callback(lambda _: answered.set_result(loop.time()))
            await asyncio.sleep(LEAD_S)
            between = [asyncio.ensure_future(ask(channel, PREDICT, self.request, timeout_s)) for _ in range(calls)]
            await asyncio.sleep(2 * DEADLINE_S)
            await ask(channel, PREDICT, self.request, PATIENCE_S)
            after_s = loop.time()
            ends = await asyncio.gather(*between)
            begun_s = await answered
            last_s = after_s - begun_s if begun_s < after_s else loop.time() - start_s
        return Wait(last_s, self.server.vitals().cpu_s - used, tuple(ends))
