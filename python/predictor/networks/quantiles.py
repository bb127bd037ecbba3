"""The quantile head: outputs that cannot cross, and the loss that teaches them."""

from itertools import accumulate, pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.errors import ConfigurationError

HEAD_ARITHMETIC: Final = "the level nearest to 0.5, plus or minus sums of softplus steps away from it"


def check_quantiles(levels: tuple[float, ...]) -> None:
    """Raise ConfigurationError unless the levels rise within (0, 1)."""
    if not levels or not all(0 < q < 1 for q in levels) or not all(a < b for a, b in pairwise(levels)):
        raise ConfigurationError(f"quantiles are {list(levels)}, but must be rising levels between 0 and 1")


def anchor_index(levels: tuple[float, ...]) -> int:
    """Position of the level nearest to the median; the other quantiles are steps away from it."""
    return min(range(len(levels)), key=lambda q: abs(levels[q] - 0.5))


class QuantileHead(nn.Module):
    """Quantiles for each horizon from a context for each horizon: an anchor plus or minus sums of softplus steps.

    The steps are positive, so quantiles never cross. Shapes: N rows, H horizons, W width, Q quantiles.
    """

    def __init__(self, width: int, *, horizons: int, levels: tuple[float, ...]) -> None:
        super().__init__()
        check_quantiles(levels)
        self.anchor: Final = anchor_index(levels)
        self.weight = nn.Parameter(torch.randn(horizons, width, len(levels)) * (0.1 / max(width, 1) ** 0.5))
        self.bias = nn.Parameter(torch.zeros(horizons, len(levels)))

    def forward(self, context: Tensor) -> Tensor:
        """Map [N, H, W] to [N, H, Q], rising along Q."""
        by_horizon = torch.baddbmm(self.bias.unsqueeze(1), context.transpose(0, 1), self.weight)
        return self.rising(by_horizon.transpose(0, 1))

    def rising(self, raw: Tensor) -> Tensor:
        """Turn [N, H, Q], an anchor and the steps before softplus, into quantiles."""
        a = self.anchor
        middle, steps = raw[..., a], functional.softplus(raw).unbind(-1)
        above = accumulate(steps[a + 1 :], torch.add, initial=middle)
        below = accumulate(reversed(steps[:a]), torch.sub, initial=middle)
        return torch.stack([*reversed(list(below)[1:]), *above], dim=-1)

    @torch.no_grad()
    def start_at(self, quantiles: Tensor) -> None:
        """Give these quantiles [H, Q], rising along Q, whatever the context is: what it is worth is to be learnt."""
        a = self.anchor
        self.weight.zero_()
        steps = torch.diff(quantiles, dim=-1).clamp(min=1e-3)
        self.bias[:, a] = quantiles[:, a]
        raw = steps + torch.log(-torch.expm1(-steps))  # softplus backwards, without exp(steps), which can overflow
        self.bias[:, a + 1 :] = raw[:, a:]
        self.bias[:, :a] = raw[:, :a]


def pinball_loss(quantiles: Tensor, targets: Tensor, levels: Tensor) -> Tensor:
    """[N, H, Q] pinball loss of quantiles [N, H, Q] at targets [N, H] (Koenker & Bassett 1978)."""
    error = targets.unsqueeze(-1) - quantiles
    return torch.maximum(levels * error, (levels - 1) * error)
