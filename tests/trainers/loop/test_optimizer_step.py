"""Optimizer step: step hooks, and memory shortage."""

from collections.abc import Iterator, Sequence
from typing import Any, final

import pytest
import torch
from shortages import cuda_shortage
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import (
    _use_grad_for_differentiable,  # pyright: ignore[reportPrivateUsage]
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.profiler import ProfilerActivity, profile

from trainers.loop import IterableSource, Loop, Loss, OutOfMemoryError, Phase, Precision, StepReport
from trainers.loop.step.accumulation import backward
from trainers.loop.step.update import DirectStep


@pytest.fixture
def parameter() -> nn.Parameter:
    found = nn.Parameter(torch.ones(3))
    found.grad = torch.ones(3)
    return found


@pytest.fixture
def optimizer(parameter: nn.Parameter) -> Optimizer:
    return torch.optim.SGD([parameter], lr=0.25)


def records(step: DirectStep) -> int:
    """Number of steps through torch's profiling wrapper."""
    opened: list[str] = []

    class Record(torch.autograd.profiler.record_function):
        def __enter__(self) -> Any:
            opened.append(self.name)
            return super().__enter__()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.autograd.profiler, "record_function", Record)
        step()
    return len(opened)


def test_the_steps_are_those_of_the_optimizer(parameter: nn.Parameter, optimizer: Optimizer) -> None:
    step = DirectStep(optimizer)
    for _ in range(3):
        step()
    assert parameter.tolist() == [0.25] * 3


def test_steps_after_the_first_are_taken_directly(optimizer: Optimizer) -> None:
    step = DirectStep(optimizer)
    assert [records(step), records(step), records(step)] == [1, 0, 0]


class GradModeRecorder(torch.optim.SGD):
    """An optimizer that records whether gradients are enabled in its steps."""

    def __init__(self, parameter: nn.Parameter, *, differentiable: bool = False) -> None:
        super().__init__([parameter], lr=0.25, differentiable=differentiable)
        self.seen: list[bool] = []

    @_use_grad_for_differentiable
    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.seen.append(torch.is_grad_enabled())
        if len(self.seen) > 2:
            raise RuntimeError("no memory")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_gradients_are_in_a_direct_step_as_the_optimizer_wants_them(
    *, parameter: nn.Parameter, enabled: bool, wanted: bool
) -> None:
    optimizer = GradModeRecorder(parameter, differentiable=wanted)
    step = DirectStep(optimizer)
    with torch.set_grad_enabled(enabled):
        assert [records(step), records(step)] == [1, 0]
        assert torch.is_grad_enabled() is enabled
    assert optimizer.seen == [wanted, wanted]


def test_gradients_are_as_before_after_a_direct_step_that_fails(parameter: nn.Parameter) -> None:
    step = DirectStep(GradModeRecorder(parameter))
    step()
    step()
    with pytest.raises(RuntimeError, match="no memory"):
        step()
    assert torch.is_grad_enabled()


def test_a_scheduler_s_counter_does_not_stand_in_the_way(optimizer: Optimizer) -> None:
    scheduler = LambdaLR(optimizer, lambda _: 1.0)
    step = DirectStep(optimizer)
    assert records(step) == 1
    scheduler.step()
    assert records(step) == 0


@pytest.mark.parametrize("place", ["before", "after", "globally before", "globally after"])
def test_a_hook_is_called_in_every_step(place: str, optimizer: Optimizer) -> None:
    called: list[object] = []

    def note(*_: object) -> None:
        called.append(None)

    register = {
        "before": optimizer.register_step_pre_hook,
        "after": optimizer.register_step_post_hook,
        "globally before": register_optimizer_step_pre_hook,
        "globally after": register_optimizer_step_post_hook,
    }
    step = DirectStep(optimizer)
    step()
    handle = register[place](note)
    step()
    step()
    handle.remove()
    step()
    assert len(called) == 2


def test_a_profiler_sees_the_step(optimizer: Optimizer) -> None:
    step = DirectStep(optimizer)
    step()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:  # torch 2.11 would warn
        step()
    names = [event.name for event in seen.events() or ()]
    assert names.count("Optimizer.step#SGD.step") == 1


@pytest.fixture
def patched(optimizer: Optimizer) -> Iterator[list[str]]:
    called: list[str] = []

    def mine() -> None:
        called.append("mine")

    optimizer.step = mine  # pyright: ignore[reportAttributeAccessIssue]
    yield called
    del optimizer.step


def test_a_replaced_step_is_the_one_called(optimizer: Optimizer, patched: list[str]) -> None:
    step = DirectStep(optimizer)
    step()
    step()
    assert patched == ["mine", "mine"]


def test_backward_gives_the_gradients_of_torch_s_own() -> None:
    weight = torch.tensor([2.0, -1.0], requires_grad=True)
    backward((weight.square().sum(),), (torch.tensor(0.5),))
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, -1.0]


def test_a_loss_of_a_class_of_its_own_goes_through_its_own_backward() -> None:
    called: list[Tensor] = []

    class Own(Tensor):
        def backward(self, gradient: Tensor | None = None, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            assert gradient is not None
            called.append(gradient)

    backward((torch.ones(()).as_subclass(Own),), (torch.tensor(0.5),))
    assert called == [torch.tensor(0.5)]


@final
class FailingAllocator:
    """Replaces `torch.zeros_like`, with which AdamW creates its states."""

    def __init__(self, *, fails_in: Sequence[int]) -> None:
        self._real = torch.zeros_like
        self._fails_in = fails_in
        self.calls = 0

    def __call__(self, *given: Any, **named: Any) -> Tensor:
        self.calls += 1
        if self.calls in self._fails_in:
            raise cuda_shortage()
        return self._real(*given, **named)


def linear() -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(3, 2)


def train(net: nn.Linear, optimizer: Optimizer, *, precision: Precision | str = "fp32") -> list[StepReport]:
    generator = torch.Generator().manual_seed(5)

    def loss(x: Tensor) -> Loss:
        return Loss(net(x).square().mean(), len(x))

    source = IterableSource([torch.randn(4, 3, generator=generator) for _ in range(3)])
    phase = Phase("main", loss, net.parameters(), optimizer, clip=None)
    with Loop([phase], modules={"net": net}, device="cpu", precision=precision).running() as run:
        return [report for report in run.epochs(source, max_epochs=1) if isinstance(report, StepReport)]


def test_a_shortage_in_the_step_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    net = linear()
    before = net.weight.detach().clone()
    monkeypatch.setattr(torch, "zeros_like", FailingAllocator(fails_in=[2]))
    with pytest.raises(OutOfMemoryError, match=r"ran out in the optimizer's step .*with smaller states") as caught:
        train(net, AdamW(net.parameters(), lr=0.1))
    assert caught.value.position is not None
    assert "phase 'main', epoch 0, window 0" in caught.value.position
    assert torch.equal(net.weight, before)


def test_any_other_error_in_the_step_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("shapes cannot be multiplied")

    net = linear()
    monkeypatch.setattr(torch, "zeros_like", broken)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        train(net, AdamW(net.parameters(), lr=0.1))
