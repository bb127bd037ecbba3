"""Runs the commands that the demo and the README print."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from csharp import build_program

from trainers.demo.dotnet import CLIENT, PROJECT

ROOT = Path(__file__).parents[1]
SCRIPTS = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


def run_command(line: str, folder: Path) -> str:
    """Run a shell command in a folder and return its output."""
    return _run(shlex.split(line), folder)


def run_python(program: str, folder: Path) -> str:
    """Run a Python program and return its output."""
    return _run([sys.executable, "-c", program], folder)


def run_csharp(program: str, folder: Path, project: Path) -> str:
    """Build a C# program in `project`, run it in `folder`, and return its output."""
    built = build_program(project, PROJECT.format(client=CLIENT), {"Program.cs": program})
    return _run(["dotnet", str(built)], folder)


@contextmanager
def running(line: str, folder: Path) -> Generator[str]:
    """Run a server by a shell command until the block ends; yields its first line of output."""
    command = shlex.split(line)
    with subprocess.Popen(
        [shutil.which(command[0], path=ENVIRONMENT["PATH"]) or command[0], *command[1:]],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline()
        finally:
            server.terminate()


def _run(command: list[str], folder: Path) -> str:
    program = shutil.which(command[0], path=ENVIRONMENT["PATH"]) or command[0]
    ran = subprocess.run(
        [program, *command[1:]], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command} failed:\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout
