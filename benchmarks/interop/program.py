"""The C# side of the benchmark: built once, and run in processes that print their results as lines of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_DOTNET: Final = Path(__file__).parents[2] / "dotnet"
_PROJECT: Final = _DOTNET / "benchmarks" / "Quantra.Benchmark"
_SAMPLE: Final = _DOTNET / "samples" / "Quantra.Terminal"
PROGRAM: Final = _PROJECT / "bin" / "Release" / "net10.0" / "Quantra.Benchmark.dll"
TERMINAL: Final = _SAMPLE / "bin" / "Release" / "net10.0" / "Quantra.Terminal.dll"
"""The terminal sample."""

Results = dict[str, float]
"""Results by name."""


def build() -> None:
    """Build the benchmark and the sample in Release."""
    command = ["dotnet", "build", "-c", "Release", "-v", "quiet", "-nologo", "-nodeReuse:false"]
    for project in (_PROJECT, _SAMPLE):
        subprocess.run([*command, "-p:UseSharedCompilation=false", str(project)], check=True, env=environment())


def environment() -> dict[str, str]:
    """Environment with one torch thread and this Python."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "QUANTRA_PYTHON": sys.executable, "QUANTRA_VENV": sys.prefix}


def command(*subject: object) -> list[str]:
    """Command line of a subject."""
    return ["dotnet", str(PROGRAM), *map(str, subject)]


def results_of(*subject: object) -> list[Results]:
    """Run a subject to its end and return its results."""
    ran = subprocess.run(command(*subject), env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


@contextmanager
def running(*subject: object) -> Generator["subprocess.Popen[str]"]:
    """A running subject, which is killed at the end of the block."""
    with subprocess.Popen(
        command(*subject), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_result(process: "subprocess.Popen[str]") -> Results:
    """Read the next result of a subject."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def request_result(process: "subprocess.Popen[str]", question: str) -> Results:
    """Send a request to a subject and read its result."""
    assert process.stdin is not None
    process.stdin.write(f"{question}\n")
    process.stdin.flush()
    return read_result(process)


@contextmanager
def turns(*subject: object) -> Generator[Callable[[str, int], float]]:
    """A function that runs a turn, by its name and number of calls or seconds."""
    with running("turns", *subject) as process:
        yield lambda name, count: request_result(process, f"{name} {count}")[name]
