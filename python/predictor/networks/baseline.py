"""Forecasters without a network: the same quantiles for every window, in units of its fitted location and scale."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn

from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.network_kind import NetworkKind
from predictor.networks.output import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.target import Target

UNCONDITIONAL_ARITHMETIC: Final[Mapping[str, str | float]] = {"head": f"{HEAD_ARITHMETIC}, of the bias alone"}
"""Conventions that another implementation needs besides the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconditionalConfig:
    """An empty configuration."""


class UnconditionalForecaster(nn.Module):
    """A forecaster whose quantiles are the head's bias."""

    def __init__(
        self,
        config: UnconditionalConfig,  # noqa: ARG002 - the signature of all networks
        *,
        sizes: InputSizes,  # noqa: ARG002
        target: Target,
        levels: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.head = QuantileHead(0, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's scale."""
        return self.head.rising(self.head.bias.expand(inputs.observed.shape[0], -1, -1))


HAR: Final = NetworkKind("har", 1, UnconditionalConfig, UnconditionalForecaster, UNCONDITIONAL_ARITHMETIC, learns=False)
GARCH: Final = NetworkKind(
    "garch", 1, UnconditionalConfig, UnconditionalForecaster, UNCONDITIONAL_ARITHMETIC, learns=False
)
