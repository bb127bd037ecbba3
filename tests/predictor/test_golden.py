"""Golden instances: they pass on an unchanged model and name the stage that changed."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import save_small_artifact, small_artifact, small_model

from predictor import artifact, golden
from predictor.artifact import Artifact, Golden
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.covariates import Covariates
from predictor.errors import ArtifactError
from predictor.features import FeatureDefinition, FeatureSet, FittedFeatures, Scaling
from predictor.golden.bars import COLUMNS, SYMBOLS, build_panel
from predictor.golden.stages import GoldenRequest, prepare
from predictor.networks import LSTMConfig, Target, TargetKind, WindowNormaliser, build_network, get_kind
from predictor.windows import Pipeline

ATTRIBUTION = ("positions", "weights", "observed", "known", "static", "alone", "ends", "sum")


@pytest.fixture(scope="module")
def made() -> Artifact:
    return small_artifact()


@pytest.fixture(scope="module")
def golden_record(made: Artifact) -> Golden:
    return golden.record(small_model(made))


@pytest.fixture(scope="module")
def made_fitted() -> Artifact:
    return small_artifact(fitted=True)


@pytest.fixture(scope="module")
def recorded_fitted(made_fitted: Artifact) -> Golden:
    return golden.record(small_model(made_fitted))


def test_a_model_passes_its_own_golden_instance(made: Artifact, golden_record: Golden) -> None:
    golden.check(small_model(made), golden_record)


@pytest.mark.parametrize("target", [Target(lag=1), Target(kind=TargetKind.LOG_VOLATILITY)])
def test_every_target_passes_after_a_fresh_load(tmp_path: Path, target: Target) -> None:
    stored = artifact.load(save_small_artifact(tmp_path / "1", target=target))
    golden.check(small_model(stored.artifact), stored.golden)


@pytest.mark.parametrize(
    "name", ["lstm.weight_ih_l0", "lstm.bias_hh_l1", "context.mix.weight", "context.norm.weight", "head.bias"]
)
def test_a_changed_weight_is_found_in_the_networks_output(made: Artifact, golden_record: Golden, name: str) -> None:
    weights = {key: tensor.clone() for key, tensor in made.weights.items()}
    weights[name].view(-1)[0] += 0.1
    _assert_off(replace(made, weights=weights), golden_record, "units")


def test_a_changed_center_is_found_in_the_observed_inputs(made: Artifact, golden_record: Golden) -> None:
    fitted = made.pipeline.features
    center = fitted.scaling.center.copy()
    center[3] += 1e-4 * fitted.scaling.scale[3]
    features = replace(fitted, scaling=replace(fitted.scaling, center=center))
    _assert_off(replace(made, pipeline=replace(made.pipeline, features=features)), golden_record, "observed")


def test_a_changed_expression_is_found_in_the_features(made: Artifact, golden_record: Golden) -> None:
    fitted = made.pipeline.features
    first, *others = fitted.features.observed
    other = replace(first, expression="Log($open / Ref($close, 1))")
    features = replace(fitted, features=replace(fitted.features, observed=(other, *others)))
    _assert_off(replace(made, pipeline=replace(made.pipeline, features=features)), golden_record, "features")


def test_a_changed_normaliser_is_found_in_the_scale(made: Artifact, golden_record: Golden) -> None:
    pipeline = replace(made.pipeline, normaliser=WindowNormaliser(decay=0.95))
    _assert_off(replace(made, pipeline=pipeline), golden_record, "scale")


def test_a_changed_offset_is_found_in_the_values(made: Artifact, golden_record: Golden) -> None:
    conformal = replace(made.manifest.conformal, offsets=((-0.05, 0.0, 0.081), *made.manifest.conformal.offsets[1:]))
    _assert_off(replace(made, manifest=replace(made.manifest, conformal=conformal)), golden_record, "values")


def test_a_changed_baseline_is_found_in_the_attribution(made: Artifact, golden_record: Golden) -> None:
    baseline = replace(made.manifest.baseline, scale=(0.03,) * 4)
    _assert_off(replace(made, manifest=replace(made.manifest, baseline=baseline)), golden_record, "attribution_ends")


# "static" is empty in this model, and it has no "scores"
@pytest.mark.parametrize(
    "stage", [f"stage.{name}" for name in golden.TOLERANCES if "static" not in name and name != "scores"]
)
def test_every_stage_is_compared(made_fitted: Artifact, recorded_fitted: Golden, stage: str) -> None:
    made, recorded = made_fitted, recorded_fitted
    array = recorded.arrays[stage].copy()
    place = tuple(np.argwhere(np.isfinite(array.astype(np.float64)))[-1])
    array[place] = not array[place] if array.dtype == np.bool_ else float(array[place]) * 1.01 + 1
    with pytest.raises(ArtifactError, match=f"stage {stage.removeprefix('stage.')} "):
        golden.check(small_model(made), replace(recorded, arrays={**recorded.arrays, stage: array}))


def test_refusals_are_recorded_by_reason(golden_record: Golden) -> None:
    assert golden_record.text["refusals"] == {
        "one bar too few": "TOO_FEW_BARS",
        "high below low": "BARS_INVALID",
        "a strange covariate": "UNKNOWN_COVARIATE",
        "no covariates": "",
    }


def test_a_model_that_refuses_otherwise_than_recorded_fails(made: Artifact, golden_record: Golden) -> None:
    text = {**golden_record.text, "refusals": {"one bar too few": "BARS_INVALID", "high below low": "BARS_INVALID"}}
    with pytest.raises(ArtifactError, match="one bar too few gives 'TOO_FEW_BARS', recorded was 'BARS_INVALID'"):
        golden.check(small_model(made), replace(golden_record, text=text))


def test_a_calendar_that_does_not_reach_the_golden_sessions_fails(made: Artifact, golden_record: Golden) -> None:
    calendar = type(made.pipeline.calendar).from_exchange("XNYS", 20000103, 20171001)
    with pytest.raises(ArtifactError, match=r"golden instance: is rejected: .*calendar"):
        golden.check(small_model(replace(made, pipeline=replace(made.pipeline, calendar=calendar))), golden_record)


def test_the_yardstick_of_float32_is_recorded(golden_record: Golden) -> None:
    error = golden_record.text["float32_error"]
    assert isinstance(error, float)
    assert 0 < error < 1e-5
    double, single = (golden_record.arrays[f"stage.{name}"].astype(np.float64) for name in ("units_float64", "units"))
    assert np.abs(double - single).max() == error


def test_the_attribution_is_recorded_with_its_rule_and_adds_up(golden_record: Golden) -> None:
    stages = {name: golden_record.arrays[f"stage.attribution_{name}"].astype(np.float64) for name in ATTRIBUTION}
    assert stages["positions"].shape == stages["weights"].shape == (32,)
    assert stages["weights"].sum() == pytest.approx(1.0, abs=1e-15)
    added = sum(stages[name].reshape(len(SYMBOLS), -1).sum(axis=1) for name in ("observed", "known", "static", "alone"))
    assert np.allclose(added, stages["sum"], rtol=1e-12, atol=1e-18)
    assert np.allclose(stages["sum"], np.diff(stages["ends"])[:, 0], rtol=0.01, atol=0)


def test_the_attribution_uses_all_nodes_of_its_rule(made: Artifact, golden_record: Golden) -> None:
    """Stopping as soon as the gap is small could use another number of nodes on another machine."""
    model = small_model(made)
    prepared = prepare(model, GoldenRequest(_panel(golden_record), Covariates()))
    few, all_nodes = (
        model.runner.contributions(prepared, [(3, 1)], deadline=NEVER, node_counts=(count,))[0].observed
        for count in (8, len(golden_record.arrays["stage.attribution_weights"]))
    )
    assert np.array_equal(golden_record.arrays["stage.attribution_observed"], all_nodes)
    assert not np.array_equal(few, all_nodes)


def test_every_stage_from_bars_to_answer_is_recorded(recorded_fitted: Golden, golden_record: Golden) -> None:
    whole, plain = (
        {name.removeprefix("stage.") for name in one.arrays if name.startswith("stage.")}
        for one in (recorded_fitted, golden_record)
    )
    assert whole == {*golden.TOLERANCES, "units_float64"} - {"scores"}
    assert whole - plain == {"har_terms", "har_level", "har", "garch_level", "garch_next", "garch"}


@pytest.fixture(scope="module")
def graph() -> Artifact:
    return small_artifact("graph")


@pytest.fixture(scope="module")
def recorded_graph(graph: Artifact) -> Golden:
    return golden.record(small_model(graph))


def test_the_golden_instance_of_a_graph_is_of_two_stocks_that_it_links(graph: Artifact, recorded_graph: Golden) -> None:
    assert recorded_graph.text["symbols"] == ["AAPL", "GOOG", "SHORT", "HALTED", "FLAT"]
    assert recorded_graph.arrays["stage.attribution_alone"][:2, -1].all()
    golden.check(small_model(graph), recorded_graph)


def test_a_graph_without_edges_has_a_golden_instance_too(graph: Artifact) -> None:
    weights = {**graph.weights, "neighbours": torch.full((4, 2), -1)}
    assert golden.record(small_model(replace(graph, weights=weights))).text["symbols"] == list(SYMBOLS)


def test_a_changed_edge_is_found_in_the_networks_output(graph: Artifact, recorded_graph: Golden) -> None:
    neighbours = graph.weights["neighbours"].clone()
    neighbours[0] = torch.tensor([2, -1])
    _assert_off(replace(graph, weights={**graph.weights, "neighbours": neighbours}), recorded_graph, "units")


def test_a_changed_weight_of_the_ranking_is_found_in_the_scores(graph: Artifact, recorded_graph: Golden) -> None:
    weights = {**graph.weights, "score.bias": graph.weights["score.bias"] + 0.1}
    _assert_off(replace(graph, weights=weights), recorded_graph, "scores")


def test_a_feature_may_be_off_by_rounding_alone(made: Artifact, golden_record: Golden) -> None:
    """Each value is judged by its own size or by its feature's fitted scale, not by the largest of all features."""
    place, scale = (1, -1, 3), made.pipeline.features.scaling.scale[3]
    features = golden_record.arrays["stage.features"].astype(np.float64)
    for error, passes in ((0.5e-12, True), (3e-12, False)):
        changed = features.copy()
        changed[place] += error * max(abs(features[place]), scale)
        arrays = {**golden_record.arrays, "stage.features": changed}
        if passes:
            golden.check(small_model(made), replace(golden_record, arrays=arrays))
        else:
            with pytest.raises(ArtifactError, match=r"^golden/arrays\.safetensors: golden instance: stage features"):
                golden.check(small_model(made), replace(golden_record, arrays=arrays))


# --- the bars


def test_the_bars_are_exactly_as_many_as_a_forecast_needs(made: Artifact, golden_record: Golden) -> None:
    assert golden_record.arrays["bars.close"].shape == (5, made.pipeline.bars_needed)
    assert golden_record.text["symbols"] == list(SYMBOLS)


def test_the_odd_symbol_really_has_every_oddity(golden_record: Golden) -> None:
    odd = {name: golden_record.arrays[f"bars.{name}"][0] for name in COLUMNS}
    assert np.isnan(odd["close"]).sum() == 1
    flat = odd["high"] == odd["low"]
    assert flat.sum() >= 20
    assert len(set(odd["close"][flat])) == 1
    assert (odd["split_ratio"] == 3).sum() == 1
    assert (odd["cash_dividend"] > 0).sum() == 1
    assert (odd["volume"] == 0).sum() == 1


def test_the_oddities_lie_where_the_network_reads(made: Artifact, golden_record: Golden) -> None:
    last = golden_record.arrays["bars.close"].shape[1] - made.pipeline.encoder_length
    arrays = golden_record.arrays
    assert np.argmax(arrays["bars.split_ratio"][0] == 3) > last
    assert np.argmax(arrays["bars.cash_dividend"][0] > 0) > last
    assert np.argmax(arrays["bars.volume"][0] == 0) > last
    assert not arrays["stage.mask"][0].all()
    assert arrays["stage.mask"][1].all()


def test_the_even_symbol_has_no_oddity(golden_record: Golden) -> None:
    bars = _panel(golden_record)
    assert bars.present[1].all()
    assert (bars.high[1] > bars.low[1]).all()
    assert (bars.volume[1] > 0).all()


@pytest.mark.parametrize(("encoder_length", "window"), [(1, 2), (4, 3), (20, 20), (40, 5)])
def test_a_model_that_needs_few_bars_has_a_golden_instance_too(encoder_length: int, window: int) -> None:
    small = _short_sighted(small_artifact(), encoder_length, window)
    model = small_model(small)
    golden.check(model, golden.record(model))


# --- other machines


@pytest.mark.slow
def test_a_machine_without_vector_instructions_passes(tmp_path: Path) -> None:
    save_small_artifact(tmp_path / "small" / "1")
    plain = {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX2 FMA3", "ATEN_CPU_CAPABILITY": "default"}
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from predictor.forecaster import Forecaster\n"
        "Forecaster.load(sys.argv[1], device='cpu').close(); print('served')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "small" / "1")],
        env={**os.environ, **plain},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("served\n", 0), done.stderr


def _assert_off(changed: Artifact, recorded: Golden, stage: str) -> None:
    with pytest.raises(ArtifactError, match=f"golden instance: stage {stage} is off by"):
        golden.check(small_model(changed), recorded)


def _panel(recorded: Golden) -> BarPanel:
    columns = {name: recorded.arrays[f"bars.{name}"].astype(np.float64) for name in COLUMNS}
    return build_panel(SYMBOLS, recorded.arrays["bars.sessions"].astype(np.int32), columns)


def _short_sighted(made: Artifact, encoder_length: int, window: int) -> Artifact:
    """A model of one feature without look-back."""
    body = FeatureDefinition("body", "Log($close / $open)", "the day's return", "log return")
    fitted = FittedFeatures(
        features=FeatureSet(observed=(body,)), scaling=Scaling(center=np.zeros(1), scale=np.full(1, 0.01))
    )
    normaliser = WindowNormaliser(window=window)
    pipeline = Pipeline(
        features=fitted,
        target=made.manifest.target,
        normaliser=normaliser,
        calendar=made.pipeline.calendar,
        encoder_length=encoder_length,
    )
    config = LSTMConfig(hidden=4, layers=1, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = build_network(
            get_kind("lstm"),
            config,
            sizes=pipeline.sizes,
            target=made.manifest.target,
            levels=made.manifest.quantiles,
        )
    manifest = replace(
        made.manifest,
        config=config,
        normaliser=normaliser,
        encoder_length=encoder_length,
        baseline=replace(made.manifest.baseline, known=()),
    )
    return Artifact(manifest=manifest, pipeline=pipeline, weights=network.state_dict())
