"""Training from the page of `quantra ui`: its requests, its progress, and the process that trains."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from predictor.bars import DateOrder, ReadingOptions
from predictor.errors import ConfigurationError, ModelNotFoundError
from trainers.stock.page import training
from trainers.stock.page.training import ModelTraining, ShownTraining, TrainingPhase, TrainingRequest

REQUEST: Final = TrainingRequest(name="mine", kind="lstm", minutes=10, options=ReadingOptions(), calendar="")
UNTIL_STOPPED: Final = "import sys; sys.stdin.read(); sys.exit(143)"
"""A program that stops as `--parent-watch` does."""


def copy_bars(folder: Path) -> None:
    (folder / "bars.csv").write_text("date,close\n")


def printing(*reports: dict[str, Any], then: str = "") -> str:
    """A program that writes lines of JSON."""
    return f"for line in {list(map(json.dumps, reports))!r}: print(line)\n{then}"


@contextmanager
def started(models: Path, program: str) -> Generator[ModelTraining]:
    own = ModelTraining(models, lambda reference: f"{reference} is better", (sys.executable, "-c", program))
    try:
        own.start(REQUEST, copy_bars)
        yield own
    finally:
        own.close()


def ended(own: ModelTraining) -> ShownTraining:
    """The state after the process has ended."""
    assert own._reader is not None
    own._reader.join()
    assert own.state is not None
    return own.state


# --- requests


@pytest.mark.parametrize("name", ["..", ".", "../mine", "a/b", "", "-x", ".hidden", "a" * 65, "mine\n", "C:"])
def test_a_name_that_is_no_folder_of_a_model_is_rejected(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a name of a model"):
        replace(REQUEST, name=name)


@pytest.mark.parametrize("wrong", [{"kind": "other"}, {"minutes": 0}, {"minutes": 1441}])
def test_unknown_kinds_and_impossible_budgets_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        replace(REQUEST, **wrong)


def test_the_command_reads_the_bars_as_the_person_chose() -> None:
    options = ReadingOptions(date_order=DateOrder("dmy"), volume_unit=100)
    words = replace(REQUEST, options=options, calendar="XLON").words(Path("models"), [Path("a.csv"), Path("b.csv")])
    text = " ".join(words)
    assert "--bars a.csv --bars b.csv --date-order dmy --volume-unit 100 --calendar XLON" in text
    assert "--budget" not in text


def test_the_budget_is_that_of_the_best_model() -> None:
    assert "--budget 10m" in " ".join(replace(REQUEST, kind="best").words(Path("models"), []))


def test_a_model_that_exists_is_not_trained_again(tmp_path: Path) -> None:
    (tmp_path / "mine" / "2").mkdir(parents=True)
    own = ModelTraining(tmp_path, str, (sys.executable, "-c", UNTIL_STOPPED))
    with pytest.raises(ConfigurationError, match="there is a model mine already"):
        own.start(REQUEST, copy_bars)


# --- progress


def window(epoch: int, number: int) -> dict[str, Any]:
    return {"kind": "window", "epoch": epoch, "epochs": 4, "window": number, "windows": 5, "loss": 0.25}


def state_after(*reports: dict[str, Any]) -> ShownTraining:
    state, clock = ShownTraining(request=REQUEST), training._EpochClock()
    for report in reports:
        state = training._advance(state, report, clock)
    return state


def test_windows_and_epochs_move_the_progress() -> None:
    state = state_after(window(0, 4), {"kind": "epoch", "validation": {"mean": 0.125}}, window(1, 4))
    assert state.share == 0.5
    assert state.numbers.startswith("epoch 2 of at most 4, loss 0.2500, selection loss 0.1250, at most")


def test_a_new_stage_has_no_epoch_yet() -> None:
    state = state_after(window(2, 0), {"kind": "stage", "stage": "training tft, 2 of 6"})
    assert (state.stage, state.numbers, state.left_s) == ("Training tft, 2 of 6", "", None)


def test_the_time_left_follows_the_rate_since_the_first_window(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 102.0))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(times))
    assert state_after(window(0, 4), window(1, 4)).left_s == 4.0  # a quarter took 2 s, and a half is left


# --- the process


def test_a_finished_version_is_described_and_its_bars_are_deleted(tmp_path: Path) -> None:
    with started(tmp_path, printing({"kind": "trained"})) as own:
        assert own._bars is not None
        bars = Path(own._bars.name)
        state = ended(own)
        assert (state.phase, state.message) == (TrainingPhase.FINISHED, "mine@1 is better")
        assert not bars.exists()


def test_a_version_that_cannot_be_served_is_a_failure(tmp_path: Path) -> None:
    def refuse(reference: str) -> str:
        raise ModelNotFoundError(f"{reference} is not served")

    own = ModelTraining(tmp_path, refuse, (sys.executable, "-c", ""))
    own.start(REQUEST, copy_bars)
    assert (ended(own).phase, ended(own).message) == (TrainingPhase.FAILED, "mine@1 is not served")
    own.close()


def test_a_failure_has_the_message_of_the_command_without_temporary_folders(tmp_path: Path) -> None:
    program = (
        "import json, sys; file = sys.argv[sys.argv.index('--bars') + 1]\n"
        "print(json.dumps({'error': {'message': f'{file} has too few bars'}})); sys.exit(1)"
    )
    with started(tmp_path, program) as own:
        assert (ended(own).phase, ended(own).message) == (TrainingPhase.FAILED, "bars.csv has too few bars")


def test_a_process_that_dies_says_its_last_line(tmp_path: Path) -> None:
    with started(tmp_path, "import os; print('out of memory', flush=True); os.kill(os.getpid(), 9)") as own:
        assert ended(own).phase is TrainingPhase.FAILED
        assert "out of memory" in ended(own).message


def test_one_training_runs_at_a_time(tmp_path: Path) -> None:
    with started(tmp_path, UNTIL_STOPPED) as own:
        with pytest.raises(ConfigurationError, match="mine is being trained"):
            own.start(replace(REQUEST, name="other"), copy_bars)
        with pytest.raises(ConfigurationError, match="mine is being trained"):
            own.resume()


def test_a_stopped_training_is_resumed_with_the_same_bars(tmp_path: Path) -> None:
    with started(tmp_path, UNTIL_STOPPED) as own:
        assert own._process is not None
        before = own._process.args
        own.stop()
        assert ended(own).phase is TrainingPhase.STOPPED
        own.resume()
        assert own.state is not None
        assert own.state.phase is TrainingPhase.RUNNING
        assert own._process.args == before


def test_nothing_is_resumed_before_a_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no training was stopped"):
        ModelTraining(tmp_path, str).resume()


def test_a_process_that_does_not_stop_is_killed_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "STOP_S", 0.0)
    with started(tmp_path, "import signal; signal.pause()") as own:
        own.close()
        assert own._process is not None
        assert own._process.returncode == -9
        with pytest.raises(ConfigurationError, match="the server is stopping"):
            own.resume()
