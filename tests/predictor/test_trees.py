"""Models of trees: the columns that they read, malformed trees, and explanations of served models."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from artifacts import recent_bars, small_artifact, small_model
from torch import Tensor

from predictor.call_context import NEVER
from predictor.errors import ArtifactError
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance
from predictor.networks import Inputs, InputSizes, Target, TreesConfig, TreesForecaster, WindowSummaries

SUMMARIES = WindowSummaries(
    sizes=InputSizes(encoder_length=25, future_length=3, observed=2, known=1, static=1),
    target=Target(horizons=(1, 3)),
)


def windows(rows: int = 3) -> Inputs:
    """Random windows; the second feature of the first row is unknown in the last ten sessions."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(rows, 25, 2, dtype=torch.bool)
    mask[0, -10:, 1] = False
    return Inputs(
        observed=torch.randn(rows, 25, 2, generator=generator) * mask,
        known=torch.arange(28.0).expand(rows, 28)[..., None],
        static=torch.full((rows, 1), 7.0),
        mask=mask,
        location=torch.full((rows, 2), 0.5, dtype=torch.float64),
        scale=torch.tensor([[0.01, 0.02]], dtype=torch.float64).expand(rows, 2),
    )


def test_the_columns_are_last_values_means_and_deviations_then_what_is_known_of_the_targets_sessions() -> None:
    inputs = windows()
    columns = SUMMARIES.compute(inputs)
    observed = inputs.observed.double().numpy()
    spans = [observed[1, -span:] for span in (5, 20, 25)]
    expected = [observed[1, -1], *(span.mean(axis=0) for span in spans), *(span.std(axis=0) for span in spans)]
    np.testing.assert_allclose(columns[1, :14], np.concatenate(expected), rtol=0, atol=1e-14)
    assert columns[1, 14:].tolist() == [25.0, 27.0, 7.0, 0.5, 0.5, 0.01, 0.02]


def test_a_summary_counts_known_cells_only_and_is_unknown_without_one() -> None:
    inputs = windows()
    columns, values = SUMMARIES.compute(inputs)[0], inputs.observed[0, :, 1].double().numpy()
    assert np.isnan(columns[[1, 3, 9]]).all()  # the last session, and mean and deviation of the last five
    assert columns[[5, 11]] == pytest.approx([values[5:15].mean(), values[5:15].std()])
    assert columns[[7, 13]] == pytest.approx([values[:15].mean(), values[:15].std()])


def test_a_rows_columns_do_not_depend_on_the_other_rows() -> None:
    inputs = windows()
    alone = np.concatenate([SUMMARIES.compute(inputs.rows(row, row + 1)) for row in range(3)])
    np.testing.assert_array_equal(SUMMARIES.compute(inputs), alone)


def test_numbers_per_column_add_up_per_feature() -> None:
    numbers = np.arange(21.0)[None]
    observed, known, static, location, scale = SUMMARIES.sum_groups(numbers)
    assert observed.tolist() == [[sum(range(0, 14, 2)), sum(range(1, 14, 2))]]
    assert (known.tolist(), static.tolist()) == ([[14.0 + 15.0]], [[16.0]])
    assert (location.tolist(), scale.tolist()) == ([[17.0 + 18.0]], [[19.0 + 20.0]])


def test_a_network_reads_each_forest_at_its_horizon_and_quantile() -> None:
    network = TreesForecaster(
        TreesConfig(trees=2, leaves=2), sizes=SUMMARIES.sizes, target=SUMMARIES.target, levels=(0.1, 0.5, 0.9)
    )
    with torch.no_grad():
        network.values[..., 0] = torch.arange(12.0, dtype=torch.float64).reshape(2, 3, 2)
    expected = torch.tensor([[1.0, 5.0, 9.0], [13.0, 17.0, 21.0]], dtype=torch.float64)
    torch.testing.assert_close(network(windows()), expected.expand(3, 2, 3), rtol=0, atol=0)


# --- malformed trees


def change(name: str, place: int, value: float) -> Callable[[dict[str, Tensor]], None]:
    """Set one number of the first tree, which has the splits 0 (over 1 and 2) and the leaves 0 to 3."""

    def apply(weights: dict[str, Tensor]) -> None:
        weights[name] = weights[name].clone()
        weights[name][0, 0, 0, place] = value

    return apply


def drop_last_split(weights: dict[str, Tensor]) -> None:
    change("columns", 2, -1)(weights)
    change("counts", 3, 0)(weights)


def swap_leaves(weights: dict[str, Tensor]) -> None:
    change("left", 1, ~1)(weights)
    change("right", 1, ~0)(weights)


def leave_splits_out(weights: dict[str, Tensor]) -> None:
    change("left", 0, ~0)(weights)
    change("right", 0, ~3)(weights)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (swap_leaves, "the leaves of a tree are not reached once each, from left to right"),
        (leave_splits_out, "the leaves of a tree are not reached once each"),
        (change("left", 0, 0), "a split leads left to 0, but must lead to a split after it"),
        (change("left", 1, 0), "a split leads left to 0, but must lead to a split after it"),
        (change("right", 0, 3), "a split leads right to 3"),
        (change("right", 0, 1), "the leaves of a tree are not reached once each"),
        (change("right", 1, ~4), "a split leads right to -5"),
        (change("right", 1, -128), "a split leads right to -128"),
        (change("right", 1, ~0), "the leaves of a tree are not reached once each"),
        (change("right", 1, ~3), "the leaves of a tree are not reached once each"),
        (change("left", 1, ~1), "the leaves of a tree are not reached once each"),
        (change("columns", 1, 30000), "a split compares column 30000, but there are"),
        (change("columns", 1, -2), "a split compares column -2, but there are"),
        (change("columns", 1, -1), "an unused split is followed by a used one"),
        (change("columns", 2, -1), "one leaf with training windows more than it has splits"),
        (drop_last_split, "a split leads right to 2"),
        (change("counts", 0, 0), "one leaf with training windows more than it has splits"),
        (change("counts", 0, -5), "one leaf with training windows more than it has splits"),
        (change("thresholds", 0, np.inf), "thresholds holds a value that is not finite"),
        (change("values", 0, np.nan), "values holds a value that is not finite"),
    ],
)
def test_malformed_trees_are_refused(spoil: Callable[[dict[str, Tensor]], None], problem: str) -> None:
    made = small_artifact("trees")
    weights = dict(made.weights)
    spoil(weights)
    with pytest.raises(ArtifactError, match=problem):
        replace(made, weights=weights).network()


def test_trees_of_other_sizes_than_the_manifests_are_refused() -> None:
    made = small_artifact("trees")
    weights = {**made.weights, "left": made.weights["left"][..., :2]}
    with pytest.raises(ArtifactError, match=r"left is torch.int8 .*, expected torch.int8"):
        replace(made, weights=weights).network()


# --- explanations


def test_contributions_add_up_to_the_forecast() -> None:
    made = small_artifact("trees")
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM")))
    for found in small_model(made).explain(query, AFTER_ALL_SESSIONS, NEVER):
        difference = found.prediction - found.baseline_prediction
        np.testing.assert_allclose(found.per_row.sum(axis=1), difference, rtol=0, atol=1e-15)
        assert found.converged.all()


def test_a_tree_that_reads_one_feature_moves_its_row_only() -> None:
    made = small_artifact("trees")
    names = made.pipeline.features.features.names
    weights = {**made.weights, "columns": torch.full_like(made.weights["columns"], names.index("gap"))}
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL")))
    (found, *_) = small_model(replace(made, weights=weights)).explain(query, AFTER_ALL_SESSIONS, NEVER)
    moving = {name for name, value in zip(found.row_names, found.per_row[0], strict=True) if abs(value) > 1e-15}
    assert moving == {"gap", "scale"}
