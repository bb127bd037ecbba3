"""Frequency-adaptive normalisation: the strongest frequencies of a window are taken out of it.

Ye et al., "Frequency Adaptive Normalization For Non-stationary Time Series Forecasting" (NeurIPS 2024). A mean and a
standard deviation describe only the slowest change of a window; trends and seasons are what its strongest Fourier
components hold. They are found in each window and column by themselves, so no other window can move them, and there is
nothing to fit. What they mean for the future is learnt apart, from the part that was taken out.

One thing differs from the paper, which takes the K strongest whole: there an input that moves a little past the point
where two frequencies are equally strong makes the output jump. Here a frequency goes out by how far its power passes
that of the strongest one that stays, whole from half as much again, so that the output is continuous in the input.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError

RAMP: Final = 0.5
"""A frequency goes out whole if its power is 1 + RAMP times that of the strongest that stays."""
TINY: Final = 1e-12

FAN_ARITHMETIC: Final = (
    "real DFT of each window and column, unknown cells at the mean of the known ones; a frequency leaves by "
    f"clamp((power / (power of rank K + 1, plus {TINY:g}) - 1) / {RAMP:g}, 0, 1)"
)


class Parted(NamedTuple):
    """A window in two parts, which add up to it where it is known. Shapes as observed: [N, T, F]."""

    rest: Tensor
    """0 where unknown."""
    dominant: Tensor
    """The strongest frequencies; they run on through unknown cells."""


class FrequencyAdaptive(nn.Module):
    """Parts windows into their strongest frequencies and the rest. Legend: N rows, T sessions, F columns.

    The transform is two matrix products: as fast as an FFT at such lengths, and every exporter knows it.
    """

    analysis: Tensor
    synthesis: Tensor

    def __init__(self, length: int, *, frequencies: int) -> None:
        """Prepare the transform.

        Args:
            length: T.
            frequencies: how many go out at most (K), the mean counted as one of them.

        Raises:
            ConfigurationError: a window of that length does not have more frequencies than that.
        """
        super().__init__()
        self.bins: Final = length // 2 + 1
        if not 1 <= frequencies < self.bins:
            raise ConfigurationError(
                f"{frequencies} frequencies are to be taken out of windows of {length} sessions, which have "
                f"{self.bins}; it must be 1 to {self.bins - 1}"
            )
        self.frequencies: Final = frequencies
        angle = 2 * torch.pi / length * torch.outer(torch.arange(length), torch.arange(self.bins)).double()
        waves = torch.cat([angle.cos(), angle.sin()], dim=1)
        share = torch.full((self.bins,), 2.0 / length, dtype=torch.float64)
        share[0] = 1 / length
        if length % 2 == 0:
            share[-1] = 1 / length
        self.register_buffer("analysis", waves.float(), persistent=False)
        self.register_buffer("synthesis", (waves * share.repeat(2)).T.float().contiguous(), persistent=False)

    def forward(self, observed: Tensor, mask: Tensor) -> Parted:
        """Part windows [N, T, F]; `mask` bool [N, T, F] is True where a cell is known."""
        known = mask.to(observed.dtype)
        mean = (observed * known).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        filled = torch.where(mask, observed, mean).transpose(1, 2)
        waves = filled @ self.analysis
        power = waves[..., : self.bins].square() + waves[..., self.bins :].square()
        stays = power.topk(self.frequencies + 1, dim=-1).values[..., -1:]
        leaves = ((power / (stays + TINY) - 1) / RAMP).clamp(0, 1)
        dominant = ((waves * leaves.repeat(1, 1, 2)) @ self.synthesis).transpose(1, 2)
        return Parted(rest=(observed - dominant) * known, dominant=dominant)
