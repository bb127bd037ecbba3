"""Optimizer steps queued before the loss is known, and skipped on the device if it is not finite.

Fused optimizers can do that on the CPU too; the tests switch it on there.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import IterableSource, Loop, Loss, NonFiniteError, Phase, StepReport
from trainers.loop.step.update import skips_on_device

Make = Callable[[list[Parameter]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda parameters: AdamW(parameters, lr=0.1, fused=True),
    "Adam": lambda parameters: Adam(parameters, lr=0.1, fused=True),
    "SGD": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "Adagrad": lambda parameters: Adagrad(parameters, lr=0.1, fused=True),
}
EVERY_OPTIMIZER = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.loop.run_parts.skips_on_device", _always)


def _always(optimizer: Optimizer, device: torch.device) -> bool:
    return skips_on_device(optimizer, torch.device("cuda", device.index or 0))


class Rows(NamedTuple):
    x: Tensor
    factor: Tensor
    slope: Tensor
    offset: Tensor


class StepState(NamedTuple):
    """Copies of everything that a step may change, after a window."""

    report: StepReport
    tensors: list[Tensor]


def batches(*kinds: str) -> list[Rows]:
    """Batches that are normal, or have a non-finite loss (`offset`), gradient (`slope`) or both (`nan`, `inf`)."""
    generator = torch.Generator().manual_seed(5)
    return [
        Rows(
            torch.randn(3 + number % 2, 3, generator=generator),
            torch.tensor({"nan": torch.nan, "inf": torch.inf}.get(kind, 1.0)),
            torch.tensor(float(kind == "slope")),
            torch.tensor(torch.inf if kind == "offset" else 0.0),
        )
        for number, kind in enumerate(kinds)
    ]


def train(make: Make, data: Sequence[Rows], **chosen: Any) -> list[StepState]:
    torch.manual_seed(2)
    net = nn.Linear(3, 1)
    optimizer = make(list(net.parameters()))
    scheduler = ExponentialLR(optimizer, gamma=0.5)

    def loss(batch: Rows) -> Loss:
        # The root's slope at zero is infinite, while its value is not.
        root = (net.weight.sum() * 0 + (1 - batch.slope)).sqrt()
        return Loss((net(batch.x) - 1.0).square().mean() * batch.factor + root + batch.offset, len(batch.x))

    phase = Phase("main", loss, net.parameters(), optimizer, scheduler, clip=chosen.pop("clip", 0.5))
    seen: list[StepState] = []
    with Loop([phase], modules={"net": net}, device="cpu", ema=0.9, **chosen).running() as run:
        (worked,) = run._phases
        assert worked.averages
        for report in run.epochs(IterableSource(data), max_epochs=1):
            if isinstance(report, StepReport):
                states = [state for parameter in net.parameters() for state in optimizer.state[parameter].values()]
                rate = torch.tensor(optimizer.param_groups[0]["lr"])
                tensors = [*net.parameters(), *worked.averages[0].tensors, *states, rate]
                seen.append(StepState(report, [tensor.detach().clone() for tensor in tensors]))
    assert "found_inf" not in vars(optimizer)
    return seen


@pytest.mark.usefixtures("on_device")
@EVERY_OPTIMIZER
@pytest.mark.parametrize("kind", ["nan", "inf", "slope", "offset"])
def test_a_step_that_is_not_finite_changes_nothing(make: Make, kind: str) -> None:
    before, skipped, after = train(make, batches("well", kind, "well"))
    assert [seen.report.stepped for seen in (before, skipped, after)] == [True, False, True]
    assert [seen.report.step for seen in (before, skipped, after)] == [1, 1, 2]
    assert [seen.report.learning_rate for seen in (before, skipped, after)] == [0.1, 0.05, 0.05]
    assert all(torch.equal(one, other) for one, other in zip(before.tensors, skipped.tensors, strict=True))
    assert not torch.equal(skipped.tensors[0], after.tensors[0])


@EVERY_OPTIMIZER
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_all_steps_are_those_taken_after_reading(
    monkeypatch: pytest.MonkeyPatch, make: Make, clip: float | None, accumulate: int
) -> None:
    kinds = ("nan", "well", "well", "well", "well", "well", "slope", "well", "well", "inf", "well", "well", "offset")
    data = batches(*kinds, "well", "well", "well", "well")
    expected = train(make, data, clip=clip, accumulate=accumulate)
    monkeypatch.setattr("trainers.loop.run_parts.skips_on_device", _always)
    found = train(make, data, clip=clip, accumulate=accumulate)
    assert [seen.report.stepped for seen in found] == [seen.report.stepped for seen in expected]
    assert not all(seen.report.stepped for seen in found)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.tensors, other.tensors, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("on_device")
def test_the_step_is_queued_only_once_a_gradient_has_moved_something() -> None:
    # Momentum that a fused optimizer makes in a step that it then drops would stay unset.
    skipped, first, second = train(OPTIMIZERS["SGD"], batches("nan", "well", "well"))
    reference = train(OPTIMIZERS["SGD"], batches("skipped", "well", "well")[1:])
    assert not skipped.report.stepped
    torch.testing.assert_close(first.tensors, reference[0].tensors)
    torch.testing.assert_close(second.tensors, reference[1].tensors)


@pytest.mark.usefixtures("on_device")
def test_too_many_dropped_steps_in_a_row_are_an_error() -> None:
    with pytest.raises(NonFiniteError, match=r"in 2 steps in a row; not finite in the data: batch 0\.factor"):
        train(OPTIMIZERS["AdamW"], batches("well", "nan", "nan"), skip_limit=2)


@pytest.mark.usefixtures("on_device")
def test_a_dropped_step_raises_at_once_if_asked_to() -> None:
    with pytest.raises(NonFiniteError, match=r"these gradients are not: net\.weight"):
        train(OPTIMIZERS["AdamW"], batches("well", "slope"), nonfinite="raise")


@pytest.mark.parametrize(
    ("fused", "device", "drops"),
    [
        (True, "cuda", True),
        (True, "xpu", True),
        (True, "mps", False),  # some versions of torch skip this check
        (True, "cpu", False),
        (False, "cuda", False),
    ],
)
def test_fused_optimizers_drop_steps_on_devices_that_are_waited_for(*, fused: bool, device: str, drops: bool) -> None:
    optimizer = AdamW([Parameter(torch.zeros(1))], fused=fused)
    assert skips_on_device(optimizer, torch.device(device)) is drops
