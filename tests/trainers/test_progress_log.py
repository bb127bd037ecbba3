"""The log file of an interrupted training run equals that of an uninterrupted one."""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from loop_reports import checkpoint, epoch, window

from trainers.loop import Report, TrainingNotice
from trainers.progress import JsonlLog, as_json

WHOLE: list[Report] = [
    window(0),
    window(1),
    checkpoint(2),
    window(2),
    epoch(),
    checkpoint(0, epoch=1),
    window(0, epoch=1),
    window(1, epoch=1),
    epoch(1),
]


def lines(reports: Sequence[Report]) -> list[str]:
    return [as_json(report) for report in reports]


def logged(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "reports.jsonl"


def killed_after(path: Path, count: int, *, torn: str = "") -> None:
    """The log of a training run killed after so many reports, while writing the next."""
    list(JsonlLog(path)(WHOLE[:count]))
    with path.open("a", encoding="utf-8") as log:
        log.write(torn)


def test_every_report_is_in_the_file_before_it_is_handed_on(path: Path) -> None:
    passed = JsonlLog(path)(iter([TrainingNotice(message="begins"), window()]))
    assert next(passed) == TrainingNotice(message="begins")
    assert logged(path) == lines([TrainingNotice(message="begins")])
    assert next(passed) == window()
    assert logged(path) == lines([TrainingNotice(message="begins"), window()])


def test_nothing_is_written_before_the_first_report_is_asked_for(path: Path) -> None:
    JsonlLog(path)([window()])
    assert not path.parent.exists()


@pytest.mark.parametrize("count", range(1, len(WHOLE) + 1))
def test_resumed_within_an_epoch_the_log_is_that_of_the_uninterrupted_training(path: Path, count: int) -> None:
    killed_after(path, count)
    if count < 3:
        list(JsonlLog(path)(WHOLE))
    else:
        list(JsonlLog(path)(WHOLE[3:]))
    assert logged(path) == lines(WHOLE)


@pytest.mark.parametrize("count", range(6, len(WHOLE) + 1))
def test_resumed_at_the_start_of_an_epoch_the_log_is_that_of_the_uninterrupted_training(path: Path, count: int) -> None:
    killed_after(path, count)
    list(JsonlLog(path)(WHOLE[6:]))
    assert logged(path) == lines(WHOLE)


def test_resumed_behind_the_last_window_of_an_epoch_its_windows_stay(path: Path) -> None:
    told: list[Report] = [window(0), window(1), checkpoint(2), epoch()]
    list(JsonlLog(path)([*told, checkpoint(0, epoch=1), window(0, epoch=1)]))
    list(JsonlLog(path)([epoch()]))
    assert logged(path) == lines(told)


def test_a_line_that_a_kill_tore_is_dropped(path: Path) -> None:
    killed_after(path, 4, torn=as_json(epoch())[:30])
    list(JsonlLog(path)(WHOLE[3:]))
    assert logged(path) == lines(WHOLE)


def test_a_torn_line_is_dropped_before_a_notice_is_written(path: Path) -> None:
    killed_after(path, 4, torn=as_json(epoch()))
    list(JsonlLog(path)([TrainingNotice(message="goes on")]))
    assert logged(path) == lines([*WHOLE[:4], TrainingNotice(message="goes on")])


def test_a_torn_line_alone_leaves_nothing(path: Path) -> None:
    killed_after(path, 0, torn='{"kind')
    list(JsonlLog(path)([window(1)]))
    assert logged(path) == lines([window(1)])


def test_notices_of_both_trainings_stay(path: Path) -> None:
    list(JsonlLog(path)([window(0), checkpoint(1), window(1), TrainingNotice(message="memory ran out"), window(2)]))
    list(JsonlLog(path)([TrainingNotice(message="goes on"), window(1)]))
    told = [
        window(0),
        checkpoint(1),
        TrainingNotice(message="memory ran out"),
        TrainingNotice(message="goes on"),
        window(1),
    ]
    assert logged(path) == lines(told)


def test_later_checkpoints_are_taken_out_and_the_resumed_one_stays(path: Path) -> None:
    list(JsonlLog(path)([window(0), checkpoint(1), window(1), checkpoint(2), window(2), checkpoint(3)]))
    list(JsonlLog(path)([window(2)]))
    assert logged(path) == lines([window(0), checkpoint(1), window(1), checkpoint(2), window(2)])


def test_every_phase_of_a_window_is_in_the_log_once(path: Path) -> None:
    told: list[Report] = [window(n, phase=name) for n in range(3) for name in ("critic", "generator")]
    list(JsonlLog(path)(told[:5]))
    list(JsonlLog(path)(told[2:]))
    assert logged(path) == lines(told)


def test_a_restarted_training_removes_the_old_log(path: Path) -> None:
    killed_after(path, 9)
    with path.open("a", encoding="utf-8") as log:
        log.write(as_json(TrainingNotice(message="of the old training")) + "\nno JSON\n")
    list(JsonlLog(path)([TrainingNotice(message="begins"), window(0)]))
    assert logged(path) == lines([TrainingNotice(message="begins"), window(0)])


def test_a_damaged_line_among_the_older_is_dropped(path: Path) -> None:
    killed_after(path, 1, torn="\0\0\0\n")
    list(JsonlLog(path)([window(1)]))
    assert logged(path) == lines([window(0), window(1)])


def test_a_rewrite_that_was_interrupted_does_no_harm(path: Path) -> None:
    killed_after(path, 6)
    path.with_name("reports.jsonl.tmp").write_text(as_json(window(7)) + "\n", encoding="utf-8")
    list(JsonlLog(path)(WHOLE[3:]))
    assert logged(path) == lines(WHOLE)
    assert [file.name for file in path.parent.iterdir()] == ["reports.jsonl"]


def test_leaving_the_training_leaves_the_log_whole(path: Path) -> None:
    for report in JsonlLog(path)(WHOLE):
        if report == epoch():
            break
    assert [json.loads(line)["kind"] for line in logged(path)] == ["window", "window", "checkpoint", "window", "epoch"]


@contextmanager
def files_end_at(size: int) -> Generator[None]:
    """Limit the file size of this process, as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def notices_of(path: Path, reports: Sequence[Report], size: int) -> list[TrainingNotice]:
    """Notices of a training run whose log is cut at so many bytes; all reports pass."""
    with files_end_at(size):
        passed = list(JsonlLog(path)(reports))
    assert [report for report in passed if not isinstance(report, TrainingNotice)] == reports
    return [report for report in passed if isinstance(report, TrainingNotice)]


@pytest.mark.skipif(os.name != "posix", reason="POSIX limits the size of files")
def test_a_full_log_disk_is_reported_once_and_training_continues(path: Path) -> None:
    (notice,) = notices_of(path, WHOLE, len("".join(lines(WHOLE[:3]))) + 20)
    assert f"{path} can no longer be written: " in notice.message
    list(JsonlLog(path)(WHOLE[3:]))
    assert logged(path) == lines(WHOLE)


@pytest.mark.skipif(os.name != "posix", reason="POSIX limits the size of files")
def test_an_unwritable_log_is_left_unchanged(path: Path) -> None:
    list(JsonlLog(path)(WHOLE))
    assert len(notices_of(path, WHOLE[6:], 100)) == 1
    assert logged(path) == lines(WHOLE)
    assert [file.name for file in path.parent.iterdir()] == ["reports.jsonl"]
