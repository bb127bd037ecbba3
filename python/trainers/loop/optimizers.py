"""Optimizers and learning rate schedules for the loop."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainers.loop.errors import SettingsError

# Devices on which torch updates all parameters in place with one kernel.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """Return the factor of the learning rate: linear warm-up, then half-cosine decay.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), without the restarts.

    Args:
        step: Steps taken so far; 0 for the first step.
        warmup: Steps until the factor reaches 1; 0 starts with 1.
        total: Steps until the factor reaches the floor, where it stays.
        floor: The lowest factor of the decay, 0 to 1.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def cosine(optimizer: Optimizer, *, warmup_steps: int, total_steps: int, floor: float = 0.0) -> LambdaLR:
    """Return a scheduler with the factors of `warmup_cosine`, for the steps of one phase.

    Raises:
        SettingsError: A number is out of range.
    """
    if not 0 <= warmup_steps < total_steps:
        raise SettingsError(
            f"warmup_steps is {warmup_steps} and total_steps is {total_steps}; warmup_steps must be at least 0 and "
            "less than total_steps"
        )
    if not 0 <= floor <= 1:
        raise SettingsError(f"floor is {floor}; it must be between 0 and 1, a fraction of the full learning rate")
    return LambdaLR(optimizer, partial(warmup_cosine, warmup=warmup_steps, total=total_steps, floor=floor))


def adamw(
    parameters: Iterable[Parameter],
    *,
    lr: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    fused: bool | None = None,
    spared: Iterable[Parameter] = (),
) -> torch.optim.AdamW:
    """Return an AdamW optimizer, fused if torch supports it, which is faster and needs no temporary memory.

    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    Args:
        parameters: The parameters to train, of any shapes.
        lr: Learning rate, above 0.
        weight_decay: Decay per step, as a multiple of learning rate x weight.
        betas: Decay rates of the running means of the gradients and of their squares.
        fused: Whether to use the fused kernel; None uses it if torch supports it for the parameters.
        spared: Parameters without weight decay, such as biases.
    """
    trained, without_decay = list(parameters), {id(parameter) for parameter in spared}
    use_fused = can_fuse(trained) if fused is None else fused
    groups: list[Parameter] | list[dict[str, Any]] = trained
    if without_decay:
        groups = [
            {"params": [parameter for parameter in trained if id(parameter) not in without_decay]},
            {"params": [parameter for parameter in trained if id(parameter) in without_decay], "weight_decay": 0.0},
        ]
    return torch.optim.AdamW(
        groups,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        fused=use_fused,
        foreach=None if use_fused else True,
    )


def can_fuse(parameters: Iterable[Parameter]) -> bool:
    """Return whether torch has fused kernels for all parameters."""
    return all(parameter.device.type in FUSED_DEVICES and parameter.is_floating_point() for parameter in parameters)
