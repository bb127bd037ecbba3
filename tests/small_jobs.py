"""Jobs without much to import, so that other processes start soon, and jobs that are sent to no process."""

import os
import pickle
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final

from predictor.errors import ConfigurationError
from predictor.jobs import JobPool, JobRunner, Prepare, _SequentialPool, run_job

T = TypeVar("T")


@final
class PickledJobs(JobRunner):
    """Runs jobs in this process, but sends work, jobs, results and errors as to another, which takes seconds to start.

    Processes run real work in test_jobs.py, test_stock_backtest.py, test_stock_best.py and test_forecast_files.py.
    """

    @contextmanager
    def _open(self, prepare: Prepare[Any, Any], count: int) -> Generator[JobPool]:
        del count
        work = copy_as_sent(prepare)()

        def run(job: Any) -> Any:
            outcome = copy_as_sent(run_job(work, copy_as_sent(job)))
            if outcome.error is not None:
                raise outcome.error
            return outcome.result

        yield _SequentialPool(run)


def copy_as_sent(value: T) -> T:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - its own bytes


def multiplier(factor: int) -> Callable[[int], int]:
    return partial(multiply, factor)


def multiply(factor: int, number: int) -> int:
    if number < 0:
        raise ConfigurationError(f"{number} is negative")
    return factor * number


def unprepared() -> Callable[[int], int]:
    raise ConfigurationError("there is no model")


def sleeper() -> Callable[[float], float]:
    return sleep


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def prepare_a_crash() -> Callable[[int], int]:
    return crash


def crash(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def killer(folder: Path) -> Callable[[int], int]:
    return partial(kill_the_node_once, folder)


def kill_the_node_once(folder: Path, number: int) -> int:
    """End the first node that runs this, and this process."""
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return number
    for process in (os.getppid(), os.getpid()):
        os.kill(process, signal.SIGKILL)
    return -1
