"""C# in tests: builds the solution once per test run, and compiles programs against its libraries."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

DOTNET = Path(__file__).resolve().parents[1] / "dotnet"
CONFIGURATION = "Release"
WITHOUT_SERVERS = ("-nologo", "-nodeReuse:false", "-p:UseSharedCompilation=false", "-v:quiet")
"""Options of a build that leaves no process behind."""
QUIET = (*WITHOUT_SERVERS, "-p:RunAnalyzers=false")
"""Options of a build without analyzers. Not for the solution, which `make check` would then take for analyzed."""
OLDER = "net8.0"
_FOLDER = DOTNET / "bin"
_LOCK = FileLock(_FOLDER / "build.lock")
"""Builds write to the same folders of the libraries, so only one process builds at a time."""
_BUILT = _FOLDER / "built"
"""File with the id of the last test run that built the solution."""


@cache
def built_solution() -> str:
    """Build the solution and its tests on the older framework, once per test run.

    Returns:
        The path of `dotnet`.
    """
    dotnet = shutil.which("dotnet")
    if dotnet is None:
        pytest.skip("there is no dotnet on the PATH")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    _FOLDER.mkdir(exist_ok=True)
    with _LOCK:
        if not run or not _BUILT.exists() or _BUILT.read_text() != run:
            run_dotnet(
                "build", "Quantra.slnx", "-c", CONFIGURATION, "-warnaserror", *WITHOUT_SERVERS
            )  # done if `make check` ran
            older = f"-p:LibraryFramework={OLDER}"
            run_dotnet("build", "Quantra.Client.Tests", "-c", CONFIGURATION, older, *QUIET)
            _BUILT.write_text(run)
    return dotnet


def assembly(project: str, framework: str = "net10.0") -> Path:
    """Path of a built program of the solution."""
    return DOTNET / project / "bin" / CONFIGURATION / framework / f"{Path(project).name}.dll"


def build_program(folder: Path, project: str, sources: Mapping[str, str]) -> Path:
    """Build a project that references those of the solution.

    Args:
        folder: of the project.
        project: text of its project file.
        sources: text of each source file, by name.

    Returns:
        The program.
    """
    built_solution()
    folder.mkdir(exist_ok=True)
    for name, text in {"Ask.csproj": project, **sources}.items():
        (folder / name).write_text(text, encoding="utf-8")
    with _LOCK:
        # An environment variable applies to referenced projects too.
        built = "-p:BuildProjectReferences=false"
        run_dotnet("build", built, *QUIET, folder=folder, more={"Configuration": CONFIGURATION})
    return folder / "bin" / CONFIGURATION / "net10.0" / "Ask.dll"


def run_program(
    *command: str, environment: Path = Path(sys.prefix), more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with an environment's Python and further variables."""
    variables = {
        **os.environ,
        **(more or {}),
        "QUANTRA_PYTHON": sys.executable,
        "QUANTRA_VENV": str(environment),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "",
    }
    return subprocess.run(command, cwd=DOTNET, env=variables, capture_output=True, text=True, check=False)


def run_dotnet(*command: str, folder: Path = DOTNET, more: Mapping[str, str] | None = None) -> str:
    """Run `dotnet` with this Python.

    Returns:
        The output.
    """
    variables = {**os.environ, "QUANTRA_PYTHON": sys.executable, **(more or {})}
    program = shutil.which("dotnet") or "dotnet"
    done = subprocess.run([program, *command], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
