"""A mixed load for ten minutes, with reloads: errors, latency drift, memory growth, leaked threads and descriptors."""

import asyncio
import shutil
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.calling.subject import Subject, save_model, started
from benchmarks.faults.calls import RELOAD
from benchmarks.faults.mix import FinishedCall, Load, all_parts
from benchmarks.faults.served import MIB, Vitals, wait_until
from benchmarks.report import Row, at_least, at_most, shown
from predictor._pb import prediction_pb2 as pb
from predictor.instance import Instance
from predictor.wire import instances
from trainers.demo.market import real_bars

FULL_S, QUICK_S = 600.0, 6.0
CALLERS: Final = 4
RELOAD_EVERY_S: Final = 2.0
TIMED: Final = "windows"
"""The part whose latency is compared, because its work is the same each time."""
WARM_SHARE: Final = 0.05
"""Share of the time at the start that latency ignores, because caches fill."""
MAX_SLOPE_MIB, MAX_DRIFT_PERCENT = 0.1, 20.0


def rows(subject: Subject, folder: Path, *, quick: bool) -> Iterator[Row]:
    """Load one server while two artifacts take turns in its folder."""
    served, other = subject.models / "stock" / "1", folder / "other" / "stock" / "1"
    save_model(folder / "other", real_bars(["AAPL"]), seed=1)
    bars, window = subject.instance(), subject.window_instance()
    panel = instances.encode(Instance(input=subject.panel(2)))
    parts = all_parts(bars, window, panel, "stock")
    lasting_s, judged = QUICK_S if quick else FULL_S, not quick
    with started(subject.models, "--admin-listen", "127.0.0.1:0") as ready:
        process, target = int(str(ready["pid"])), str(ready["target"])
        reloads, admin = Counter[str](), f"127.0.0.1:{ready['admin_port']}"

        def reload() -> None:
            between = folder / "between"
            for source, to in ((served, between), (other, served), (between, other)):
                source.rename(to)
            reloads[_reload(admin)] += 1

        for _ in range(2 if quick else 10):
            reload()
        warm = Load(target, parts)
        asyncio.run(warm.once_each())
        end = time.monotonic() + (1.0 if quick else 3.0)
        asyncio.run(warm.run(2 * CALLERS, lambda: time.monotonic() > end))
        reloads.clear()
        load, before, looks = Load(target, parts), Vitals.of(process), list[tuple[int, int]]()
        end = time.monotonic() + lasting_s
        with (
            repeated(lambda: looks.append((len(load.calls), Vitals.of(process).resident)), 0.5),
            repeated(reload, RELOAD_EVERY_S),
        ):
            asyncio.run(load.run(CALLERS, lambda: time.monotonic() > end))

        def is_settled() -> bool:
            now = Vitals.of(process)
            return now.threads <= before.threads and now.descriptors <= before.descriptors

        wait_until(is_settled, 2.0 if quick else 60.0)
        after = Vitals.of(process)
    unexpected = Counter(f"{one.part}: {one.unexpected.name}" for one in load.calls if one.unexpected)
    counted = _describe(Counter(one.part for one in load.calls))
    detail = f"{len(load.calls)} calls in {lasting_s:g} s over {load.connections} connections: {counted}"
    refused = reloads.total() - reloads["OK"]
    yield at_most("unexpected results", unexpected.total(), 0, detail=f"{_describe(unexpected)}; {detail}")
    yield at_most("failed reloads", refused, 0, detail=_describe(reloads))
    yield at_least("reloads", reloads["OK"], 2, detail="under load")
    yield from drift_rows(load.calls, lasting_s, judged=judged)
    yield slope_row(looks, judged=judged)
    detail = f"before {before}; after {after}"
    yield at_most("threads left over", after.threads - before.threads, 0, detail=detail, judged=judged)
    yield at_most("descriptors left over", after.descriptors - before.descriptors, 0, detail=detail, judged=judged)
    shutil.rmtree(folder / "other")


def _reload(admin: str) -> str:
    """Make the server reload its model; return the status."""
    with grpc.insecure_channel(admin) as channel:
        try:
            channel.unary_unary(RELOAD)(pb.ReloadModelRequest(model="stock").SerializeToString(), timeout=30.0)
        except grpc.RpcError as error:
            failure: Any = error
            return f"{failure.code().name}: {str(failure.details())[:120]}"
    return "OK"


@contextmanager
def repeated(do: Callable[[], None], every_s: float) -> Generator[None]:
    """Repeat an action on a thread during the block; raise its exception at the end of the block."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every_s):
            do()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            over.set()
        working.result()


def _describe(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def drift_rows(calls: Sequence[FinishedCall], lasting_s: float, *, judged: bool) -> Iterator[Row]:
    """99th percentile of the timed part's latency in the last third of the run against the first third."""
    begin, third = WARM_SHARE * lasting_s, (1 - WARM_SHARE) * lasting_s / 3
    first = [one.took_s for one in calls if one.part == TIMED and begin <= one.at_s < begin + third]
    last = [one.took_s for one in calls if one.part == TIMED and lasting_s - third <= one.at_s]
    early, late = (1000 * statistics.quantiles(times, n=100)[-1] for times in (first, last))
    detail = f"{TIMED}: {late:.1f} ms of {len(last)} calls against {early:.1f} ms of {len(first)}"
    yield at_most("p99 drift, %", 100 * (late / early - 1), MAX_DRIFT_PERCENT, detail=detail, judged=judged)
    yield shown("calls per second", len(calls) / lasting_s, detail="all parts")


def slope_row(looks: Sequence[tuple[int, int]], *, judged: bool) -> Row:
    """Least-squares slope of resident memory over calls in the second half of the run."""
    half = [look for look in looks if 2 * look[0] >= looks[-1][0]]
    calls, held = [count / 1000 for count, _ in half], [resident / MIB for _, resident in half]
    slope = statistics.linear_regression(calls, held).slope
    detail = f"{held[0]:.1f} MiB at {1000 * calls[0]:.0f} calls, {held[-1]:.1f} at {1000 * calls[-1]:.0f}"
    return at_most("memory, MiB per 1,000 calls", slope, MAX_SLOPE_MIB, detail=detail, judged=judged)
