"""Jobs in one or several processes: results, errors and killed processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import truediv
from pathlib import Path

import pytest
from small_jobs import crash, multiplier, prepare_a_crash, sleeper, unprepared

from predictor.errors import ConfigurationError, DeadlineExceededError, QuantraError
from predictor.jobs import JobProgress, JobRunner, LocalRunner, ProcessRunner


def divider() -> Callable[[int], float]:
    return partial(truediv, 1)


def victim(folder: Path) -> Callable[[int], int]:
    return partial(end_the_process_once, folder)


def end_the_process_once(folder: Path, number: int) -> int:
    try:
        (folder / "ended").touch(exist_ok=False)
    except FileExistsError:
        return number
    return crash(number)


def never() -> Callable[[int], int]:
    raise AssertionError("prepared without jobs")


def exits() -> Callable[[int], int]:
    return lambda _job: os._exit(1)


class Unreadable:
    """Work that another process cannot read."""

    def __call__(self) -> Callable[[int], int]:
        return prepare_a_crash()

    def __reduce__(self) -> tuple[object, ...]:
        return refuse, ()


def refuse() -> Unreadable:
    sys.exit("cannot be read")


def test_a_process_that_fails_at_its_start_is_an_error_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    runner = ProcessRunner(1)
    with pytest.raises(QuantraError, match=r'^a process for jobs failed when it started, .*__name__ == "__main__"'):
        list(runner.run(Unreadable(), [1]))
    assert runner.progress.lost == 0
    assert "cannot be read" in capfd.readouterr().err


class Refused:
    """Work whose inputs another process refuses."""

    def __reduce__(self) -> tuple[object, ...]:
        return unprepared, ()

    def __call__(self) -> Callable[[int], int]:
        return unprepared()


def test_inputs_that_a_process_refuses_are_an_error_with_its_reason() -> None:
    with pytest.raises(ConfigurationError, match=r"^there is no model"):
        list(ProcessRunner(1).run(Refused(), [1, 2]))


@pytest.fixture(params=[LocalRunner(), ProcessRunner(2)], ids=["one", "two"])
def runner(request: pytest.FixtureRequest) -> JobRunner:
    return request.param


def test_each_job_comes_with_its_result(runner: JobRunner) -> None:
    assert sorted(runner.run(partial(multiplier, 3), [5, 1, 7])) == [(1, 3), (5, 15), (7, 21)]


def test_jobs_without_a_length_need_their_count() -> None:
    with pytest.raises(TypeError, match="need `count`"):
        next(LocalRunner().run(never, iter([1])))


def test_nothing_is_prepared_without_jobs(runner: JobRunner) -> None:
    assert list(runner.run(never, [])) == []


def test_the_others_go_on_when_a_job_fails(runner: JobRunner) -> None:
    results: list[tuple[int, int]] = []
    with pytest.raises(ConfigurationError, match=r"^-1 is negative$"):
        results.extend(runner.run(partial(multiplier, 3), [-1, 1, 2]))  # extend keeps what comes before the error
    assert sorted(results) == [(1, 3), (2, 6)]


def test_each_cause_of_failed_jobs_is_reported_once(runner: JobRunner) -> None:
    with pytest.raises(QuantraError, match=r"^3 of 4 jobs failed: -1 is negative; -2 is negative$"):
        list(runner.run(partial(multiplier, 3), [-2, 1, -1, -1]))


def test_failed_jobs_can_be_received_instead(runner: JobRunner) -> None:
    failed: list[tuple[int, str]] = []
    jobs = runner.run(
        partial(multiplier, 3), [1, -1], on_failure=lambda job, error: failed.append((job, error.message))
    )
    assert list(jobs) == [(1, 3)]
    assert failed == [(-1, "-1 is negative")]
    assert (runner.progress.done, runner.progress.failed, runner.progress.running) == (1, 1, 0)


def test_a_bug_of_the_work_ends_the_run(runner: JobRunner) -> None:
    with pytest.raises(ZeroDivisionError):
        list(runner.run(divider, [1, 0, 2, 3]))


def test_results_in_order_decide_about_later_jobs() -> None:
    """Job k knows the results up to job k - 2, even when the processes end their jobs in another order."""
    used: list[int] = []
    known: list[list[int]] = []

    def jobs() -> Iterator[float]:
        for seconds in (0.3, 0.0, 0.0, 0.2, 0.0, 0.0):
            known.append(list(used))
            yield seconds

    for k, _ in enumerate(ProcessRunner(2).run(sleeper, jobs(), count=6, in_order=True)):
        used.append(k)
    assert known == [list(range(max(0, k - 1))) for k in range(6)]


def test_an_error_of_the_preparation_ends_the_run(runner: JobRunner) -> None:
    with pytest.raises(ConfigurationError, match="there is no model"):
        list(runner.run(unprepared, [1, 2]))


@pytest.mark.parametrize("prepare", [prepare_a_crash, exits])
def test_a_job_that_always_loses_its_process_fails_with_advice(prepare: Callable[[], Callable[[int], int]]) -> None:
    runner = ProcessRunner(2, advice="buy memory")
    problem = "job 7 lost its process 4 times, perhaps because memory ran out; buy memory"
    with pytest.raises(QuantraError, match=f"^{problem}$"):
        list(runner.run(prepare, [7], name="job {}".format))
    assert (runner.progress.lost, runner.progress.repeated) == (4, 3)


def test_a_job_that_loses_its_process_once_runs_again(tmp_path: Path) -> None:
    runner = ProcessRunner(1)
    assert list(runner.run(partial(victim, tmp_path), [1, 2])) == [(1, 1), (2, 2)]
    assert (runner.progress.lost, runner.progress.repeated) == (1, 1)


def test_a_job_that_hangs_is_ended_by_name() -> None:
    runner, results = ProcessRunner(2, timeout=0.5), list[tuple[float, float]]()
    with pytest.raises(DeadlineExceededError, match=r"^job 1000.0 did not end within 0.5 seconds and was stopped; "):
        results.extend(runner.run(sleeper, [1000.0, 0.0], name="job {}".format))
    assert results == [(0.0, 0.0)]


def test_progress_names_only_what_happened() -> None:
    quiet = JobProgress(jobs=9, done=1, running=2, failed=0, lost=0, repeated=0, seconds_left=200.0)
    assert str(quiet) == "2 running, 3 min left"
    assert str(replace(quiet, failed=1, lost=4, repeated=3, seconds_left=9.6)) == (
        "2 running, 1 failed, 4 lost, 3 repeated, 10 s left"
    )


PROGRAM = """
import signal
from predictor.jobs import ProcessRunner

def wait(number):
    print("begun", signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
    signal.pause()

def prepare():
    return wait

if __name__ == "__main__":
    list(ProcessRunner(2).run(prepare, [1, 2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stderr is not None
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["begun True\n"] * 2  # ignores Ctrl+C
        os.killpg(program.pid, number) if number == signal.SIGINT else program.send_signal(number)  # as Ctrl+C does
        assert program.stdout.read() == ""  # returns when the last process has closed it
        assert program.stderr.read().count("Traceback") == (number == signal.SIGINT)  # none of the workers
