"""Ctrl+C while a program loads its libraries: one line and exit code 130."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from predictor.interruption import exit_on_interrupt

PYTHON = Path(__file__).parents[2] / "python"
PROGRAMS = {
    "quantra": (str(Path(sys.executable).parent / "quantra"),),
    "predictor.cli": (sys.executable, "-m", "predictor.cli"),
    "trainers.stock": (sys.executable, "-m", "trainers.stock"),
}
SLOW = """
import sys
sys.stdout.write("loading\\n")
sys.stdout.flush()
try:
    sys.stdin.read()
except KeyboardInterrupt:
    raise ImportError("a library that makes something else of Ctrl+C") from None
"""
"""A library that never finishes loading."""


def interrupt_import(library: str, folder: Path, *command: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program that gets Ctrl+C while it loads a library."""
    (folder / f"{library}.py").write_text(SLOW)
    path = os.pathsep.join(map(str, (folder, PYTHON)))
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as program:
        assert program.stdout is not None
        begun = program.stdout.readline()
        program.send_signal(signal.SIGINT)
        output, error = program.communicate()
    assert begun == "loading\n", error
    return program.returncode, output, error


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(
    ("program", "library", "command"),
    [
        ("quantra", "numpy", "train stock"),
        ("quantra", "typer", ""),
        ("quantra", "torch", "train stock"),
        ("predictor.cli", "numpy", "predict"),
        ("predictor.cli", "typer", ""),
        ("trainers.stock", "numpy", ""),
        ("trainers.stock", "typer", ""),
        ("trainers.stock", "torch", ""),
    ],
)
def test_ctrl_c_while_libraries_load_is_one_line(program: str, library: str, command: str, tmp_path: Path) -> None:
    words = (*PROGRAMS[program], *command.split(), "--help")
    assert interrupt_import(library, tmp_path, *words) == (130, "", "stopped by Ctrl+C\n")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(
    "command", [("predict", "--artifact", "a", "--bars", "b"), ("inspect", "a"), ("alias", "a", "b", "1")]
)
def test_ctrl_c_while_a_command_loads_torch_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    program = (*PROGRAMS["predictor.cli"], *command)

    assert interrupt_import("torch", tmp_path, *program) == (130, "", "stopped by Ctrl+C\n")


def test_what_ctrl_c_does_otherwise_is_as_before_when_all_is_loaded() -> None:
    with exit_on_interrupt():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_takes_no_heed_of_ctrl_c_still_takes_none() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with exit_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_another_thread_loads_without_touching_ctrl_c() -> None:
    found: list[object] = []

    def load() -> None:
        with exit_on_interrupt():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()

    assert found == [signal.default_int_handler]
