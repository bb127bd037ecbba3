"""The optimizer's step and the loss's backward, called directly and yet seen by whoever watches."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import (
    _use_grad_for_differentiable,  # pyright: ignore[reportPrivateUsage]
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.profiler import ProfilerActivity, profile

from trainers.loop.window.accumulation import backward
from trainers.loop.window.update import DirectStep


@pytest.fixture
def parameter() -> nn.Parameter:
    found = nn.Parameter(torch.ones(3))
    found.grad = torch.ones(3)
    return found


@pytest.fixture
def optimizer(parameter: nn.Parameter) -> Optimizer:
    return torch.optim.SGD([parameter], lr=0.25)


def records(step: DirectStep) -> int:
    """How often the step went through torch's wrapper, which opens a record."""
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


class Looking(torch.optim.SGD):
    """Looks whether gradients are on in its steps."""

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
    optimizer = Looking(parameter, differentiable=wanted)
    step = DirectStep(optimizer)
    with torch.set_grad_enabled(enabled):
        assert [records(step), records(step)] == [1, 0]
        assert torch.is_grad_enabled() is enabled
    assert optimizer.seen == [wanted, wanted]


def test_gradients_are_as_before_after_a_direct_step_that_fails(parameter: nn.Parameter) -> None:
    step = DirectStep(Looking(parameter))
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
    with profile(activities=[ProfilerActivity.CPU]) as seen:
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


def test_a_step_that_somebody_put_in_its_place_is_the_one_that_is_called(
    optimizer: Optimizer, patched: list[str]
) -> None:
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
