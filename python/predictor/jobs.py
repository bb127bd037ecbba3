"""Independent jobs on common material: in this process or in several."""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar, final

from predictor.durations import format_duration
from predictor.errors import DeadlineExceededError, QuantraError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
Work = Callable[[JobT], ResultT]
Prepare = Callable[[], Work[JobT, ResultT]]

ENDING_S: Final = 5.0
"""Seconds in which a process ends after its connection was lost."""
REPEATS: Final = 3
"""How often a job runs again whose process or node was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Counts of a run's jobs."""

    jobs: int
    done: int
    running: int
    failed: int
    lost: int
    """Times that a job ended with its process or node."""
    repeated: int
    seconds_left: float | None
    """None before the first job has ended."""

    def __str__(self) -> str:
        """All counts but those of all jobs and the done ones, such as `2 running, 1 lost, 1 repeated, 3 min left`."""
        counts = {"running": self.running, "failed": self.failed, "lost": self.lost, "repeated": self.repeated}
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        if self.seconds_left:
            parts.append(f"{format_duration(self.seconds_left)} left")
        return ", ".join(parts)


class JobOutcome(NamedTuple):
    """The end of a job: its result, or an error of this job only."""

    result: Any = None
    error: QuantraError | None = None
    is_lost: bool = False
    """Whether the process or its node ended before the job."""


class JobPool(Protocol):
    """Where the jobs of a run are executed."""

    @property
    def slots(self) -> int:
        """Most jobs at the same time, at least 1."""
        ...

    def start(self, number: int, job: Any) -> bool:
        """Start a job under a number. Returns whether its time begins now; otherwise `wait` reports when it does."""
        ...

    def wait(self, seconds: float | None) -> Iterable[tuple[int, JobOutcome | None]]:
        """Wait at most this long for jobs that begin, with None, or end.

        Raises:
            Exception: The work cannot be prepared, or has a bug.
        """
        ...

    def stop(self, number: int) -> None:
        """End a running job."""
        ...


class JobRunner(ABC):
    """Runs jobs.

    Args:
        timeout: Most seconds of a job; None for no limit.
        advice: What to do after a job lost its process too often.
    """

    is_parallel: ClassVar[bool] = True
    """Whether other processes run the jobs."""

    def __init__(self, *, timeout: float | None = None, advice: str = "use fewer --workers") -> None:
        self.timeout, self.advice = timeout, advice
        self.progress = JobProgress(jobs=0, done=0, running=0, failed=0, lost=0, repeated=0, seconds_left=None)

    @property
    def remark(self) -> str:
        """The progress of jobs in other processes, to append to a line of text; else empty."""
        return f"; {self.progress}" if self.is_parallel and str(self.progress) else ""

    @abstractmethod
    def _open(self, prepare: Prepare[Any, Any], count: int) -> AbstractContextManager[JobPool]:
        """Open a pool for a number of jobs; running jobs end with the context."""

    def run(
        self,
        prepare: Prepare[JobT, ResultT],
        jobs: Iterable[JobT],
        *,
        count: int | None = None,
        name: Callable[[JobT], str] = str,
        in_order: bool = False,
        on_failure: Callable[[JobT, QuantraError], None] | None = None,
    ) -> Iterator[tuple[JobT, ResultT]]:
        """Run jobs, and yield each with its result when it is done. The others go on when one fails.

        Args:
            prepare: Prepares the work once in each process, such as by loading a model, and holds the common material.
                It can be pickled, like jobs, results and errors. The work raises a QuantraError if only its job failed.
            jobs: The jobs; each is taken when it can begin.
            count: Their number; needed if they have no length, as of a generator.
            name: Names a job in errors.
            in_order: Whether to yield results in the order of the jobs. Job k is then taken when exactly the results
                up to job k - n have been yielded, where n is the number of processes.
            on_failure: Receives a failed job and its error. By default, the errors are raised after the last job.

        Raises:
            QuantraError: Jobs failed, or the work cannot be prepared.
            TypeError: The jobs have no length, and `count` is missing.
        """
        if count is None:
            if not isinstance(jobs, Sized):
                raise TypeError("jobs without a length need `count`")
            count = len(jobs)
        if count == 0:
            return
        errors: list[QuantraError] = []
        with self._open(prepare, count) as pool:
            for job, outcome in _JobRun(self, pool, jobs, count, name).outcomes(in_order=in_order):
                if outcome.error is None:
                    yield job, outcome.result
                elif on_failure is None:
                    errors.append(outcome.error)
                else:
                    on_failure(job, outcome.error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            causes = "; ".join(sorted({error.message for error in errors}))
            raise QuantraError(f"{len(errors)} of {count} jobs failed: {causes}")


@final
class _JobRun(Generic[JobT]):
    """One run of jobs in a pool."""

    def __init__(
        self, runner: JobRunner, pool: JobPool, jobs: Iterable[JobT], total: int, name: Callable[[JobT], str]
    ) -> None:
        self._runner, self._pool, self._jobs, self._total, self._name = runner, pool, enumerate(jobs), total, name
        self._open_jobs: dict[int, JobT] = {}
        """Jobs whose outcome was not yielded yet."""
        self._start_times: dict[int, float] = {}
        """When each running job began; infinity before that."""
        self._outcomes: dict[int, JobOutcome] = {}
        self._losses = Counter[int]()
        self._done_count = self._failed_count = self._repeat_count = 0
        self._start = time.monotonic()

    def outcomes(self, *, in_order: bool) -> Iterator[tuple[JobT, JobOutcome]]:
        """Run all jobs, and yield each with its outcome."""
        while True:
            while len(self._open_jobs) < self._pool.slots and (numbered := next(self._jobs, None)) is not None:
                number, self._open_jobs[numbered[0]] = numbered
                self._begin(number)
            if not self._open_jobs:
                return
            while (
                number := next(iter(self._open_jobs)) if in_order else next(iter(self._outcomes), -1)
            ) not in self._outcomes:
                self._wait()
            job, outcome = self._open_jobs.pop(number), self._outcomes.pop(number)
            self._done_count += outcome.error is None
            self._failed_count += outcome.error is not None
            self._update_progress()
            yield job, outcome

    def _begin(self, number: int) -> None:
        has_begun = self._pool.start(number, self._open_jobs[number])
        self._start_times[number] = time.monotonic() if has_begun else float("inf")
        self._update_progress()

    def _wait(self) -> None:
        """Wait for a job that ends, and end those that take too long."""
        limit = self._runner.timeout
        seconds = limit and min(limit, max(0.0, min(self._start_times.values()) + limit - time.monotonic()))
        for number, outcome in self._pool.wait(seconds):
            if outcome is None:
                self._start_times[number] = time.monotonic()
            else:
                self._end(number, outcome)
        if limit is None:
            return
        for number in [number for number, start in self._start_times.items() if time.monotonic() - start >= limit]:
            self._pool.stop(number)
            name = self._name(self._open_jobs[number])
            problem = f"{name} did not end within {limit:g} seconds and was stopped; raise --job-timeout if it is slow"
            self._end(number, JobOutcome(error=DeadlineExceededError(problem)))

    def _end(self, number: int, outcome: JobOutcome) -> None:
        del self._start_times[number]
        if not outcome.is_lost:
            self._outcomes[number] = outcome
            return
        self._losses[number] += 1
        if self._losses[number] <= REPEATS:
            self._repeat_count += 1
            self._begin(number)
            return
        name, reason = (
            self._name(self._open_jobs[number]),
            "" if outcome.error is None else f" ({outcome.error.message})",
        )
        problem = f"{name} lost its process {REPEATS + 1} times, perhaps because memory ran out{reason}"
        self._outcomes[number] = JobOutcome(error=QuantraError(f"{problem}; {self._runner.advice}"))

    def _update_progress(self) -> None:
        ended_count = self._done_count + self._failed_count
        seconds_left = (
            (time.monotonic() - self._start) / ended_count * max(0, self._total - ended_count) if ended_count else None
        )
        self._runner.progress = JobProgress(
            jobs=self._total,
            done=self._done_count,
            running=len(self._start_times),
            failed=self._failed_count,
            lost=self._losses.total(),
            repeated=self._repeat_count,
            seconds_left=seconds_left,
        )


@final
class LocalRunner(JobRunner):
    """Runs one job after the other in this process."""

    is_parallel = False

    @contextmanager
    def _open(self, prepare: Prepare[Any, Any], count: int) -> Generator[JobPool]:
        del count
        yield _SequentialPool(prepare())


@final
class _SequentialPool:
    """Runs each job in this process when `wait` is called."""

    slots = 1

    def __init__(self, work: Work[Any, Any]) -> None:
        self._work = work
        self._started_jobs = deque[tuple[int, Any]]()

    def start(self, number: int, job: Any) -> bool:
        self._started_jobs.append((number, job))
        return True

    def wait(self, seconds: float | None) -> Iterator[tuple[int, JobOutcome]]:
        del seconds
        number, job = self._started_jobs.popleft()
        yield number, run_job(self._work, job)

    def stop(self, number: int) -> None:
        raise NotImplementedError


@final
class ProcessRunner(JobRunner):
    """Runs jobs in other processes of this machine, with one torch thread each.

    Args:
        workers: Most processes.
        timeout: See `JobRunner`; the preparation of a process is not counted.
        advice: See `JobRunner`.
    """

    def __init__(self, workers: int, *, timeout: float | None = None, advice: str = "use fewer --workers") -> None:
        super().__init__(timeout=timeout, advice=advice)
        self._workers = workers

    @contextmanager
    def _open(self, prepare: Prepare[Any, Any], count: int) -> Generator[JobPool]:
        pool = _ProcessPool(min(self._workers, count), prepare)
        try:
            yield pool
        finally:
            pool.close()


@final
@dataclass(slots=True, eq=False)
class _Worker:
    process: SpawnProcess
    connection: "Connection[Any, Any]"
    has_begun: bool = False
    """Whether it has begun a job."""

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def has_failed_to_start(self) -> bool:
        """Whether it ended by an error of Python, which it has printed, before its first job."""
        if self.has_begun:
            return False
        self.process.join(ENDING_S)
        return self.process.exitcode == 1


@final
class _ProcessPool:
    """Processes that take a job at a time from a pipe."""

    def __init__(self, slots: int, prepare: Prepare[Any, Any]) -> None:
        self.slots = slots
        self._prepare = prepare
        self._idle_workers: list[_Worker] = []
        self._busy_workers: dict[int, _Worker] = {}

    def start(self, number: int, job: Any) -> bool:
        messages = [job] if self._idle_workers else [self._prepare, job]
        worker = self._idle_workers.pop() if self._idle_workers else self._add()
        self._busy_workers[number] = worker
        with suppress(BrokenPipeError, ConnectionResetError):  # it was killed, and `wait` reads the end of its pipe
            for message in messages:
                worker.connection.send(message)
        return False

    def wait(self, seconds: float | None) -> Iterator[tuple[int, JobOutcome | None]]:
        ready_connections = wait([worker.connection for worker in self._busy_workers.values()], seconds)
        for number, worker in list(self._busy_workers.items()):
            if worker.connection not in ready_connections:
                continue
            try:
                message: JobOutcome | BaseException | None = worker.connection.recv()
            except (EOFError, ConnectionResetError) as error:
                if worker.has_failed_to_start():
                    raise QuantraError(
                        "a process for jobs failed when it started, with the error above. Each process imports the "
                        'script that runs: put its calls under `if __name__ == "__main__":`'
                    ) from error
                self.stop(number)
                yield number, JobOutcome(is_lost=True)
                continue
            if isinstance(message, BaseException):
                raise message
            worker.has_begun = True
            if message is not None:
                self._idle_workers.append(worker)
                del self._busy_workers[number]
            yield number, message

    def stop(self, number: int) -> None:
        self._busy_workers.pop(number).end()

    def close(self) -> None:
        for worker in (*self._idle_workers, *self._busy_workers.values()):
            worker.end()

    def _add(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve_jobs, args=(there,))
        with _block_interrupts():
            process.start()
        there.close()
        return _Worker(process, here)


@contextmanager
def _block_interrupts() -> Generator[None]:
    """Let processes that start in this context ignore Ctrl+C; this process receives it at the end."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its start, otherwise with the first process, unblocks Ctrl+C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve_jobs(connection: "Connection[Any, Any]") -> None:
    """Receive how work is prepared, then run the jobs that come from another process until it ends this one."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        work = prepare_work(connection.recv())
        while True:
            job = connection.recv()
            connection.send(None)
            connection.send(run_job(work, job))
    except Exception as error:  # noqa: BLE001 - process boundary: the other process raises it
        error.add_note("".join(traceback.format_exception(error)))
        connection.send(error)


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for jobs forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def prepare_work(prepare: Prepare[JobT, ResultT]) -> Work[JobT, ResultT]:
    """The work of a process that runs one job at a time, with one torch thread."""
    if "torch" in sys.modules:  # by unpickling `prepare`; for work without torch, the import would take seconds
        import torch

        torch.set_num_threads(1)
    return prepare()


def run_job(work: Work[Any, Any], job: Any) -> JobOutcome:
    """Run a job; a QuantraError becomes its outcome."""
    try:
        return JobOutcome(result=work(job))
    except QuantraError as error:
        return JobOutcome(error=error)
