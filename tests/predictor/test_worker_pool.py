"""WorkerProcess pool: messages between supervisor and workers, restarts, and shared changes, with fake workers."""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from child_processes import children_of

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, UnavailableError
from predictor.limits import QueueLimits, ServiceLimits
from predictor.server import Address, ServerLimits, ServerSettings, TlsFiles
from predictor.server.addresses import reserve_address
from predictor.server.logs import LogSettings
from predictor.server.process import ShutdownSignal
from predictor.server.workers import worker_process
from predictor.server.workers.channel import (
    Channel,
    LoadModels,
    WorkerRequest,
    WorkerResponse,
    decode_message,
    encode_bytes,
    encode_message,
)
from predictor.server.workers.pool import RestartBackoff, WorkerPool
from predictor.server.workers.supervisor import AdminCallRouter, MetricTotals
from predictor.server.workers.worker import WorkerControl
from predictor.server.workers.worker_process import WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="several processes on one port need Linux")

ResultT = TypeVar("ResultT")

EVERYTHING = ServerSettings(
    models=Path("a folder/with ümlauts"),
    listen=Address("192.0.2.1", 5),
    insecure_public=True,
    tls=TlsFiles(Path("cert.pem"), Path("key.pem"), Path("ca.pem")),
    token_file=Path("tokens"),
    token="x" * 32,
    admin_token="y" * 32,
    device="cuda:3",
    max_batch_rows=7,
    threads=2,
    lock=Path("models.lock"),
    engine="onnxruntime",
    watch=True,
    admin_listen=Address("::1", 6),
    max_age_sessions=4,
    ledger="ledger.db",
    ledger_mode="strict",
    adaptive=True,
    metrics_port=7,
    otel=True,
    processes=3,
    parent_watch=True,
    limits=ServerLimits(drain_s=0.5, service=ServiceLimits(explanations=QueueLimits(size=9))),
)
"""Settings with no field at its default."""

WORKER = """
import os, signal, socket, sys, time
from pathlib import Path
from predictor.errors import ModelNotFoundError
from predictor.server.workers.channel import *
from predictor.wire.errors import encode_details

end = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", buffering=0)
start = decode_message(end.readline())
folder = start.settings.models
mine = folder / str(os.getpid())


def say(message):
    end.write(encode_message(message))


def is_first():
    return min(int(one.name) for one in folder.iterdir() if one.name.isdigit()) == os.getpid()


if (folder / "fails").exists():
    say(WorkerEvent("failed", "no model here"))
    sys.exit(1)
for number in (signal.SIGKILL, signal.SIGRTMIN + 1):
    if (folder / f"dies by {int(number)}").exists():
        os.kill(os.getpid(), number)
if (folder / "babbles").exists():
    end.write((folder / "babbles").read_bytes())
    signal.pause()
say(WorkerEvent("loaded"))
for line in end:
    message = decode_message(line)
    if message.task != "ping":
        with mine.open("a") as heard:
            heard.write(f"{message.task}({message.name!r}, {message.body})\\n")
    body = failure = ""
    match message.task, message.name:
        case "listen", _:
            say(WorkerEvent("listening"))
        case _, "Die":
            os._exit(3)
        case _, "Babble" if is_first():
            end.write(b"hello\\n")
            signal.pause()
        case "keep_change", _ if (folder / "dies once").exists():
            (folder / "dies once").unlink()
            os._exit(3)
        case _, "Hang":
            signal.pause()
        case "reload_and_list_models", _:
            body = encode_bytes(f"what {mine.name} serves".encode())
        case _, "DieInOne" if is_first():
            os._exit(3)
        case _, "Fail":
            failure = encode_bytes(encode_details(ModelNotFoundError("not there")))
        case _, "FailInOne" if is_first():
            failure = encode_bytes(encode_details(ModelNotFoundError("not there")))
        case "metrics", _:
            if (folder / "slow").exists():
                time.sleep(0.2)
            body = encode_bytes((folder / "page").read_bytes())
        case "call" | "change", _:
            body = message.body
    say(WorkerResponse(message.number, body, failure))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where fake workers write the messages that they receive, and read commands."""
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    monkeypatch.setattr(worker_process, "PROGRAM", (str(program),))
    made = tmp_path / "heard"
    made.mkdir()
    return made


def with_team(folder: Path, work: Callable[[WorkerPool], Awaitable[ResultT]], stuck_s: float = 30.0) -> ResultT:
    """Run with a pool of two ready workers."""

    async def run() -> ResultT:
        start = LoadModels(ServerSettings(models=folder, limits=ServerLimits(stuck_s=stuck_s)), LogSettings())
        team = WorkerPool(start, 2, RestartBackoff(tries=2, first_s=0.0))
        try:
            await team.start()
            return await work(team)
        finally:
            await team.close()

    return asyncio.run(run())


def request_for(model: str) -> bytes:
    """A request to change this model."""
    return pb.LoadModelRequest(model=model).SerializeToString()


def received_count(folder: Path, part: str) -> int:
    """Number of workers that received a message with this text."""
    return sum(part in one.read_text() for one in folder.iterdir() if one.name.isdigit())


# --- messages


def test_a_worker_has_every_setting_of_its_server() -> None:
    plain = ServerSettings(models=Path())
    assert all(getattr(EVERYTHING, one.name) != getattr(plain, one.name) for one in fields(ServerSettings))
    start = LoadModels(EVERYTHING, LogSettings("debug", as_json=True))
    assert decode_message(encode_message(start)) == start


def test_a_message_is_one_line_whatever_it_holds() -> None:
    start = LoadModels(replace(EVERYTHING, models=Path("two\nlines")), LogSettings())
    assert encode_message(start).count(b"\n") == 1
    assert decode_message(encode_message(start)) == start


LINES = [b"", b"hello\n", b"{}\n", b'{"is": "ListenAddress ears"}\n', b'{"is": "WorkerEvent"}\n']


@pytest.mark.parametrize("line", LINES)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ArtifactError):
        decode_message(line)


# --- the port


def test_a_port_that_another_server_shares_with_its_own_is_in_use() -> None:
    """With SO_REUSEPORT alone, the new server would take some of the other's calls."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigurationError, match="is in use"), reserve_address(Address(*other.getsockname())):
            pass


def test_a_port_is_reserved_before_anybody_listens() -> None:
    with (
        reserve_address(Address("127.0.0.1", 0)) as address,
        pytest.raises(ConfigurationError, match="is in use"),
        reserve_address(address),
    ):
        pass


def test_every_address_of_a_host_name_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("127.0.0.1", "127.0.0.2")
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", Mock(return_value=infos))
    with reserve_address(Address("localhost", 0)) as address:
        for host in hosts:
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind((host, address.port))


def test_only_workers_may_listen_on_a_reserved_port() -> None:
    with reserve_address(Address("127.0.0.1", 0)) as address, socket.socket() as worker, socket.socket() as stranger:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind((address.host, address.port))
        worker.listen()
        with pytest.raises(OSError, match="in use"):
            stranger.bind((address.host, address.port))
        socket.create_connection((address.host, address.port)).close()


@pytest.mark.parametrize("count", [0, -1])
def test_a_server_has_at_least_one_process(count: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        ServerSettings(models=Path(), processes=count)


def test_other_systems_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match="need Linux"):
        ServerSettings(models=Path(), processes=2)
    assert ServerSettings(models=Path()).processes == 1


# --- a team


def test_a_team_begins_when_all_have_loaded(folder: Path) -> None:
    async def nothing(_: WorkerPool) -> None:
        pass

    with_team(folder, nothing)
    assert received_count(folder, "listen(") == 2


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fails", r"^no model here$"),
        ("dies by 9", r"worker . .* signal SIGKILL"),
        ("dies by 35", r"worker . .* signal 35 before"),
    ],
)
def test_a_worker_pool_that_cannot_start_gives_the_reason(folder: Path, what: str, message: str) -> None:
    (folder / what).touch()

    async def nothing(_: WorkerPool) -> None:
        pass

    with pytest.raises(ConfigurationError, match=message):
        with_team(folder, nothing)


@pytest.mark.parametrize("line", [b"hello\n", encode_message(WorkerRequest(1, "ping"))])
def test_a_worker_that_sends_an_invalid_message_while_it_loads_fails(folder: Path, line: bytes) -> None:
    (folder / "babbles").write_bytes(line)

    async def nothing(_: WorkerPool) -> None:
        pass

    with pytest.raises(ConfigurationError, match=r"worker . \(process .*\) sent an invalid message"):
        with_team(folder, nothing)
    assert not children_of(os.getpid())


async def run_until_replaced(team: WorkerPool, folder: Path, count: int) -> None:
    """Run the pool until so many workers have started in total and all are ready."""
    keeping = asyncio.create_task(team.replace_exited_workers())
    while received_count(folder, "listen(") < count or len(team.serving) < 2:
        await asyncio.sleep(0)
        assert not keeping.done()
    keeping.cancel()
    await asyncio.wait([keeping])


def test_a_worker_that_dies_is_replaced_and_comes_to_serve_what_another_does(folder: Path) -> None:
    async def kill_one(team: WorkerPool) -> None:
        await team.change("UnloadModel", request_for("one"))
        with pytest.raises(UnavailableError):
            await team.change("DieInOne", request_for(""))
        await run_until_replaced(team, folder, 3)

    with_team(folder, kill_one)
    told = {one.name: one.read_text().splitlines() for one in folder.iterdir()}
    (begun,) = (lines for lines in told.values() if not any("UnloadModel" in line for line in lines))
    other = max((name for name, lines in told.items() if lines is not begun), key=int)
    assert [line.partition("(")[0] for line in begun] == ["reload_and_list_models", "copy_served_models", "listen"]
    assert encode_bytes(f"what {other} serves".encode()) in begun[1]


def test_where_all_have_died_the_first_that_begins_repeats_the_changes(folder: Path) -> None:
    async def kill_all(team: WorkerPool) -> None:
        await team.change("LoadModel", request_for("one"))
        await team.change(
            "RepositoryModelUnload", inference_pb.RepositoryModelUnloadRequest(model_name="one").SerializeToString()
        )
        with pytest.raises(UnavailableError):
            await team.change("Die", request_for(""))
        await run_until_replaced(team, folder, 4)

    with_team(folder, kill_all)
    begun = [one.read_text() for one in folder.iterdir() if "'Die'" not in one.read_text()]
    assert len(begun) == 2
    first, second = sorted(begun, key=lambda heard: "copy_served_models" in heard)
    assert "'LoadModel'" not in first
    assert first.index("RepositoryModelUnload") < first.index("listen(")
    assert second.index("copy_served_models") < second.index("listen(")


def test_a_replacement_that_dies_while_it_repeats_a_change_is_replaced(folder: Path) -> None:
    async def kill_all(team: WorkerPool) -> None:
        await team.change("LoadModel", request_for("one"))
        (folder / "dies once").touch()
        with pytest.raises(UnavailableError):
            await team.change("Die", request_for(""))
        await run_until_replaced(team, folder, 4)

    with_team(folder, kill_all)
    assert not (folder / "dies once").exists()


def test_a_worker_that_sends_an_invalid_message_is_replaced(folder: Path) -> None:
    async def babble(team: WorkerPool) -> None:
        with pytest.raises(UnavailableError):
            await team.change("Babble", request_for(""))
        await run_until_replaced(team, folder, 3)

    with_team(folder, babble)
    assert not children_of(os.getpid())


def test_changes_are_refused_while_no_worker_serves(folder: Path) -> None:
    async def kill_all(team: WorkerPool) -> None:
        keeping = asyncio.create_task(team.replace_exited_workers())
        with pytest.raises(UnavailableError, match="exited before it responded"):
            await team.change("Die", request_for(""))
        while team.serving:  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0)
        for asked in (team.change, team.query):
            with pytest.raises(UnavailableError, match="no worker is serving at the moment"):
                await asked("LoadModel", request_for("one"))
        keeping.cancel()
        await asyncio.wait([keeping])

    with_team(folder, kill_all)


def test_a_worker_that_hangs_is_killed_and_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def hang_all(team: WorkerPool) -> None:
        with pytest.raises(UnavailableError):
            await team.change("Hang", request_for(""))
        await run_until_replaced(team, folder, 4)

    with_team(folder, hang_all, stuck_s=0.5)
    assert [line for line in caplog.messages if re.match(r"worker \d \(process \d+\) has not responded for", line)]


def signal_all(folder: Path, number: signal.Signals) -> None:
    """Send a signal to every worker."""
    for one in folder.iterdir():
        os.kill(int(one.name), number)


def test_a_worker_that_stood_still_with_its_supervisor_is_not_killed(folder: Path) -> None:
    """As on a suspended machine: this process is the supervisor, and its loop stands still in `time.sleep`."""

    async def suspend_all(team: WorkerPool) -> None:
        keeping = asyncio.create_task(team.replace_exited_workers())
        before = list(team.serving)
        signal_all(folder, signal.SIGSTOP)
        await asyncio.sleep(0.5)  # two of the ten checks needed
        time.sleep(2.4)  # noqa: ASYNC251 - longer than a worker may be silent
        signal_all(folder, signal.SIGCONT)
        await team.change("LoadModel", request_for("one"))
        assert list(team.serving) == before
        keeping.cancel()
        await asyncio.wait([keeping])

    with_team(folder, suspend_all, stuck_s=2.0)


def test_a_worker_that_is_given_up_while_it_begins_leaves_no_process(folder: Path) -> None:
    """As when a server stops while it replaces a worker."""
    start = LoadModels(ServerSettings(models=folder), LogSettings())

    async def has_begun_in(steps: int) -> bool:
        beginning = asyncio.create_task(WorkerProcess.begin(1, start))
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait([beginning])
        if beginning.cancelled():
            return False
        await beginning.result().kill()
        return True

    before, steps = children_of(os.getpid()), 0
    while not asyncio.run(has_begun_in(steps)):
        assert children_of(os.getpid()) == before
        steps += 1
    assert steps > 2  # the first loop iteration does not start the process


def test_an_abandoned_result_is_released(folder: Path) -> None:
    (folder / "page").write_text("")
    (folder / "slow").touch()

    async def leave(team: WorkerPool) -> bytes:
        assert set((await team.metrics(0.01)).values()) == {None}
        return await team.change("LoadModel", request_for("one"))

    assert with_team(folder, leave) == request_for("one")


def test_a_worker_that_cannot_be_replaced_ends_the_server(folder: Path) -> None:
    async def kill_all(team: WorkerPool) -> None:
        keeping = asyncio.create_task(team.replace_exited_workers())
        (folder / "fails").touch()
        with pytest.raises(UnavailableError):
            await team.change("Die", request_for(""))
        await keeping

    with pytest.raises(ConfigurationError, match="could not be restarted in 2 attempts"):
        with_team(folder, kill_all)


def test_a_process_that_the_system_does_not_give_is_a_try_like_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with too little memory, or a missing Python."""

    async def kill_all(team: WorkerPool) -> None:
        keeping = asyncio.create_task(team.replace_exited_workers())
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        with pytest.raises(UnavailableError):
            await team.change("Die", request_for(""))
        await keeping

    with pytest.raises(ConfigurationError, match="could not be restarted in 2 attempts"):
        with_team(folder, kill_all)
    assert re.search(r"cannot start a process for worker \d: No such file or directory", caplog.text)


def test_between_tries_there_is_more_and_more_time() -> None:
    assert [RestartBackoff().delay_s(failed) for failed in range(6)] == [0, 1, 2, 4, 8, 16]


# --- numbers


PAGE = """# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{model="a"} 2.0
# TYPE waiting gauge
waiting 1.0
# TYPE process_max_fds gauge
process_max_fds 100.0
# TYPE seconds histogram
seconds_bucket{le="+Inf"} 3.0
seconds_count 3.0
seconds_sum 0.5
"""


def value(page: bytes, sample: str) -> float:
    """Value of a metrics line."""
    return float(next(line for line in page.decode().splitlines() if line.startswith(sample)).rpartition(" ")[2])


def test_numbers_of_workers_are_added_and_those_of_the_dead_still_count(folder: Path) -> None:
    (folder / "page").write_text(PAGE)

    async def read_twice(team: WorkerPool) -> tuple[bytes, bytes]:
        sums = MetricTotals(team, asyncio.get_running_loop())
        before, _ = await asyncio.to_thread(sums.page, "")
        with pytest.raises(UnavailableError):
            await team.change("Die", request_for(""))
        await run_until_replaced(team, folder, 4)
        after, _ = await asyncio.to_thread(sums.page, "")
        return before, after

    before, after = with_team(folder, read_twice)
    samples = ('calls_total{model="a"}', "waiting", "process_max_fds", "seconds_count", "seconds_sum")
    assert [value(before, one) for one in samples] == [4, 2, 100, 6, 1]
    assert [value(after, one) for one in samples] == [8, 2, 100, 12, 2]


# --- changes


def test_a_change_is_made_by_all(folder: Path) -> None:
    async def load(team: WorkerPool) -> bytes:
        return await team.change("LoadModel", request_for("request"))

    assert with_team(folder, load) == request_for("request")
    assert received_count(folder, "keep_change") == 2


def test_what_one_refuses_the_others_take_back(folder: Path) -> None:
    async def load(team: WorkerPool) -> None:
        with pytest.raises(ModelNotFoundError, match=r"worker . \(process .*: not there; all workers keep their "):
            await team.change("FailInOne", request_for("request"))
        await team.change("LoadModel", request_for("request"))  # later changes follow the rollback

    with_team(folder, load)
    assert received_count(folder, "undo_change") == 1


def test_a_change_refused_by_all_workers_gives_one_error(folder: Path) -> None:
    async def load(team: WorkerPool) -> None:
        with pytest.raises(ModelNotFoundError, match=r"^not there$"):
            await team.change("Fail", request_for("request"))

    with_team(folder, load)
    assert received_count(folder, "undo_change") == 0


def test_changes_of_several_callers_come_one_after_the_other(folder: Path) -> None:
    async def load(team: WorkerPool) -> list[bytes]:
        changes = AdminCallRouter(team)
        asked = [changes.handle("LoadModel", request_for(str(n)), CallContext()) for n in range(5)]
        return await asyncio.gather(*map(asyncio.wrap_future, asked))

    assert with_team(folder, load) == [request_for(str(n)) for n in range(5)]
    for one in folder.iterdir():
        names = [line.partition("(")[0] for line in one.read_text().splitlines()]
        assert [name for name in names if name in {"change", "keep_change"}] == ["change", "keep_change"] * 5


def test_a_change_is_skipped_if_its_caller_left_before_its_turn(folder: Path) -> None:
    async def leave(team: WorkerPool) -> None:
        changes, gone = AdminCallRouter(team), CallContext()
        first = changes.handle("LoadModel", request_for("first"), CallContext())
        second = changes.handle("LoadModel", request_for("second"), gone)
        gone.cancel()
        second.cancel()
        await asyncio.wrap_future(first)
        await team.change("LoadModel", request_for("third"))

    with_team(folder, leave)
    told = "".join(one.read_text() for one in folder.iterdir())
    assert encode_bytes(request_for("third")) in told
    assert encode_bytes(request_for("second")) not in told


def test_more_changes_than_may_wait_are_refused(folder: Path) -> None:
    async def many(team: WorkerPool) -> int:
        changes = AdminCallRouter(team)
        asked = [changes.handle("LoadModel", request_for(str(n)), CallContext()) for n in range(20)]
        return sum(
            isinstance(one, bytes)
            for one in await asyncio.gather(*map(asyncio.wrap_future, asked), return_exceptions=True)
        )

    assert with_team(folder, many) == 16


def test_lists_of_models_are_not_counted_as_changes(folder: Path) -> None:
    async def list_many(team: WorkerPool) -> list[bytes]:
        changes = AdminCallRouter(team)
        names = ["RepositoryIndex"] * 20 + ["LoadModel"]
        asked = [changes.handle(name, request_for(name), CallContext()) for name in names]
        return await asyncio.gather(*map(asyncio.wrap_future, asked))

    assert with_team(folder, list_many) == [request_for("RepositoryIndex")] * 20 + [request_for("LoadModel")]


# --- workers


class ChangingHost:
    """A fake host whose model is a number that each change increments."""

    def __init__(self) -> None:
        self.models = self
        self.current = 0
        self.restored: list[int] = []

    def change(self, name: str, request: bytes) -> "Future[bytes]":
        self.current += name != "RepositoryIndex"
        answer: Future[bytes] = Future()
        answer.set_result(request)
        return answer

    def restore(self, served: int) -> None:
        self.restored.append(served)


def test_a_look_between_a_change_and_its_taking_back_does_not_disturb_it() -> None:
    host: Any = ChangingHost()
    asked = (
        WorkerRequest(1, "change", "LoadModel"),
        WorkerRequest(2, "call", "RepositoryIndex"),
        WorkerRequest(3, "undo_change"),
    )

    async def ask() -> list[int]:
        here, there = socket.socketpair()
        supervisor, channel = await Channel.open(here), await Channel.open(there)
        running = asyncio.create_task(WorkerControl(host, channel, ShutdownSignal()).run())
        answers: list[int] = []
        for question in asked:
            await supervisor.send(question)
            answer = await supervisor.receive()
            assert isinstance(answer, WorkerResponse)
            answers.append(answer.number)
        await supervisor.wait_closed()
        await running
        await channel.wait_closed()
        return answers

    assert asyncio.run(ask()) == [1, 2, 3]
    assert host.restored == [0]
