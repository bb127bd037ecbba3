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
        self._levels = self._levels.to(batch.target.device)
        known = torch.isfinite(batch.target)
        count = int(known.sum())  # before the forward is queued: a GPU is waited for here
        quantiles: Tensor = self._network(batch.inputs)
        target = torch.where(known, batch.target, 0.0)
        losses = pinball_loss(quantiles.float(), target, self._levels).mean(-1)
        return Loss(mean=(losses * known).sum() / max(count, 1), count=count)
