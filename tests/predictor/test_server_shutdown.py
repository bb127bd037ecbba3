"""Server shutdown: with its parent process, on signals, and with a grace period for calls."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models
from canned_service import CannedService, forecast_of
from serving import lines_of, serving

from predictor.client import QuantraClient
from predictor.forecast import Explanation
from predictor.instance import ExplanationQuery, Instance
from predictor.server import UnixAddress, process
from predictor.server.process import ShutdownSignal, end_with_parent

SOON_S = 30


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


def command(models: Path) -> list[str]:
    options = ["--models", str(models), "--listen", "127.0.0.1:0", "--parent-watch"]
    return [sys.executable, "-m", "predictor.server", *options]


@contextmanager
def start_with_parent(models: Path) -> Generator["subprocess.Popen[str]"]:
    """Start a server with this process as its parent."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command(models), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as popen:
        try:
            yield popen
        finally:
            popen.kill()


@pytest.mark.skipif(os.name != "posix", reason="sends signals as a terminal of POSIX does")
def test_a_server_leaves_ctrl_c_to_its_parent_and_ends_with_it_after_the_calls_in_flight(models: Path) -> None:
    """The end of standard input is the end of the parent."""
    with start_with_parent(models) as popen:
        assert popen.stdin is not None
        assert popen.stdout is not None
        popen.stdin.write("no end yet\n" * 10_000)
        popen.stdin.flush()
        port = json.loads(popen.stdout.readline())["port"]
        popen.send_signal(signal.SIGINT)
        query = ExplanationQuery(instance=Instance(input=recent_bars()))
        with QuantraClient(f"127.0.0.1:{port}", "small") as client, ThreadPoolExecutor(1) as caller:
            asked = caller.submit(client.explain, query)
            assert client.models()
            popen.stdin.close()
            popen.stdin = None
            assert isinstance(asked.result(), Explanation)
        _, log = popen.communicate()
    assert popen.returncode == 0
    assert "the parent process has exited" in log
    assert "Traceback" not in log


def test_a_server_whose_standard_input_ends_while_models_load_ends_without_a_word(models: Path) -> None:
    with start_with_parent(models) as popen:
        told, _ = popen.communicate()
    assert popen.returncode == 0
    assert not told


@pytest.mark.slow
def test_a_server_does_not_outlive_a_parent_that_is_killed(models: Path) -> None:
    program = f"""
import subprocess
with subprocess.Popen({command(models)!r}, stdin=subprocess.PIPE) as server:
    server.wait()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        ready = json.loads(parent.stdout.readline())
        parent.kill()
        assert parent.stdout.read() == ""  # every holder of the other end has exited, the server too
    assert ready["pid"] != parent.pid


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="has a terminal of POSIX")
def test_ctrl_c_ends_a_server_that_watches_a_terminal(models: Path) -> None:
    keyboard, terminal = os.openpty()
    with subprocess.Popen(command(models), stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        popen.send_signal(signal.SIGINT)
        popen.wait()
    os.close(keyboard)
    os.close(terminal)
    assert popen.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGHUP is a signal of POSIX")
@pytest.mark.parametrize("wrapper", [[], ["nohup"]])
def test_a_closed_terminal_stops_a_server_in_order_unless_it_was_started_with_nohup(
    models: Path, wrapper: list[str]
) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*wrapper, *command(models)], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as popen:
        assert popen.stdout is not None
        target = f"127.0.0.1:{json.loads(popen.stdout.readline())['port']}"
        popen.send_signal(signal.SIGHUP)
        if wrapper:
            with QuantraClient(target, "small") as client:
                assert client.models()
            popen.terminate()
        popen.communicate()
    assert popen.returncode == 0


def test_without_standard_input_there_is_no_parent_to_watch(models: Path) -> None:
    closing = f"import os; os.close(0); os.execv({sys.executable!r}, {command(models)!r})"
    done = subprocess.run([sys.executable, "-c", closing], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = lines_of(done.stderr)
    assert "--parent-watch needs standard input, which is closed" in line


def test_calls_have_little_time_once_the_parent_has_exited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ORPHAN_DRAIN_S", 0.01)

    async def orphaned_while_draining() -> bool:
        ended, told = False, ShutdownSignal()

        async def drain() -> None:
            nonlocal ended
            try:
                told.stop_as_orphan()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended = True
                raise

        await told.drain(drain())
        await asyncio.sleep(0)
        return ended

    assert asyncio.run(orphaned_while_draining())


def test_a_running_drain_is_waited_for() -> None:
    async def drained() -> list[str]:
        told, order = ShutdownSignal(), list[str]()

        async def drain() -> None:
            await asyncio.sleep(0)
            order.append("drained")

        await told.drain(drain())
        return [*order, "back"]

    assert asyncio.run(drained()) == ["drained", "back"]


def test_an_error_of_a_drain_is_not_lost() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    async def drained() -> None:
        await ShutdownSignal().drain(broken())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(drained())


def test_a_parent_may_exit_after_its_server() -> None:
    here, there = os.pipe()

    async def watched() -> None:
        end_with_parent(ShutdownSignal(), here)

    asyncio.run(watched())
    os.close(there)
    os.close(here)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_server_that_has_ended_leaves_no_connection_and_no_port(*, is_drained: bool) -> None:
    with ExitStack() as server:
        running = server.enter_context(serving(CannedService(forecast_of)))
        place = ("127.0.0.1", int(running.target.rpartition(":")[2]))
        with socket.create_connection(place, timeout=SOON_S) as connection:
            assert connection.recv(9)  # the server's settings, so it is accepted
            if is_drained:
                running.begin_drain()
                running.drained.result(SOON_S)
            else:
                server.close()
            while connection.recv(1000):
                pass
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place)


def test_a_server_that_has_ended_leaves_no_socket_in_its_folder(tmp_path: Path) -> None:
    address = UnixAddress(tmp_path / "run" / "quantra.sock")
    with serving(CannedService(forecast_of), address=address), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SOON_S)
        connection.connect(str(address.path))
        assert connection.recv(9)  # the server's settings, so it is accepted
    assert not address.path.exists()
