"""Fitting the trees of a model with LightGBM, one forest per horizon and quantile, pooled over symbols."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from predictor.arrays import FloatArray
from predictor.errors import MissingPackageError
from predictor.networks import TreesForecaster
from trainers.stock.data import WINDOWS_PER_BATCH, History, TrainingWindows
from trainers.stock.objectives import StaticDropout

if TYPE_CHECKING:
    from lightgbm import Booster

MAX_NUMBERS: Final = 40_000_000
"""Numbers in the columns of all training windows, 320 MB; more windows are thinned out evenly."""
PATIENCE: Final = 20
"""Trees without a better loss on the selection split before a forest stops growing."""
SETTINGS: Final = {
    "objective": "quantile",
    "metric": "quantile",
    "learning_rate": 0.05,
    "min_data_in_leaf": 100,
    "max_bin": 63,
    "feature_fraction": 0.5,
    "deterministic": True,
    "force_col_wise": True,
    "verbosity": -1,
}


def require_lightgbm() -> None:
    """Raise MissingPackageError, naming the extra, unless LightGBM is installed."""
    if find_spec("lightgbm") is None:
        raise MissingPackageError.of("lightgbm", "baselines", "training a model of trees")


def fit_forests(
    network: TreesForecaster,
    history: History,
    train: TrainingWindows,
    selection: TrainingWindows,
    levels: tuple[float, ...],
    seed: int,
) -> None:
    """Fit a network's trees; each forest keeps the number of trees with the best loss on the selection split.

    The seed chooses the columns of each tree, and the hidden static values.

    Raises:
        MissingPackageError: LightGBM is not installed.
    """
    require_lightgbm()
    import lightgbm

    max_windows = MAX_NUMBERS // sum(network.summaries.widths)
    train_samples = _collect(network, StaticDropout(history, seed=seed), train.subsample(max_windows))
    selection_samples = _collect(network, history, selection.subsample(max_windows))
    # With `deterministic`, the number of threads does not change the trees.
    threads = torch.get_num_threads()
    settings = {**SETTINGS, "num_leaves": network.values.shape[-1], "seed": seed, "num_threads": threads}
    for h, (labels, held_labels) in enumerate(zip(train_samples[1].T, selection_samples[1].T, strict=True)):
        is_known, is_held_known = np.isfinite(labels), np.isfinite(held_labels)
        data = lightgbm.Dataset(
            train_samples[0][is_known], label=labels[is_known], params=settings, free_raw_data=False
        )
        selection_data = lightgbm.Dataset(
            selection_samples[0][is_held_known], label=held_labels[is_held_known], reference=data
        )
        for q, level in enumerate(levels):
            forest = lightgbm.train(
                {**settings, "alpha": level},
                data,
                num_boost_round=network.values.shape[2],
                valid_sets=[selection_data] if is_held_known.any() else None,
                callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)] if is_held_known.any() else None,
            )
            store_forest(network, h, q, forest)


def _collect(
    network: TreesForecaster, source: History | StaticDropout, windows: TrainingWindows
) -> tuple[FloatArray, FloatArray]:
    """[N, C] columns and [N, H] outcomes of windows."""
    columns = np.empty((len(windows), sum(network.summaries.widths)))
    labels = np.empty((len(windows), len(network.summaries.target.horizons)))
    for rows, block in windows.blocks(WINDOWS_PER_BATCH):
        batch = source.gather(block)
        columns[rows], labels[rows] = network.summaries.compute(batch.inputs), batch.target.numpy()
    return columns, labels


def store_forest(network: TreesForecaster, h: int, q: int, forest: "Booster") -> None:
    """Copy LightGBM's best trees into a network, splits in preorder and leaves from left to right."""
    for k, tree in enumerate(forest.dump_model()["tree_info"]):
        for name, numbers in _read_tree(tree["tree_structure"]).items():
            part: torch.Tensor = getattr(network, name)[h, q, k]
            with torch.no_grad():
                part[: len(numbers)] = torch.tensor(numbers, dtype=part.dtype)


def _read_tree(root: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Arrays of one tree, see `TreeArrays`."""
    arrays: dict[str, list[Any]] = {
        name: [] for name in ("columns", "thresholds", "unknown_left", "left", "right", "values", "counts")
    }

    def visit(node: Mapping[str, Any]) -> int:
        if "split_feature" not in node:
            arrays["values"].append(node["leaf_value"])
            arrays["counts"].append(node.get("leaf_count", 1))
            return ~(len(arrays["values"]) - 1)
        split = len(arrays["columns"])
        arrays["columns"].append(node["split_feature"])
        arrays["thresholds"].append(node["threshold"])
        # Without unknown values in training, LightGBM reads one as 0.
        left = node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0
        arrays["unknown_left"].append(left)
        arrays["left"].append(0)
        arrays["right"].append(0)
        arrays["left"][split] = visit(node["left_child"])
        arrays["right"][split] = visit(node["right_child"])
        return split

    visit(root)
    return arrays
