"""Forecasts of a network with some of its features at the baseline."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from predictor.call_context import Deadline
from predictor.explain.integration import PathIntegrator
from predictor.explain.path import Baseline, PanelForecasts, PathParts, RowForecasts, StraightPath
from predictor.networks import OutputMap


@final
class FeatureForecasts:
    """Forecasts of any model of several features, which explanations by feature share. Stateless and thread-safe.

    Location, scale, conformal offsets, and the neighbours together, count as features.

    Attributes:
        output: The model's output map, on the device of the network's output.
        baseline: The baseline.
        members: Stocks of a window: the explained one and its neighbours.
        integrator: Computes forecasts in batches.
    """

    def __init__(
        self,
        network: nn.Module,
        output: OutputMap,
        baseline: Baseline,
        *,
        known_groups: Sequence[int],
        static_groups: Sequence[int],
        device: torch.device,
        max_rows: int,
        members: int | None = None,
    ) -> None:
        """Store the parts.

        Args:
            network: the served network.
            output: the model's output map.
            baseline: the baseline.
            known_groups: index of the known feature that each column belongs to.
            static_groups: index of the static feature that each column belongs to.
            device: device of the network's output.
            max_rows: see `Explainer`.
            members: see `Explainer`.
        """
        self.output = replace(output, spread=output.spread.to(device), offsets=output.offsets.to(device))
        self.baseline = baseline
        self.members = members or 1
        self._known, self._static = _list_columns(known_groups), _list_columns(static_groups)
        self._is_panel = members is not None
        forecasting = PanelForecasts(network, self.output) if self._is_panel else RowForecasts(network, self.output)
        self.integrator = PathIntegrator(forecasting, max_rows=max(1, max_rows // self.members))

    def list_columns(self, parts: PathParts) -> tuple[list[list[int]], ...]:
        """The columns of each feature in each part of the inputs."""
        observed, _, _, *others = (list(range(part.shape[-1])) for part in parts)
        return ([[f] for f in observed], self._known, self._static, *([columns] for columns in others))

    def index_of(self, part: int, columns: list[int]) -> tuple[Any, ...]:
        """The index of a feature's columns in a part; in a panel, only of the explained stock."""
        # all parts of a panel but the offsets have a dimension of stocks, and the first is the explained one
        own = (slice(None), 0) if self._is_panel and part < len(PathParts._fields) - 1 else (slice(None),)
        return (*own, ..., columns)

    def forecast(self, path: StraightPath, parts: PathParts, deadline: Deadline) -> Tensor:
        """[N, H, Q] forecasts of a path's windows with these inputs, always in batches of the same sizes."""
        return self.integrator.forecasts(replace(path, end=parts), (1.0,), deadline)[0]


def _list_columns(groups: Sequence[int]) -> list[list[int]]:
    """The columns of each group."""
    return [[k for k, own in enumerate(groups) if own == group] for group in dict.fromkeys(groups)]
