"""Several machines and large histories: costs, lost nodes and memory. Needs the extra `cluster`."""

import hashlib
import logging
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final, final

import numpy as np
import torch

from benchmarks.report import Row, at_most, common_options, interleaved_medians, publish, shown
from predictor.bars import BarPanel
from predictor.cluster import OnRay
from predictor.features import default_features
from predictor.jobs import InProcesses, InThisProcess
from predictor.networks import LSTMConfig, Target
from predictor.sessions import SessionCalendar
from trainers import StockTrainer
from trainers.stock import Optimisation, StockRecipe
from trainers.stock.backtest.folds import WalkForwardPlan, split_sessions
from trainers.stock.backtest.refits import RefitMaterial
from trainers.stock.data import NO_SOURCE, History
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.feature_selection import fit_features
from trainers.stock.model_fit import fit_calendar, fit_pipeline, prepare
from trainers.stock.splits import RollingSplits

RECIPE: Final = StockRecipe(
    calendar="weekdays",
    config=LSTMConfig(hidden=8, layers=1),
    target=Target(horizons=(1, 5, 20)),
    parts=RollingSplits(selection=120, calibration=120),
    optimisation=Optimisation(max_epochs=1, device="cpu", batch_size=256),
)
GIGABYTE: Final = 1e9


def made_up_bars(symbols: int, sessions: int) -> BarPanel:
    """Independent random walks."""
    draw = np.random.default_rng(0)
    shape = (symbols, sessions)
    close = np.empty(shape)
    for row in close:
        row[:] = 50 * np.exp(np.cumsum(draw.standard_normal(sessions) * 0.02))
    first = close * np.exp(draw.standard_normal((symbols, 1)) * 0.003)
    return BarPanel(
        symbols=tuple(f"S{number:05d}" for number in range(symbols)),
        sessions=SessionCalendar.named("weekdays", 20050103, 20301231).sessions(20050103, 20301231)[:sessions],
        open=first,
        high=np.maximum(first, close) * 1.01,
        low=np.minimum(first, close) * 0.99,
        close=close,
        volume=np.floor(draw.random(shape) * 1e6) + 1e3,
    )


# --- histories on disk


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Largest memory of a process that reads windows of a large history.

    Attributes:
        own: bytes that the system cannot drop.
        mapped: bytes with the mapped features.
        seconds: from bars to the first window.
    """

    own: int
    mapped: int
    seconds: float


def measure_training(symbols: int, sessions: int, folder: Path, batches: int) -> TrainingMemory:
    """Compute features and read random windows of a history, with features on disk."""
    torch.set_num_threads(1)
    peaks, ended = {"RssAnon": 0, "VmRSS": 0}, Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], 1024 * int(value.split()[0]))

    watching = Thread(target=watch)
    watching.start()
    bars = made_up_bars(symbols, sessions)
    start = time.perf_counter()
    splits, cache = RECIPE.splits(bars.sessions), FeatureCache(folder=folder, tell=print)
    pipeline = fit_pipeline(bars, default_features(), RECIPE, splits, cache=cache)
    prepared = prepare(History(bars, pipeline, cache=cache), splits, RECIPE, None)
    seconds = time.perf_counter() - start
    for _ in islice(prepared.objective.train.batches(0), batches):
        pass
    ended.set()
    watching.join()
    return TrainingMemory(own=peaks["RssAnon"], mapped=peaks["VmRSS"], seconds=seconds)


def in_new_process(task: Callable[[], TrainingMemory]) -> TrainingMemory:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(task).result()


def history_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Memory and time with features on disk."""
    symbols, sessions = (500, 2500) if quick else (5000, 2500)
    batches = 400 if quick else 4000
    found = in_new_process(partial(measure_training, symbols, sessions, folder / "large", batches))
    detail = f"{symbols} symbols x {sessions} days, 23 features, {batches * 256} random windows"
    yield at_most("peak memory, with mapped features, GB", found.mapped / GIGABYTE, 3, detail=detail, judged=not quick)
    yield shown("peak memory without them, GB", found.own / GIGABYTE, detail=detail)
    shutil.rmtree(folder / "large")
    yield from window_rows(folder / "windows", quick=quick)
    yield from cache_rows(folder / "twice", quick=quick)
    yield from growth_rows(folder / "growth", quick=quick)


def window_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    bars = made_up_bars(200 if quick else 1000, 2500)
    splits, features = RECIPE.splits(bars.sessions), default_features()
    pipeline = fit_pipeline(bars, features, RECIPE, splits)
    sources = {
        name: prepare(History(bars, pipeline, cache=cache), splits, RECIPE, None).objective.train.batches(0)
        for name, cache in (("memory", None), ("disk", FeatureCache(folder=folder, tell=print)))
    }
    rounds, calls = (5, 20) if quick else (15, 50)
    turns = {name: partial(next, batches) for name, batches in sources.items()}
    times = interleaved_medians(turns, rounds=rounds, calls=calls, clock=time.thread_time)
    ratio = times["disk"] / times["memory"]
    detail = f"{times['disk'] / 256 * 1e6:.1f} us a window of 60 sessions from disk; {rounds} rounds of {calls} batches"
    yield at_most("time of a window from disk / from memory", ratio, 1.3, detail=detail)


def cache_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    bars = made_up_bars(200 if quick else 1000, 2500)
    features, calendar = default_features(), fit_calendar(bars, "weekdays")
    learnt = bars.until(RECIPE.splits(bars.sessions).train.last)
    draft = fit_pipeline(bars, features, RECIPE, RECIPE.splits(bars.sessions))

    def read(cache: FeatureCache) -> str:
        fitted = fit_features(learnt, features, calendar, NO_SOURCE, cache)
        pipeline = replace(draft, features=fitted)
        observed, mask = cache.observed(bars, fitted, NO_SOURCE, partial(pipeline.observed_blocks, bars))
        return hashlib.sha256(observed.data).hexdigest() + hashlib.sha256(mask.data).hexdigest()

    ratios: list[float] = []
    for number in range(3 if quick else 7):
        cache = FeatureCache(folder=folder / str(number), tell=print)
        (first, computed), (second, cached) = _timed(partial(read, cache)), _timed(partial(read, cache))
        assert computed == cached
        ratios.append(second / first)
        shutil.rmtree(cache.folder)
    detail = f"{len(bars.symbols)} symbols x 2500 days, equal bytes; without reading, adjusting and labels of the bars"
    yield at_most("features of a second training / of the first", median(ratios), 0.1, detail=detail)


def _timed(work: Callable[[], str]) -> tuple[float, str]:
    start = time.thread_time()
    result = work()
    return time.thread_time() - start, result


def growth_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    few, many = (100, 400) if quick else (250, 5000)
    seconds = {
        count: in_new_process(partial(measure_training, count, 2500, folder / str(count), 100)).seconds
        for count in (few, many)
    }
    detail = f"from bars to the first window, {seconds[few]:.1f} s and {seconds[many]:.1f} s"
    ratio = seconds[many] / seconds[few] / (many / few)
    yield at_most(
        f"time of {many} symbols / {many // few} x time of {few}", ratio, 1.1, detail=detail, judged=not quick
    )


# --- jobs on Ray


NODE: Final[dict[str, Any]] = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False}
"""A node without processes that no row needs; Ray waits only 30 seconds until a node has started."""
HEAD: Final[dict[str, Any]] = {**NODE, "num_cpus": 0, "no_monitor": True, "dashboard_port": None}
PATIENCE_S: Final = 120


@contextmanager
def ray_nodes() -> Generator[Any]:
    """A head without CPUs, two nodes with one each, and this process connected to them."""
    os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", str(PATIENCE_S))  # read at import
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        for _ in range(2):
            cluster.add_node(**NODE)
        cluster.wait_for_nodes(PATIENCE_S)
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def nothing() -> Callable[[int], int]:
    return int


def task_rows(*, quick: bool) -> Iterator[Row]:
    count = 200 if quick else 1000
    list(OnRay("auto").run(nothing, range(4)))  # starts the processes
    start = time.perf_counter()
    assert len(list(OnRay("auto").run(nothing, range(count)))) == count
    cost = (time.perf_counter() - start) / count * 1e3
    yield at_most("cost of a job above its work, ms", cost, 15, detail=f"{count} jobs without work on two nodes")


def forecast_command(artifact: Path, bars: Path, out: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "quantra", "forecast", *map(str, (artifact, "--bars", bars, "--out", out)), *flags]


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def kill_rows(cluster: Any, folder: Path, *, quick: bool) -> Iterator[Row]:
    """Forecasts while nodes and drivers are killed."""
    bars, artifact = made_up_bars(40, 700), folder / "models" / "mine" / "1"
    bars.write_csv(folder / "bars.csv")
    trainer = StockTrainer(model="har", horizons=[1, 5], calendar="weekdays", device="cpu", quiet=True)
    trainer.fit(bars).close()
    trainer.save(artifact)
    days = 160 if quick else 480
    command = partial(forecast_command, artifact, folder / "bars.csv")
    period = ("--start", str(bars.sessions[-days]), "--device", "cpu", "--json")
    subprocess.run(command(folder / "alone", *period), check=True, stdout=subprocess.DEVNULL)
    expected, chance = contents(folder / "alone"), random.Random(0)  # noqa: S311 - moments of kills
    lost = 0
    runs = 1 if quick else 10
    for number in range(runs):
        out = folder / f"node{number}"
        added = cluster.add_node(**NODE)
        on_ray = [*command(out, *period), "--cluster", "auto"]
        with subprocess.Popen(on_ray, stdout=subprocess.DEVNULL, env=_environment(cluster)) as driver:
            _wait_for_files(driver, out, chance.randrange(1, days // 2))
            cluster.remove_node(added, allow_graceful=False)
        lost += driver.returncode != 0 or contents(out) != expected
    detail = f"{runs} runs of {days} days, bytes compared"
    yield at_most("runs that a killed node changed", lost, 0, detail=detail)
    repeated = 0
    runs = 1 if quick else 5
    for number in range(runs):
        out = folder / f"head{number}"
        on_ray = [*command(out, *period), "--cluster", "local"]
        with subprocess.Popen(on_ray, stdout=subprocess.DEVNULL, start_new_session=True) as driver:
            _wait_for_files(driver, out, chance.randrange(1, days // 2))
            os.killpg(driver.pid, signal.SIGKILL)
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
        subprocess.run(on_ray, check=True, stdout=subprocess.DEVNULL)
        assert contents(out) == expected
        repeated += sum(path.stat().st_mtime_ns != written for path, written in before.items())
    detail = f"{runs} runs: the command and its Ray head are killed, then started again; bytes compared"
    yield at_most("finished days that run again after the head is killed", repeated, 0, detail=detail)


def _environment(cluster: Any) -> dict[str, str]:
    return {**os.environ, "RAY_ADDRESS": cluster.address, "RAY_USAGE_STATS_ENABLED": "0"}


def _wait_for_files(driver: "subprocess.Popen[bytes]", folder: Path, count: int) -> None:
    while driver.poll() is None and sum(1 for _ in folder.rglob("*.parquet")) < count:
        time.sleep(0.01)


def refit_rows(*, quick: bool) -> Iterator[Row]:
    """A walk forward in one process, in two, and on two nodes; processes start within the time."""
    refits, step = (4, 20) if quick else (40, 5)
    bars = made_up_bars(20 if quick else 100, 900 + refits * step)
    plan = WalkForwardPlan(
        start=int(bars.sessions[899]), end=int(bars.sessions[898 + refits * step]), refit=step, rolling=800
    )
    folds = split_sessions(bars.sessions, plan)
    material = RefitMaterial.of(bars, default_features(), RECIPE)
    torch.set_num_threads(1)
    runners = {"one process": InThisProcess(), "two processes": InProcesses(2), "two nodes": OnRay("auto")}
    seconds: dict[str, float] = {}
    forecasts: dict[str, dict[int, bytes]] = {}
    for name, runner in runners.items():
        start = time.perf_counter()
        done = list(runner.run(material.worker, folds))
        seconds[name] = time.perf_counter() - start
        forecasts[name] = {fold.number: found.values.tobytes() for fold, found in done}
    assert forecasts["one process"] == forecasts["two processes"] == forecasts["two nodes"]
    shown_seconds = ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items())
    detail = f"{len(folds)} refits of {len(bars.symbols)} symbols x 800 days, equal bytes; {shown_seconds}"
    for rival, limit in (("two processes", 1.1), ("one process", 0.6)):
        ratio = seconds["two nodes"] / seconds[rival]
        yield at_most(f"{len(folds)} refits: two nodes / {rival}", ratio, limit, detail=detail, judged=not quick)


def rows(parts: Collection[str], *, quick: bool) -> Iterator[Row]:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "histories" in parts:
            yield from history_rows(folder, quick=quick)
        if parts == {"histories"}:
            return
        with ray_nodes() as cluster:
            if "refits" in parts:
                yield from refit_rows(quick=quick)
            if "jobs" in parts:
                yield from task_rows(quick=quick)
                yield from kill_rows(cluster, folder, quick=quick)


PARTS: Final = ("histories", "refits", "jobs")


def main() -> int:
    parser = common_options("Several machines and large histories")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure only this part; repeatable")
    arguments = parser.parse_args()
    return publish(rows(set(arguments.part or PARTS), quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
