"""Boosted trees: summaries of each window, and one forest per horizon and quantile, evaluated by NumPy.

LightGBM (Ke et al. 2017) grows the trees. A forest adds its trees' values in LightGBM's order, so its numbers have the
bits of LightGBM's. A row's bits do not depend on the other rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.layers import check_whole
from predictor.networks.network_kind import NetworkKind
from predictor.networks.normaliser import sum_in_order
from predictor.networks.target import Target

MAX_TREES: Final = 2000
MAX_LEAVES: Final = 64
"""Leaves of a tree are the bits of one integer."""
MAX_COLUMNS: Final = 2**15
"""Splits store the index of their column as int16."""
SHORT_SPANS: Final = (5, 20)
"""Sessions of a week and a month, over which features are summarised besides the whole window."""
ROWS_AT_ONCE: Final = 16
"""Rows of one evaluation of all splits, which bounds its memory to a few MiB."""
UNUSED: Final = -1
"""Column of a split that a tree does not have."""

TREES_ARITHMETIC: Final[Mapping[str, str | float]] = {
    "columns": (
        "observed features: last session, means and population standard deviations of the known cells of the last 5, "
        "20 and all sessions, sums from the newest; known features of each target's session; static; location; scale"
    ),
    "split": "left if the value is at most the threshold; unknown values go to the side that the split names",
    "sum": "float64, from the first tree",
}
"""Conventions that another implementation needs besides the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreesConfig:
    """Sizes of the forests."""

    trees: Annotated[int, Flag("Most trees of each forest.", shown_default="trees: 150")] = 150
    leaves: Annotated[int, Flag("Most leaves of each tree.", shown_default="trees: 15")] = 15

    def __post_init__(self) -> None:
        check_whole("trees", self.trees, MAX_TREES)
        check_whole("leaves", self.leaves, MAX_LEAVES, min_value=2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowSummaries:
    """The columns that the trees read, computed from windows. Shapes: N rows, C columns; see `Inputs` for the others.

    An observed feature has a column for its last session, and for its mean and its standard deviation over each of the
    spans. A feature without a known cell is NaN.
    """

    sizes: InputSizes
    target: Target

    @property
    def spans(self) -> tuple[int, ...]:
        """Numbers of sessions that means and deviations cover, all ending with the last."""
        length = self.sizes.encoder_length
        return (*(span for span in SHORT_SPANS if span < length), length)

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of observed, known and static features, of location and of scale, in this order."""
        horizons = len(self.target.horizons)
        observed = (1 + 2 * len(self.spans)) * self.sizes.observed
        return observed, horizons * self.sizes.known, self.sizes.static, horizons, horizons

    def compute(self, inputs: Inputs) -> FloatArray:
        """[N, C] columns of windows."""
        observed, known, static, mask, location, scale = (group.cpu().numpy() for group in inputs)
        cells = np.where(mask, observed.astype(np.float64), 0.0)[:, ::-1]
        ends = [span - 1 for span in self.spans]
        counts, sums, squares = (
            np.add.accumulate(part, axis=1)[:, ends]
            for part in (mask[:, ::-1].astype(np.float64), cells, cells * cells)
        )
        with np.errstate(invalid="ignore"):
            means = sums / counts
            deviations = np.sqrt(np.maximum(squares / counts - means * means, 0.0))
        last = np.where(mask[:, -1], cells[:, 0], np.nan)
        sessions = [self.sizes.encoder_length - 1 + self.target.lag + horizon for horizon in self.target.horizons]
        groups = (last, means, deviations, known[:, sessions], static, location, scale)
        return np.concatenate([group.reshape(len(location), -1).astype(np.float64) for group in groups], axis=1)

    def sum_groups(self, columns: FloatArray) -> tuple[FloatArray, ...]:
        """Sum numbers [N, C] per observed feature, known feature and static column, then location and scale [N, 1]."""
        ends = np.cumsum(self.widths)[:-1]
        widths = (self.sizes.observed, self.sizes.known, self.sizes.static, 1, 1)
        groups = zip(np.split(columns, ends, axis=1), self.widths, widths, strict=True)
        return tuple(part.reshape(len(part), size // max(width, 1), width).sum(axis=1) for part, size, width in groups)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeArrays:
    """The trees of F forests. Legend: R trees per forest, L leaves and S = L - 1 splits per tree at most.

    A split comes before the splits below it, and the leaves are numbered from left to right. Unused splits and leaves
    are at the end.
    """

    columns: NDArray[np.int16]
    """[F, R, S] column that a split compares; UNUSED for an unused split."""
    thresholds: FloatArray
    """[F, R, S]"""
    unknown_left: BoolArray
    """[F, R, S] whether an unknown value goes left."""
    left: NDArray[np.int8]
    """[F, R, S] the split on the left, or ~leaf."""
    right: NDArray[np.int8]
    """[F, R, S] as `left`."""
    values: FloatArray
    """[F, R, L] in units of the window's scale."""
    counts: NDArray[np.int32]
    """[F, R, L] training windows in a leaf; 0 for an unused one."""

    def check(self, columns: int) -> None:
        """Raise ConfigurationError unless these are trees over `columns` columns."""
        is_used = self.columns != UNUSED
        if ((self.columns < UNUSED) | (self.columns >= columns)).any():
            raise ConfigurationError(
                f"a split compares column {self.columns[(self.columns < UNUSED) | (self.columns >= columns)][0]}, but "
                f"there are {columns} columns, from 0"
            )
        if not (np.isfinite(self.thresholds).all() and np.isfinite(self.values).all()):
            raise ConfigurationError("a threshold or a value of a leaf is infinite or not a number")
        if (is_used[..., 1:] & ~is_used[..., :-1]).any():
            raise ConfigurationError("an unused split is followed by a used one")
        splits, leaves = is_used.sum(axis=-1), (self.counts > 0).sum(axis=-1)
        if (self.counts < 0).any() or (leaves != splits + 1).any() or not (self.counts[..., 0] > 0).all():
            raise ConfigurationError("a tree does not have one leaf with training windows more than it has splits")
        positions = np.arange(self.columns.shape[-1])
        for side, children in (("left", self.left), ("right", self.right)):
            is_split = children >= 0
            wrong = is_used & np.where(
                is_split, (children <= positions) | (children >= splits[..., None]), ~children > splits[..., None]
            )
            if wrong.any():
                raise ConfigurationError(
                    f"a split leads {side} to {children[wrong][0]}, but must lead to a split after it or to ~leaf"
                )
        left, right = self.leaves_below()
        before = left < (right & (~right + np.uint64(1)))  # the lowest bit on the right is above all on the left
        all_leaves = (np.uint64(1) << splits.astype(np.uint64) << np.uint64(1)) - np.uint64(1)
        if (is_used & ~before).any() or (is_used[..., 0] & ((left | right)[..., 0] != all_leaves)).any():
            raise ConfigurationError("the leaves of a tree are not reached once each, from left to right")

    def leaves_below(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """[F, R, S] the leaves on the left and on the right of each split, as bits; 0 for unused splits."""
        left, right = (np.zeros(self.columns.shape, np.uint64) for _ in range(2))
        for split in reversed(range(self.columns.shape[-1])):
            for bits, children in ((left, self.left[..., split]), (right, self.right[..., split])):
                inner = np.take_along_axis(left | right, np.maximum(children, 0)[..., None].astype(np.intp), -1)[..., 0]
                leaf = np.uint64(1) << np.where(children < 0, ~children, 0).astype(np.uint64)
                leaves = np.where(children < 0, leaf, inner)
                bits[..., split] = np.where(self.columns[..., split] == UNUSED, np.uint64(0), leaves)
        return left, right


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forests:
    """Evaluates all splits of all trees at once (Lucchese et al. 2015, QuickScorer).

    A split that sends a row right rules out the leaves on its left. The row's leaf is the leftmost that remains.
    """

    arrays: TreeArrays
    _columns: NDArray[np.int16]
    """[S * F * R] column of each split; unused splits read column 0 and rule nothing out."""
    _thresholds: FloatArray
    """[S * F * R]"""
    _unknown_left: BoolArray
    """[S * F * R]"""
    _left_open: NDArray[np.unsignedinteger[Any]]
    """[S * F * R] the leaves that remain if the row goes right, as bits."""
    _starts: NDArray[np.int64]
    """[F * R] index of each tree's first leaf among all values."""

    @classmethod
    def of(cls, arrays: TreeArrays) -> "Forests":
        """Prepare checked trees."""
        leaves = arrays.values.shape[-1]
        left, _ = arrays.leaves_below()
        bits = np.min_scalar_type((1 << leaves) - 1)

        def flat(part: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(part.reshape(-1, part.shape[-1]).T).ravel()

        return cls(
            arrays=arrays,
            _columns=flat(np.maximum(arrays.columns, 0)),
            _thresholds=flat(arrays.thresholds),
            _unknown_left=flat(arrays.unknown_left),
            _left_open=flat(~left).astype(bits),
            _starts=np.arange(arrays.values.size // leaves) * leaves,
        )

    def goes_left(self, rows: FloatArray) -> BoolArray:
        """[N, S * F * R] whether rows [N, C] go left at each split."""
        values = rows[:, self._columns]
        is_left = values <= self._thresholds
        unknown = np.isnan(values)
        return is_left | (unknown & self._unknown_left) if unknown.any() else is_left

    def sums(self, rows: FloatArray) -> FloatArray:
        """[N, F] sums of the trees' values for rows [N, C]."""
        blocks = [self._sum_leaves(rows[first : first + ROWS_AT_ONCE]) for first in range(0, len(rows), ROWS_AT_ONCE)]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(self.arrays.values)))

    def _sum_leaves(self, rows: FloatArray) -> FloatArray:
        all_leaves = ~self._left_open.dtype.type(0)
        open_leaves = np.where(self.goes_left(rows), all_leaves, self._left_open)
        open_leaves = np.bitwise_and.reduce(open_leaves.reshape(len(rows), -1, len(self._starts)), axis=1)
        lowest = open_leaves & (~open_leaves + open_leaves.dtype.type(1))
        leaves = np.bitwise_count(lowest - lowest.dtype.type(1))
        values = self.arrays.values.ravel()[self._starts + leaves]
        by_tree = values.reshape(len(rows), *self.arrays.values.shape[:2])
        return sum_in_order(np.moveaxis(by_tree, 2, 0))


class TreesForecaster(nn.Module):
    """A forest per horizon and quantile over the summaries of a window. Its quantiles may cross."""

    def __init__(self, config: TreesConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        self.summaries: Final = WindowSummaries(sizes=sizes, target=target)
        if sum(self.summaries.widths) > MAX_COLUMNS:
            raise ConfigurationError(
                f"the trees read {sum(self.summaries.widths)} columns, more than {MAX_COLUMNS}; use fewer features"
            )
        shape = (len(target.horizons), len(levels), config.trees)
        splits, leaves = (*shape, config.leaves - 1), (*shape, config.leaves)
        # Each tree starts as a single leaf of value 0.
        self.register_buffer("columns", torch.full(splits, UNUSED, dtype=torch.int16))
        self.register_buffer("thresholds", torch.zeros(splits, dtype=torch.float64))
        self.register_buffer("unknown_left", torch.zeros(splits, dtype=torch.bool))
        self.register_buffer("left", torch.zeros(splits, dtype=torch.int8))
        self.register_buffer("right", torch.zeros(splits, dtype=torch.int8))
        self.values = nn.Parameter(torch.zeros(leaves, dtype=torch.float64), requires_grad=False)
        counts = torch.zeros(leaves, dtype=torch.int32)
        counts[..., 0] = 1
        self.register_buffer("counts", counts)

    @cached_property
    def forests(self) -> Forests:
        """The trees, checked, in the order of horizons and quantiles; computed once, after the weights are loaded.

        Raises:
            ConfigurationError: the arrays are not trees.
        """
        arrays = {field.name: getattr(self, field.name).detach().cpu().numpy() for field in fields(TreeArrays)}
        trees = TreeArrays(**{name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()})
        trees.check(sum(self.summaries.widths))
        return Forests.of(trees)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float64 in units of the window's scale."""
        sums = self.forests.sums(self.summaries.compute(inputs))
        return torch.from_numpy(sums.reshape(len(sums), *self.values.shape[:2]))


TREES: Final = NetworkKind("trees", 1, TreesConfig, TreesForecaster, TREES_ARITHMETIC, is_trainable=False)
