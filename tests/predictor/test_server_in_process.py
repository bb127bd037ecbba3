"""`serve` called in a program: it restores signal handlers and interpreter settings."""

import asyncio
import gc
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artifacts import small_models

from predictor.model import Model
from predictor.server import Address, ServerSettings, process, serve
from predictor.server.addresses import BoundAddresses

SIGNALS = (signal.SIGTERM, signal.SIGINT)
OURS = 0.00314
OUR_THRESHOLDS = (701, 11, 12)
"""A distinctive switch interval."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


def own_handler(*_: object) -> None:
    raise AssertionError("the caller's own handler was called while the server ran")


@pytest.fixture
def handlers() -> Iterator[None]:
    """A program with its own signal handlers, switch interval and garbage collection."""
    before = [signal.signal(number, own_handler) for number in SIGNALS]
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(OURS)
    gc.set_threshold(*OUR_THRESHOLDS)
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def settings(models: Path, port: int = 0) -> ServerSettings:
    return ServerSettings(models=models, listen=Address("127.0.0.1", port), device="cpu")


def check_as_before() -> None:
    assert [signal.getsignal(number) for number in SIGNALS] == [own_handler, own_handler]
    assert sys.getswitchinterval() == pytest.approx(OURS)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == OUR_THRESHOLDS


def stop_when_ready(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> list[float]:
    """Send the signal once the server is ready; returns the switch interval at that time."""
    seen: list[float] = []

    def announce(_: object) -> None:
        seen.append(sys.getswitchinterval())
        signal.raise_signal(number)

    monkeypatch.setattr(BoundAddresses, "announce", announce)
    return seen


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_stopped_server_restores_signals_and_switch_interval(
    models: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    seen = stop_when_ready(monkeypatch, number)
    assert serve(settings(models)) == 0
    assert seen == [pytest.approx(process.SWITCH_INTERVAL_S)]
    check_as_before()


@pytest.mark.usefixtures("handlers")
def test_a_server_without_models_restores_them(tmp_path: Path) -> None:
    assert serve(settings(tmp_path)) == 1
    check_as_before()


@pytest.mark.usefixtures("handlers")
def test_a_server_without_a_free_port_restores_them(models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert serve(settings(models, other.getsockname()[1])) == 1
    check_as_before()


@pytest.mark.usefixtures("handlers")
def test_a_failing_server_restores_them(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(BoundAddresses, "announce", broken)
    with pytest.raises(ZeroDivisionError):
        serve(settings(models))
    check_as_before()


def test_the_collector_passes_over_what_is_imported_but_not_over_models(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bool]] = []

    def announce(_: object) -> None:
        is_looked_at = any(isinstance(one, Model) for one in gc.get_objects())
        seen.append((gc.get_freeze_count(), is_looked_at))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(BoundAddresses, "announce", announce)
    assert serve(settings(models)) == 0
    ((frozen, is_looked_at),) = seen
    assert frozen > 0
    assert is_looked_at


def test_a_server_that_fails_gives_its_port_back(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert serve(settings(tmp_path, port)) == 1
    socket.create_server(("127.0.0.1", port), reuse_port=False).close()


def test_ctrl_c_is_pythons_own_again_after_a_server(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio restores the SIGINT handler only if it finds its own."""
    before: Callable[..., object] | int | None = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stop_when_ready(monkeypatch, signal.SIGTERM)
        assert serve(settings(models)) == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


async def name_of_the_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_a_server_runs_on_uvloop_where_it_is_installed() -> None:
    pytest.importorskip("uvloop", reason="the extra fast is not installed", exc_type=ModuleNotFoundError)
    assert process.run(name_of_the_loop()) == "uvloop"


def test_a_server_runs_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: str) -> None:
        return None

    monkeypatch.setattr(process, "find_spec", nowhere)
    assert process.run(name_of_the_loop()) == "asyncio"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_server_takes_as_many_descriptors_as_it_may_have() -> None:
    program = """
import resource
from predictor.server import process
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
process._allow_connections()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_model_is_loaded_without_torchs_compiler(models: Path) -> None:
    """The import would add more than a second to startup."""
    program = f"import sys; from predictor import Forecaster; Forecaster.load({str(models / 'small' / '1')!r})"
    command = [sys.executable, "-c", f"{program}; print('torch._dynamo' in sys.modules)"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "False"
