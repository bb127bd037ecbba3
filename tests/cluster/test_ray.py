"""Jobs on a Ray cluster on this machine: same bytes, errors and refused clusters."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from artifacts import save_small_artifact
from market import bokeh_panel
from ray_clusters import connect
from small_jobs import multiplier, prepare_a_crash, sleeper, unprepared

from predictor import cluster as module
from predictor import jobs
from predictor.cluster import RayRunner
from predictor.errors import ConfigurationError, DeadlineExceededError, QuantraError, UnavailableError
from predictor.jobs import JobRunner, LocalRunner
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.forecast_files import ForecastFolder, ForecastMaterial, write_forecasts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> "Iterator[Cluster]":
    """A node with two CPUs; this process is connected to it."""
    with connect(2) as made:
        yield made


@pytest.mark.usefixtures("cluster")
def test_each_job_comes_with_its_result() -> None:
    assert sorted(RayRunner("auto").run(partial(multiplier, 3), [5, 1, 7])) == [(1, 3), (5, 15), (7, 21)]


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_job_is_as_it_was_raised() -> None:
    with pytest.raises(ConfigurationError, match=r"^-1 is negative$"):
        list(RayRunner("auto").run(partial(multiplier, 3), [1, -1]))


@pytest.mark.usefixtures("cluster")
def test_a_node_that_cannot_prepare_its_jobs_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^node [0-9.]+: there is no model; all nodes must see the same"):
        list(RayRunner("auto").run(unprepared, [1]))


@pytest.mark.usefixtures("cluster")
def test_a_job_that_hangs_is_ended_by_name() -> None:
    runner = RayRunner("auto", timeout=10)
    with pytest.raises(DeadlineExceededError, match=r"^job 1000 did not end within 10 seconds and was stopped; "):
        list(runner.run(sleeper, [1000, 0, 0, 0], name="job {}".format))
    assert (runner.progress.done, runner.progress.failed) == (3, 1)


@pytest.mark.usefixtures("cluster")
def test_a_job_larger_than_each_node_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^a job needs 1000000.0 GB of memory, but the nodes offer, in GB"):
        list(RayRunner("auto", memory=10**15).run(partial(multiplier, 3), [1]))


@pytest.mark.usefixtures("cluster")
def test_forecasts_have_the_bytes_of_one_process(tmp_path: Path) -> None:
    bars = bokeh_panel("AAPL", "IBM").last(220)
    sessions = bars.sessions[-40:].tolist()
    artifact = save_small_artifact(tmp_path / "models" / "mine" / "1")
    material = ForecastMaterial(artifact=artifact, bars=bars, covariates=NO_COVARIATE_FILES, device="cpu")

    def files_by(runner: JobRunner, out: Path) -> dict[str, bytes]:
        made = write_forecasts(material, sessions, ForecastFolder(out, material.settings()), runner)
        assert sorted(one.session for one in made) == sessions
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.parquet")}

    assert files_by(RayRunner("auto"), tmp_path / "ray") == files_by(LocalRunner(), tmp_path / "here")


def newer(_package: str) -> str:
    return "9.9"


@pytest.mark.usefixtures("cluster")
def test_a_node_with_other_versions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "version", newer)
    with pytest.raises(
        ConfigurationError, match=r"node \d+\.\d+\.\d+\.\d+ has quantra .* instead of 9\.9, torch .* install the same"
    ):
        list(RayRunner("auto").run(partial(multiplier, 3), [1]))


def test_a_node_without_quantra_says_so() -> None:
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    program = (
        "import pickle, sys; sys.modules['predictor'] = None; "
        "print(pickle.load(sys.stdin.buffer)().prepare({'quantra-absent': '1.0'}, []))"
    )
    actor: bytes = cloudpickle.dumps(module._define_actor())
    found = subprocess.run([sys.executable, "-c", program], input=actor, stdout=subprocess.PIPE, check=True)
    assert re.match(rb"node [0-9.]+ has no quantra-absent; install the same versions", found.stdout)


def test_a_full_object_store_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch, cluster: "Cluster") -> None:
    from ray.exceptions import OutOfDiskError

    def fill(_value: object) -> None:
        raise OutOfDiskError("9 GB are missing")

    del cluster
    monkeypatch.setattr("ray.put", fill)
    with pytest.raises(UnavailableError, match=r"^Ray's object store has no room .*object_store_memory.*: .*9 GB are"):
        list(RayRunner("auto").run(partial(multiplier, 3), [1]))


@pytest.mark.usefixtures("cluster")
def test_a_job_that_always_ends_its_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "REPEATS", 1)
    with pytest.raises(QuantraError, match=r"^7 lost its process 2 times, .*reserve more memory with --job-memory"):
        list(RayRunner("auto").run(prepare_a_crash, [7]))


def test_a_ray_that_does_not_start_in_time_is_an_error_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def start(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, "is_initialized", bool)
    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(UnavailableError, match=r"^Ray did not start: The current node timed out .*; try again when"):
        list(RayRunner("local").run(partial(multiplier, 3), [1]))
