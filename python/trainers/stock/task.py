"""What a stock model learns: the pinball loss of its quantiles, over the targets that are known."""

import torch
from torch import Tensor, nn

from predictor.networks import pinball_loss
from trainers.loop import Loss
from trainers.stock.data import Batch


class QuantileTask:
    """Pinball loss in units of each window's volatility, so that calm and wild stocks and all horizons weigh alike."""

    def __init__(self, network: nn.Module, levels: tuple[float, ...]) -> None:
        self._network = network
        self._levels = torch.tensor(levels)

    def loss(self, batch: Batch) -> Loss:
        """Mean over the known targets of a batch."""
        quantiles: Tensor = self._network(batch.inputs)
        known = torch.isfinite(batch.target)
        target = torch.where(known, batch.target, 0.0)
        losses = pinball_loss(quantiles.float(), target, self._levels.to(quantiles.device)).mean(-1)
        count = int(known.sum())
        return Loss(mean=(losses * known).sum() / max(count, 1), count=count)
