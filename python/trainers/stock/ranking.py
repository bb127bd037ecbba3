"""What a model of panels learns: the pinball loss of its quantiles, and the order of the stocks on each day."""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from predictor.networks import pinball_loss
from predictor.networks.output import PanelOutput, fault_of
from trainers.loop import ContractError, Loss
from trainers.stock.days import PanelBatch

TINY = 1e-12
"""Keeps a correlation finite where all scores or outcomes of a day are the same."""


class Ranking(NamedTuple):
    """How well scores order the stocks of each day. Legend: P panels, H horizons."""

    loss: Tensor
    """[P, H] 1 minus the correlation of scores and outcomes' ranks, between 0 and 2."""
    known: Tensor
    """[P, H] stocks whose outcome is known."""

    def mean(self) -> Tensor:
        """Over days and horizons, each weighing as many as are known."""
        return (self.loss * self.known).sum() / self.known.sum().clamp(min=1)


def ranking_loss(scores: Tensor, outcomes: Tensor) -> Ranking:
    """One minus the information coefficient of each day's cross-section.

    The coefficient is Pearson's correlation of the scores with the outcomes' ranks, so that outliers among the outcomes
    do not matter (Qlib's CSRankNorm label) and neither does the scale of the scores. A day with fewer than two known
    outcomes says nothing: its loss is 1, without a gradient.

    Args:
        scores: [P, S, H]
        outcomes: [P, S, H] in any unit, NaN where unknown. Equal ones are ranked in the order they stand in.
    """
    known = torch.isfinite(outcomes)
    count = known.sum(1, keepdim=True)
    place = torch.where(known, outcomes, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    ranks = _centred(place.to(scores.dtype), known, count)
    ours = _centred(scores, known, count)
    spread = (ours.square().sum(1) * ranks.square().sum(1) + TINY).sqrt()
    return Ranking(loss=1 - (ours * ranks).sum(1) / spread, known=count.squeeze(1))


def _centred(values: Tensor, known: Tensor, count: Tensor) -> Tensor:
    """Deviations from the mean of the known ones of a day, 0 where unknown."""
    mean = (values * known).sum(1, keepdim=True) / count.clamp(min=1)
    return (values - mean) * known


@final
class PanelTask:
    """Pinball loss in units of each window's volatility, plus a multiple of the ranking loss of each day.

    Both are means over the known targets: horizons without any in a day are left out of both.
    """

    def __init__(
        self, network: nn.Module, *, levels: tuple[float, ...], spread: Tensor, ranking_weight: float = 0.1
    ) -> None:
        """Bind the task to a network.

        Args:
            network: called with inputs, nodes and panels; returns a `PanelOutput`.
            levels: of its quantiles (Q).
            spread: [H] how the target's scale grows with the horizon; outcomes are ranked in the target's own unit.
            ranking_weight: of the ranking loss, above 0 (the scores have no other teacher).

        Raises:
            ContractError: the weight is not above 0.
        """
        if not ranking_weight > 0:
            raise ContractError(f"the ranking weight is {ranking_weight}; it must be above 0, or scores learn nothing")
        self._network = network
        self._levels = torch.tensor(levels)
        self._spread = spread.to(torch.float32)
        self._weight = ranking_weight

    def loss(self, batch: PanelBatch) -> Loss:
        """Mean over the known targets of the batch, with both losses as parts.

        Raises:
            ContractError: the network's output is no `PanelOutput` of the batch's sizes.
        """
        known, count = _known(batch.target)
        output = self._output(batch)
        pinball = self._pinball(output, batch.target, known, count)
        ranking = ranking_loss(_by_day(output.scores.float(), batch.panels), self._outcomes(batch)).mean()
        parts = {"pinball": pinball, "ranking": ranking}
        return Loss(mean=pinball + self._weight * ranking, count=count, parts=parts)

    def quantile_loss(self, batch: PanelBatch) -> Loss:
        """The pinball loss alone.

        Raises:
            ContractError: as `loss`.
        """
        known, count = _known(batch.target)
        return Loss(mean=self._pinball(self._output(batch), batch.target, known, count), count=count)

    def _pinball(self, output: PanelOutput, targets: Tensor, known: Tensor, count: int) -> Tensor:
        """The mean over the known targets."""
        self._levels = self._levels.to(targets.device)
        target = torch.where(known, targets, 0.0)
        losses = pinball_loss(output.quantiles.float(), target, self._levels).mean(-1)
        return (losses * known).sum() / max(count, 1)

    def _output(self, batch: PanelBatch) -> PanelOutput:
        found: object = self._network(batch.inputs, batch.nodes, batch.panels)
        rows, horizons = batch.target.shape
        fault = fault_of(found, rows=rows, horizons=horizons, levels=len(self._levels))
        if fault is not None or not isinstance(found, PanelOutput):
            raise ContractError(
                f"{fault}; the batch has {rows} rows, {horizons} horizons and {len(self._levels)} levels"
            )
        return found

    def _outcomes(self, batch: PanelBatch) -> Tensor:
        """[P, S, H] the targets in their own unit."""
        location, scale = batch.inputs.location.float(), batch.inputs.scale.float()
        self._spread = self._spread.to(batch.target.device)
        return _by_day(location + scale * self._spread * batch.target, batch.panels)


def _known(targets: Tensor) -> tuple[Tensor, int]:
    """Where targets are known, and how many are; asked before the forward is queued, for a GPU is waited for here."""
    known = torch.isfinite(targets)
    return known, int(known.sum())


def _by_day(values: Tensor, panels: int) -> Tensor:
    """Rows [P * S, H] panel by panel as [P, S, H]."""
    return values.unflatten(0, (panels, -1))
