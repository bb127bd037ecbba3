"""Shapley values of features (Shapley 1953; Strumbelj & Kononenko 2014), for every kind of model.

Features move one after the other from the baseline to the window. The contribution of a feature is the change of the
forecast at its move, averaged over several orders of the features. The changes of each order add up to the difference
from the baseline, so the averages do, too. Each order is followed by its reverse, which is exact for a forecast in
which at most two features interact (Mitchell et al. 2022). For trees, the average over all orders is computed instead.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.call_context import Deadline
from predictor.explain.integrated_gradients import (
    GAP_FLOOR,
    Contributions,
    build_paths,
    check_request,
    make_not_finite_error,
)
from predictor.explain.integration import NODE_COUNTS, FeatureForecasts, Point
from predictor.explain.path import PathParts, StraightPath
from predictor.explain.tree_shap import FeatureGroup, InterventionalTreeShap
from predictor.networks import Inputs, TreesForecaster

ORDERS: Final = 16
"""Orders of the features; every second one is the reverse of the one before it."""

_NEIGHBOURS: Final = -1
"""In place of an index: all inputs of the other stocks, which move together."""


@cache
def draw_orders(groups: int) -> tuple[tuple[int, ...], ...]:
    """ORDERS orders of the groups, drawn by NumPy's default generator with their number as seed, as in C#."""
    random = np.random.default_rng(groups)
    permutations = [random.permutation(groups).tolist() for _ in range(ORDERS // 2)]
    return tuple(tuple(order) for order in permutations for order in (order, order[::-1]))


def count_forecasts(groups: int) -> int:
    """Forecasts of one window that its Shapley values need: both ends, and all orders after each move but the last."""
    return 2 + ORDERS * (groups - 1)


@final
class ShapleyExplainer:
    """Explains the forecasts of any model of several features. Stateless and thread-safe.

    The baseline is that of integrated gradients.
    """

    def __init__(self, features: FeatureForecasts, trees: TreesForecaster | None = None) -> None:
        """Store the forecasts, and their trees if they are those of a model of trees."""
        self._features = features
        self._trees = None if trees is None else InterventionalTreeShap(trees, features.output)

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`
        nodes: Tensor | None = None,
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order, without their sessions; see `Explainer.explain`."""
        features, output = self._features, self._features.output
        check_request(inputs, points, output, members=features.members)
        with torch.inference_mode(), torch.autocast(output.offsets.device.type, enabled=False):
            copies = ORDERS if self._trees is None else 1
            paths = build_paths(features.baseline, inputs, output.offsets, nodes, copies=copies)
            blocks = [self._explain_batch(path, points, deadline, tolerance) for path in paths]
        return [Contributions.joined(parts) for parts in zip(*blocks, strict=True)]

    def _explain_batch(
        self, path: StraightPath, points: Sequence[Point], deadline: Deadline, tolerance: float
    ) -> list[Contributions]:
        baseline, values = self._features.integrator.ends(path, deadline)
        if not bool(values.isfinite().all()):
            raise make_not_finite_error()
        column_lists = enumerate(self._features.list_columns(path.end))
        groups: list[FeatureGroup] = [(part, columns) for part, lists in column_lists for columns in lists]
        if self._features.members > 1:
            groups.append((_NEIGHBOURS, []))
        if self._trees is None:
            averages = self._average_changes(path, groups, baseline, values, deadline).cpu().numpy()
            changes, orders = [averages[..., h, q] for h, q in points], ORDERS
        else:
            ends = np.stack([baseline.cpu().numpy(), values.cpu().numpy()])
            changes, orders = self._trees.compute(path, ends, groups, points, deadline), 1
        floor = GAP_FLOOR * self._features.output.spread * path.scale
        return [
            self._join(groups, path.end, point_changes, baseline[:, h, q], values[:, h, q], orders).with_gap(
                floor[:, h].cpu().numpy(), tolerance
            )
            for (h, q), point_changes in zip(points, changes, strict=True)
        ]

    def _average_changes(
        self,
        path: StraightPath,
        groups: Sequence[FeatureGroup],
        baseline: Tensor,
        values: Tensor,
        deadline: Deadline,
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
                state_path = StraightPath(start=ends, end=ends, fixed=fixed)
                after = self._features.forecast(state_path, ends, deadline).unflatten(0, (ORDERS, path.rows))
            else:
                after = values.expand(ORDERS, *values.shape)
            for state, order in enumerate(orders):
                changes[order[k]] += (after[state] - before[state]) / ORDERS
            before = after
        return changes

    def _move(self, states: PathParts, state: int, end: PathParts, group: FeatureGroup) -> None:
        """Move a group of one order's inputs to the windows."""
        part, columns = group
        if part == _NEIGHBOURS:
            for moving, window in zip(states[:-1], end[:-1], strict=True):
                moving[state][:, 1:] = window[:, 1:]
            return
        index = self._features.index_of(part, columns)
        states[part][state][index] = end[part][index]

    def _join(
        self,
        groups: Sequence[FeatureGroup],
        end: PathParts,
        changes: FloatArray,
        baseline: Tensor,
        values: Tensor,
        orders: int,
    ) -> Contributions:
        """The changes [G, N] of one point as contributions; a feature with several columns has it at the first."""
        rows = [np.zeros((len(values), part.shape[-1])) for part in end]
        neighbours = np.zeros((len(values), int(self._features.members > 1)))
        for (part, columns), change in zip(groups, changes, strict=True):
            (neighbours if part == _NEIGHBOURS else rows[part])[:, columns[0] if columns else 0] = change
        observed, known, static, location, scale, offsets = rows
        return Contributions(
            observed=observed[:, None],
            known=known[:, None],
            static=static,
            location=location[:, 0],
            scale=scale[:, 0],
            conformal=offsets[:, 0],
            neighbours=neighbours,
            prediction=values.cpu().numpy(),
            baseline_prediction=baseline.cpu().numpy(),
            relative_gap=np.zeros(len(values)),
            converged=np.ones(len(values), np.bool_),
            nodes=np.full(len(values), orders, np.int32),
        )
