"""`quantra serve --processes`: workers on one port, their failure, model changes, and shutdown."""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from artifacts import recent_bars, save_small_artifact, small_models
from child_processes import children_of, parent_of
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import failed_process, lines_of

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor._pb.inference_pb2_grpc import GRPCInferenceServiceStub
from predictor._pb.prediction_pb2_grpc import ModelAdminServiceStub, PredictionServiceStub
from predictor.evidence import Lamp
from predictor.instance import Instance
from predictor.ledger import EvidenceRecord, Ledger
from predictor.wire import instances

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="several processes on one port need Linux")

CONNECTIONS = 24
"""Connections that reach both workers, except once in eight million times."""


class TwoWorkerServer:
    """A server with two worker processes."""

    def __init__(self, popen: "subprocess.Popen[str]", ready: dict[str, object]) -> None:
        self.popen = popen
        self.ready = ready
        self.target = f"127.0.0.1:{ready['port']}"
        self.admin = f"127.0.0.1:{ready.get('admin_port')}"

    def workers(self) -> Sequence[int]:
        """The live worker processes."""
        return children_of(self.popen.pid)

    def everywhere(self) -> list[frozenset[str]]:
        """Models listed over each of many connections."""
        return [self.names() for _ in range(CONNECTIONS)]

    def names(self, timeout_s: float = 30.0) -> frozenset[str]:
        """Models listed over a new connection."""
        with self.connection() as channel:
            found = PredictionServiceStub(channel).ListModels(pb.ListModelsRequest(), timeout=timeout_s)
            return frozenset(f"{info.name}@{info.version}" for info in found.models)

    def connection(self) -> grpc.Channel:
        """A separate connection: by default gRPC shares one per process."""
        return grpc.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])

    def number(self, sample: str) -> float:
        """Value of a metric; 0 if it is missing."""
        with urlopen(f"http://127.0.0.1:{self.ready['metrics_port']}/metrics") as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))

    def change(self, method: str, model: str) -> str:
        """Status and message of an admin call."""
        request = {"Load": pb.LoadModelRequest, "Unload": pb.UnloadModelRequest, "Reload": pb.ReloadModelRequest}
        with grpc.insecure_channel(self.admin) as channel:
            try:
                getattr(ModelAdminServiceStub(channel), f"{method}Model")(request[method](model=model))
            except grpc.RpcError as error:
                failed: grpc.Call = error  # type: ignore[assignment]
                return f"{failed.code().name}: {failed.details()}"
        return "OK"

    def repository(self, method: str, request: Message) -> str:
        """Status and message of a KServe repository call at the admin address."""
        with grpc.insecure_channel(self.admin) as channel:
            try:
                getattr(GRPCInferenceServiceStub(channel), method)(request)
            except grpc.RpcError as error:
                failed: grpc.Call = error  # type: ignore[assignment]
                return f"{failed.code().name}: {failed.details()}"
        return "OK"


def exit_descriptor(process: int) -> int:
    """A descriptor that becomes readable once the process has ended."""
    return os.pidfd_open(process)


@contextmanager
def start_server(models: Path, *options: str) -> "Generator[subprocess.Popen[str]]":
    """Start a server of two processes, with its log in a pipe that its workers share."""
    command = [sys.executable, "-m", "predictor.server", "--models", str(models), "--processes", "2", *options]
    listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *listen], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as popen:
        try:
            yield popen
        finally:
            popen.kill()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


IMPATIENT = """
import sys
from pathlib import Path
from predictor.server import Address, ServerLimits, ServerSettings, serve

any_port = Address("127.0.0.1", 0)
sys.exit(
    serve(
        ServerSettings(
            models=Path(sys.argv[1]),
            ledger=f"{sys.argv[1]}/ledger.db",
            listen=any_port,
            admin_listen=any_port,
            metrics_port=0,
            processes=2,
            watch=True,
            limits=ServerLimits(stuck_s=4.0),
        )
    )
)
"""
"""Flags: watch the folder, and a shorter worker timeout."""


@pytest.fixture(scope="module")
def two_workers(models: Path) -> Generator[TwoWorkerServer]:
    """A server whose log is read only at the end, with a ledger that has a green lamp."""
    log = models / "log"
    lamp = EvidenceRecord(
        model="mine", version=2, monitor="coverage", horizon=5, session=20130301, lamp=Lamp.GREEN, state={}
    )
    with Ledger.open(models / "ledger.db", create=True) as ledger:
        ledger.append([lamp])
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, str(models)], stdout=subprocess.PIPE, stderr=file, text=True
        ) as popen,
    ):
        assert popen.stdout is not None
        yield TwoWorkerServer(popen, json.loads(popen.stdout.readline()))
        workers = children_of(popen.pid)
        popen.send_signal(signal.SIGTERM)
        rest = popen.stdout.read()
    assert popen.returncode == 0, log.read_text()
    assert not rest
    assert [parent_of(one) for one in workers] == [None, None]
    assert "Traceback" not in log.read_text()


def test_the_supervisor_says_when_all_are_ready_and_answers_nothing_itself(two_workers: TwoWorkerServer) -> None:
    assert two_workers.ready["pid"] == two_workers.popen.pid
    assert len(two_workers.workers()) == 2
    listening = {
        pid
        for pid in (*two_workers.workers(), two_workers.popen.pid)
        if listens(pid, int(str(two_workers.ready["port"])))
    }
    assert listening == set(two_workers.workers())


def listens(process: int, port: int) -> bool:
    """Whether the process listens on this port."""
    inodes = set[str]()
    for one in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(one.readlink().name)
        except FileNotFoundError:
            continue
    lines = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    found = {f"socket:[{line[9]}]" for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
    return bool(found & inodes)


def test_every_worker_forecasts_the_same(two_workers: TwoWorkerServer) -> None:
    bars = instances.encode(Instance(input=recent_bars()))
    answers = set[bytes]()
    for _ in range(CONNECTIONS):
        with two_workers.connection() as channel:
            (result,) = PredictionServiceStub(channel).Predict(pb.PredictRequest(instances=[bars])).results
            answers.add(result.forecast.values)
    assert len(answers) == 1


def test_every_worker_says_that_it_is_well(two_workers: TwoWorkerServer) -> None:
    for _ in range(CONNECTIONS):
        with two_workers.connection() as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # the stubs lack its methods
            answer = stub.Check(health_pb2.HealthCheckRequest(service="small"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_the_numbers_of_both_are_one_page(two_workers: TwoWorkerServer) -> None:
    asked = 'quantra_requests_total{code="OK",method="ListModels",model="",reason="",version=""}'
    before = two_workers.number(asked)
    two_workers.everywhere()
    assert two_workers.number(asked) - before == CONNECTIONS


def test_the_page_has_the_gauges_of_the_ledger_once(two_workers: TwoWorkerServer) -> None:
    assert two_workers.number("quantra_model_lamp{") == 1  # the value of green


def test_a_change_is_in_force_everywhere_once_it_is_answered(two_workers: TwoWorkerServer, models: Path) -> None:
    save_small_artifact(models / "other" / "1", seed=1)
    assert two_workers.change("Load", "other") == "OK"
    assert all("other@1" in found for found in two_workers.everywhere())
    assert two_workers.change("Unload", "other") == "OK"
    assert not any("other@1" in found for found in two_workers.everywhere())


def test_the_public_protocol_changes_models_in_every_worker(two_workers: TwoWorkerServer, models: Path) -> None:
    save_small_artifact(models / "third" / "1", seed=1)
    asked = inference_pb.RepositoryModelLoadRequest(model_name="third")
    assert two_workers.repository("RepositoryModelLoad", asked) == "OK"
    assert all("third@1" in found for found in two_workers.everywhere())
    assert "third" in indexed(two_workers)
    unload = inference_pb.RepositoryModelUnloadRequest(model_name="third")
    assert two_workers.repository("RepositoryModelUnload", unload) == "OK"
    assert not any("third@1" in found for found in two_workers.everywhere())
    assert "third" not in indexed(two_workers)
    shutil.rmtree(models / "third")
    assert two_workers.repository("RepositoryModelLoad", asked).startswith("NOT_FOUND: there is no model 'third'")


def indexed(team: TwoWorkerServer) -> set[str]:
    """Models listed at the admin address."""
    with grpc.insecure_channel(team.admin) as channel:
        stub = GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(inference_pb.ServerLiveRequest()).live
        assert stub.ServerReady(inference_pb.ServerReadyRequest()).ready
        return {one.name for one in stub.RepositoryIndex(inference_pb.RepositoryIndexRequest()).models}


def test_the_public_protocol_asks_for_no_forecast_where_models_are_changed(two_workers: TwoWorkerServer) -> None:
    with grpc.insecure_channel(two_workers.admin) as channel, pytest.raises(grpc.RpcError) as refused:
        GRPCInferenceServiceStub(channel).ModelInfer(inference_pb.ModelInferRequest())
    failed: Any = refused.value
    assert failed.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_change_that_all_workers_refuse_fails_as_in_one_process(two_workers: TwoWorkerServer) -> None:
    told = two_workers.change("Load", "nonsense")
    assert told.startswith("NOT_FOUND: ")
    assert "worker" not in told


@pytest.mark.slow
def test_a_worker_that_is_stuck_is_replaced_and_the_change_that_it_held_up_is_taken_back(
    two_workers: TwoWorkerServer, models: Path
) -> None:
    save_small_artifact(models / "held" / "1", seed=1)
    assert two_workers.change("Unload", "held") == "OK"
    stuck, well = two_workers.workers()
    os.kill(stuck, signal.SIGSTOP)
    told = two_workers.change("Load", "held")
    assert re.match(r"UNAVAILABLE: worker \d \(process \d+\) exited .*; all workers keep their previous models", told)
    wait_for_two(two_workers, without=stuck)
    assert well in two_workers.workers()
    assert stuck not in two_workers.workers()
    assert not any("held@1" in found for found in two_workers.everywhere())


def wait_for_two(team: TwoWorkerServer, without: int) -> None:
    """Wait until two workers other than that one listen."""
    port = int(str(team.ready["port"]))
    while sum(listens(pid, port) for pid in team.workers() if pid != without) < 2:
        assert team.popen.poll() is None


def test_a_worker_that_is_killed_is_replaced_and_calls_of_others_are_answered(two_workers: TwoWorkerServer) -> None:
    before = two_workers.workers()
    with ExitStack() as open_ones:
        stubs = [PredictionServiceStub(open_ones.enter_context(two_workers.connection())) for _ in range(CONNECTIONS)]
        for stub in stubs:
            stub.ListModels(pb.ListModelsRequest())
        os.kill(before[0], signal.SIGKILL)
        wait_for_two(two_workers, without=before[0])
        for stub in stubs:  # callers of a dead worker reconnect
            assert stub.ListModels(pb.ListModelsRequest(), wait_for_ready=True).models
    after = two_workers.workers()
    assert before[1] in after
    assert len(after) == 2


@pytest.mark.slow
def test_what_a_worker_serves_that_begins_later_is_what_the_others_do(
    two_workers: TwoWorkerServer, models: Path
) -> None:
    """The model was unloaded, and loaded again with a newer version."""
    save_small_artifact(models / "fourth" / "1", seed=1)
    assert two_workers.change("Unload", "fourth") == "OK"
    save_small_artifact(models / "fourth" / "2", seed=2)
    wait_until_all_serve(two_workers, {"fourth@1", "fourth@2"})
    assert two_workers.change("Unload", "fourth@2") == "OK"
    before = set(two_workers.everywhere())
    died = two_workers.workers()[0]
    os.kill(died, signal.SIGKILL)
    wait_for_two(two_workers, without=died)
    assert set(two_workers.everywhere()) == before
    assert len(before) == 1


def wait_until_all_serve(team: TwoWorkerServer, names: set[str]) -> None:
    """Wait until many connections list these models."""
    while not all(names <= found for found in team.everywhere()):
        assert team.popen.poll() is None


@pytest.mark.slow
def test_workers_end_with_a_supervisor_that_is_killed(models: Path) -> None:
    with start_server(models) as popen:
        assert popen.stdout is not None
        assert popen.stderr is not None
        popen.stdout.readline()
        workers = children_of(popen.pid)
        ends = [exit_descriptor(one) for one in workers]
        popen.kill()
        popen.stderr.read()  # ends when the last writer has
        select.select(ends[:1], [], [])  # the log closes just before the process exits
        select.select(ends[1:], [], [])
    for end in ends:
        os.close(end)
    assert len(workers) == 2
    assert [parent_of(one) for one in workers] == [None, None]


def test_a_signal_while_workers_load_ends_them_all_without_a_word(models: Path) -> None:
    with start_server(models) as popen:
        assert popen.stderr is not None
        assert "starting the workers" in popen.stderr.readline()
        popen.send_signal(signal.SIGTERM)
        told, _ = popen.communicate()
    assert (popen.returncode, told) == (0, "")


def test_the_end_of_standard_input_while_workers_load_ends_them_all(models: Path) -> None:
    with start_server(models, "--parent-watch") as popen:
        told, _ = popen.communicate()
    assert (popen.returncode, told) == (0, "")


def test_workers_that_cannot_start_are_a_one_line_error(tmp_path: Path) -> None:
    done = failed_process(
        "--models", str(tmp_path), "--listen", "127.0.0.1:0", "--processes", "2", "--log-level", "error"
    )
    assert done.returncode == 1
    assert not done.stdout
    (line,) = lines_of(done.stderr)
    assert "holds no model that can be served" in line


def test_a_port_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = failed_process("--models", str(tmp_path), "--listen", address, "--processes", "2")
    assert done.returncode == 1
    (line,) = lines_of(done.stderr)
    assert line.startswith(f"{address} is in use")
