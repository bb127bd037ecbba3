"""Windows with all-zero gradients in a phase that allows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    NoGradientError,
    Phase,
    Precision,
    StepReport,
    TrainingRun,
    ZeroGradientError,
)

Step = tuple[bool, bool]
ZERO, USUAL = (False, True), (True, False)


class AdvantageBatch(NamedTuple):
    """Samples [N, 3] and the advantage of each [N]."""

    x: Tensor
    advantage: Tensor


def played(*advantages: float) -> list[AdvantageBatch]:
    generator = torch.Generator().manual_seed(5)
    return [
        AdvantageBatch(torch.randn(4, 3, generator=generator), torch.full((4,), float(value))) for value in advantages
    ]


def scaled() -> Precision:
    scaler = partial(torch.amp.GradScaler, "cpu", growth_interval=2)
    return Precision(name="fp16", dtype=None, scaler=scaler, reason="a test")


@dataclass(frozen=True)
class WindowState:
    """A window's report, and copies of everything that it may change."""

    report: StepReport
    tensors: list[Tensor]


def copied_state(run: TrainingRun[AdvantageBatch], net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    (phase,) = run._phases
    states = [state for parameter in net.parameters() for state in optimizer.state[parameter].values()]
    averages = [tensor for average in phase.averages for tensor in average.tensors]
    rate = torch.tensor(optimizer.param_groups[0]["lr"])
    return [
        tensor.detach().clone()
        for tensor in (*net.parameters(), *net.buffers(), *averages, *states, rate)
        if tensor.numel()
    ]


def train(
    batches: Sequence[AdvantageBatch], *, allow: bool = True, norm: bool = False, **chosen: Any
) -> tuple[list[WindowState], EpochReport]:
    torch.manual_seed(2)
    layers = [nn.Linear(3, 4), *([nn.BatchNorm1d(4)] if norm else []), nn.Linear(4, 1)]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5, fused=True)

    def loss(batch: AdvantageBatch) -> Loss:
        return Loss((net(batch.x)[:, 0] * batch.advantage).mean(), len(batch.x))

    phase = Phase(
        "policy",
        loss,
        net.parameters(),
        optimizer,
        ExponentialLR(optimizer, gamma=0.5),
        allow_zero_gradients=allow,
    )
    settings: dict[str, Any] = {"ema": 0.9, "batch_coupled": "accept", **chosen}
    with Loop([phase], modules={"net": net}, device="cpu", **settings).running() as run:
        seen = [
            WindowState(report, copied_state(run, net, optimizer))
            for report in run.epochs(IterableSource(batches), max_epochs=1)
            if isinstance(report, StepReport)
        ]
        (epoch,) = run.history
    return seen, epoch


def steps(seen: Sequence[WindowState]) -> list[Step]:
    return [(one.report.stepped, one.report.zero_gradient) for one in seen]


PRECISIONS = pytest.mark.parametrize("precision", ["fp32", scaled()], ids=["without a scaler", "with a scaler"])


def always(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:  # noqa: ARG001  in the place of another
    return True


@pytest.fixture(params=["read", "queued"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "queued":
        monkeypatch.setattr("trainers.loop.run_parts.skips_on_device", always)


@pytest.mark.usefixtures("_both_ways")
@PRECISIONS
def test_a_window_of_zero_gradients_moves_nothing_and_is_counted(precision: Precision | str) -> None:
    seen, epoch = train(played(0, 1, 0, 0, -1, 1), norm=True, precision=precision)
    assert steps(seen) == [ZERO, USUAL, ZERO, ZERO, USUAL, USUAL]
    assert [one.report.step for one in seen] == [0, 1, 1, 1, 2, 3]
    for one in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(seen[one].tensors, seen[1].tensors, strict=True))
        assert seen[one].report.learning_rate == seen[4].report.learning_rate
    totals = epoch.phases["policy"]
    assert (totals.step, totals.zero_gradients, totals.skipped, totals.count) == (3, 3, 0, 12)


def test_the_scale_of_a_window_of_zero_gradients_neither_grows_nor_falls() -> None:
    """It would grow after two normal windows."""
    seen, _ = train(played(1, 0, 0, 0, 1), precision=scaled())
    assert [one.report.loss_scale for one in seen] == [65536.0] * 4 + [131072.0]


def test_the_windows_that_move_are_those_of_a_training_without_the_others() -> None:
    batches = played(0, 1, 0, -1)
    found, _ = train(batches)
    expected, _ = train([batches[1], batches[3]])
    assert all(torch.equal(a, b) for a, b in zip(found[-1].tensors, expected[-1].tensors, strict=True))


def test_zero_windows_are_no_skipped_ones_in_a_row() -> None:
    seen, _ = train(played(*[0] * 5, torch.nan, *[0] * 5, torch.nan, 1), skip_limit=3)
    assert steps(seen).count(ZERO) == 10


def test_without_leave_the_first_window_is_an_error_and_a_later_one_is_stepped_as_before() -> None:
    with pytest.raises(ZeroGradientError, match=r"use Phase\(allow_zero_gradients=True\)"):
        train(played(0, 1), allow=False)
    seen, epoch = train(played(1, 0), allow=False)
    assert steps(seen) == [USUAL, USUAL]
    assert epoch.phases["policy"].zero_gradients == 0


def test_no_gradient_at_all_stays_an_error() -> None:
    net = nn.Linear(3, 1)
    phase = Phase[AdvantageBatch](
        "policy",
        lambda batch: Loss(torch.zeros((), requires_grad=True) * 1, len(batch.x)),
        net.parameters(),
        torch.optim.SGD(net.parameters()),
        allow_zero_gradients=True,
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run, pytest.raises(NoGradientError):
        list(run.epochs(IterableSource(played(0)), max_epochs=1))


def test_the_count_of_zero_windows_survives_a_resumption(tmp_path: Path) -> None:
    def once(stop: int) -> EpochReport | None:
        torch.manual_seed(2)
        net = nn.Linear(3, 1)

        def loss(batch: AdvantageBatch) -> Loss:
            return Loss((net(batch.x)[:, 0] * batch.advantage).mean(), len(batch.x))

        phase = Phase("policy", loss, net.parameters(), torch.optim.SGD(net.parameters()), allow_zero_gradients=True)
        checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
        with Loop([phase], modules={"net": net}, device="cpu").running(checkpoints) as run:
            for report in run.epochs(IterableSource(played(0, 1, 0, 0)), max_epochs=1):
                if isinstance(report, EpochReport):
                    return report
                if run.windows > stop:
                    return None
        return None

    assert once(2) is None
    report = once(9)
    assert report is not None
    assert report.phases["policy"].zero_gradients == 3
