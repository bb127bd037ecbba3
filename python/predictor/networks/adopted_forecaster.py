"""The forecaster of an adopted model: its log returns in units of the window's scale."""

from typing import Final

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.target import Target, TargetKind


class AdoptedForecaster(nn.Module):
    """A model that others trained, which forecasts log returns from the last close.

    Raises:
        ConfigurationError: the target is another one, or the model reads or forecasts fewer sessions.
    """

    def __init__(self, target: Target, sizes: InputSizes, *, longest: int, reach: int) -> None:
        """Check the target and lengths; the model reads at most `longest` sessions and forecasts `reach`."""
        super().__init__()
        if target.kind is not TargetKind.LOG_RETURN or target.lag:
            raise ConfigurationError(
                f"the target is {target}, but an adopted model forecasts log returns from the last close (lag 0)"
            )
        if target.horizons[-1] > reach:
            raise ConfigurationError(
                f"horizon {target.horizons[-1]} is beyond the {reach} sessions that the model forecasts; choose "
                "shorter horizons"
            )
        if sizes.encoder_length > longest:
            raise ConfigurationError(
                f"encoder length is {sizes.encoder_length}, but the model reads at most {longest} sessions"
            )
        self.days: Final = [horizon - 1 for horizon in target.horizons]
        self.spread: Final = torch.from_numpy(target.spread)

    def quantiles(self, inputs: Inputs) -> Tensor:
        """Rising quantiles [N, H, Q] float64 of the log returns."""
        raise NotImplementedError

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float64 in units of the window's scale."""
        unit = inputs.scale * self.spread.to(inputs.scale.device)
        return (self.quantiles(inputs) - inputs.location[..., None]) / unit[..., None]
