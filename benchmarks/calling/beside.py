"""Predictions while explanations run without pause, on a machine that is free and on one that is not."""

import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Final

from benchmarks.calling.load import SPAWN, Calls, Load, Turn, together
from benchmarks.calling.rates import BARS
from benchmarks.report import Row, at_most, shown
from predictor.client import QuantraClient
from predictor.errors import CallCancelledError, UnavailableError
from predictor.instance import Instance, Query
from trainers.demo.market import real_bars

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized  # no generic class while the program runs

P50_REACH: Final = 1.1
BUSY_P99_REACH: Final = 2.0
SPINNERS: Final = 2


@dataclass(frozen=True, slots=True)
class Explaining:
    """Another process that asks for one explanation after the other."""

    wanted: Event
    """It asks while this is set."""
    answered: "Synchronized[int]"
    """Explanations so far."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of predictions alone and beside explanations, in pairs."""

    alone: Sequence[Calls]
    beside: Sequence[Calls]
    explained: float
    """Explanations a second, beside the predictions."""

    @property
    def p50_ratio(self) -> float:
        """Beside to alone, the median over pairs."""
        pairs = zip(self.beside, self.alone, strict=True)
        return statistics.median(one.percentile_ms(50) / other.percentile_ms(50) for one, other in pairs)


def beside_rows(load: Load, told: Explaining, turns: int, seconds: float, *, judged: bool) -> list[Row]:
    """Predictions beside explanations against alone."""
    free = turns_of(load, told, turns, seconds)
    with spinning():
        busy = turns_of(load, told, turns, seconds)
    detail = f"bars, 1 in flight; {turns} turns of {seconds:g} s each way"
    name = "predictions beside explanations"
    return [
        at_most(f"{name} / alone, p50", free.p50_ratio, P50_REACH, detail=_p50(free) + detail, judged=judged),
        shown("explanations beside predictions, a second", free.explained, detail=detail),
        at_most(
            f"{name} / alone, {SPINNERS} processes spin, p99",
            _p99(busy.beside) / _p99(busy.alone),
            BUSY_P99_REACH,
            detail=f"{_p99(busy.beside):.3g} and {_p99(busy.alone):.3g} ms; {detail}, their calls together",
            judged=judged,
        ),
        shown("explanations beside predictions, busy, a second", busy.explained, detail=detail),
    ]


def _p50(turns: Turns) -> str:
    beside, alone = (statistics.median(one.percentile_ms(50) for one in calls) for calls in (turns.beside, turns.alone))
    return f"{beside:.3g} and {alone:.3g} ms; "


def _p99(calls: Sequence[Calls]) -> float:
    """Milliseconds."""
    return together([*calls]).percentile_ms(99)


def turns_of(load: Load, told: Explaining, turns: int, seconds: float) -> Turns:
    """Predict alone and beside explanations in turn."""
    alone, beside = list[Calls](), list[Calls]()
    passed_s, explained = 0.0, 0
    for _ in range(turns):
        told.wanted.clear()
        alone.append(load.run(Turn(BARS, 1, seconds)))
        told.wanted.set()
        begin, before = time.perf_counter(), told.answered.value
        beside.append(load.run(Turn(BARS, 1, seconds)))
        passed_s, explained = passed_s + time.perf_counter() - begin, explained + told.answered.value - before
    told.wanted.clear()
    return Turns(alone, beside, explained / passed_s)


@contextmanager
def explaining(target: str) -> Generator[Explaining]:
    """Start the process that explains; it has had its first answer before this yields."""
    told = Explaining(SPAWN.Event(), SPAWN.Value("q", 0))
    ready = SPAWN.Event()
    process = SPAWN.Process(target=explain_while, args=(target, told.wanted, told.answered, ready), daemon=True)
    process.start()
    told.wanted.set()
    ready.wait()
    told.wanted.clear()
    try:
        yield told
    finally:
        process.terminate()
        process.join()


def explain_while(target: str, wanted: Event, answered: "Synchronized[int]", ready: Event) -> None:
    """Explain every horizon of the last bars, over and over; runs in its own process."""
    query = Query(instance=Instance(input=real_bars(["AAPL"]).last(200)))
    with QuantraClient(target) as client:
        while True:
            wanted.wait()
            try:
                client.explain(query)
            except (CallCancelledError, UnavailableError):  # the server ends first
                return
            answered.value += 1
            ready.set()


@contextmanager
def spinning() -> Generator[None]:
    """Keep both cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(SPINNERS)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
