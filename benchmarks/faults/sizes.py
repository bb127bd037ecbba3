"""Server memory and health latency under requests of maximum size with little content, and under cancelled ones."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import numpy as np

from benchmarks.calling.subject import Subject, started
from benchmarks.faults.calls import (
    EXPLAIN,
    NO_ANSWER,
    PREDICT,
    SERVER_FAULT,
    CallOutcome,
    ask,
    ask_all,
    count_codes,
    end_of,
    nested,
    open_channel,
    predict_request,
    varint,
)
from benchmarks.faults.pulse import HealthWaits, health_monitor
from benchmarks.faults.served import MIB, Vitals, forget_peak, is_alive
from benchmarks.report import Row, at_most
from predictor._pb import prediction_pb2 as pb

LIMIT_MIB: Final = 1.2 * 512
"""The budget of requests in flight, plus a fifth."""
LARGEST: Final = 16 * MIB - 1024
"""Size of the largest request that the server accepts, in bytes."""
PART: Final = 15 * MIB
PANEL_SYMBOLS: Final = 10_000
UNKNOWN_FIELD: Final = 1000

Requests = Callable[[str], list[CallOutcome]]
"""Makes calls to a server's address."""


def rows(subject: Subject, *, quick: bool) -> Iterator[Row]:
    """Send each kind of request to a new server."""
    for name, requests in _kinds(subject, quick=quick).items():
        with started(subject.models) as ready:
            yield from _measure(name, int(str(ready["pid"])), str(ready["target"]), requests, quick=quick)


def _measure(name: str, process: int, target: str, requests: Requests, *, quick: bool) -> Iterator[Row]:
    before = Vitals.of(process)
    forget_peak(process)
    with health_monitor(target) as pulse:
        ends = requests(target)
        waits: HealthWaits = pulse.stop()
    time.sleep(0.2 if quick else 3.0)
    faults = sum(end.code in SERVER_FAULT or end.is_bare_cancel for end in ends) + (not is_alive(process))
    detail = count_codes(ends)
    yield at_most(f"{name}: server errors", faults, 0, detail=detail)
    yield at_most(f"{name}: calls without a response", sum(end.code in NO_ANSWER for end in ends), 0, detail=detail)
    if is_alive(process):
        grown, kept = (
            (held - before.resident) / MIB for held in (Vitals.of(process).peak, Vitals.of(process).resident)
        )
        yield at_most(f"{name}: memory grown, MiB", grown, LIMIT_MIB, detail=f"{kept:.0f} MiB kept afterwards")
    yield from waits.rows(name, judged=not quick)


def _kinds(subject: Subject, *, quick: bool) -> Mapping[str, Requests]:
    one, timeout_s = predict_request(subject.instance()), 30.0 if quick else 90.0

    def of_bodies(path: str, body: bytes, count: int, at_once: int) -> Requests:
        return lambda target: asyncio.run(ask_all(target, path, [body] * count, at_once, timeout_s))

    found = {
        f"16 MiB of {name}": of_bodies(path, body, 1 if quick else 16, 8)
        for name, (path, body) in empty_bodies(LARGEST).items()
    }
    panels = 3 if quick else 30
    return {
        **found,
        "panels of 10,000 symbols": of_bodies(PREDICT, predict_request(_wide_panel(subject)), panels, panels),
        "cancelled calls of 15 MiB": lambda target: asyncio.run(_send_cancelled(target, one, 8 if quick else 100)),
    }


def empty_bodies(size: int) -> Mapping[str, tuple[str, bytes]]:
    """Requests of `size` bytes with hardly any content: method and body, by description."""
    instances, bars = pb.PredictRequest.INSTANCES_FIELD_NUMBER, pb.Instance.BARS_FIELD_NUMBER
    panel = pb.BarPanel
    group = varint(UNKNOWN_FIELD << 3 | 3) + varint(UNKNOWN_FIELD << 3 | 4)
    targets = nested(b"", pb.ExplainRequest.TARGETS_FIELD_NUMBER)

    def fill(part: bytes, length: int) -> bytes:
        return part * (length // len(part))

    symbols, days = fill(nested(b"", panel.SYMBOLS_FIELD_NUMBER), size - 64), b"\x01" * (size - 64)
    return {
        "empty instances": (PREDICT, fill(nested(b"", instances), size)),
        "instances of empty bars": (PREDICT, fill(nested(b"", instances, bars), size)),
        "one instance of empty symbols": (PREDICT, nested(symbols, instances, bars)),
        "packed sessions of one byte": (
            PREDICT,
            nested(days, instances, bars, panel.SESSION_YYYYMMDD_FIELD_NUMBER),
        ),
        "unknown fields": (PREDICT, fill(varint(UNKNOWN_FIELD << 3) + varint(1), size)),
        "a group, then empty instances": (PREDICT, group + fill(nested(b"", instances), size - 8)),
        "groups": (PREDICT, fill(group, size)),
        "a group, then empty targets": (EXPLAIN, group + fill(targets, size - 8)),
    }


def _wide_panel(subject: Subject) -> pb.Instance:
    """Many symbols with constant prices and few bars each."""
    sessions = subject.bars.sessions[-30:]
    prices = np.full((PANEL_SYMBOLS, len(sessions)), 10.0).tobytes()
    panel = pb.BarPanel(
        symbols=[f"S{row}" for row in range(PANEL_SYMBOLS)],
        session_yyyymmdd=sessions.tolist(),
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=prices,
        gap_policy=pb.GAP_POLICY_MASK,
    )
    return pb.Instance(bars=panel)


async def _send_cancelled(target: str, one: bytes, count: int) -> list[CallOutcome]:
    """Cancel large calls after 0 to 50 ms, then make one ordinary call; includes calls that ended before."""
    random, slots = Random(0), asyncio.Semaphore(64)  # noqa: S311 - reproducible
    body, ends = nested(bytes(PART), UNKNOWN_FIELD) + one, list[CallOutcome]()
    async with open_channel(target) as channel:

        async def cancelled(after_s: float) -> None:
            async with slots:
                start = time.perf_counter()
                call: Any = channel.unary_unary(PREDICT)(body, timeout=30.0)
                done, _ = await asyncio.wait([asyncio.ensure_future(call.code())], timeout=after_s)
                call.cancel()
                if done:
                    ends.append(await end_of(call, start))

        await asyncio.gather(*(cancelled(random.uniform(0, 0.05)) for _ in range(count)))
        return [*ends, await ask(channel, PREDICT, one)]
