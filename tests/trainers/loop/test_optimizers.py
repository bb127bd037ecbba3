"""AdamW with the kernel that suits the parameters."""

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from trainers.loop.optimizers import adamw, can_fuse


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
