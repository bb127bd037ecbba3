"""Models of a running server changed by admin calls and by files in its folder."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_models
from free_ports import free_port
from grpc_health.v1 import health_pb2, health_pb2_grpc
from model_folders import break_weights
from serving import HostedServer, failed_start, hosted_server

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import ModelAdminServiceStub
from predictor.client import QuantraClient
from predictor.errors import ModelNotFoundError, QuantraError
from predictor.instance import ExplanationQuery, Instance
from predictor.registry import set_alias
from predictor.server.servicer import STATUS_CODES
from predictor.wire import errors

SOON_S = 60


@dataclass(frozen=True)
class RunningServer:
    """A server and the model that the test controls."""

    models: Path
    name: str
    target: str
    client: QuantraClient
    admin: ModelAdminServiceStub

    @property
    def folder(self) -> Path:
        return self.models / self.name


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("server") / "models")


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[HostedServer]:
    with hosted_server(models, "--watch", "--admin-listen", "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def running(server: HostedServer, models: Path) -> Iterator[RunningServer]:
    name = f"model{len(list(models.iterdir()))}"
    save_small_artifact(models / name / "1")
    set_alias(models / name, "champion", 1)
    with (
        QuantraClient(server.target, name) as client,
        grpc.insecure_channel(f"127.0.0.1:{server.ready['admin_port']}") as channel,
    ):
        admin = ModelAdminServiceStub(channel)
        admin.LoadModel(pb.LoadModelRequest(model=name))
        yield RunningServer(models, name, server.target, client, admin)


def call_error(call: Callable[[], object]) -> QuantraError:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    raised: Any = failure.value
    details = dict(raised.trailing_metadata())[errors.DETAILS_KEY]
    error = errors.decode_details(details)
    assert error is not None
    assert raised.code() in STATUS_CODES.values()
    return error


def versions(infos: Any) -> list[tuple[int, bool]]:
    return [(info.version, info.is_default) for info in infos]


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for a condition on the server."""
    ends_at_s = time.monotonic() + SOON_S
    while not happened():
        assert time.monotonic() < ends_at_s
        threading.Event().wait(0.05)


def is_serving(target: str, name: str) -> bool:
    with grpc.insecure_channel(target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service=name)
        try:
            return stub.Check(asked).status == health_pb2.HealthCheckResponse.SERVING
        except grpc.RpcError:
            return False


def test_models_are_loaded_reloaded_and_unloaded_while_calls_are_answered(running: RunningServer) -> None:
    first = running.client.predict(recent_bars("AAPL"))
    save_small_artifact(running.folder / "2", seed=2)
    set_alias(running.folder, "champion", 2)
    loaded = running.admin.LoadModel(pb.LoadModelRequest(model=running.name))
    assert versions(loaded.models) == [(1, False), (2, True)]
    second = running.client.predict(recent_bars("AAPL"))
    assert (first.version, second.version) == (1, 2)
    left = running.admin.UnloadModel(pb.UnloadModelRequest(model=f"{running.name}@1"))
    assert versions(left.models) == [(2, True)]
    shutil.rmtree(running.folder / "2")
    save_small_artifact(running.folder / "2", seed=3)
    running.admin.ReloadModel(pb.ReloadModelRequest(model=f"{running.name}@2"))
    assert running.client.predict(recent_bars("AAPL")).weights_hash not in {first.weights_hash, second.weights_hash}


def test_a_bad_artifact_leaves_the_old_one_served_with_a_reason(running: RunningServer) -> None:
    before = running.client.predict(recent_bars("AAPL"))
    weights = running.folder / "1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    error = call_error(lambda: running.admin.ReloadModel(pb.ReloadModelRequest(model=running.name)))
    assert "weights.safetensors" in error.message
    assert running.client.predict(recent_bars("AAPL")).forecast_id == before.forecast_id


def test_a_reference_is_a_name_and_never_a_path(running: RunningServer) -> None:
    requests: list[tuple[Any, Any]] = [
        (running.admin.LoadModel, pb.LoadModelRequest),
        (running.admin.ReloadModel, pb.ReloadModelRequest),
        (running.admin.UnloadModel, pb.UnloadModelRequest),
    ]
    for reference in ("../models/small", "small/../small", "/etc", "nobody", "small\0", "x" * 300):
        for call, request in requests:
            error = call_error(lambda call=call, request=request, name=reference: call(request(model=name)))
            assert str(running.models) not in error.message


@pytest.mark.slow
def test_what_comes_into_the_folder_goes_live_by_alias_and_what_leaves_it_is_served_no_more(
    running: RunningServer,
) -> None:
    save_small_artifact(running.folder / "2", seed=2)
    save_small_artifact(running.models / "other" / "1")
    wait_until(lambda: is_serving(running.target, "other"))
    assert running.client.predict(recent_bars("AAPL")).version == 1
    set_alias(running.folder, "champion", 2)
    wait_until(lambda: running.client.predict(recent_bars("AAPL")).version == 2)
    shutil.rmtree(running.models / "other")
    wait_until(lambda: not is_serving(running.target, "other"))
    with pytest.raises(ModelNotFoundError):
        running.client.model("other")


@pytest.mark.slow
def test_callers_of_a_model_that_is_replaced_over_and_over_while_someone_explains_lose_nothing(
    running: RunningServer, tmp_path: Path
) -> None:
    """Each response is of one version: its hash and numbers match."""
    bars, query = recent_bars("AAPL"), ExplanationQuery(instance=Instance(input=recent_bars("IBM")))
    expected: dict[str, Any] = {}
    sources = [save_small_artifact(tmp_path / "sources" / str(seed), seed=seed) for seed in (1, 2)]
    ended = threading.Event()

    def replace(source: Path) -> None:
        shutil.rmtree(running.folder / "1")
        shutil.copytree(source, running.folder / "1")
        running.admin.ReloadModel(pb.ReloadModelRequest(model=f"{running.name}@1"))

    def predict(_: int) -> list[tuple[str, bytes]]:
        answers: list[tuple[str, bytes]] = []
        while not ended.is_set():
            forecast = running.client.predict(bars)
            answers.append((forecast.weights_hash, forecast.values.tobytes()))
        return answers

    def explain() -> int:
        count = 0
        while not ended.is_set():
            count += len(running.client.explain(query).attributions)
        return count

    for source in sources:
        replace(source)
        forecast = running.client.predict(bars)
        expected[forecast.weights_hash] = forecast.values
    with ThreadPoolExecutor(9) as callers:
        explaining, predicting = callers.submit(explain), [callers.submit(predict, n) for n in range(8)]
        for turn in range(10):
            replace(sources[turn % 2])
        ended.set()
        answers = [answer for one in predicting for answer in one.result()]
    assert explaining.result() > 0
    assert {name for name, _ in answers} == expected.keys()
    for name, values in set(answers):
        np.testing.assert_allclose(np.frombuffer(values), expected[name].ravel(), rtol=0, atol=1e-6)


def test_reloads_change_the_sound_versions_while_another_version_is_damaged_and_replaced(
    running: RunningServer, tmp_path: Path
) -> None:
    damaged = save_small_artifact(tmp_path / "damaged")
    break_weights(damaged)
    sources = [save_small_artifact(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    ended = threading.Event()

    def damage() -> None:
        while not ended.is_set():
            shutil.copytree(damaged, running.folder / "2")
            shutil.rmtree(running.folder / "2")

    def reload(_: int) -> Sequence[str]:
        return running.admin.ReloadModel(pb.ReloadModelRequest(model=running.name)).problems

    hashes: list[str] = []
    with ThreadPoolExecutor(5) as callers:
        damaging = callers.submit(damage)
        try:
            for turn in range(10):
                release(running.folder, sources[turn % 2])
                problems = [*callers.map(reload, range(4))]
                hashes.append(running.client.predict(recent_bars("AAPL")).weights_hash)
                assert all(f"{running.name}/2: " in problem for one in problems for problem in one)
        finally:
            ended.set()
        damaging.result()
    assert len(set(hashes[::2])) == len(set(hashes[1::2])) == 1
    assert hashes[0] != hashes[1]
    shutil.copytree(damaged, running.folder / "2")
    (problem,) = reload(0)
    assert problem.startswith(f"{running.name}/2: weights.safetensors: its SHA-256")


def release(folder: Path, source: Path) -> None:
    """Replace version 1."""
    shutil.rmtree(folder / "1")
    shutil.copytree(source, folder / "1")


@pytest.mark.slow
def test_versions_are_served_by_number_while_the_champion_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = tmp_path / "models"
    for version in (1, 2):
        save_small_artifact(models / "small" / f"{version}", seed=version)
    set_alias(models / "small", "champion", 2)
    break_weights(models / "small" / "2")
    with hosted_server(models) as running, QuantraClient(running.target, "small@1") as pinned:
        assert pinned.predict(recent_bars("AAPL")).version == 1
        with pytest.raises(ModelNotFoundError, match="names version 2, which was refused"):
            pinned.model("small")
        assert not is_serving(running.target, "small")
    (line,) = [line for line in caplog.messages if "not served: " in line]
    assert line.count("not served: ") == 1
    assert "small/2: weights.safetensors: its SHA-256" in line
    assert "small/aliases.json: alias 'champion' names version 2" in line


@pytest.mark.slow
def test_a_lock_lets_only_those_versions_be_served_that_it_lists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = small_models(tmp_path / "models")
    save_small_artifact(models / "other" / "1", seed=5)
    printed = subprocess.run(["sha256sum", "small/1/manifest.json"], cwd=models, capture_output=True, check=True)
    lock = tmp_path / "lock"
    lock.write_bytes(printed.stdout)
    with hosted_server(models, "--lock", str(lock)) as running, QuantraClient(running.target) as client:
        assert [info.name for info in client.models()] == ["small"]
    assert "not served: other" in caplog.text


def test_changes_are_taken_from_this_machine_alone(tmp_path: Path) -> None:
    done = failed_start("--models", str(tmp_path), "--admin-listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "admin address 0.0.0.0:0 is reachable from other machines" in done.stderr


def test_strict_recording_needs_a_ledger(tmp_path: Path) -> None:
    done = failed_start("--models", str(tmp_path), "--ledger-mode", "strict")
    assert done.returncode == 2
    assert "--ledger-mode strict records nothing without a ledger; add --ledger LEDGER" in done.stderr


def test_a_signal_while_models_load_ends_the_server_at_once(tmp_path: Path) -> None:
    """Meanwhile calls fail with "models are loading", and the server is not ready."""
    models = small_models(tmp_path / "models")
    holding = tmp_path / "hold.py"
    holding.write_text(
        "import sys, threading\n"
        "from predictor.server import host\n"
        "host._load = lambda *_: threading.Event().wait()\n"
        "from predictor.server.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    port = free_port()
    command = [sys.executable, str(holding), "--models", str(models), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/quantra.v1.PredictionService/ListModels")
            with pytest.raises(grpc.RpcError) as loading:
                call(b"", wait_for_ready=True, timeout=SOON_S)
        told: Any = loading.value
        assert told.code() is grpc.StatusCode.UNAVAILABLE
        assert "loading" in told.details()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SOON_S)
    assert (process.returncode, output) == (0, "")
