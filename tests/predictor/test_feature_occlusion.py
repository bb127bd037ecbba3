"""Occlusion of features."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model
from ensembles import UNEVEN, ensemble_of, manifest_of, mixed_members
from explain_cases import (
    BASELINE,
    KNOWN,
    OBSERVED,
    STATIC,
    feature_forecasts,
    forecast,
    lstm_forecaster,
    windows,
)
from torch import nn

from predictor import artifact
from predictor.call_context import NEVER, CallContext
from predictor.errors import CallCancelledError, ExplainUnsupportedError
from predictor.explain import FeatureOcclusionExplainer
from predictor.forecast import Attribution, Detail, RowKind, TargetPoint
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import OCCLUSION, SHAPLEY, ExplanationQuery, Instance
from predictor.model import Ensemble
from predictor.model.ensemble import find_common_methods
from predictor.networks import Inputs

POINT = TargetPoint(5, 0.9)
QUERY = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM")), targets=(POINT,), method=OCCLUSION)
SAME = 1e-6
OWN_METHOD = ("integrated-gradients", SHAPLEY, OCCLUSION)


def occlusion(network: nn.Module) -> FeatureOcclusionExplainer:
    return FeatureOcclusionExplainer(feature_forecasts(network))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    stored = mixed_members(tmp_path_factory.mktemp("members"))
    return ensemble_of(manifest_of(stored, UNEVEN), stored)


def explained(model: Ensemble, query: ExplanationQuery = QUERY) -> Attribution:
    return model.explain(query, AFTER_ALL_SESSIONS, NEVER)[0]


# --- one model


def hide_observed(inputs: Inputs) -> Inputs:
    observed = inputs.observed.clone()
    observed[:, :, 1] = 0
    return inputs._replace(observed=observed)


def hide_known(inputs: Inputs) -> Inputs:
    return inputs._replace(known=torch.from_numpy(BASELINE.known).expand_as(inputs.known))


def hide_static(inputs: Inputs) -> Inputs:
    static = inputs.static.clone()
    static[:, 1:] = torch.from_numpy(BASELINE.static[1:])
    return inputs._replace(static=static)


def hide_scale(inputs: Inputs) -> Inputs:
    return inputs._replace(scale=torch.from_numpy(BASELINE.scale).expand_as(inputs.scale))


@pytest.mark.parametrize(
    ("hide", "part", "column"),
    [(hide_observed, "observed", 1), (hide_known, "known", 0), (hide_static, "static", 1), (hide_scale, "scale", None)],
)
def test_a_contribution_is_the_forecast_minus_that_with_the_feature_at_the_baseline(
    hide: Callable[[Inputs], Inputs], part: str, column: int | None
) -> None:
    network, inputs = lstm_forecaster(), windows(3)
    (found,) = occlusion(network).explain(inputs, [(1, 2)], deadline=NEVER)

    effects = getattr(found, part)
    expected = (forecast(network, inputs) - forecast(network, hide(inputs)))[:, 1, 2].numpy()
    np.testing.assert_allclose(effects if column is None else effects[..., column].reshape(-1), expected, atol=1e-9)
    assert np.abs(expected).min() > 0


def test_columns_of_one_feature_are_hidden_together() -> None:
    (found,) = occlusion(lstm_forecaster()).explain(windows(3), [(1, 2)], deadline=NEVER)

    assert (found.observed.shape[2], found.known.shape[2], found.static.shape[1]) == (OBSERVED, KNOWN, STATIC)
    assert not found.known[..., 1].any()
    assert not found.static[:, 2].any()
    assert found.nodes.tolist() == [OBSERVED + 1 + 2 + 3] * 3


def test_a_cancelled_explanation_stops_before_the_next_feature() -> None:
    gone = CallContext()
    network, passes = lstm_forecaster(), list[int]()

    def cancel_at_the_fourth(*_: object) -> None:
        passes.append(len(passes))
        if len(passes) == 4:
            gone.cancel()

    network.register_forward_pre_hook(cancel_at_the_fourth)
    with pytest.raises(CallCancelledError):
        occlusion(network).explain(windows(2), [(1, 2)], deadline=gone)

    assert len(passes) == 4


@pytest.mark.parametrize("kind", ["lstm", "tft", "trees", "har", "graph"])
def test_the_explained_prediction_is_the_forecast(kind: str) -> None:
    model = small_model(small_artifact(kind))
    (found,) = model.explain(QUERY, AFTER_ALL_SESSIONS, NEVER)
    (served,) = model.forecast([model.prepare(QUERY.instance, AFTER_ALL_SESSIONS)])
    h, q = POINT.index_in(served.horizons, served.quantiles)

    np.testing.assert_allclose(found.prediction, served.values[:, h, q], rtol=0, atol=SAME)
    assert found.method == OCCLUSION
    assert found.baseline == "train_mean"
    assert "occlusion is not additive" in found.warnings[0]


def test_all_neighbours_of_a_graph_are_hidden_together() -> None:
    bars = recent_bars("AAPL", "IBM", "MSFT")
    model = small_model(small_artifact("graph"))
    query = ExplanationQuery(instance=Instance(input=bars), targets=(POINT,), method=OCCLUSION)
    (by_gradients,) = model.explain(replace(query, method=""), AFTER_ALL_SESSIONS, NEVER)
    (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)

    assert found.row_names == by_gradients.row_names
    assert np.abs(found.per_row[:, found.row_kinds.index(RowKind.NEIGHBOURS)]).max() > 0
    np.testing.assert_allclose(found.baseline_prediction, by_gradients.baseline_prediction, rtol=0, atol=SAME)


@pytest.mark.parametrize("detail", [Detail.TIMES, Detail.CELLS])
def test_contributions_per_session_are_refused(mixed: Ensemble, detail: Detail) -> None:
    with pytest.raises(ExplainUnsupportedError, match="occlusion hides a feature in all sessions at once"):
        explained(mixed, replace(QUERY, detail=detail))


# --- ensembles


def test_an_ensemble_of_networks_and_trees_is_explained_by_the_weighted_mean_of_occlusions(mixed: Ensemble) -> None:
    found = explained(mixed)
    lstm, trees = (one.explain(QUERY, AFTER_ALL_SESSIONS, NEVER)[0] for one in mixed.members.values())
    inputs = [kind is not RowKind.CONFORMAL for kind in found.row_kinds]

    assert found.method == OCCLUSION
    assert "occlusion is not additive" in found.warnings[0]
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


def test_adopted_members_have_no_method_in_common_with_others() -> None:
    assert find_common_methods([(OCCLUSION,), OWN_METHOD]) == ()
    assert find_common_methods([(OCCLUSION,), (OCCLUSION,)]) == (OCCLUSION,)
    assert find_common_methods([OWN_METHOD, OWN_METHOD]) == OWN_METHOD
