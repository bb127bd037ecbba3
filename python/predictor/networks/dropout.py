"""Dropout (Srivastava et al. 2014) whose random numbers cost a fourth on a CPU."""

from typing import Final

import torch
from torch import Tensor, nn

from predictor.networks.tracing import is_traced

_LEVELS: Final = 2**16


class Dropout(nn.Module):
    """Sets a share of the values to 0 while training, each by itself, and scales the others up so that means stay.

    torch draws a number for each value. This draws 64 random bits for four, so that the share is met to 1/65536.

    Args:
        share: Of values that are dropped, in [0, 1).
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def drops(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.share > 0

    @property
    def scale(self) -> float:
        """What the kept values are multiplied by."""
        return 1 / (1 - self.share)

    def forward(self, x: Tensor) -> Tensor:
        """Values of any shape."""
        return x * (self.kept(x.shape, x.device) * self.scale) if self.drops else x

    def kept(self, shape: torch.Size, device: torch.device) -> Tensor:
        """uint8 of a shape: 1 where a value is kept."""
        if device.type != "cpu" or is_traced():
            return (torch.rand(shape, device=device) >= self.share).view(torch.uint8)
        count = shape.numel()
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        dropped = min(round(self.share * _LEVELS), _LEVELS - 1) - _LEVELS // 2
        return (bits.view(torch.int16)[:count] >= dropped).view(torch.uint8).view(shape)
