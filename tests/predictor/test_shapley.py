"""Shapley values of features, which explain ensembles of networks and trees."""

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import random_trees, recent_bars, save_small_artifact, small_artifact, small_model
from ensembles import UNEVEN, ensemble_of, manifest_of, mixed_members, save_ensemble
from explain_cases import (
    BASELINE,
    ENCODER,
    KNOWN,
    LEVELS,
    OBSERVED,
    POINTS,
    SIZES,
    STATIC,
    TARGET,
    LinearNetwork,
    feature_forecasts,
    lstm_forecaster,
    output_map,
    windows,
)
from serving import serving
from torch import nn

from predictor import artifact
from predictor.arrays import FloatArray
from predictor.call_context import NEVER, CallContext
from predictor.client import QuantraClient
from predictor.errors import CallCancelledError, ExplainUnsupportedError
from predictor.explain import Contributions, ShapleyExplainer
from predictor.forecast import Attribution, Detail, RowKind, TargetPoint
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import OCCLUSION, SHAPLEY, ExplanationQuery, Instance
from predictor.model import Ensemble
from predictor.networks import Inputs, TreesConfig, TreesForecaster
from predictor.service import PredictionService

POINT = TargetPoint(5, 0.9)
QUERY = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM")), targets=(POINT,))
SAME = 1e-6
OWN_METHOD = ("integrated-gradients", SHAPLEY)


def shapley(network: nn.Module) -> ShapleyExplainer:
    return ShapleyExplainer(feature_forecasts(network), network if isinstance(network, TreesForecaster) else None)


def trees_forecaster(*, distance: float) -> TreesForecaster:
    """Random trees over all columns, whose quantiles are so far apart."""
    config = TreesConfig(trees=20, leaves=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TreesForecaster(config, sizes=SIZES, target=TARGET, levels=LEVELS)
        trees = random_trees(network.state_dict())
        trees["columns"] = torch.randint(0, sum(network.summaries.widths), trees["columns"].shape, dtype=torch.int16)
    location, scale = (torch.isin(trees["columns"], torch.tensor(columns)) for columns in ((27, 28), (29, 30)))
    trees["thresholds"][location], trees["thresholds"][scale] = 0.0015, 0.011
    trees["values"] += torch.tensor([-distance, 0.0, distance])[:, None, None] / config.trees
    network.load_state_dict(network.state_dict() | trees)
    return network


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    stored = mixed_members(tmp_path_factory.mktemp("members"))
    return ensemble_of(manifest_of(stored, UNEVEN), stored)


def explained(model: Ensemble, query: ExplanationQuery = QUERY) -> Attribution:
    return model.explain(query, AFTER_ALL_SESSIONS, NEVER)[0]


# --- one model


GROUPS = (*(("observed", [f]) for f in range(4)), ("known", [0, 1]), ("static", [0]), ("static", [1, 2]))
"""What moves together besides location, scale and offsets: a part of the inputs and its columns."""


def compute_exactly(network: nn.Module, inputs: Inputs, h: int, q: int) -> FloatArray:
    """[10] Shapley values of one window from the forecasts of all subsets of what moves."""
    count = len(GROUPS) + 3
    moved = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1 > 0
    hidden = {name: torch.from_numpy(getattr(BASELINE, name)) for name in ("known", "static", "location", "scale")}
    hidden["observed"] = torch.zeros(())
    parts = {name: part.repeat(len(moved), *(1,) * (part.dim() - 1)) for name, part in inputs._asdict().items()}
    for g, (name, columns) in enumerate((*GROUPS, ("location", [0, 1]), ("scale", [0, 1]))):
        at_baseline = hidden[name].expand_as(parts[name])
        for column in columns:
            parts[name][~moved[:, g], ..., column] = at_baseline[~moved[:, g], ..., column]
    output = output_map()
    offsets = output.offsets * moved[:, -1, None, None]
    with torch.inference_mode():
        read = Inputs(**parts)
        values = output.map_tensors(network(read), read.location, read.scale, offsets)[:, h, q].numpy()
    sizes = moved.sum(dim=1)
    found = np.zeros(count)
    for g in range(count):
        for subset in (~moved[:, g]).nonzero().flatten().tolist():
            weight = 1 / (count * comb(count - 1, int(sizes[subset])))
            found[g] += weight * (values[subset | 1 << g] - values[subset])
    return found


def list_values(found: Contributions) -> FloatArray:
    """[10] the contributions to one window in the order of `compute_exactly`."""
    parts = {"observed": found.observed[0, 0], "known": found.known[0, 0], "static": found.static[0]}
    own = [parts[name][columns[0]] for name, columns in GROUPS]
    return np.array([*own, found.location[0], found.scale[0], found.conformal[0]])


def test_contributions_are_exact_where_at_most_two_features_interact() -> None:
    weights = torch.randn(2, 1, ENCODER, OBSERVED, generator=torch.Generator().manual_seed(5)) * 0.1
    network, inputs = LinearNetwork(weights.repeat(1, 3, 1, 1)), windows(1)  # such quantiles never cross
    (found,) = shapley(network).explain(inputs, [(1, 2)], deadline=NEVER)
    np.testing.assert_allclose(list_values(found), compute_exactly(network, inputs, 1, 2), rtol=0, atol=1e-8)


def test_contributions_of_a_network_are_close_to_the_exact_ones() -> None:
    network, inputs = lstm_forecaster(), windows(1)
    (found,) = shapley(network).explain(inputs, [(1, 2)], deadline=NEVER)
    exact = compute_exactly(network, inputs, 1, 2)
    assert np.abs(list_values(found) - exact).max() < 0.1 * np.abs(exact).max()


def test_contributions_of_trees_are_exact() -> None:
    network, inputs = trees_forecaster(distance=100), windows(1)
    found = shapley(network).explain(inputs, POINTS, deadline=NEVER)
    exact = np.stack([compute_exactly(network, inputs, *point) for point in POINTS])
    np.testing.assert_allclose([list_values(one) for one in found], exact, rtol=0, atol=1e-14)
    assert (np.abs(exact).max(axis=0) > 1e-4).all()


def test_contributions_of_trees_in_batches_are_those_of_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer, inputs = shapley(trees_forecaster(distance=100)), windows(3)
    (together,) = explainer.explain(inputs, [(1, 2)], deadline=NEVER)
    monkeypatch.setattr("predictor.explain.integrated_gradients.BATCH_NUMBERS", 1)
    (alone,) = explainer.explain(inputs, [(1, 2)], deadline=NEVER)
    np.testing.assert_array_equal(together.observed, alone.observed)
    np.testing.assert_array_equal(together.scale, alone.scale)


def test_quantiles_of_trees_that_would_cross_change_the_row_of_the_offsets() -> None:
    inputs = windows(20)
    apart, crossing = (
        shapley(trees_forecaster(distance=distance)).explain(inputs, [(1, 2)], deadline=NEVER)[0]
        for distance in (100, 0)
    )
    for name in ("observed", "known", "static", "location"):
        np.testing.assert_allclose(getattr(crossing, name), getattr(apart, name), rtol=0, atol=1e-14)
    moved = np.abs(crossing.conformal - apart.conformal)
    assert (moved.min() < 1e-14, moved.max() > 1e-3) == (True, True)
    np.testing.assert_allclose(crossing.total(), crossing.prediction - crossing.baseline_prediction, rtol=0, atol=1e-14)


def test_contributions_add_up_at_every_point() -> None:
    points = [(h, q) for h in range(2) for q in range(3)]
    for found in shapley(lstm_forecaster()).explain(windows(3), points, deadline=NEVER):
        np.testing.assert_allclose(found.total(), found.prediction - found.baseline_prediction, rtol=0, atol=1e-15)
        assert found.converged.all()


def test_windows_in_batches_have_the_contributions_of_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = shapley(lstm_forecaster())
    (together,) = explainer.explain(windows(3), [(1, 2)], deadline=NEVER)
    monkeypatch.setattr("predictor.explain.integrated_gradients.BATCH_NUMBERS", 1)
    (alone,) = explainer.explain(windows(3), [(1, 2)], deadline=NEVER)
    for name in ("observed", "known", "static", "scale", "prediction"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), rtol=0, atol=SAME)


def test_columns_of_one_feature_move_together() -> None:
    (found,) = shapley(lstm_forecaster()).explain(windows(3), [(1, 2)], deadline=NEVER)

    assert (found.observed.shape[2], found.known.shape[2], found.static.shape[1]) == (OBSERVED, KNOWN, STATIC)
    assert not found.known[..., 1].any()
    assert not found.static[:, 2].any()
    assert found.known[..., 0].all()
    assert found.static[:, 1].all()


def test_a_cancelled_explanation_stops_before_the_next_move() -> None:
    gone = CallContext()
    network, passes = lstm_forecaster(), list[int]()

    def cancel_at_the_fourth(*_: object) -> None:
        passes.append(len(passes))
        if len(passes) == 4:
            gone.cancel()

    network.register_forward_pre_hook(cancel_at_the_fourth)
    with pytest.raises(CallCancelledError):
        shapley(network).explain(windows(2), [(1, 2)], deadline=gone)

    assert len(passes) == 4


@pytest.mark.parametrize("kind", ["lstm", "tft", "trees", "har", "graph"])
def test_the_explained_prediction_is_the_forecast(kind: str) -> None:
    model = small_model(small_artifact(kind))
    (found,) = model.explain(replace(QUERY, method=SHAPLEY), AFTER_ALL_SESSIONS, NEVER)
    (served,) = model.forecast([model.prepare(QUERY.instance, AFTER_ALL_SESSIONS)])
    h, q = POINT.index_in(served.horizons, served.quantiles)

    np.testing.assert_allclose(found.prediction, served.values[:, h, q], rtol=0, atol=SAME)
    assert found.method == SHAPLEY
    assert found.baseline == "train_mean"
    np.testing.assert_allclose(found.per_row.sum(axis=1), found.prediction - found.baseline_prediction, atol=1e-15)


def test_all_neighbours_of_a_graph_move_together() -> None:
    bars = recent_bars("AAPL", "IBM", "MSFT")
    model = small_model(small_artifact("graph"))
    query = ExplanationQuery(instance=Instance(input=bars), targets=(POINT,), method=SHAPLEY)
    (by_gradients,) = model.explain(replace(query, method=""), AFTER_ALL_SESSIONS, NEVER)
    (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)

    assert found.row_names == by_gradients.row_names
    assert np.abs(found.per_row[:, found.row_kinds.index(RowKind.NEIGHBOURS)]).max() > 0
    np.testing.assert_allclose(found.baseline_prediction, by_gradients.baseline_prediction, rtol=0, atol=SAME)


@pytest.mark.parametrize("detail", [Detail.TIMES, Detail.CELLS])
def test_contributions_per_session_are_refused(mixed: Ensemble, detail: Detail) -> None:
    with pytest.raises(ExplainUnsupportedError, match="Shapley values are of a feature in all sessions"):
        explained(mixed, replace(QUERY, detail=detail))


# --- ensembles


def test_members_without_a_common_method_of_their_own_have_shapley_values_by_default(mixed: Ensemble) -> None:
    assert mixed.info((), is_default=True).explain_methods == (SHAPLEY, OCCLUSION)
    with pytest.raises(ExplainUnsupportedError, match=r"'tree-shap'; the model supports \['shapley', 'occlusion'\]"):
        explained(mixed, replace(QUERY, method="tree-shap"))


def test_an_ensemble_of_networks_and_trees_has_the_weighted_mean_of_its_members_contributions(mixed: Ensemble) -> None:
    found, by_shapley = explained(mixed), replace(QUERY, method=SHAPLEY)
    lstm, trees = (one.explain(by_shapley, AFTER_ALL_SESSIONS, NEVER)[0] for one in mixed.members.values())
    inputs = [kind is not RowKind.CONFORMAL for kind in found.row_kinds]

    assert (found.method, found.baseline, found.converged.all()) == (SHAPLEY, "train_mean", True)
    np.testing.assert_allclose(found.per_row.sum(axis=1), found.prediction - found.baseline_prediction, atol=1e-15)
    assert found.row_names == lstm.row_names == trees.row_names
    mean = np.average([lstm.per_row, trees.per_row], axis=0, weights=[row[2] for row in UNEVEN])
    np.testing.assert_allclose(found.per_row[:, inputs], mean[:, inputs], rtol=0, atol=1e-12)
    assert np.abs(trees.per_row[:, trees.row_names.index("gap")]).max() > 0


def test_the_explained_prediction_is_the_ensembles_forecast(mixed: Ensemble) -> None:
    (served,) = mixed.forecast([mixed.prepare(QUERY.instance, AFTER_ALL_SESSIONS)])
    h, q = POINT.index_in(served.horizons, served.quantiles)
    np.testing.assert_array_equal(explained(mixed).prediction, served.values[:, h, q])


def test_a_feature_that_no_member_reads_contributes_exactly_0(tmp_path: Path) -> None:
    stored = mixed_members(tmp_path)
    stored["har"] = artifact.load(save_small_artifact(tmp_path / "har" / "1", "har"))
    del stored["lstm"]
    found = explained(ensemble_of(manifest_of(stored), stored))
    unread = [
        row
        for row, (name, kind) in enumerate(zip(found.row_names, found.row_kinds, strict=True))
        if kind in {RowKind.OBSERVED, RowKind.KNOWN, RowKind.STATIC} and name != "gap"
    ]

    assert unread
    assert not found.per_row[:, unread].any()
    assert found.per_row[:, found.row_names.index("gap")].any()


def test_a_served_ensemble_is_explained_as_in_this_process(tmp_path: Path) -> None:
    folders = {kind: save_small_artifact(tmp_path / kind / "1", kind) for kind in ("lstm", "trees")}
    save_ensemble(tmp_path / "served" / "joint" / "1", folders)
    with (
        PredictionService.open(tmp_path / "served") as service,
        serving(service) as server,
        QuantraClient(server.target, "joint") as client,
    ):
        info, (served,) = client.model(), client.explain(QUERY).attributions
    with Forecaster.load(tmp_path / "served" / "joint" / "1") as forecaster:
        (here,) = forecaster.explain(QUERY).attributions

    assert info.explain_methods == (SHAPLEY, OCCLUSION)
    np.testing.assert_allclose(served.per_row, here.per_row, rtol=0, atol=1e-9)
    assert (served.method, served.baseline, served.row_names) == (SHAPLEY, here.baseline, here.row_names)
    assert served.warnings == here.warnings
