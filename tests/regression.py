"""The smallest training task: a linear regression on random rows."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainers.loop import Loss


class Rows(NamedTuple):
    """A batch: x [N, 3] and y [N, 1]."""

    x: Tensor
    y: Tensor


def rows(count: int = 4, seed: int = 0) -> Rows:
    """Random rows, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return Rows(torch.randn(count, 3, generator=generator), torch.randn(count, 1, generator=generator))


def linear() -> nn.Linear:
    """A network with the same weights every time."""
    torch.manual_seed(2)
    return nn.Linear(3, 1)


def squares(net: nn.Module, batch: Rows) -> Loss:
    """The mean squared error of a batch."""
    return Loss((net(batch.x) - batch.y).square().mean(), len(batch.x))
