"""Optimizers and learning rate schedules."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trainers.loop.errors import SettingsError
from trainers.loop.phase import adamw, can_fuse, cosine, warmup_cosine


def stepped(*, fused: bool | None) -> list[Parameter]:
    """Parameters after three steps."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = adamw(net.parameters(), lr=0.01, weight_decay=0.1, betas=(0.8, 0.95), fused=fused)
    for seed in range(3):
        optimizer.zero_grad()
        net(torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))).square().mean().backward()
        optimizer.step()
    return list(net.parameters())


def test_fused_and_unfused_take_the_same_steps() -> None:
    for one, other in zip(stepped(fused=True), stepped(fused=False), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)


def test_automatic_is_fused_on_the_cpu() -> None:
    for one, other in zip(stepped(fused=None), stepped(fused=True), strict=True):
        assert torch.equal(one, other)


def test_the_settings_reach_the_optimizer() -> None:
    (group,) = adamw([Parameter(torch.zeros(2))], lr=0.5, weight_decay=0.25, betas=(0.5, 0.75)).param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.25, (0.5, 0.75))
    assert (group["fused"], group["foreach"]) == (True, None)


@pytest.mark.parametrize(
    ("dtype", "device", "fused"),
    [
        (torch.float32, "cpu", True),
        (torch.bfloat16, "cpu", True),
        (torch.float64, "cpu", True),
        (torch.complex64, "cpu", False),
        (torch.float32, "meta", False),
    ],
)
def test_only_floating_point_on_devices_with_the_kernel_is_fused(
    dtype: torch.dtype, device: str, *, fused: bool
) -> None:
    parameter = Parameter(torch.zeros(2, dtype=dtype, device=device))
    assert can_fuse([parameter]) is fused
    assert can_fuse([Parameter(torch.zeros(2)), parameter]) is fused


def test_what_cannot_be_fused_is_stepped_all_at_once() -> None:
    (group,) = adamw([Parameter(torch.zeros(2, dtype=torch.complex64))], lr=0.1).param_groups
    assert (group["fused"], group["foreach"]) == (False, True)


def test_what_is_spared_does_not_decay() -> None:
    layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    adamw(layer.parameters(), lr=0.1, weight_decay=0.5, spared=[layer.bias]).step()
    torch.testing.assert_close(layer.bias, before["bias"], rtol=0, atol=0)
    torch.testing.assert_close(layer.weight, 0.95 * before["weight"])


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 0.2), (3, 0.8), (4, 1.0), (8, 0.55 + 0.45 * math.cos(math.pi * 0.4)), (9, 0.55), (14, 0.1), (99, 0.1)],
)
def test_the_factor_rises_on_a_line_and_falls_on_a_cosine_to_the_floor(step: int, factor: float) -> None:
    assert warmup_cosine(step, warmup=4, total=14, floor=0.1) == pytest.approx(factor)


def test_without_a_warm_up_the_first_step_has_the_full_rate() -> None:
    assert warmup_cosine(0, warmup=0, total=10) == 1.0


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([Parameter(torch.zeros(1))], lr=2.0)


def test_the_scheduler_follows_the_function() -> None:
    trained = optimizer()
    scheduler = cosine(trained, warmup_steps=1, total_steps=5, floor=0.5)
    rates: list[float | Tensor] = []
    for _ in range(6):
        rates.append(scheduler.get_last_lr()[0])
        trained.step()
        scheduler.step()
    assert rates == pytest.approx([2 * warmup_cosine(step, warmup=1, total=5, floor=0.5) for step in range(6)])


def test_a_loaded_scheduler_continues_where_the_saved_one_was() -> None:
    first, second = optimizer(), optimizer()
    before = cosine(first, warmup_steps=2, total_steps=9)
    for _ in range(4):
        first.step()
        before.step()
    after = cosine(second, warmup_steps=2, total_steps=9)
    after.load_state_dict(before.state_dict())
    for trained, scheduler in ((first, before), (second, after)):
        trained.step()
        scheduler.step()
    assert after.get_last_lr() == before.get_last_lr() == pytest.approx([2 * warmup_cosine(5, warmup=2, total=9)])


@pytest.mark.parametrize(
    ("warmup", "total", "floor"), [(-1, 5, 0.0), (5, 5, 0.0), (0, 0, 0.0), (0, 5, 1.5), (0, 5, -1.0)]
)
def test_numbers_out_of_their_range_are_refused(warmup: int, total: int, floor: float) -> None:
    with pytest.raises(SettingsError, match=r"warmup_steps is|floor is"):
        cosine(optimizer(), warmup_steps=warmup, total_steps=total, floor=floor)
