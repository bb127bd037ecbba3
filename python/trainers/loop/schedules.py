"""Learning rates as functions of the steps that were taken."""

import math
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainers.loop.errors import SettingsError


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """The factor of the learning rate: up on a line, then down on half a cosine wave.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), without the restarts.

    Args:
        step: Steps taken so far; 0 gives the factor of the first.
        warmup: The factor reaches 1 after so many steps; 0 begins with 1.
        total: It reaches the floor after so many steps, and stays there.
        floor: The lowest factor of the descent, 0 to 1.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def cosine(optimizer: Optimizer, *, warmup_steps: int, total_steps: int, floor: float = 0.0) -> LambdaLR:
    """A scheduler of `warmup_cosine`, for the steps of one phase.

    Raises:
        SettingsError: A number is out of its range.
    """
    if not 0 <= warmup_steps < total_steps:
        raise SettingsError(
            f"warmup_steps is {warmup_steps} and total_steps is {total_steps}; the warm-up must be 0 or more steps and "
            "end before the total"
        )
    if not 0 <= floor <= 1:
        raise SettingsError(f"floor is {floor}; it must be between 0 and 1, a part of the full learning rate")
    return LambdaLR(optimizer, partial(warmup_cosine, warmup=warmup_steps, total=total_steps, floor=floor))
