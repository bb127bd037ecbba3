"""TensorBoard log, read back with TensorBoard."""

import math
import re
import sys
from pathlib import Path

import pytest
from loop_reports import checkpoint, epoch, window

from trainers.loop import Report, SettingsError, TrainingNotice
from trainers.progress import TensorBoardLog

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")


def logged(folder: Path, *reports: Report) -> None:
    assert list(TensorBoardLog(folder)(reports)) == list(reports)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """All curves in a folder, as (step, value) pairs."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {name: [(point.step, point.value) for point in read.Scalars(name)] for name in read.scalars.Keys()}


def an_hour_ago(folder: Path) -> None:
    """Set the files' times back: TensorBoard orders them by name."""
    for file in folder.rglob("events.out.tfevents.*"):
        found = re.fullmatch(r"(events\.out\.tfevents\.)(\d+)(\..*)", file.name)
        assert found is not None
        start, time, rest = found.groups()
        file.rename(file.with_name(f"{start}{int(time) - 3600}{rest}"))


def test_a_phase_has_one_point_a_step(tmp_path: Path) -> None:
    logged(tmp_path, window(0, loss=0.5, loss_scale=4.0), window(1, loss=0.25, loss_scale=8.0))
    assert curves(tmp_path / "windows" / "main") == {
        "loss": [(1, 0.5), (2, 0.25)],
        "parts/day 1": [(1, 0.25), (2, 0.25)],
        "grad_norm": [(1, 1.5), (2, 1.5)],
        "learning_rate": [(1, 0.125), (2, 0.125)],
        "loss_scale": [(1, 4.0), (2, 8.0)],
    }


def test_every_phase_has_its_own_curves(tmp_path: Path) -> None:
    logged(tmp_path, window(phase="critic", loss=0.5), window(phase="generator", loss=0.75))
    assert curves(tmp_path / "windows" / "critic")["loss"] == [(1, 0.5)]
    assert curves(tmp_path / "windows" / "generator")["loss"] == [(1, 0.75)]


def test_a_skipped_window_has_no_point(tmp_path: Path) -> None:
    logged(tmp_path, window(0), window(1, step=1, stepped=False, loss=0.75), window(2, step=2))
    assert curves(tmp_path / "windows" / "main")["loss"] == [(1, 0.5), (2, 0.5)]


def test_an_epoch_has_losses_skips_and_its_validation(tmp_path: Path) -> None:
    logged(tmp_path, window(), epoch(phases=("critic", "generator"), skipped=2))
    assert curves(tmp_path / "epochs") == {
        "loss/critic": [(1, 0.5)],
        "loss/generator": [(1, 0.5)],
        "skipped/critic": [(1, 2.0)],
        "skipped/generator": [(1, 2.0)],
        "validation": [(1, 0.125)],
        "validation/day 1": [(1, 0.75)],
    }


def test_an_epoch_without_validation_has_none(tmp_path: Path) -> None:
    logged(tmp_path, epoch(validation=None))
    assert set(curves(tmp_path / "epochs")) == {"loss/main", "skipped/main"}


def test_a_validation_that_is_no_number_has_no_point(tmp_path: Path) -> None:
    logged(tmp_path, epoch(0, validation=0.5), epoch(1, validation=math.nan), epoch(2, validation=0.25))
    assert curves(tmp_path / "epochs")["validation"] == [(1, 0.5), (3, 0.25)]


def test_a_resumed_training_draws_every_point_once_in_every_phase(tmp_path: Path) -> None:
    def told(phase: str, step: int, loss: float) -> Report:
        return window(step - 1, phase=phase, step=step, loss=loss)

    logged(
        tmp_path, *(told("critic", step, 0.5) for step in range(10, 15)), told("generator", 3, 0.5), epoch(), epoch(1)
    )
    an_hour_ago(tmp_path)
    logged(tmp_path, told("critic", 12, 0.25), told("generator", 3, 0.25), epoch(1, validation=0.25))
    assert curves(tmp_path / "windows" / "critic")["loss"] == [(10, 0.5), (11, 0.5), (12, 0.25)]
    assert curves(tmp_path / "windows" / "generator")["loss"] == [(3, 0.25)]
    assert curves(tmp_path / "epochs")["validation"] == [(1, 0.125), (2, 0.25)]


def test_resumed_at_a_skipped_window_the_step_before_it_stays(tmp_path: Path) -> None:
    logged(tmp_path, window(0), window(1), window(2, loss=0.75))
    an_hour_ago(tmp_path)
    logged(tmp_path, window(2, step=2, stepped=False), window(3, step=3, loss=0.25))
    assert curves(tmp_path / "windows" / "main")["loss"] == [(1, 0.5), (2, 0.5), (3, 0.25)]


def test_what_a_checkpoint_knows_is_in_the_files_when_it_is_handed_on(tmp_path: Path) -> None:
    passing = TensorBoardLog(tmp_path)([window(), checkpoint(), epoch()])
    next(passing)
    next(passing)
    assert curves(tmp_path / "windows" / "main")["loss"] == [(1, 0.5)]
    list(passing)


def test_nothing_is_written_before_the_first_report_comes(tmp_path: Path) -> None:
    TensorBoardLog(tmp_path / "board")([window()])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SettingsError, match=r"pip install 'quantra\[tensorboard\]'"):
        TensorBoardLog(tmp_path)


def test_unwritable_curves_are_reported_once_and_training_continues(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder shall be")
    reports: list[Report] = [window(0), window(1), epoch()]
    notice, *passed = TensorBoardLog(tmp_path / "tensorboard")(reports)
    assert isinstance(notice, TrainingNotice)
    assert notice.message.startswith(f"no more curves can be written to {tmp_path / 'tensorboard'}: ")
    assert passed == reports
