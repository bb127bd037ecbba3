"""Caller state in checkpoints: saved, restored, or refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interrupted_training import samples
from rank_processes import results_on_ranks
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from training_results import until

from trainers.loop import (
    CheckpointError,
    CheckpointReport,
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    ResumeMismatchError,
    SettingsError,
    Stateful,
    StepReport,
    Validation,
)


class StoredState:
    """State that stores any value."""

    def __init__(self, **content: Any) -> None:
        self.content = content
        self.loads = 0

    def state_dict(self) -> dict[str, Any]:
        return self.content

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self.content, self.loads = state_dict, self.loads + 1


def loop_of(state: Mapping[str, Stateful] | None, *, weight: float = 0.5) -> tuple[Loop[Tensor], nn.Linear]:
    net = nn.Linear(4, 1)
    nn.init.constant_(net.weight, weight)

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    return Loop([phase], modules={"net": net}, device="cpu", state=state), net


def train_windows(folder: Path, state: Mapping[str, Stateful] | None, *, windows: int = 2) -> None:
    """Train for some windows with a checkpoint after each."""
    loop, _ = loop_of(state)
    with loop.running(Checkpoints(folder, every_windows=1)) as run:
        until(run.epochs(IterableSource([samples(3)] * 5), max_epochs=1), windows)


# --- restored state


def test_a_state_is_taken_after_the_body_has_handled_the_reports_before_the_checkpoint(tmp_path: Path) -> None:
    box = StoredState(seen=0)
    loop, _ = loop_of({"box": box})
    with loop.running(Checkpoints(tmp_path, every_windows=1)) as run:
        reports = run.epochs(IterableSource([samples(3)] * 3), max_epochs=2)
        for _ in (report for report in reports if isinstance(report, StepReport | EpochReport)):
            box.content["seen"] += 1
    checkpoints = Checkpoints(tmp_path)
    assert [entry.name for entry in sorted(tmp_path.glob("window-*"))][-1] == "window-000000006"
    restored = checkpoints.load()
    assert restored is not None
    assert (restored.epoch, restored.window) == (2, 0)
    assert restored.state["processes"][0]["kept"]["box"] == {"seen": 8}  # six windows and two epochs


def test_a_plateau_stepped_in_the_body_is_in_the_checkpoint_of_that_epoch(tmp_path: Path) -> None:
    def lived(epochs: int) -> tuple[float, int]:
        """Learning rate and bad epochs after a run whose validation never improves."""
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        phase = Phase[Tensor]("main", lambda b: Loss(net(b).square().mean(), len(b)), net.parameters(), optimizer)
        held = Validation[Tensor](lambda b: Loss(torch.ones(()), len(b)), IterableSource([samples(2)]))
        loop = Loop([phase], modules={"net": net}, device="cpu", state={"plateau": plateau})
        with loop.running(Checkpoints(tmp_path)) as run:
            for report in run.epochs(IterableSource([samples(3)]), max_epochs=epochs, validation=held):
                if isinstance(report, EpochReport):
                    plateau.step(report.monitored)
        return optimizer.param_groups[0]["lr"], plateau.num_bad_epochs

    assert [lived(epochs) for epochs in range(1, 6)] == [(1.0, 0), (1.0, 1), (0.5, 0), (0.5, 1), (0.25, 0)]


def test_a_network_of_the_caller_comes_back(tmp_path: Path) -> None:
    own, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    own(torch.randn(5, 3))
    train_windows(tmp_path, {"statistics": own})
    train_windows(tmp_path, {"statistics": other})
    assert all(torch.equal(one, two) for one, two in zip(own.buffers(), other.buffers(), strict=True))


BUFFERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a list has grown": ({"x": [1.0]}, {"x": [1.0, 2.0, torch.ones(2)]}),
    "a list has shrunk": ({"x": [1.0, 2.0]}, {"x": [1.0]}),
    "a value was not known": ({"x": None}, {"x": 2.5}),
    "a value is no longer known": ({"x": 2.5}, {"x": None}),
    "a tensor was empty": ({"x": torch.empty(0)}, {"x": torch.ones(7, 4)}),
    "a mapping was empty": ({"x": {}}, {"x": {3: torch.ones(2)}}),
    "a sum began as an integer": ({"x": 0}, {"x": 0.5}),
    "the best was infinite": ({"x": float("inf")}, {"x": 0.5}),
    "a text is another": ({"x": "warm", "y": b"1"}, {"x": "cold", "y": b"22"}),
}


@pytest.mark.parametrize("name", list(BUFFERS))
def test_a_state_that_has_only_moved_on_comes_back(tmp_path: Path, name: str) -> None:
    begun, later = BUFFERS[name]
    train_windows(tmp_path, {"box": StoredState(**later)})
    box = StoredState(**begun)
    train_windows(tmp_path, {"box": box})
    assert box.loads == 1
    assert repr(box.content) == repr(later)


# --- mismatches are refused


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (["kl"], [], "'kl' is in the checkpoint and not here"),
        ([], ["kl"], "'kl' is here and not in the checkpoint"),
        (["kl", "plateau"], ["plateau", "buffer"], "'kl' is in the checkpoint and not here, 'buffer' is here and not"),
    ],
)
def test_a_name_on_one_side_only_is_refused(tmp_path: Path, saved: list[str], given: list[str], message: str) -> None:
    train_windows(tmp_path, {name: StoredState(x=1) for name in saved})
    with pytest.raises(ResumeMismatchError, match=message):
        train_windows(tmp_path, {name: StoredState(x=1) for name in given})


def test_what_a_thing_itself_refuses_is_named_before_the_training_has_changed(tmp_path: Path) -> None:
    class Strict(StoredState):
        def load_state_dict(self, state_dict: dict[str, Any], /) -> None:  # noqa: ARG002  refused unread
            raise KeyError("beta")

    train_windows(tmp_path, {"box": StoredState(x=1)})
    loop, net = loop_of({"box": Strict(x=1)}, weight=7.0)
    with (
        pytest.raises(
            ResumeMismatchError, match=r"state 'box' cannot be restored from the checkpoint; error of Strict: 'beta'"
        ),
        loop.running(Checkpoints(tmp_path)),
    ):
        pass
    assert (net.weight == 7.0).all()


def test_a_state_in_another_order_fits(tmp_path: Path) -> None:
    train_windows(tmp_path, {"one": StoredState(a=1, b=2), "two": StoredState(x=1)})
    train_windows(tmp_path, {"two": StoredState(x=1), "one": StoredState(b=2, a=1)})


def test_a_checkpoint_without_state_resumes_a_training_without_state_and_no_other(tmp_path: Path) -> None:
    train_windows(tmp_path, None)
    with pytest.raises(ResumeMismatchError, match="'plateau' is here and not in the checkpoint"):
        train_windows(tmp_path, {"plateau": StoredState()})
    train_windows(tmp_path, None)


# --- unsupported state


@pytest.mark.parametrize("value", [np.float64(0.5), np.zeros(3)])
def test_numbers_of_numpy_are_refused_at_the_start_with_advice(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match=r"state\['kl'\]\['beta'\] is a numpy\..*convert it with float\(\)"):
        train_windows(tmp_path, {"kl": StoredState(beta=value)})


def test_numbers_of_numpy_that_come_later_are_a_problem_that_every_checkpoint_tells(tmp_path: Path) -> None:
    box = StoredState(beta=0.5)
    loop, _ = loop_of({"kl": box})
    with loop.running(Checkpoints(tmp_path, every_windows=1)) as run:
        box.content["beta"] = np.float64(0.5)
        reports = list(run.epochs(IterableSource([samples(3)] * 2), max_epochs=1))
    problems = [report.problem for report in reports if isinstance(report, CheckpointReport)]
    assert problems
    assert all("['kl']['beta'] is a numpy.float64 (np.float64(0.5))" in (problem or "") for problem in problems)


def test_a_thing_without_the_two_methods_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="state 'beta' is a float, which has no state_dict"):
        loop_of({"beta": 0.5})  # pyright: ignore[reportArgumentType]  what is tested


# --- several processes


def train_ranks(folder: Path) -> list[float]:
    """Each rank's own state, over two runs."""
    for windows in (2, 3):
        box = StoredState(seen=[])
        net = nn.Linear(4, 1)

        def loss(batch: Tensor, net: nn.Linear = net) -> Loss:
            return Loss(net(batch).square().mean(), len(batch))

        phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
        loop = Loop([phase], modules={"net": net}, device="cpu", state={"box": box})
        batches = [torch.full((2, 4), float(number)) for number in range(10)]
        with loop.running(Checkpoints(folder, every_windows=1, every_seconds=None)) as run:
            seen = (report for report in run.epochs(IterableSource(batches), max_epochs=1))
            for report in seen:
                if isinstance(report, StepReport):
                    box.content["seen"].append(float(10 * report.window + run.group.rank))
                if isinstance(report, CheckpointReport) and report.window == windows:
                    break
    return box.content["seen"]


def test_every_rank_keeps_its_own_state(tmp_path: Path) -> None:
    assert results_on_ranks(train_ranks, tmp_path) == [[0.0, 10.0, 20.0], [1.0, 11.0, 21.0]]
