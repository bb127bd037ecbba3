"""Shapley values of features (Shapley 1953; Strumbelj & Kononenko 2014), for every kind of model.

Features move one after the other from the baseline to the window. The contribution of a feature is the change of the
forecast at its move, averaged over several orders of the features. The changes of each order add up to the difference
from the baseline, so the averages do, too. Each order is followed by its reverse, which is exact for a forecast in
which at most two features interact (Mitchell et al. 2022).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn

from predictor.arrays import FloatArray
from predictor.explain.integrated_gradients import (
    GAP_FLOOR,
    Contributions,
    build_paths,
    check_request,
    not_finite_error,
)
from predictor.explain.integration import NODE_COUNTS, PathIntegrator, Point
from predictor.explain.path import Baseline, PanelForecasts, PathParts, RowForecasts, StraightPath
from predictor.instance import Cancellation
from predictor.networks import Inputs, OutputMap

ORDERS: Final = 16
"""Orders of the features; every second one is the reverse of the one before it."""

_Group = tuple[int, list[int]]
"""The index of a part of the inputs, and its columns that move together."""
_NEIGHBOURS: Final = -1
"""In place of an index: all inputs of the other stocks, which move together."""


@cache
def draw_orders(groups: int) -> tuple[tuple[int, ...], ...]:
    """ORDERS orders of the groups, the same at every call."""
    random = np.random.default_rng(groups)
    drawn = [random.permutation(groups).tolist() for _ in range(ORDERS // 2)]
    return tuple(tuple(order) for one in drawn for order in (one, one[::-1]))


def count_forecasts(groups: int) -> int:
    """Forecasts of one window that its Shapley values need: both ends, and all orders after each move but the last."""
    return 2 + ORDERS * (groups - 1)


@final
class ShapleyExplainer:
    """Explains the forecasts of any model of several features. Stateless and thread-safe.

    The baseline is that of integrated gradients. Location, scale, conformal offsets, and the neighbours together, count
    as features.
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
        self._output = replace(output, spread=output.spread.to(device), offsets=output.offsets.to(device))
        self._baseline = baseline
        self._known, self._static = _list_columns(known_groups), _list_columns(static_groups)
        self._is_panel, self._members = members is not None, members or 1
        forecasting = PanelForecasts(network, self._output) if self._is_panel else RowForecasts(network, self._output)
        self._integrator = PathIntegrator(forecasting, max_rows=max(1, max_rows // self._members))

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Cancellation,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`
        nodes: Tensor | None = None,
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order, without their sessions; see `Explainer.explain`."""
        check_request(inputs, points, self._output, members=self._members)
        with torch.inference_mode(), torch.autocast(self._output.offsets.device.type, enabled=False):
            paths = build_paths(self._baseline, inputs, self._output.offsets, nodes, copies=ORDERS)
            blocks = [self._explain_batch(path, points, deadline, tolerance) for path in paths]
        return [Contributions.joined(parts) for parts in zip(*blocks, strict=True)]

    def _explain_batch(
        self, path: StraightPath, points: Sequence[Point], deadline: Cancellation, tolerance: float
    ) -> list[Contributions]:
        baseline, values = self._integrator.ends(path, deadline)
        if not bool(values.isfinite().all()):
            raise not_finite_error()
        groups = self._list_groups(path.end)
        changes = self._average_changes(path, groups, baseline, values, deadline)
        floor = GAP_FLOOR * self._output.spread * path.scale
        return [
            self._join(groups, path.end, changes[..., h, q], baseline[:, h, q], values[:, h, q]).with_gap(
                _to_numpy(floor[:, h]), tolerance
            )
            for h, q in points
        ]

    def _list_groups(self, parts: PathParts) -> list[_Group]:
        """What moves together."""
        observed, _, _, *others = (list(range(part.shape[-1])) for part in parts)
        by_part = ([[f] for f in observed], self._known, self._static, *([columns] for columns in others))
        groups = [(part, columns) for part, own in enumerate(by_part) for columns in own]
        return [*groups, (_NEIGHBOURS, [])] if self._members > 1 else groups

    def _average_changes(
        self,
        path: StraightPath,
        groups: Sequence[_Group],
        baseline: Tensor,
        values: Tensor,
        deadline: Cancellation,
    ) -> Tensor:
        """[G, N, H, Q] the mean change of the forecast when a group moves from the baseline to the window.

        All orders are at the same move, so that they share forward passes.
        """
        orders = draw_orders(len(groups))
        changes = values.new_zeros(len(groups), *values.shape)
        states = PathParts(*(part.expand(ORDERS, *part.shape).clone() for part in path.start))
        fixed, before = path.fixed.repeat(ORDERS), baseline.expand(ORDERS, *baseline.shape)
        for k in range(len(groups)):
            for state, order in enumerate(orders):
                self._move(states, state, path.end, groups[order[k]])
            if k < len(groups) - 1:
                ends = PathParts(*(part.flatten(0, 1) for part in states))
                moved = StraightPath(start=ends, end=ends, fixed=fixed)
                after = self._integrator.forecasts(moved, (1.0,), deadline)[0].unflatten(0, (ORDERS, path.rows))
            else:
                after = values.expand(ORDERS, *values.shape)
            for state, order in enumerate(orders):
                changes[order[k]] += (after[state] - before[state]) / ORDERS
            before = after
        return changes

    def _move(self, states: PathParts, state: int, end: PathParts, group: _Group) -> None:
        """Move a group of one order's inputs to the windows."""
        part, columns = group
        if part == _NEIGHBOURS:
            for moving, window in zip(states[:-1], end[:-1], strict=True):
                moving[state][:, 1:] = window[:, 1:]
            return
        # all parts of a panel but the offsets have a dimension of stocks, and the first is the explained one
        own = (slice(None), 0) if self._is_panel and part < len(end) - 1 else (slice(None),)
        states[part][state][*own, ..., columns] = end[part][*own, ..., columns]

    def _join(
        self, groups: Sequence[_Group], end: PathParts, changes: Tensor, baseline: Tensor, values: Tensor
    ) -> Contributions:
        """The changes [G, N] of one point as contributions; a feature with several columns has it at the first."""
        rows = [np.zeros((len(values), part.shape[-1])) for part in end]
        neighbours = np.zeros((len(values), int(self._members > 1)))
        for (part, columns), change in zip(groups, changes, strict=True):
            (neighbours if part == _NEIGHBOURS else rows[part])[:, columns[0] if columns else 0] = _to_numpy(change)
        observed, known, static, location, scale, offsets = rows
        return Contributions(
            observed=observed[:, None],
            known=known[:, None],
            static=static,
            location=location[:, 0],
            scale=scale[:, 0],
            conformal=offsets[:, 0],
            neighbours=neighbours,
            prediction=_to_numpy(values),
            baseline_prediction=_to_numpy(baseline),
            relative_gap=np.zeros(len(values)),
            converged=np.ones(len(values), np.bool_),
            nodes=np.full(len(values), ORDERS, np.int32),
        )


def _list_columns(groups: Sequence[int]) -> list[list[int]]:
    """The columns of each group."""
    return [[k for k, own in enumerate(groups) if own == group] for group in dict.fromkeys(groups)]


def _to_numpy(values: Tensor) -> FloatArray:
    return values.cpu().numpy()
