"""Jobs in one or several processes: results, errors and killed processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from predictor.errors import ConfigurationError, QuantraError
from predictor.jobs import InProcesses, InThisProcess, JobRunner


def multiplier(factor: int) -> Callable[[int], int]:
    return partial(multiply, factor)


def multiply(factor: int, number: int) -> int:
    if number < 0:
        raise ConfigurationError(f"{number} is negative")
    return factor * number


def ends_its_process(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def never() -> Callable[[int], int]:
    raise AssertionError("prepared without jobs")


def unprepared() -> Callable[[int], int]:
    raise ConfigurationError("cannot be prepared")


def suicide() -> Callable[[int], int]:
    return ends_its_process


@pytest.fixture(params=[InThisProcess(), InProcesses(2)], ids=["one", "two"])
def runner(request: pytest.FixtureRequest) -> JobRunner:
    return request.param


def test_each_job_comes_with_its_result(runner: JobRunner) -> None:
    assert sorted(runner.run(partial(multiplier, 3), [5, 1, 7])) == [(1, 3), (5, 15), (7, 21)]


def test_nothing_is_prepared_without_jobs(runner: JobRunner) -> None:
    assert list(runner.run(never, [])) == []


def test_an_error_of_a_job_ends_the_run(runner: JobRunner) -> None:
    with pytest.raises(ConfigurationError, match="-1 is negative"):
        list(runner.run(partial(multiplier, 3), [1, -1]))


def test_an_error_of_the_preparation_ends_the_run(runner: JobRunner) -> None:
    with pytest.raises(ConfigurationError, match="cannot be prepared"):
        list(runner.run(unprepared, [1, 2]))


def test_a_killed_process_is_an_error_with_advice() -> None:
    with pytest.raises(QuantraError, match="a worker process was killed, perhaps because memory ran out; buy memory"):
        list(InProcesses(2, advice="buy memory").run(suicide, [1, 2]))


PROGRAM = """
import signal
from predictor.jobs import InProcesses

def wait(number):
    print("begun", flush=True)
    signal.pause()

def prepare():
    return wait

if __name__ == "__main__":
    list(InProcesses(2).run(prepare, [1, 2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_killed_parent(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
        program.send_signal(number)
        assert program.stdout.read() == ""  # returns when the last process has closed it
