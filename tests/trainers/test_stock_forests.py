"""Trees fitted by LightGBM and copied into a network: the same bits, the same Shapley values, the same seeds."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import lightgbm
import numpy as np
import pytest
import torch
from market import bokeh_panel
from serving import serving

from predictor.arrays import FloatArray
from predictor.client import QuantraClient
from predictor.errors import MissingPackageError
from predictor.explain.tree_shap import ForestPaths
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, Instance
from predictor.networks import InputSizes, Target, TreesConfig, TreesForecaster
from predictor.service import PredictionService
from trainers import StockTrainer
from trainers.stock import forests
from trainers.stock.forests import SETTINGS, store_forest

COLUMNS = 12
LEAVES = 15
BARS = bokeh_panel("AAPL", "IBM").last(900)
RECIPE: Final[dict[str, Any]] = {"model": "trees", "horizons": [1, 5], "calendar": "XNYS", "trees": 10, "leaves": 4}


def random_rows(count: int, seed: int) -> FloatArray:
    """Rows with a constant column, a column of few values, and unknown values in two columns."""
    rows = np.random.default_rng(seed).normal(size=(count, COLUMNS))
    rows[:, 0] = 1.0
    rows[:, 1] = np.round(rows[:, 1])
    for column in (2, 3):
        rows[np.random.default_rng(seed + column).random(count) < 0.2, column] = np.nan
    return rows


def outcomes(rows: FloatArray) -> FloatArray:
    known = np.nan_to_num(rows, nan=-1.0)
    return known[:, 4] * known[:, 1] + np.abs(known[:, 2]) + np.random.default_rng(9).normal(size=len(rows))


def grow(seed: int = 0, threads: int = 1) -> lightgbm.Booster:
    rows = random_rows(1500, seed=1)
    settings = {
        **SETTINGS,
        "alpha": 0.9,
        "num_leaves": LEAVES,
        "min_data_in_leaf": 10,
        "seed": seed,
        "num_threads": threads,
    }
    return lightgbm.train(settings, lightgbm.Dataset(rows, label=outcomes(rows)), num_boost_round=60)


def empty_network(trees: int = 60) -> TreesForecaster:
    """One forest over COLUMNS columns: static ones, besides location and scale."""
    sizes = InputSizes(encoder_length=1, future_length=1, observed=0, known=0, static=COLUMNS - 2)
    config = TreesConfig(trees=trees, leaves=LEAVES)
    return TreesForecaster(config, sizes=sizes, target=Target(horizons=(1,)), levels=(0.9,))


@cache
def grown() -> tuple[lightgbm.Booster, TreesForecaster]:
    booster, network = grow(), empty_network()
    store_forest(network, 0, 0, booster)
    return booster, network


def rows_to_forecast() -> FloatArray:
    """Rows with unknown values in every column, and exactly on thresholds."""
    rows = random_rows(400, seed=5)
    rows[np.random.default_rng(6).random(rows.shape) < 0.1] = np.nan
    forest = grown()[1].forests.arrays
    rows[:200, forest.columns[0, 0, 0]] = forest.thresholds[0, 0, 0]
    return rows


def test_forests_have_the_bits_of_lightgbm_also_for_unknown_values_and_on_thresholds() -> None:
    booster, network = grown()
    rows = rows_to_forecast()
    np.testing.assert_array_equal(network.forests.sums(rows)[:, 0], booster.predict(rows, num_threads=1))


def test_a_rows_bits_do_not_depend_on_the_other_rows() -> None:
    network, rows = grown()[1], rows_to_forecast()
    alone = np.concatenate([network.forests.sums(row[None]) for row in rows])
    np.testing.assert_array_equal(network.forests.sums(rows), alone)


def test_shapley_values_are_those_of_lightgbm() -> None:
    booster, network = grown()
    rows, paths = rows_to_forecast()[::8], ForestPaths.of(network.forests, 0, np.arange(COLUMNS))
    goes_left = [network.forests.goes_left(row[None]).reshape(LEAVES - 1, -1).T for row in rows]
    found = np.stack([paths.shapley_values(one, COLUMNS) for one in goes_left])
    theirs = np.asarray(booster.predict(rows, pred_contrib=True, num_threads=1))
    np.testing.assert_allclose(found, theirs[:, :-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(paths.expected, theirs[:, -1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1) + paths.expected, network.forests.sums(rows)[:, 0], rtol=0, atol=1e-12)


def test_the_same_seed_grows_the_same_trees_with_any_number_of_threads_and_another_seed_others() -> None:
    made = [empty_network() for _ in range(4)]
    for network, (seed, threads) in zip(made, ((0, 1), (0, 1), (0, 2), (1, 1)), strict=True):
        store_forest(network, 0, 0, grow(seed, threads))
    same = [
        all(torch.equal(a, b) for a, b in zip(made[0].state_dict().values(), one.state_dict().values(), strict=True))
        for one in made[1:]
    ]
    assert same == [True, True, False]


def test_a_forest_keeps_the_trees_up_to_the_best_on_the_selection_split() -> None:
    rows, others = random_rows(1500, seed=1), random_rows(300, seed=2)
    data = lightgbm.Dataset(rows, label=np.random.default_rng(3).normal(size=1500))
    judged = lightgbm.Dataset(others, label=np.random.default_rng(4).normal(size=300), reference=data)
    stopping = [lightgbm.early_stopping(5, verbose=False)]
    forest = lightgbm.train({**SETTINGS, "alpha": 0.5}, data, 60, valid_sets=[judged], callbacks=stopping)
    network = empty_network()
    store_forest(network, 0, 0, forest)
    best = forest.best_iteration
    assert 0 < best < 55
    np.testing.assert_array_equal(network.forests.sums(others)[:, 0], forest.predict(others, num_iteration=best))
    assert not network.values[0, 0, best:].any()


def test_a_tree_without_a_split_is_its_value() -> None:
    rows = random_rows(100, seed=1)
    data = lightgbm.Dataset(rows, label=np.full(100, 2.5))
    network = empty_network()
    store_forest(network, 0, 0, lightgbm.train({**SETTINGS, "alpha": 0.5}, data, 3))
    assert network.forests.sums(rows)[:, 0] == pytest.approx(2.5)
    paths = ForestPaths.of(network.forests, 0, np.arange(COLUMNS))
    found = paths.shapley_values(network.forests.goes_left(rows[:1]).reshape(LEAVES - 1, -1).T, COLUMNS)
    assert not found.any()


# --- trained models


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[StockTrainer, Path]:
    """A trained model and its folder."""
    trainer, folder = StockTrainer(**RECIPE, quiet=True), tmp_path_factory.mktemp("models") / "small" / "1"
    trainer.fit(BARS).close()
    return trainer, trainer.save(folder)


def test_training_again_gives_the_same_bytes_and_another_seed_other_trees(trained: tuple[StockTrainer, Path]) -> None:
    made = [StockTrainer(**RECIPE, quiet=True, seed=seed) for seed in (0, 1)]
    for trainer in made:
        trainer.fit(BARS).close()
    weights = trained[1] / "weights.safetensors"
    found = [trainer.save(trained[1].parent / str(2 + k)) / weights.name for k, trainer in enumerate(made)]
    assert [path.read_bytes() == weights.read_bytes() for path in found] == [True, False]


def test_a_server_forecasts_and_explains_as_the_loaded_model_does(trained: tuple[StockTrainer, Path]) -> None:
    bars = bokeh_panel("AAPL", "IBM").last(150)
    with (
        Forecaster.load(trained[1], "cpu") as loaded,
        PredictionService.open(trained[1].parents[1]) as service,
        serving(service) as served,
        QuantraClient(served.target, "small") as client,
    ):
        here, there = loaded.predict(bars), client.predict(bars)
        np.testing.assert_array_equal(there.values, here.values)
        assert there.forecast_id == here.forecast_id
        query = ExplanationQuery(instance=Instance(input=bars))
        ours, theirs = (one.explain(query).attributions for one in (loaded, client))
        np.testing.assert_array_equal([one.per_row for one in theirs], [one.per_row for one in ours])


def test_the_card_counts_the_values_of_leaves_and_has_no_epochs(trained: tuple[StockTrainer, Path]) -> None:
    card = trained[0].card
    assert card.training is not None
    assert (card.training.parameters, card.training.precision) == (2 * 3 * 10 * 4, "fp64")
    assert (card.training.epochs, card.start_note) == ((), "")


def test_training_without_lightgbm_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        assert name == "lightgbm"

    monkeypatch.setattr(forests, "find_spec", missing)
    with pytest.raises(
        MissingPackageError, match=r"training a model of trees needs .* pip install 'quantra\[baselines\]'"
    ):
        StockTrainer(**RECIPE, quiet=True).fit(BARS)
