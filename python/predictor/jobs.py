"""Independent jobs on common material: in this process or in several."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Protocol, TypeVar, final

from predictor.errors import QuantraError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
Work = Callable[[JobT], ResultT]

_PREPARE: ContextVar[Callable[[], Work[Any, Any]]] = ContextVar("prepare")
"""What prepares the work of a worker process."""


class JobRunner(Protocol):
    """Runs jobs."""

    def run(self, prepare: Callable[[], Work[JobT, ResultT]], jobs: Sequence[JobT]) -> Iterator[tuple[JobT, ResultT]]:
        """Run jobs, and yield each with its result when it is done, in any order. The first error ends all.

        Args:
            prepare: Prepares the work once in each process, such as by loading a model, and holds the common material.
                It can be pickled, like jobs, results and errors.
            jobs: The jobs.

        Raises:
            QuantraError: A process was killed, or as the work.
        """
        ...


@final
class InThisProcess:
    """Runs one job after the other in this process."""

    def run(self, prepare: Callable[[], Work[JobT, ResultT]], jobs: Sequence[JobT]) -> Iterator[tuple[JobT, ResultT]]:
        """As `JobRunner.run`, in the order of the jobs."""
        if jobs:
            work = prepare()
            for job in jobs:
                yield job, work(job)


@final
class InProcesses:
    """Runs jobs in other processes of this machine, with one torch thread each.

    Args:
        workers: Most processes.
        advice: What to do after a process was killed.
    """

    def __init__(self, workers: int, *, advice: str = "use fewer --workers") -> None:
        self._workers, self._advice = workers, advice

    def run(self, prepare: Callable[[], Work[JobT, ResultT]], jobs: Sequence[JobT]) -> Iterator[tuple[JobT, ResultT]]:
        """As `JobRunner.run`; each process reads the common material once."""
        if not jobs:
            return
        with ProcessPoolExecutor(
            min(self._workers, len(jobs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(prepare,),
        ) as pool:
            asked = {pool.submit(_run_job, job): job for job in jobs}
            try:
                for done in as_completed(asked):
                    yield asked[done], done.result()
            except BrokenProcessPool as error:
                raise QuantraError(
                    f"a worker process was killed, perhaps because memory ran out; {self._advice}"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def runner_of(workers: int, *, advice: str = "use fewer --workers") -> JobRunner:
    """The runner for a number of processes; 1 uses this one."""
    return InThisProcess() if workers == 1 else InProcesses(workers, advice=advice)


def prepare_work(prepare: Callable[[], Work[JobT, ResultT]]) -> Work[JobT, ResultT]:
    """The work of a process that runs one job at a time, with one torch thread."""
    import torch  # takes seconds

    torch.set_num_threads(1)
    return prepare()


def _begin(prepare: Callable[[], Work[Any, Any]]) -> None:
    """Begin a worker process."""
    _PREPARE.set(prepare)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for jobs forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_job(job: Any) -> Any:
    return _prepared()(job)


@lru_cache(maxsize=1)
def _prepared() -> Work[Any, Any]:
    """The work, prepared with the first job of this process: an error of an initializer would not reach the caller."""
    return prepare_work(_PREPARE.get())
