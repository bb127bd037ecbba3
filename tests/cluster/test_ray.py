"""Jobs on a Ray cluster of two nodes on this machine: same bytes, lost nodes and refused clusters."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from artifacts import save_small_artifact
from daily_runs import daily_bars, run_evenings, save_daily_model
from market import bokeh_panel

from predictor import cluster as module
from predictor import jobs
from predictor.bars import BarPanel
from predictor.cluster import OnRay
from predictor.errors import ConfigurationError, DeadlineExceededError, QuantraError, UnavailableError
from predictor.features import default_features
from predictor.jobs import InThisProcess, JobRunner
from predictor.ledger import Ledger
from predictor.networks import LSTMConfig, Target, WindowNormaliser
from predictor.registry import Runtime, load_single
from trainers.stock import Optimisation, RollingSplits, StockRecipe, TrainingMaterial, train
from trainers.stock.audit.audit import AuditBudget, audit
from trainers.stock.backtest.source import artifact_source
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms
from trainers.stock.data import NO_SOURCE, History
from trainers.stock.evaluation.evaluation import EvaluationSettings, evaluate
from trainers.stock.forecast_files.files import ForecastFolder, ForecastMaterial, write_forecasts
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner
from trainers.stock.tuning import Search, StudyStorage, search

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


BARE = {"include_dashboard": False, "include_log_monitor": False}
"""A node without processes that these tests do not need, whose start takes most of a minute on a busy machine."""


@pytest.fixture(scope="module")
def path_of_workers() -> Iterator[None]:
    """Lets new processes import these tests, as this process does, and run as fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # other tests run beside these, and would leave Ray's workers no time
        yield


@contextmanager
def start_cluster(nodes: int) -> "Generator[Cluster]":
    """A head without CPUs and nodes with one each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "no_monitor": True, "dashboard_port": None}  # another Ray may have the usual port
    made = Cluster(initialize_head=True, head_node_args={**head, **BARE})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1, **BARE)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


@pytest.fixture(scope="module")
def nodes(path_of_workers: None) -> "Iterator[Cluster]":  # noqa: ARG001
    """A head without CPUs and two nodes with one each; this process is connected to them."""
    import ray  # takes seconds, which other tests need not wait for

    with start_cluster(2) as made:
        ray.init(made.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield made
        finally:
            ray.shutdown()


def multiplier(factor: int) -> Callable[[int], int]:
    return partial(multiply, factor)


def multiply(factor: int, number: int) -> int:
    if number < 0:
        raise ConfigurationError(f"{number} is negative")
    return factor * number


@pytest.mark.usefixtures("nodes")
def test_each_job_comes_with_its_result() -> None:
    assert sorted(OnRay("auto").run(partial(multiplier, 3), [5, 1, 7])) == [(1, 3), (5, 15), (7, 21)]


@pytest.mark.usefixtures("nodes")
def test_an_error_of_a_job_is_as_it_was_raised() -> None:
    with pytest.raises(ConfigurationError, match=r"^-1 is negative$"):
        list(OnRay("auto").run(partial(multiplier, 3), [1, -1]))


def unprepared() -> Callable[[int], int]:
    raise ConfigurationError("there is no model")


@pytest.mark.usefixtures("nodes")
def test_a_node_that_cannot_prepare_its_jobs_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^node [0-9.]+: there is no model; all nodes must see the same"):
        list(OnRay("auto").run(unprepared, [1]))


def sleeper() -> Callable[[float], None]:
    return time.sleep


@pytest.mark.usefixtures("nodes")
def test_a_job_that_hangs_is_ended_by_name() -> None:
    # Ray 2.60 ends this process if a job is stopped before a process has begun it, so processes and time are at hand.
    list(OnRay("auto", memory=10**6).run(sleeper, [0, 0]))
    runner = OnRay("auto", timeout=5, memory=10**6)
    with pytest.raises(DeadlineExceededError, match=r"^job 1000 did not end within 5 seconds and was stopped; "):
        list(runner.run(sleeper, [1000], name="job {}".format))
    assert (runner.progress.done, runner.progress.failed) == (0, 1)


@pytest.mark.usefixtures("nodes")
def test_a_job_larger_than_each_node_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^a job needs 1000000.0 GB of memory, but the nodes offer, in GB"):
        list(OnRay("auto", memory=10**15).run(partial(multiplier, 3), [1]))


@pytest.mark.usefixtures("nodes")
def test_forecasts_have_the_bytes_of_one_process(tmp_path: Path) -> None:
    bars = bokeh_panel("AAPL", "IBM").last(220)
    sessions = bars.sessions[-40:].tolist()
    artifact = save_small_artifact(tmp_path / "models" / "mine" / "1")
    material = ForecastMaterial(artifact=artifact, bars=bars, covariates=NO_SOURCE, device="cpu")

    def files_by(runner: JobRunner, out: Path) -> dict[str, bytes]:
        made = write_forecasts(material, sessions, ForecastFolder(out, material.settings()), runner)
        assert sorted(one.session for one in made) == sessions
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.parquet")}

    assert files_by(OnRay("auto"), tmp_path / "ray") == files_by(InThisProcess(), tmp_path / "here")


def newer(_package: str) -> str:
    return "9.9"


@pytest.mark.usefixtures("nodes")
def test_a_node_with_other_versions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "version", newer)
    with pytest.raises(
        ConfigurationError, match=r"node \d+\.\d+\.\d+\.\d+ has quantra .* instead of 9\.9, torch .* install the same"
    ):
        list(OnRay("auto").run(partial(multiplier, 3), [1]))


def test_a_full_object_store_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch, nodes: "Cluster") -> None:
    from ray.exceptions import OutOfDiskError

    def fill(_value: object) -> None:
        raise OutOfDiskError("9 GB are missing")

    del nodes
    monkeypatch.setattr("ray.put", fill)
    with pytest.raises(UnavailableError, match=r"^Ray's object store has no room .*object_store_memory.*: .*9 GB are"):
        list(OnRay("auto").run(partial(multiplier, 3), [1]))


def prepare_a_crash() -> Callable[[int], int]:
    return crash


def crash(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.usefixtures("nodes")
def test_a_job_that_always_ends_its_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "REPEATS", 1)
    with pytest.raises(QuantraError, match=r"^7 lost its process 2 times, .*reserve more memory with --job-memory"):
        list(OnRay("auto").run(prepare_a_crash, [7]))


def killer(folder: Path) -> Callable[[int], int]:
    return partial(kill_the_node_once, folder)


def kill_the_node_once(folder: Path, number: int) -> int:
    """End the first node that runs this, and this process."""
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return number
    for process in (os.getppid(), os.getpid()):
        os.kill(process, signal.SIGKILL)
    return -1


@pytest.mark.minutes
def test_jobs_of_a_lost_node_run_again(nodes: "Cluster", tmp_path: Path) -> None:
    added = nodes.add_node(num_cpus=1, **BARE)
    runner = OnRay("auto")
    assert dict(runner.run(partial(killer, tmp_path), range(20))) == {number: number for number in range(20)}
    assert runner.progress.lost >= 1
    assert runner.progress.repeated == runner.progress.lost
    nodes.remove_node(added)


# --- commands

TINY = StockRecipe(
    calendar="XNYS",
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    scale="window",
    normaliser=WindowNormaliser(window=20),
    parts=RollingSplits(selection=40, calibration=60),
    optimisation=Optimisation(max_epochs=1, device="cpu"),
)


def learnt_and_later() -> tuple[BarPanel, BarPanel]:
    """Bars of a training, and the same with 120 later sessions."""
    bars = bokeh_panel("AAPL", "IBM").last(420)
    return bars.until(int(bars.sessions[-121])), bars


def train_tiny(folder: Path) -> Path:
    train(TrainingMaterial(learnt_and_later()[0], default_features()), TINY, folder, consume=iter)
    return folder


def audit_with(runner: JobRunner, folder: Path) -> object:
    return audit(
        artifact_source(train_tiny(folder / "1"), "cpu"),
        learnt_and_later()[1],
        terms=TradingTerms(horizon=3),
        tactic=StrategySettings(),
        depth=AuditBudget(sessions=2, permutations=2, epochs=1),
        announce=ignore,
        runner=runner,
    )


def evaluate_with(runner: JobRunner, folder: Path) -> object:
    made = load_single(train_tiny(folder / "1"), ("tiny", 1), Runtime(device=torch.device("cpu"), max_rows=256))
    wanted = EvaluationSettings(seeds=3, device="cpu")
    found = evaluate(made, learnt_and_later()[1], wanted, consume=iter, announce=ignore, runner=runner)
    assert found.seeds is not None
    return found.seeds


def tune_with(runner: JobRunner, folder: Path) -> object:
    bars = learnt_and_later()[0]
    splits = TINY.splits(bars.sessions)
    history = History(bars, fit_pipeline(bars, default_features(), TINY, splits))
    asked = Search(history=history, splits=splits, recipe=TINY, settings={}, trials=2, seeds=2)
    return search(asked, StudyStorage(uri=f"sqlite:///{folder / 'study.db'}", name="tiny"), consume=iter, runner=runner)


def run_an_evening_with(runner: JobRunner, folder: Path) -> object:
    save_daily_model(folder / "models" / "mine")
    bars = daily_bars()
    run_evenings(folder / "ledger.db", folder / "models" / "mine", bars, first=int(bars.sessions[-2]), runner=runner)
    with Ledger.open(folder / "ledger.db") as opened:
        query = 'select "values" from forecast order by as_of, model, version, symbol'
        rows = [row["values"] for row in opened.query(query)]
    assert rows
    return rows


def retrain_with(runner: JobRunner, folder: Path) -> object:
    planned = PlannedTraining(material=TrainingMaterial(learnt_and_later()[0], default_features()), recipe=TINY)
    plans, folders = {"a": planned, "b": planned}, {name: folder / name for name in "ab"}
    failed: dict[str, QuantraError] = {}
    made = TrainingRunner(jobs=runner).run(plans, folders, begin=lambda _: iter, on_failure=failed.__setitem__)
    return {name: (one.folder / "weights.safetensors").read_bytes() for name, one in sorted(made)}


def ignore(_line: str) -> None:
    """Show nothing."""


@pytest.mark.minutes
@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("work", [audit_with, evaluate_with, tune_with, run_an_evening_with, retrain_with])
def test_a_command_finds_the_same_on_ray(work: Callable[[JobRunner, Path], object], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    assert work(OnRay("auto"), there) == work(InThisProcess(), here)


@pytest.mark.minutes
@pytest.mark.usefixtures("path_of_workers")
def test_after_the_head_is_killed_the_same_command_computes_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars, out = bokeh_panel("AAPL").last(700), tmp_path / "forecasts"
    bars.write_csv(tmp_path / "bars.csv")
    artifact = save_small_artifact(tmp_path / "models" / "mine" / "1")
    flags = ("--start", bars.sessions[-400], "--device", "cpu", "--cluster", "auto", "--job-memory", "0.1")
    words = ("forecast", artifact, "--bars", tmp_path / "bars.csv", "--out", out, *flags)
    command = [sys.executable, "-m", "quantra", *map(str, words)]
    with start_cluster(1) as made:
        monkeypatch.setenv("RAY_ADDRESS", str(made.address))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            assert next(driver.stdout).startswith("day 1/400")
            assert made.head_node is not None
            made.head_node.kill_gcs_server(check_alive=False)
            _, told = driver.communicate()
    assert driver.returncode == 1
    assert re.search(r"does not answer any more; \d+ of 25 jobs were done\. Start a cluster and the same command", told)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert 0 < len(before) < 400
    with start_cluster(1) as made:
        monkeypatch.setenv("RAY_ADDRESS", str(made.address))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert len(list(out.rglob("*.parquet"))) == 400
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_ray_that_does_not_start_in_time_is_an_error_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def start(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, "is_initialized", bool)
    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(UnavailableError, match=r"^Ray did not start: The current node timed out .*; try again when"):
        list(OnRay("local").run(partial(multiplier, 3), [1]))
