"""Profiler: recorded windows, and a trace that is written however the reports end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainers.loop.errors import SettingsError
from trainers.loop.reports import Report, StepReport, TrainingNotice, profile_training


def report(phase: str, epoch: int, window: int) -> StepReport:
    return StepReport(
        phase=phase,
        epoch=epoch,
        epochs=2,
        window=window,
        windows=3,
        step=1,
        loss=0.0,
        parts={},
        count=1,
        grad_norm=1.0,
        learning_rate=0.1,
        stepped=True,
        loss_scale=None,
        micro_batch_limit=None,
        shortages=0,
        seconds=0.0,
        data_seconds=0.0,
    )


def reports(*, fail_in: int | None = None) -> Iterator[Report]:
    """Two epochs of three windows and two phases, each window with its number in the trace."""
    for number in range(6):
        with torch.profiler.record_function(f"work {number}"):
            torch.ones(2).add_(1)
        if number == fail_in:
            raise KeyError
        yield report("one", *divmod(number, 3))
        yield report("other", *divmod(number, 3))


def traced_windows(folder: Path) -> list[int]:
    """Windows in the trace."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if "name" in event}
    assert "aten::add_" in names
    return sorted(int(name.removeprefix("work ")) for name in names if name.startswith("work "))


@pytest.mark.parametrize(
    ("skip", "windows", "expected"), [(0, 2, [0, 1]), (1, 3, [1, 2, 3]), (5, 10, [5]), (3, 2, [3, 4])]
)
def test_the_chosen_windows_are_recorded(tmp_path: Path, skip: int, windows: int, expected: list[int]) -> None:
    for _ in profile_training(reports(), tmp_path, skip=skip, windows=windows):
        pass
    assert traced_windows(tmp_path) == expected


def test_every_report_is_handed_on_and_a_notice_follows(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    *handed, last = profile_training(reports(), folder, skip=2, windows=10)
    assert handed == list(reports())
    assert last == TrainingNotice(message=f"recorded 4 of 10 windows in {folder / 'trace.json'}")
    assert traced_windows(folder) == [2, 3, 4, 5]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that nobody can write to")
def test_an_unwritable_record_is_reported() -> None:
    *_, last = profile_training(reports(), Path("/proc"), skip=2)
    assert last == TrainingNotice(message="the trace of 4 windows could not be written to /proc/trace.json")


def test_too_few_windows_are_reported(tmp_path: Path) -> None:
    *_, last = profile_training(reports(), tmp_path, skip=7)
    assert isinstance(last, TrainingNotice)
    assert last.message.startswith("too few windows for a trace: the run had 6, and the first 7 are skipped")
    assert not list(tmp_path.iterdir())


def test_a_caller_who_leaves_finds_the_windows_so_far(tmp_path: Path) -> None:
    taken = profile_training(reports(), tmp_path, skip=1)
    for handed in taken:
        if isinstance(handed, StepReport) and (handed.epoch, handed.window) == (1, 0):
            break
    taken.close()
    assert traced_windows(tmp_path) == [1, 2, 3]


def test_an_error_passes_and_the_windows_before_it_are_recorded(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        list(profile_training(reports(fail_in=3), tmp_path, skip=1))
    assert traced_windows(tmp_path) == [1, 2, 3]


def test_the_record_is_written_as_soon_as_its_windows_are_over(tmp_path: Path) -> None:
    taken = profile_training(reports(), tmp_path, skip=1, windows=1)
    for handed in taken:
        over = not isinstance(handed, StepReport) or (handed.epoch, handed.window) >= (0, 1)
        assert (tmp_path / "trace.json").exists() == over


@pytest.mark.parametrize(("skip", "windows"), [(-1, 1), (0, 0)])
def test_numbers_out_of_their_range_are_refused_at_once(tmp_path: Path, skip: int, windows: int) -> None:
    with pytest.raises(SettingsError, match="they must be at least 0 and 1"):
        profile_training(reports(), tmp_path, skip=skip, windows=windows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_of_a_gpu_are_in_the_record(tmp_path: Path) -> None:
    def on_gpu() -> Iterator[Report]:
        for number in range(3):
            torch.ones(2, device="cuda").add_(1)
            yield report("one", 0, number)

    list(profile_training(on_gpu(), tmp_path, skip=1))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in events)
