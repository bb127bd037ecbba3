"""Rounds and checkpoints of a media training run."""

import math
from pathlib import Path

import pytest

from trainers.loop import Checkpoints
from trainers.media.errors import MediaError
from trainers.media.run_directory import create_checkpoints, divide_into_rounds
from trainers.options import RunOptions


@pytest.mark.parametrize(
    ("steps", "rounds", "round_steps"), [(1, 1, 1), (149, 1, 149), (151, 2, 76), (250, 2, 125), (3000, 30, 100)]
)
def test_steps_become_whole_rounds_of_about_a_hundred(steps: int, rounds: int, round_steps: int) -> None:
    pace = divide_into_rounds(steps)
    assert (pace.rounds, pace.round_steps) == (rounds, round_steps)
    assert steps <= rounds * round_steps < steps + rounds


@pytest.mark.parametrize(("seconds", "wanted"), [(5.0, 5.0), (math.inf, None)])
def test_checkpoints_are_kept_and_timed_as_the_flags_say(seconds: float, wanted: float | None, tmp_path: Path) -> None:
    made = create_checkpoints(tmp_path, RunOptions(keep=7, checkpoint_seconds=seconds), {"a": 1}, MediaError)
    assert made.folder == tmp_path / "checkpoints"
    assert (made._keep, made._every_seconds, made._settings) == (7, wanted, {"a": 1})


def test_checkpoints_of_a_stopped_training_are_gone_on_from_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoints, "is_empty", False)
    with pytest.raises(MediaError, match=r"checkpoints holds checkpoints of a stopped run; continue it \(--resume\)"):
        create_checkpoints(tmp_path, RunOptions(), {}, MediaError)
    assert not create_checkpoints(tmp_path, RunOptions(resume=True), {}, MediaError).is_empty
