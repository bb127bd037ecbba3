"""Jobs on a Ray cluster of two nodes on this machine: same bytes, lost nodes and refused clusters."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from artifacts import save_small_artifact
from market import bokeh_panel

from predictor import cluster as module
from predictor import jobs
from predictor.cluster import OnRay
from predictor.errors import ConfigurationError, DeadlineExceededError, QuantraError, UnavailableError
from predictor.jobs import InThisProcess, JobRunner
from trainers.stock.data import NO_SOURCE
from trainers.stock.forecast_files.files import ForecastFolder, ForecastMaterial, write_forecasts

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


BARE = {"include_dashboard": False, "include_log_monitor": False}
"""A node without processes that these tests do not need, whose start takes most of a minute on a busy machine."""


@pytest.fixture(scope="module")
def path_of_workers() -> Iterator[None]:
    """Lets new processes import these tests, as this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def nodes(path_of_workers: None) -> "Iterator[Cluster]":  # noqa: ARG001
    """A head without CPUs and two nodes with one each; this process is connected to them."""
    import ray  # takes seconds, which other tests need not wait for
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "no_monitor": True, "dashboard_port": None}  # another Ray may have the usual port
    made = Cluster(initialize_head=True, head_node_args={**head, **BARE})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, **BARE)
        made.wait_for_nodes()
        ray.init(made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


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


def sleeper() -> Callable[[float], None]:
    return time.sleep


@pytest.mark.usefixtures("nodes")
def test_a_job_that_hangs_is_ended_by_name() -> None:
    runner = OnRay("auto", timeout=2, memory=10**6)
    with pytest.raises(DeadlineExceededError, match=r"^job 1000 did not end within 2 seconds and was stopped; "):
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
