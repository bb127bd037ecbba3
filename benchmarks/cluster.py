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
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread, Timer
from typing import Any, Final, TypeVar, final

import numpy as np
import polars as pl
import torch

from benchmarks.report import Row, at_most, common_options, interleaved_medians, publish, shown
from predictor.bars import BarPanel
from predictor.cluster import RayRunner
from predictor.errors import format_date
from predictor.features import load_default_features
from predictor.jobs import JobRunner, LocalRunner, ProcessRunner
from predictor.networks import LSTMConfig, Target
from predictor.sessions import SessionCalendar
from trainers import StockTrainer
from trainers.stock import Optimisation, StockRecipe
from trainers.stock.backtest.refits import Fold, RefitMaterial, WalkForwardPlan, make_tradable, split_sessions
from trainers.stock.data import NO_COVARIATE_FILES, History
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
T = TypeVar("T")


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
class TrainingCost:
    """What one epoch of training on a large history takes.

    Attributes:
        own: largest memory that the system cannot drop, in bytes.
        mapped: largest memory with mapped files, in bytes.
        seconds: from files to the calibrated and scored model.
    """

    own: int
    mapped: int
    seconds: float


def write_partitions(symbols: int, sessions: int, folder: Path) -> None:
    """Write made-up bars as Parquet, partitioned by year."""
    bars = made_up_bars(symbols, sessions)
    for year in np.unique(bars.sessions // 10000):
        days = bars.sessions // 10000 == year
        columns = {name: getattr(bars, name)[:, days].ravel() for name in bars.columns}
        dates = np.tile([format_date(session) for session in bars.sessions[days].tolist()], symbols)
        rows = pl.DataFrame({"symbol": np.repeat(bars.symbols, days.sum()), "date": dates, **columns})
        (folder / f"year={year}").mkdir(parents=True)
        rows.write_parquet(folder / f"year={year}" / "bars.parquet")


def measure_training(folder: Path) -> TrainingCost:
    """Train one epoch on bars of partitioned Parquet, with bars and features on disk."""
    peaks, ended = {"RssAnon": 0, "VmRSS": 0}, Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], 1024 * int(value.split()[0]))

    watching = Thread(target=watch)
    watching.start()
    start = time.perf_counter()
    recipe = replace(RECIPE, optimisation=replace(RECIPE.optimisation, batch_size=1024))
    trainer = StockTrainer(recipe=recipe, threads=1, quiet=True, feature_cache=folder / "cache")
    trainer.fit(folder / "bars").close()
    seconds = time.perf_counter() - start
    ended.set()
    watching.join()
    return TrainingCost(own=peaks["RssAnon"], mapped=peaks["VmRSS"], seconds=seconds)


def in_new_process(task: Callable[[], T]) -> T:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(task).result()


def history_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Memory and time with features on disk."""
    yield from training_rows(folder / "training", quick=quick)
    yield from window_rows(folder / "windows", quick=quick)
    yield from cache_rows(folder / "twice", quick=quick)


def training_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    few, many = (100, 400) if quick else (250, 5000)
    costs: dict[int, TrainingCost] = {}
    for count in (few, many):
        in_new_process(partial(write_partitions, count, 2500, folder / str(count) / "bars"))
        costs[count] = in_new_process(partial(measure_training, folder / str(count)))
        shutil.rmtree(folder / str(count))
    detail = f"{many} symbols x 2500 days, 23 features, one epoch of a small LSTM"
    yield at_most(
        "peak memory, with mapped files, GB", costs[many].mapped / GIGABYTE, 3, detail=detail, judged=not quick
    )
    yield shown("peak memory without mapped files, GB", costs[many].own / GIGABYTE, detail=detail)
    ratio = costs[many].seconds / costs[few].seconds / (many / few)
    yield at_most(
        f"time of {many} symbols / {many // few} x time of {few}",
        ratio,
        1.1,
        detail=f"from files to the scored model, {costs[few].seconds:.1f} s and {costs[many].seconds:.1f} s",
        judged=not quick,
    )


def window_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    bars = made_up_bars(200 if quick else 1000, 2500)
    splits, features = RECIPE.splits(bars.sessions), load_default_features()
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
    features, calendar = load_default_features(), fit_calendar(bars, "weekdays")
    learnt = bars.until(RECIPE.splits(bars.sessions).train.last)
    draft = fit_pipeline(bars, features, RECIPE, RECIPE.splits(bars.sessions))

    def read(cache: FeatureCache) -> str:
        fitted = fit_features(learnt, features, calendar, NO_COVARIATE_FILES, cache)
        pipeline = replace(draft, features=fitted)
        observed, mask = cache.load_observed(bars, fitted, NO_COVARIATE_FILES, partial(pipeline.observed_blocks, bars))
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
    results = RayRunner("auto").run(nothing, range(count))
    next(results)  # a process has started
    start = time.perf_counter()
    assert len(list(results)) == count - 1
    cost = (time.perf_counter() - start) / (count - 1) * 1e3
    yield at_most("cost of a job above its work, ms", cost, 15, detail=f"{count} jobs without work on two nodes")


def forecast_command(artifact: Path, bars: Path, out: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "quantra", "forecast", *map(str, (artifact, "--bars", bars, "--out", out)), *flags]


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def restart_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Forecasts whose command and Ray head are killed, and which are then started again."""
    bars, artifact = made_up_bars(40, 700), folder / "models" / "mine" / "1"
    bars.write_csv(folder / "bars.csv")
    trainer = StockTrainer(model="har", horizons=[1, 5], calendar="weekdays", device="cpu", quiet=True)
    trainer.fit(bars).close()
    trainer.save(artifact)
    days, chance = 160 if quick else 480, random.Random(0)  # noqa: S311 - moments of kills
    command = partial(forecast_command, artifact, folder / "bars.csv")
    period = ("--start", str(bars.sessions[-days]), "--device", "cpu", "--json")
    subprocess.run(command(folder / "alone", *period), check=True, stdout=subprocess.DEVNULL)
    expected = contents(folder / "alone")
    repeated, finished = 0, list[int]()
    for number in range(1 if quick else 5):
        out = folder / f"head{number}"
        on_ray = [*command(out, *period), "--cluster", "local"]
        with subprocess.Popen(on_ray, stdout=subprocess.DEVNULL, start_new_session=True) as driver:
            _wait_for_files(driver, out, chance.randrange(1, days // 2))
            os.killpg(driver.pid, signal.SIGKILL)
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
        subprocess.run(on_ray, check=True, stdout=subprocess.DEVNULL)
        assert contents(out) == expected
        repeated += sum(path.stat().st_mtime_ns != written for path, written in before.items())
        finished.append(len(before))
    done = ", ".join(map(str, finished))
    detail = f"the command and its Ray head are killed after {done} of {days} days; equal bytes"
    yield at_most("finished days that run again after the head is killed", repeated, 0, detail=detail)


def _wait_for_files(driver: "subprocess.Popen[bytes]", folder: Path, count: int) -> None:
    while driver.poll() is None and sum(1 for _ in folder.rglob("*.parquet")) < count:
        time.sleep(0.01)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RefitRun:
    """Forecasts of all refits by one runner.

    Attributes:
        seconds: with the start of processes.
        lost: jobs that ended with their node.
    """

    forecasts: Mapping[int, bytes]
    seconds: float
    lost: int


def run_refits(runner: JobRunner, material: RefitMaterial, folds: Sequence[Fold]) -> RefitRun:
    start = time.perf_counter()
    forecasts = {fold.number: found.values.tobytes() for fold, found in runner.run(material.worker, folds)}
    return RefitRun(forecasts=forecasts, seconds=time.perf_counter() - start, lost=runner.progress.lost)


def refit_rows(cluster: Any, *, quick: bool) -> Iterator[Row]:
    """A walk forward in one process, in two, on two nodes, and while a third node is killed."""
    refits, symbols, step = 40, 20 if quick else 40, 5
    bars = made_up_bars(symbols, 900 + refits * step)
    plan = WalkForwardPlan(
        start=int(bars.sessions[899]), end=int(bars.sessions[898 + refits * step]), refit=step, rolling=800
    )
    run = partial(
        run_refits,
        material=RefitMaterial(bars=bars, features=load_default_features(), recipe=make_tradable(RECIPE)),
        folds=split_sessions(bars.sessions, plan),
    )
    torch.set_num_threads(1)
    detail = f"{symbols} symbols x 800 days, with the start of processes"
    alone = run(LocalRunner())
    yield shown(f"{refits} refits in one process, s", alone.seconds, detail=detail)
    pair = run(ProcessRunner(2))
    yield shown(f"{refits} refits in two processes, s", pair.seconds, detail=detail)
    nodes = run(RayRunner("auto"))
    yield shown(f"{refits} refits on two nodes, s", nodes.seconds, detail=detail)
    assert alone.forecasts == pair.forecasts == nodes.forecasts
    for rival, seconds, limit in (("two processes", pair.seconds, 1.1), ("one process", alone.seconds, 0.6)):
        ratio = nodes.seconds / seconds
        yield at_most(f"{refits} refits: two nodes / {rival}", ratio, limit, detail="equal bytes", judged=not quick)
    yield from node_rows(cluster, run, nodes, alone.seconds / refits, runs=2 if quick else 10)


def node_rows(
    cluster: Any, run: Callable[[JobRunner], RefitRun], undisturbed: RefitRun, job_s: float, *, runs: int
) -> Iterator[Row]:
    """Refits while a third node is killed at a random moment."""
    chance, changed, lost, excess = random.Random(0), 0, 0, list[float]()  # noqa: S311 - moments of kills
    for _ in range(runs):
        added = cluster.add_node(**NODE)
        kill = partial(cluster.remove_node, added, allow_graceful=False)
        timer = Timer(chance.uniform(0.1, 0.6) * undisturbed.seconds, kill)
        timer.start()
        found = run(RayRunner("auto"))
        timer.join()
        changed += found.forecasts != undisturbed.forecasts
        lost += found.lost
        excess.append((found.seconds - undisturbed.seconds - found.lost * job_s) / undisturbed.seconds)
    detail = f"{runs} runs with a third node that is killed; {lost} lost jobs ran again; bytes compared"
    yield at_most("runs that a killed node changed", changed, 0, detail=detail)
    detail = "largest part of the undisturbed time; negative: the third node helped before it was killed"
    yield at_most("time with a killed node above undisturbed + lost jobs", max(excess), 0, detail=detail)


def rows(parts: Collection[str], *, quick: bool) -> Iterator[Row]:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "histories" in parts:
            yield from history_rows(folder, quick=quick)
        if parts == {"histories"}:
            return
        with ray_nodes() as cluster:
            if "refits" in parts:
                yield from refit_rows(cluster, quick=quick)
            if "jobs" in parts:
                yield from task_rows(quick=quick)
                yield from restart_rows(folder, quick=quick)


PARTS: Final = ("histories", "refits", "jobs")


def main() -> int:
    parser = common_options("Several machines and large histories")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure only this part; repeatable")
    arguments = parser.parse_args()
    return publish(rows(set(arguments.part or PARTS), quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
