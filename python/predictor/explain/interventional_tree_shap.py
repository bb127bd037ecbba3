"""Exact Shapley values of features for trees: interventional TreeSHAP (Lundberg et al. 2020) with one baseline.

Some features are at the window, the others at the baseline. On the path to a leaf, a features agree with all their
splits only at the window, and b others only at the baseline. A leaf of value v gives each of the former
v (a-1)! b! / (a+b)!, and each of the latter -v a! (b-1)! / (a+b)!.
"""

from collections.abc import Sequence
from math import comb
from typing import Final, final

import numpy as np

from predictor.arrays import BoolArray, FloatArray, PositionArray
from predictor.explain.integration import Point
from predictor.explain.path import PathParts, StraightPath
from predictor.explain.tree_shap import ForestPaths
from predictor.instance import Cancellation
from predictor.networks import MOST_LEAVES, OutputMap, TreesForecaster

FeatureGroup = tuple[int, list[int]]
"""The index of a part of the inputs, and its columns that move together."""

_LOCATION, _SCALE, _OFFSETS = -3, -2, -1
"""The last parts of the inputs, and the last groups: what a forecast also uses outside the trees."""
_COUNTS: Final = range(MOST_LEAVES + 1)
_ORDERS: Final = np.array([[comb(a + b, a) for b in _COUNTS] for a in _COUNTS], np.float64)
"""[a, b] (a + b)! / (a! b!)"""


@final
class InterventionalTreeShap:
    """Computes the Shapley values of features for a model of trees. Thread-safe.

    A forecast is location + spread x scale x (sum of the trees + conformal offset). Location, scale and offset are
    features too. What is added where quantiles would cross counts as part of the offset.
    """

    def __init__(self, network: TreesForecaster, output: OutputMap) -> None:
        """Store the parts; the paths of a forest are followed when they are first needed."""
        self._network = network
        self._output = output
        self._paths: dict[int, ForestPaths] = {}

    def compute(
        self,
        path: StraightPath,
        ends: FloatArray,
        groups: Sequence[FeatureGroup],
        points: Sequence[Point],
        deadline: Cancellation,
    ) -> list[FloatArray]:
        """[G, N] Shapley values at each point, from forecasts [2, N, H, Q] at the baseline and at the windows."""
        forests, both = self._network.forests, (path.start, path.end)
        rows = np.stack([self._network.summaries.compute(parts.inputs(path.fixed.mask)) for parts in both])
        sums = np.stack([forests.sums(own) for own in rows]).reshape(ends.shape)
        location, scale, offsets = (np.stack([parts[k].numpy() for parts in both]) for k in range(_LOCATION, 0))
        units = scale * self._output.spread.numpy()
        crossing = np.diff(ends - (location[..., None] + units[..., None] * (sums + offsets)), axis=0)[0]
        columns = self._list_columns(path.end, groups)
        found = [np.empty((len(groups), path.rows)) for _ in points]
        for row in range(path.rows):
            deadline.check()
            sides = self._list_sides(rows[:, row])
            for (h, q), values in zip(points, found, strict=True):
                f = h * len(self._output.levels) + q
                values[:, row] = self._compute_forest(f, columns, sides[:, :, f], units[:, row, h], len(groups))
        for (h, q), values in zip(points, found, strict=True):
            (usual, unit), offset = units[..., h], offsets[1, :, h, q]
            values[_LOCATION] += location[1, :, h] - location[0, :, h]
            values[_SCALE] += offset * (unit - usual) / 2
            values[_OFFSETS] = offset * (unit + usual) / 2 + crossing[:, h, q]
        return found

    def _list_columns(self, parts: PathParts, groups: Sequence[FeatureGroup]) -> PositionArray:
        """[C] the group of each column that the trees read."""
        by_part = [np.zeros(part.shape[-1], np.int64) for part in parts]
        for group, (part, columns) in enumerate(groups):
            by_part[part][columns] = group
        widths = self._network.summaries.widths
        return np.concatenate([np.resize(own, width) for own, width in zip(by_part[:_OFFSETS], widths, strict=True)])

    def _list_sides(self, rows: FloatArray) -> BoolArray:
        """[2, R, F, S] whether two rows go left at each split of each tree."""
        count, trees, splits = self._network.forests.arrays.columns.shape
        sides = self._network.forests.goes_left(rows).reshape(len(rows), splits, count, trees)
        return sides.transpose(0, 3, 2, 1)

    def _compute_forest(
        self, f: int, columns: PositionArray, sides: BoolArray, units: FloatArray, count: int
    ) -> FloatArray:
        """[G] Shapley values of the product of a forest and the scale, from sides [2, R, S] and the scale's ends."""
        if f not in self._paths:
            self._paths[f] = ForestPaths.of(self._network.forests, f, columns)
        paths, scale_group = self._paths[f], count + _SCALE
        at_baseline, at_window = (paths.follow(own) for own in sides)
        reached = (at_baseline | at_window).all(axis=1)
        gains, losses, groups = ~at_baseline[reached], ~at_window[reached], paths.features[reached]
        a, b, is_scale = gains.sum(axis=1), losses.sum(axis=1), groups == scale_group
        needs_window, needs_baseline = (gains & is_scale).any(axis=1), (losses & is_scale).any(axis=1)
        values = paths.values[reached]

        def share(own: PositionArray, others: PositionArray) -> FloatArray:
            return values / (np.maximum(own, 1) * _ORDERS[own, others])

        # The scale's baseline multiplies every leaf. Its change multiplies a leaf that also needs the scale's window.
        usual, change = units[0], np.where(needs_baseline, 0.0, units[1] - units[0])
        with_scale = a + ~needs_window
        gain, change_gain = usual * share(a, b), change * share(with_scale, b)
        loss = usual * share(b, a) + change * share(b, with_scale)
        by_slot = gains * (gain + change_gain)[:, None] - losses * loss[:, None]
        found = np.bincount(groups.ravel(), by_slot.ravel(), minlength=count).astype(np.float64)
        found[scale_group] += change_gain[~needs_window].sum()
        return found
