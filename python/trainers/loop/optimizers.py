"""Optimizers with the settings that suit the loop."""

from collections.abc import Iterable

import torch
from torch.nn import Parameter

# Where torch has a kernel that updates all parameters at once and in place.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")


def adamw(
    parameters: Iterable[Parameter],
    *,
    lr: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    fused: bool | None = None,
) -> torch.optim.AdamW:
    """AdamW, fused into one kernel where there is one: faster, and without memory for anything between.

    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    Args:
        parameters: What it trains.
        lr: Learning rate, above 0.
        weight_decay: What a weight loses in a step, as a multiple of the learning rate and the weight.
        betas: What stays of the means of gradients and of their squares in a step.
        fused: None for automatic: wherever torch has the kernel for the parameters' devices and types.
    """
    trained = list(parameters)
    use_fused = can_fuse(trained) if fused is None else fused
    return torch.optim.AdamW(
        trained, lr=lr, weight_decay=weight_decay, betas=betas, fused=use_fused, foreach=None if use_fused else True
    )


def can_fuse(parameters: Iterable[Parameter]) -> bool:
    """Whether torch has fused kernels for all of the parameters."""
    return all(parameter.device.type in FUSED_DEVICES and parameter.is_floating_point() for parameter in parameters)
