"""Runners that call a network row by row or, for networks that look across stocks, panel by panel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.call_context import Deadline
from predictor.errors import format_names
from predictor.explain import (
    NODE_COUNTS,
    BarOcclusionExplainer,
    Contributions,
    Explainer,
    FeatureOcclusionExplainer,
    ShapleyExplainer,
    TreeExplainer,
)
from predictor.inference import Engine
from predictor.model.prepared_instance import PreparedInstance, find_indices
from predictor.networks import Inputs, PanelOutput

Point = tuple[int, int]
RowExplainer = Explainer | TreeExplainer | BarOcclusionExplainer | FeatureOcclusionExplainer | ShapleyExplainer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkForecast:
    """A network's output for the N usable symbols of several instances."""

    values: FloatArray
    """[N, H, Q] calibrated quantiles in the target's unit."""
    scores: FloatArray | None = None
    """[N, H] scores of a ranking model."""


@final
class RowRunner:
    """Runs a network that reads each window independently; instances share a forward pass."""

    def __init__(self, engine: Engine, explainer: RowExplainer) -> None:
        self._engine = engine
        self._explainer = explainer

    def over(self, engine: Engine) -> "RowRunner":
        """Return a runner of the same kind for another engine."""
        return RowRunner(engine, self._explainer)

    def warnings(self, prepared: PreparedInstance) -> Iterator[str]:  # noqa: ARG002 - a row needs no other
        """Yield warnings that depend on how the network reads the instance."""
        return iter(())

    def compute_units(self, prepared: PreparedInstance) -> Tensor:
        """Compute quantiles [N, H, Q] in units of each window's scale."""
        return self._engine.compute_units(prepared.inputs)

    def forecast(
        self,
        prepared: Sequence[PreparedInstance],  # noqa: ARG002 - a row needs no other
        rows: Inputs,
        deadline: Deadline,
    ) -> NetworkForecast:
        """Forecast the rows of all instances; checks the deadline before every forward pass."""
        return NetworkForecast(values=self._engine.compute_quantiles(rows, deadline).numpy())

    def contributions(
        self,
        prepared: PreparedInstance,
        points: Sequence[Point],
        *,
        among: PreparedInstance | None = None,  # noqa: ARG002 - a row needs no other
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,
    ) -> list[Contributions]:
        """Compute the contributions to the forecasts of N usable symbols, one per point; see `Explainer.explain`.

        Args:
            prepared: the instance with these symbols.
            points: indices of horizon and quantile.
            among: the whole panel, for a network that looks across stocks; None if `prepared` is the whole panel.
            deadline: checked before every forward pass.
            tolerance: largest relative gap that counts as converged.
            node_counts: ascending numbers of quadrature nodes.
        """
        return self._explainer.explain(
            prepared.inputs, points, deadline=deadline, tolerance=tolerance, node_counts=node_counts
        )


def stack_rows(prepared: Sequence[PreparedInstance]) -> Inputs:
    """Stack the rows of all instances, without a copy if they are neighbours in one batch.

    The memory layout does not depend on the number of instances.
    """
    batch, first, end = prepared[0].batch, prepared[0].rows.start, prepared[0].rows.stop
    for instance in prepared[1:]:
        if instance.batch is not batch or instance.rows.start != end:
            return Inputs(*(torch.cat(parts) for parts in zip(*(p.inputs for p in prepared), strict=True)))
        end = instance.rows.stop
    rows = batch if end - first == len(batch.location) else batch.rows(first, end)
    return Inputs(*(group.contiguous() for group in rows))


@final
class PanelRunner:
    """Runs a network that looks across the stocks of a panel; each instance is a separate forward pass."""

    def __init__(
        self,
        engine: Engine,
        explainer: Explainer | FeatureOcclusionExplainer | ShapleyExplainer,
        *,
        universe: Sequence[str],
        neighbours: Tensor,
    ) -> None:
        """Store the parts.

        Args:
            engine: the network.
            explainer: an explainer for 1 + k members.
            universe: U symbols in the order of the network's nodes.
            neighbours: int64 [U, k] the network's neighbours, -1 = none.
        """
        self._engine = engine
        self._explainer = explainer
        self._universe = universe
        self._places: Mapping[str, int] = {symbol: k for k, symbol in enumerate(universe)}
        self._neighbours = neighbours.cpu()

    def over(self, engine: Engine) -> "PanelRunner":
        """See `RowRunner.over`."""
        return PanelRunner(engine, self._explainer, universe=self._universe, neighbours=self._neighbours)

    def warnings(self, prepared: PreparedInstance) -> Iterator[str]:
        """Yield warnings for symbols with missing neighbours and for symbols unknown to the network."""
        nodes, symbols = self._find_nodes(prepared), prepared.usable_symbols
        neighbour_nodes = torch.where(nodes[:, None] >= 0, self._neighbours[nodes], -1)
        lacking = (neighbour_nodes >= 0) & (find_members(nodes, self._neighbours)[:, 1:] < 0)
        affected_symbols = [symbols[row] for row in lacking.any(1).nonzero().flatten().tolist()]
        absent = [self._universe[int(node)] for node in neighbour_nodes[lacking].unique()]
        strangers = [symbol for symbol, node in zip(symbols, nodes.tolist(), strict=True) if node < 0]
        if affected_symbols:
            yield (
                f"{format_names(affected_symbols)}: forecast without the neighbours {format_names(absent)}, which are "
                "missing in the panel or have no forecast themselves; send their bars too"
            )
        if strangers:
            yield f"{format_names(strangers)}: forecast without neighbours, because training had no data of such stocks"

    def compute_units(self, prepared: PreparedInstance) -> Tensor:
        """See `RowRunner.compute_units`; [N, H, Q]."""
        return self._engine.compute_panel(prepared.inputs, self._find_nodes(prepared)).quantiles

    def forecast(self, prepared: Sequence[PreparedInstance], rows: Inputs, deadline: Deadline) -> NetworkForecast:
        """See `RowRunner.forecast`."""
        outputs: list[PanelOutput] = []
        for instance in prepared:
            deadline.check()
            outputs.append(self._engine.compute_panel(instance.inputs, self._find_nodes(instance)))
        quantiles, scores = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        values = self._engine.calibrate(quantiles, rows.location, rows.scale)
        return NetworkForecast(values=values.numpy(), scores=scores.double().numpy())

    def contributions(
        self,
        prepared: PreparedInstance,
        points: Sequence[Point],
        *,
        among: PreparedInstance | None = None,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,
    ) -> list[Contributions]:
        """See `RowRunner.contributions`."""
        panel = prepared if among is None else among
        nodes, rows = self._find_nodes(panel), find_indices(prepared.usable_symbols, panel.usable_symbols)
        members = find_members(nodes, self._neighbours)[rows]
        # all cells of a missing stock are unknown
        stocks = Inputs(*(group[members.clamp(min=0)] for group in panel.inputs))
        return self._explainer.explain(
            stocks._replace(mask=stocks.mask & (members >= 0)[..., None, None]),
            points,
            deadline=deadline,
            tolerance=tolerance,
            node_counts=node_counts,
            nodes=torch.where(members >= 0, nodes[members.clamp(min=0)], -1),
        )

    def _find_nodes(self, prepared: PreparedInstance) -> Tensor:
        """Return the node [N] of each usable symbol, -1 = unknown to the network."""
        return torch.tensor([self._places.get(symbol, -1) for symbol in prepared.usable_symbols])


def find_members(nodes: Tensor, neighbours: Tensor) -> Tensor:
    """Return the rows [N, 1 + k] that each forecast depends on, itself first; -1 = neighbour not in the panel."""
    row_of_node = torch.full((len(neighbours) + 1,), -1)
    row_of_node[nodes] = torch.arange(len(nodes))  # unknown stocks share the last index, which no neighbour uses
    neighbour_nodes = torch.where(nodes[:, None] >= 0, neighbours[nodes], -1)
    rows = torch.where(neighbour_nodes >= 0, row_of_node[neighbour_nodes], -1)
    return torch.cat([torch.arange(len(nodes))[:, None], rows], dim=1)


Runner = RowRunner | PanelRunner
"""Computes forecasts and contributions with one network."""
