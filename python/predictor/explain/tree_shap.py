"""Path-dependent TreeSHAP (Lundberg et al. 2020, "From local explanations to global understanding").

The contribution of a column is its Shapley value, where a forecast without a column follows both branches of its
splits, weighted by their training windows. So the baseline is the mean forecast of the training windows, in units of
the scale. Each leaf of a tree is a product over the columns on its path. Its Shapley value is the integral of a
polynomial, which Gauss-Legendre nodes integrate exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from predictor.arrays import BoolArray, FloatArray, PositionArray
from predictor.call_context import Deadline
from predictor.explain.integrated_gradients import GAP_FLOOR, Contributions, check_request, make_not_finite_error
from predictor.explain.integration import NODE_COUNTS, Point, compute_gauss_legendre
from predictor.explain.path import Baseline, PathParts, StraightPath
from predictor.networks import MAX_LEAVES, Forests, Inputs, OutputMap, TreesForecaster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForestPaths:
    """Paths to the leaves of one forest. Legend: P leaves of all its trees, S splits per tree at most.

    Splits of a path that compare columns of the same feature count as one, the first of them. A slot of a split that is
    not on the path, or not the first, has share 1 and no effect.
    """

    features: PositionArray
    """[P, S] feature of each slot."""
    values: FloatArray
    """[P] value of each leaf."""
    trees: PositionArray
    """[P] tree of each leaf."""
    on_left: NDArray[np.uint64]
    """[P] the splits on whose left the leaf is, as bits."""
    splits: NDArray[np.uint64]
    """[P, S] the splits on the path that compare the slot's feature, as bits; 0 for a slot without effect."""
    shares: FloatArray
    """[P, S] share of the training windows that the splits of a slot send towards the leaf."""
    expected: float
    """Mean of the forest over the training windows."""
    nodes: int
    """Gauss-Legendre nodes that integrate the longest path exactly."""

    @classmethod
    def of(cls, forests: Forests, f: int, features: PositionArray) -> "ForestPaths":
        """Follow the paths of forest `f`; `features` [C] is the feature of each column."""
        arrays = forests.arrays
        left, right = (bits[f] for bits in arrays.leaves_below())
        counts, features = arrays.counts[f].astype(np.float64), features[np.maximum(arrays.columns[f], 0)]
        trees, leaves = np.nonzero(counts > 0)
        bit = (np.uint64(1) << leaves.astype(np.uint64))[:, None]
        on_left, on_right = (left[trees] & bit) != 0, (right[trees] & bit) != 0
        on_path = on_left | on_right
        every_leaf = np.arange(counts.shape[1], dtype=np.uint64)
        below_left, below_right = (
            (((bits[..., None] >> every_leaf) & np.uint64(1)) * counts[:, None]).sum(axis=-1) for bits in (left, right)
        )
        towards = np.where(on_left, below_left[trees], below_right[trees])
        slots = np.arange(features.shape[-1])
        same = (features[trees][:, :, None] == features[trees][:, None]) & on_path[:, :, None] & on_path[:, None]
        first = np.where(on_path, same.argmax(axis=2), slots)
        splits = np.where(first == slots, _pack_bits(same), np.uint64(0))
        shares = np.ones(on_path.shape)
        total = np.where(on_path, (below_left + below_right)[trees], 1.0)
        for slot in slots:
            share = np.where(on_path[:, slot], towards[:, slot] / total[:, slot], 1.0)
            shares[np.arange(len(shares)), first[:, slot]] *= share
        values = arrays.values[f][trees, leaves]
        distinct = (splits > 0).sum(axis=1).max(initial=1)
        return cls(
            features=features[trees],
            values=values,
            trees=trees,
            on_left=_pack_bits(on_left),
            splits=splits,
            shares=shares,
            expected=float((values * counts[trees, leaves] / counts.sum(axis=1)[trees]).sum()),
            nodes=int(distinct + 1) // 2,
        )

    def follow(self, goes_left: BoolArray) -> BoolArray:
        """[P, S] whether one row goes towards the leaf at all splits of a slot, from its sides [R, S]."""
        wrong = _pack_bits(goes_left)[self.trees] ^ self.on_left
        return (wrong[:, None] & self.splits) == 0

    def shapley_values(self, goes_left: BoolArray, count: int) -> FloatArray:
        """Shapley values of `count` features for one row, from whether it goes left at each split [R, S]."""
        follows = self.follow(goes_left)
        positions, weights = compute_gauss_legendre(self.nodes)
        means = np.zeros(self.shares.shape)
        for position, weight in zip(positions, weights, strict=True):
            factors = follows * position + self.shares * (1 - position)
            means += weight * factors.prod(axis=1, keepdims=True) / factors
        parts = self.values[:, None] * (follows - self.shares) * means
        return np.asarray(np.bincount(self.features.ravel(), parts.ravel(), minlength=count), np.float64)


def _pack_bits(splits: BoolArray) -> NDArray[np.uint64]:
    """Splits [..., S] as bits."""
    return (splits.astype(np.uint64) << np.arange(splits.shape[-1], dtype=np.uint64)).sum(axis=-1, dtype=np.uint64)


@final
class TreeExplainer:
    """Explains the forecasts of a model of trees. Stateless and thread-safe.

    A forecast is location + spread x scale x (sum of the trees + conformal offset). Contributions of columns are in the
    window's own scale. Location and scale also have their distance from the baseline of the manifest, the scale times
    the mean of the forest. The row of the conformal offset includes what is added where quantiles would cross.
    """

    def __init__(self, network: TreesForecaster, output: OutputMap, baseline: Baseline) -> None:
        """Follow the paths of all forests."""
        self._network = network
        self._output = output
        self._baseline = baseline
        columns = np.arange(sum(network.summaries.widths))
        self._paths = [ForestPaths.of(network.forests, f, columns) for f in range(output.offsets.numel())]

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`; this method is exact
        nodes: Tensor | None = None,  # noqa: ARG002
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order, without their sessions; see `Explainer.explain`."""
        check_request(inputs, points, self._output)
        columns = self._network.summaries.compute(inputs)
        location, scale = (level.cpu().numpy() for level in (inputs.location, inputs.scale))
        units = self._network(inputs).numpy()
        values = self._output.map_arrays(units, location, scale)
        if not np.isfinite(values).all():
            raise make_not_finite_error()
        return [
            self._join(
                self._compute_shapley_values(columns, point, deadline),
                point,
                units=units[:, *point],
                values=values[:, *point],
                location=location[:, point[0]],
                scale=scale[:, point[0]],
                tolerance=tolerance,
            )
            for point in points
        ]

    def _compute_shapley_values(self, columns: FloatArray, point: Point, deadline: Deadline) -> FloatArray:
        """[N, C] Shapley values in units of the window's scale."""
        forests = self._network.forests
        count, trees, splits = forests.arrays.columns.shape
        f = point[0] * len(self._output.levels) + point[1]
        values = np.empty_like(columns)
        for row, contributions in zip(columns, values, strict=True):
            deadline.check()
            goes_left = forests.goes_left(row[None]).reshape(splits, count, trees)[:, f].T
            contributions[:] = self._paths[f].shapley_values(goes_left, len(row))
        return values

    def _join(
        self,
        shapley: FloatArray,
        point: Point,
        *,
        units: FloatArray,
        values: FloatArray,
        location: FloatArray,
        scale: FloatArray,
        tolerance: float,
    ) -> Contributions:
        """Contributions in the target's unit from Shapley values [N, C], and units, values and levels [N]."""
        h, q = point
        expected = self._paths[h * len(self._output.levels) + q].expected
        unit = scale * float(self._output.spread[h])
        usual = self._baseline.scale[h] * float(self._output.spread[h])
        observed, known, static, by_location, by_scale = self._network.summaries.sum_groups(shapley * unit[:, None])
        start = self._baseline.location[h] + usual * expected
        contributions = Contributions(
            observed=observed[:, None],
            known=known[:, None],
            static=static,
            location=location - self._baseline.location[h] + by_location[:, 0],
            scale=(unit - usual) * expected + by_scale[:, 0],
            conformal=values - (location + unit * units),
            neighbours=np.zeros((len(values), 0)),
            prediction=values,
            baseline_prediction=np.full(len(values), start),
            relative_gap=np.zeros(len(values)),
            converged=np.ones(len(values), np.bool_),
            nodes=np.full(len(values), self._paths[h * len(self._output.levels) + q].nodes, np.int32),
        )
        return contributions.with_gap(GAP_FLOOR * unit, tolerance)


FeatureGroup = tuple[int, list[int]]
"""The index of a part of the inputs, and its columns that move together."""

_LOCATION, _SCALE, _OFFSETS = -3, -2, -1
"""The last parts of the inputs, and the last groups: what a forecast also uses outside the trees."""
_COUNTS: Final = range(MAX_LEAVES + 1)
_BINOMIALS: Final = np.array([[comb(a + b, a) for b in _COUNTS] for a in _COUNTS], np.float64)
"""[a, b] (a + b)! / (a! b!)"""


@final
class InterventionalTreeShap:
    """Computes exact Shapley values of features for a model of trees, with one baseline. Thread-safe.

    This is interventional TreeSHAP (Lundberg et al. 2020). Some features are at the window, the others at the baseline.
    On the path to a leaf, a features agree with all their splits only at the window, and b others only at the baseline.
    A leaf of value v gives each of the former v (a-1)! b! / (a+b)!, and each of the latter -v a! (b-1)! / (a+b)!.

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
        deadline: Deadline,
    ) -> list[FloatArray]:
        """[G, N] Shapley values at each point, from forecasts [2, N, H, Q] at the baseline and at the windows."""
        forests, both = self._network.forests, (path.start, path.end)
        rows = np.stack([self._network.summaries.compute(parts.inputs(path.fixed.mask)) for parts in both])
        sums = np.stack([forests.sums(end_rows) for end_rows in rows]).reshape(ends.shape)
        location, scale, offsets = (np.stack([parts[k].numpy() for parts in both]) for k in range(_LOCATION, 0))
        units = scale * self._output.spread.numpy()
        crossing = np.diff(ends - (location[..., None] + units[..., None] * (sums + offsets)), axis=0)[0]
        columns = self._list_columns(path.end, groups)
        count, trees, splits = self._network.forests.arrays.columns.shape
        contributions = [np.empty((len(groups), path.rows)) for _ in points]
        for row in range(path.rows):
            deadline.check()
            # [2, R, F, S] whether two rows go left at each split of each tree
            both = rows[:, row]
            goes_left = self._network.forests.goes_left(both).reshape(len(both), splits, count, trees)
            sides = goes_left.transpose(0, 3, 2, 1)
            for (h, q), values in zip(points, contributions, strict=True):
                f = h * len(self._output.levels) + q
                values[:, row] = self._compute_forest(f, columns, sides[:, :, f], units[:, row, h], len(groups))
        for (h, q), values in zip(points, contributions, strict=True):
            (usual, unit), offset = units[..., h], offsets[1, :, h, q]
            values[_LOCATION] += location[1, :, h] - location[0, :, h]
            values[_SCALE] += offset * (unit - usual) / 2
            values[_OFFSETS] = offset * (unit + usual) / 2 + crossing[:, h, q]
        return contributions

    def _list_columns(self, parts: PathParts, groups: Sequence[FeatureGroup]) -> PositionArray:
        """[C] the group of each column that the trees read."""
        by_part = [np.zeros(part.shape[-1], np.int64) for part in parts]
        for group, (part, columns) in enumerate(groups):
            by_part[part][columns] = group
        widths = self._network.summaries.widths
        return np.concatenate(
            [np.resize(part_groups, width) for part_groups, width in zip(by_part[:_OFFSETS], widths, strict=True)]
        )

    def _compute_forest(
        self, f: int, columns: PositionArray, sides: BoolArray, units: FloatArray, count: int
    ) -> FloatArray:
        """[G] Shapley values of the product of a forest and the scale, from sides [2, R, S] and the scale's ends."""
        if f not in self._paths:
            self._paths[f] = ForestPaths.of(self._network.forests, f, columns)
        paths, scale_group = self._paths[f], count + _SCALE
        at_baseline, at_window = (paths.follow(end_sides) for end_sides in sides)
        reached = (at_baseline | at_window).all(axis=1)
        gains, losses, groups = ~at_baseline[reached], ~at_window[reached], paths.features[reached]
        a, b, is_scale = gains.sum(axis=1), losses.sum(axis=1), groups == scale_group
        needs_window, needs_baseline = (gains & is_scale).any(axis=1), (losses & is_scale).any(axis=1)
        values = paths.values[reached]

        def share(members: PositionArray, others: PositionArray) -> FloatArray:
            return values / (np.maximum(members, 1) * _BINOMIALS[members, others])

        # The scale's baseline multiplies every leaf. Its change multiplies a leaf that also needs the scale's window.
        usual, change = units[0], np.where(needs_baseline, 0.0, units[1] - units[0])
        with_scale = a + ~needs_window
        gain, change_gain = usual * share(a, b), change * share(with_scale, b)
        loss = usual * share(b, a) + change * share(b, with_scale)
        by_slot = gains * (gain + change_gain)[:, None] - losses * loss[:, None]
        sums = np.bincount(groups.ravel(), by_slot.ravel(), minlength=count).astype(np.float64)
        sums[scale_group] += change_gain[~needs_window].sum()
        return sums
