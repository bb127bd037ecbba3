"""Predictions during continuous explanations, on an idle and on a busy machine."""

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
from predictor.instance import ExplanationQuery, Instance
from trainers.demo.market import real_bars

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized  # not subscriptable at runtime

P50_REACH: Final = 1.1
BUSY_P99_REACH: Final = 2.0
SPINNERS: Final = 2


@dataclass(frozen=True, slots=True)
class ExplanationLoad:
    """A process that requests explanations one after another."""

    wanted: Event
    """The process sends requests while this is set."""
    answered: "Synchronized[int]"
    """Number of explanations so far."""


@dataclass(frozen=True, slots=True)
class TurnPairs:
    """Pairs of turns: predictions without and with concurrent explanations."""

    without: Sequence[Calls]
    during: Sequence[Calls]
    explained: float
    """Explanations per second during the predictions."""

    @property
    def p50_ratio(self) -> float:
        """With to without explanations, median over pairs."""
        pairs = zip(self.during, self.without, strict=True)
        return statistics.median(one.percentile_ms(50) / other.percentile_ms(50) for one, other in pairs)


def explanation_rows(
    load: Load, explanations: ExplanationLoad, turns: int, seconds: float, *, judged: bool
) -> list[Row]:
    """Compare predictions with and without concurrent explanations."""
    free = run_pairs(load, explanations, turns, seconds)
    with spinning():
        busy = run_pairs(load, explanations, turns, seconds)
    detail = f"bars, 1 in flight; {turns} turns of {seconds:g} s each"
    name = "predictions during explanations"
    return [
        at_most(f"{name} / without, p50", free.p50_ratio, P50_REACH, detail=_p50(free) + detail, judged=judged),
        shown("explanations during predictions, per second", free.explained, detail=detail),
        at_most(
            f"{name} / without, {SPINNERS} busy processes, p99",
            _p99(busy.during) / _p99(busy.without),
            BUSY_P99_REACH,
            detail=f"{_p99(busy.during):.3g} and {_p99(busy.without):.3g} ms; {detail}, calls pooled",
            judged=judged,
        ),
        shown("explanations during predictions, busy, per second", busy.explained, detail=detail),
    ]


def _p50(turns: TurnPairs) -> str:
    during, without = (
        statistics.median(one.percentile_ms(50) for one in calls) for calls in (turns.during, turns.without)
    )
    return f"{during:.3g} and {without:.3g} ms; "


def _p99(calls: Sequence[Calls]) -> float:
    """Milliseconds."""
    return together([*calls]).percentile_ms(99)


def run_pairs(load: Load, explanations: ExplanationLoad, turns: int, seconds: float) -> TurnPairs:
    """Alternate between predictions without and with explanations."""
    without, during = list[Calls](), list[Calls]()
    passed_s, explained = 0.0, 0
    for _ in range(turns):
        explanations.wanted.clear()
        without.append(load.run(Turn(BARS, 1, seconds)))
        explanations.wanted.set()
        begin, before = time.perf_counter(), explanations.answered.value
        during.append(load.run(Turn(BARS, 1, seconds)))
        passed_s, explained = passed_s + time.perf_counter() - begin, explained + explanations.answered.value - before
    explanations.wanted.clear()
    return TurnPairs(without, during, explained / passed_s)


@contextmanager
def explanation_load(target: str) -> Generator[ExplanationLoad]:
    """Start the process that explains, and wait for its first response."""
    explanations = ExplanationLoad(SPAWN.Event(), SPAWN.Value("q", 0))
    ready = SPAWN.Event()
    process = SPAWN.Process(
        target=explain_while, args=(target, explanations.wanted, explanations.answered, ready), daemon=True
    )
    process.start()
    explanations.wanted.set()
    ready.wait()
    explanations.wanted.clear()
    try:
        yield explanations
    finally:
        process.terminate()
        process.join()


def explain_while(target: str, wanted: Event, answered: "Synchronized[int]", ready: Event) -> None:
    """Explain every horizon of the last bars in a loop; runs in a child process."""
    query = ExplanationQuery(instance=Instance(input=real_bars(["AAPL"]).last(200)))
    with QuantraClient(target) as client:
        while True:
            wanted.wait()
            try:
                client.explain(query)
            except (CallCancelledError, UnavailableError):  # the server stopped
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
