"""Ensembles: averaged and recalibrated quantiles, and averaged explanations."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from artifacts import UNIVERSE, constant_artifact, constant_rows, recent_bars, save_artifact, save_small_artifact
from canned_service import attribution
from ensembles import OFFSETS, UNEVEN, artifact_of, ensemble_of, manifest_of, save_ensemble
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from serving import serving

from predictor import artifact
from predictor.artifact import Artifact, Conformal, check_compatible
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.card import Card
from predictor.cli import app, run
from predictor.client import QuantraClient
from predictor.dates import to_date
from predictor.errors import (
    ConfigurationError,
    ExplainUnsupportedError,
    FeatureMismatchError,
    NoUsableSymbolError,
    RequestTooLargeError,
    TooFewBarsError,
    UnknownHorizonError,
)
from predictor.explain.integrated_gradients import GAP_FLOOR
from predictor.features import FeatureDefinition, StaticCategory, StaticFeatures, StaticNumber
from predictor.forecast import Attribution, Detail, Forecast, RowKind, TargetPoint
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, FeatureWindow, Instance
from predictor.model import Ensemble, ModelIdentity, combine_quantiles
from predictor.model.ensemble_outputs import JointPrediction, combine_attributions
from predictor.networks import Target, TargetKind
from predictor.service import PredictionService
from predictor.sessions import SessionCalendar

POINT = TargetPoint(5, 0.9)
NO_OFFSETS = Conformal(offsets=((0.0, 0.0, 0.0),) * 4, effective_samples=(100.0,) * 4)
FEW, OTHERS = (0, 1, 2, 3), (2, 3, 4)
"""Features of two members by index, two of them shared."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Members that differ in network, features, encoder length and normaliser."""
    folder = tmp_path_factory.mktemp("members")
    return {
        "long": save_artifact(folder / "long", artifact_of("lstm", encoder_length=60, features=FEW)),
        "short": save_artifact(
            folder / "short", artifact_of("gru", encoder_length=20, features=OTHERS, seed=3, decay=0.9)
        ),
    }


@pytest.fixture(scope="module")
def joint(folders: dict[str, Path]) -> Ensemble:
    stored = {name: artifact.load(folder) for name, folder in folders.items()}
    return ensemble_of(manifest_of(stored), stored)


@pytest.fixture(scope="module")
def weighted(joint: Ensemble) -> Ensemble:
    """The same members with weights that differ by quantile."""
    return Ensemble(joint.identity, replace(joint.manifest, weights=UNEVEN), joint.members)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    folder = tmp_path_factory.mktemp("twins")
    stored = {str(seed): artifact.load(save_small_artifact(folder / str(seed), seed=seed)) for seed in (1, 2)}
    return ensemble_of(manifest_of(stored), stored)


@pytest.fixture(scope="module")
def served(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forecaster]:
    with Forecaster.load(save_ensemble(tmp_path_factory.mktemp("joint") / "joint" / "1", folders)) as forecaster:
        yield forecaster


# --- forecasts


def test_quantiles_are_the_members_means_moved_by_the_ensembles_offsets(joint: Ensemble) -> None:
    bars = recent_bars("AAPL", "IBM")
    members = [_alone(joint, name, bars) for name in joint.members]
    scales = [
        member.prepare(Instance(input=bars), AFTER_ALL_SESSIONS).inputs.scale.numpy()
        for member in joint.members.values()
    ]
    scale = np.mean(scales, axis=0)
    unit = scale * np.sqrt([1, 5, 10, 20])
    moved = (members[0].values + members[1].values) / 2 + unit[..., None] * np.array(OFFSETS)
    expected = np.stack(
        [np.minimum(moved[..., 0], moved[..., 1]), moved[..., 1], np.maximum(moved[..., 2], moved[..., 1])]
    )
    found = _forecast(joint, bars)
    np.testing.assert_allclose(found.values, np.moveaxis(expected, 0, -1), rtol=0, atol=1e-15)
    assert found.returns is not None
    assert np.array_equal(found.returns, found.values)


def test_weighted_quantiles_are_the_members_means_by_their_weights(weighted: Ensemble) -> None:
    manifest = replace(weighted.manifest, conformal=NO_OFFSETS)
    plain = Ensemble(weighted.identity, manifest, weighted.members)
    bars = recent_bars("AAPL", "IBM")
    long, short = (_alone(plain, name, bars).values for name in ("long", "short"))
    expected = np.array(UNEVEN[0]) * long + np.array(UNEVEN[1]) * short
    np.testing.assert_allclose(_forecast(plain, bars).values, np.sort(expected, axis=-1), rtol=0, atol=1e-15)


def test_equal_weights_in_the_manifest_are_the_plain_mean(joint: Ensemble) -> None:
    manifest = replace(joint.manifest, weights=((0.5,) * 3,) * 2)
    bars = recent_bars("AAPL")
    found = _forecast(Ensemble(joint.identity, manifest, joint.members), bars)
    np.testing.assert_allclose(found.values, _forecast(joint, bars).values, rtol=0, atol=1e-15)


def test_weights_that_let_the_quantiles_cross_are_sorted(joint: Ensemble) -> None:
    manifest = replace(joint.manifest, conformal=NO_OFFSETS, weights=((1.0, 0.0, 1.0), (0.0, 1.0, 0.0)))
    low, high = np.array([[[-0.05, -0.04, -0.03]]]), np.array([[[0.02, 0.03, 0.04]]])
    found = combine_quantiles(manifest, [low, high], np.array([[0.02]]))
    np.testing.assert_array_equal(found, np.broadcast_to([-0.05, -0.03, 0.03], found.shape))


def test_prices_follow_from_the_ensembles_returns(joint: Ensemble) -> None:
    found = _forecast(joint, recent_bars("AAPL"))
    assert found.prices is not None
    assert found.anchor_price is not None
    np.testing.assert_allclose(found.prices, found.anchor_price[:, None, None] * np.exp(found.values), rtol=1e-15)


def test_a_lag_or_a_volatility_has_no_prices(tmp_path: Path) -> None:
    for number, target in enumerate((Target(lag=1), Target(kind=TargetKind.LOG_VOLATILITY))):
        stored = {
            str(seed): artifact.load(save_small_artifact(tmp_path / f"{number}-{seed}", seed=seed, target=target))
            for seed in (1, 2)
        }
        found = _forecast(ensemble_of(manifest_of(stored), stored), recent_bars("AAPL"))
        assert found.prices is None
        assert (found.returns is None) == (target.kind is TargetKind.LOG_VOLATILITY)


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=2, max_size=4),
    offsets=st.lists(st.floats(-5, 5), min_size=3, max_size=3),
)
def test_quantiles_never_cross_whatever_the_offsets(
    joint: Ensemble, values: list[list[float]], offsets: list[float]
) -> None:
    conformal = Conformal(offsets=(tuple(offsets),) * 4, effective_samples=(1.0,) * 4)
    members = [np.broadcast_to(np.sort(row), (1, 4, 3)) for row in values]
    found = combine_quantiles(replace(joint.manifest, conformal=conformal), members, np.array([0.02]))
    assert (np.diff(found, axis=-1) >= 0).all()


def test_a_symbol_that_one_member_cannot_forecast_gets_no_numbers(folders: dict[str, Path], tmp_path: Path) -> None:
    """One member reads returns only, and its short window has none."""
    blind = save_artifact(tmp_path / "blind", artifact_of("gru", encoder_length=20, features=(0, 1)))
    stored = {"long": artifact.load(folders["long"]), "blind": artifact.load(blind)}
    mixed = ensemble_of(manifest_of(stored), stored)
    bars = _without(recent_bars("AAPL", "IBM"), slice(-21, -1))
    usable = {
        name: model.prepare(Instance(input=bars), AFTER_ALL_SESSIONS).usable.tolist()
        for name, model in mixed.members.items()
    }
    assert usable == {"long": [True, True], "blind": [False, True]}
    found = _forecast(mixed, bars)
    assert np.isnan(found.values[0]).all()
    assert np.isfinite(found.values[1]).all()
    assert isinstance(found.refusals["AAPL"], TooFewBarsError)
    assert any("no forecast of AAPL" in warning for warning in found.warnings)
    reasons = _explained(mixed, bars)
    assert np.isnan(reasons.per_row[0]).all()
    assert (reasons.converged.tolist(), reasons.nodes[0]) == ([False, True], 0)


def test_a_symbol_without_its_last_bar_is_named_once(joint: Ensemble) -> None:
    found = _forecast(joint, _without_last_bar(recent_bars("AAPL", "IBM")))
    assert np.isnan(found.values[0]).all()
    assert np.isfinite(found.values[1]).all()
    assert sum("no forecast of AAPL" in warning for warning in found.warnings) == 1


def test_a_panel_without_a_usable_symbol_is_refused(joint: Ensemble) -> None:
    with pytest.raises(NoUsableSymbolError, match="AAPL: has no bar"):
        _forecast(joint, _without_last_bar(recent_bars("AAPL")))


def test_the_longest_reader_says_how_many_bars_are_needed(joint: Ensemble) -> None:
    needs = [member.pipeline.bars_needed for member in joint.members.values()]
    need = joint.bars_needed
    assert need == max(needs) > min(needs)
    thin = _forecast(joint, recent_bars("AAPL").last(min(needs)))
    assert f"fewer than the {need} bars that the model reads, AAPL from {min(needs)}" in thin.warnings[0]
    with pytest.raises(TooFewBarsError, match=f"AAPL: have 5 bars .* ideally {need} sessions"):
        _forecast(joint, recent_bars("AAPL").last(5))
    assert np.isfinite(_forecast(joint, recent_bars("AAPL").last(need)).values).all()


def test_a_bad_instance_among_good_ones_is_answered_alone(joint: Ensemble) -> None:
    bars = recent_bars("AAPL")
    asked = [Instance(input=item) for item in (bars, bars.last(3), recent_bars("IBM"))]
    answers = joint.predict(asked, AFTER_ALL_SESSIONS, NEVER)
    assert [type(answer) for answer in answers] == [Forecast, TooFewBarsError, Forecast]
    last = answers[2]
    assert isinstance(last, Forecast)
    np.testing.assert_allclose(last.values, _forecast(joint, recent_bars("IBM")).values, rtol=0, atol=1e-6)


def test_the_same_question_has_the_same_id_and_another_ensemble_another(
    joint: Ensemble, weighted: Ensemble, twins: Ensemble
) -> None:
    bars = recent_bars("AAPL")
    assert _forecast(joint, bars).forecast_id == _forecast(joint, bars).forecast_id
    conformal = NO_OFFSETS
    other = Ensemble(joint.identity, replace(joint.manifest, conformal=conformal), joint.members)
    ids = {_forecast(model, bars).forecast_id for model in (joint, other, weighted, twins)}
    assert len(ids) == 4


# --- feature windows


def test_windows_are_taken_where_all_members_read_the_same(twins: Ensemble) -> None:
    bars = recent_bars("AAPL", "IBM")
    member = next(iter(twins.members.values()))
    inputs = member.prepare(Instance(input=bars), AFTER_ALL_SESSIONS).inputs
    window = FeatureWindow(
        symbols=bars.symbols,
        schema_hash=member.pipeline.features.schema_hash,
        **{name: group.numpy() for name, group in inputs._asdict().items() if name not in {"location", "scale"}},
        location=inputs.location[:, 0].numpy(),
        scale=inputs.scale[:, 0].numpy(),
    )
    (found,) = twins.predict([Instance(input=window)], AFTER_ALL_SESSIONS, NEVER)
    assert isinstance(found, Forecast)
    np.testing.assert_allclose(found.values, _forecast(twins, bars).values, rtol=0, atol=1e-6)


def test_windows_are_refused_where_members_read_other_ones(joint: Ensemble) -> None:
    nothing = np.zeros((1, 0, 0), np.float32)
    window = FeatureWindow(
        symbols=("AAPL",), observed=nothing, known=nothing, static=nothing[0], mask=nothing > 0,
        location=np.zeros(1), scale=np.ones(1), schema_hash="",
    )  # fmt: skip
    with pytest.raises(FeatureMismatchError, match=r"read different windows.*send bars"):
        joint.prepare(Instance(input=window), AFTER_ALL_SESSIONS)


# --- explanations


def test_contributions_are_the_means_of_the_members_by_name(joint: Ensemble) -> None:
    bars = recent_bars("AAPL", "IBM")
    found = _explained(joint, bars)
    members = [_explained_alone(joint, name, bars) for name in joint.members]
    names = list(zip(found.row_kinds, found.row_names, strict=True))
    assert len(set(names)) == len(names)
    for kind, name in names:
        if kind is RowKind.CONFORMAL:
            continue
        expected = sum(_row(member, kind, name) for member in members) / 2
        np.testing.assert_allclose(_row(found, kind, name), expected, rtol=1e-12, atol=1e-18)


def test_the_rows_are_the_union_by_kind(joint: Ensemble) -> None:
    found = _explained(joint, recent_bars("AAPL"))
    observed = [name for kind, name in zip(found.row_kinds, found.row_names, strict=True) if kind is RowKind.OBSERVED]
    names = artifact_of().pipeline.features.features.names
    assert observed == [names[k] for k in sorted({*FEW, *OTHERS})]
    kinds = list(dict.fromkeys(found.row_kinds))
    assert kinds == [kind for kind in RowKind if kind in kinds]


def test_location_and_scale_are_the_means_of_members_with_levels_of_other_kinds(tmp_path: Path) -> None:
    made = {"fitted": constant_artifact(fitted=True), "window": constant_artifact(seed=1)}
    stored = {name: artifact.load(save_artifact(tmp_path / name, one)) for name, one in made.items()}
    joint, bars = ensemble_of(manifest_of(stored), stored), recent_bars("AAPL", "IBM")
    found = _explained(joint, bars)

    members = [
        constant_rows(member, member.prepare(Instance(input=bars), AFTER_ALL_SESSIONS), 1, 2)
        for member in joint.members.values()
    ]
    rows = dict(zip(found.row_names, found.per_row.T, strict=True))
    for name in ("location", "scale"):
        np.testing.assert_allclose(rows[name], np.mean([member[name] for member in members], axis=0), rtol=1e-6)


def test_weighted_contributions_are_those_of_the_members_by_the_weights_of_the_quantile(weighted: Ensemble) -> None:
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM")), targets=(POINT,), detail=Detail.CELLS)
    (found,) = weighted.explain(query, AFTER_ALL_SESSIONS, NEVER)
    long, short = (weighted.members[name].explain(query, AFTER_ALL_SESSIONS, NEVER)[0] for name in ("long", "short"))
    for kind, name in zip(found.row_kinds, found.row_names, strict=True):
        if kind is not RowKind.CONFORMAL:
            expected = 0.2 * _row(long, kind, name) + 0.8 * _row(short, kind, name)
            np.testing.assert_allclose(_row(found, kind, name), expected, rtol=1e-12, atol=1e-18)
    assert found.per_time is not None and long.per_time is not None  # noqa: PT018
    np.testing.assert_allclose(found.per_time[:, :40], 0.2 * long.per_time[:, :40], rtol=1e-12)
    assert found.cells is not None
    observed = [k for k, kind in enumerate(found.row_kinds) if kind is RowKind.OBSERVED]
    np.testing.assert_allclose(found.cells.sum(axis=1), found.per_row[:, observed], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", ["joint", "weighted"])
def test_the_rows_add_up_to_the_ensembles_own_difference(name: str, request: pytest.FixtureRequest) -> None:
    joint: Ensemble = request.getfixturevalue(name)
    bars = recent_bars("AAPL", "IBM")
    found = _explained(joint, bars)
    forecast = _forecast(joint, bars)
    np.testing.assert_allclose(found.prediction, forecast.values[:, 1, 2], rtol=0, atol=1e-15)
    difference = found.prediction - found.baseline_prediction
    floor = GAP_FLOOR * np.sqrt(5) * joint.prepare(Instance(input=bars), AFTER_ALL_SESSIONS).scale[:, 1]
    gap = np.abs(found.per_row.sum(axis=1) - difference) / np.maximum(np.abs(difference), floor)
    assert (gap <= found.relative_gap).all()
    assert found.converged.all()
    assert (found.relative_gap <= 0.01).all()


def test_one_member_that_has_not_converged_keeps_the_ensemble_from_it() -> None:
    good = _attribution(added=0.01, prediction=0.01, gap=0.001, converged=True, nodes=16)
    bad = _attribution(added=0.005, prediction=0.01, gap=0.5, converged=False, nodes=128)
    for members in ([good, bad], [bad, good]):
        found = _joined(members, prediction=0.01)
        assert (found.relative_gap[0], found.converged[0], found.nodes[0]) == (0.5, False, 128)


def test_gaps_that_are_small_relative_to_members_may_be_large_relative_to_the_ensemble() -> None:
    """The members' attributions nearly cancel, so that their errors dominate."""
    up = _attribution(added=0.01009, prediction=0.01, gap=0.009, converged=True, nodes=16)
    down = _attribution(added=-0.00991, prediction=-0.01, gap=0.009, converged=True, nodes=16)
    found = _joined([up, down], prediction=0.0)
    assert found.relative_gap[0] == pytest.approx(0.00009 / 0.001)
    assert not found.converged[0]


def test_what_the_ensembles_offsets_add_stands_in_the_conformal_row(joint: Ensemble) -> None:
    bars = recent_bars("AAPL")
    conformal = NO_OFFSETS
    plain = Ensemble(joint.identity, replace(joint.manifest, conformal=conformal), joint.members)
    with_offsets, without = _explained(joint, bars), _explained(plain, bars)
    moved = _row(with_offsets, RowKind.CONFORMAL, "conformal") - _row(without, RowKind.CONFORMAL, "conformal")
    np.testing.assert_allclose(moved, with_offsets.prediction - without.prediction, rtol=1e-9)
    assert moved[0] > 0


def test_sessions_are_those_of_the_longest_encoder(joint: Ensemble) -> None:
    bars = recent_bars("AAPL")
    query = ExplanationQuery(instance=Instance(input=bars), targets=(POINT,), detail=Detail.CELLS)
    (found,) = joint.explain(query, AFTER_ALL_SESSIONS, NEVER)
    (short,) = joint.members["short"].explain(query, AFTER_ALL_SESSIONS, NEVER)
    (long,) = joint.members["long"].explain(query, AFTER_ALL_SESSIONS, NEVER)
    assert found.per_time is not None and short.per_time is not None and long.per_time is not None  # noqa: PT018
    assert found.cells is not None
    assert found.sessions == tuple(to_date(day) for day in bars.sessions[-60:].tolist())
    np.testing.assert_allclose(found.per_time[:, :40], long.per_time[:, :40] / 2, rtol=1e-12)
    np.testing.assert_allclose(found.per_time[:, 40:], (long.per_time[:, 40:] + short.per_time) / 2, rtol=1e-12)
    observed = [k for k, kind in enumerate(found.row_kinds) if kind is RowKind.OBSERVED]
    np.testing.assert_allclose(found.cells.sum(axis=1), found.per_row[:, observed], rtol=1e-9, atol=1e-15)


def test_a_symbol_without_a_forecast_has_no_reasons(joint: Ensemble) -> None:
    found = _explained(joint, _without_last_bar(recent_bars("AAPL", "IBM")))
    assert np.isnan(found.per_row[0]).all()
    assert np.isfinite(found.per_row[1]).all()
    assert (found.converged.tolist(), found.nodes[0]) == ([False, True], 0)
    assert list(found.refusals) == ["AAPL"]


def test_a_method_or_a_target_that_members_lack_is_refused(joint: Ensemble) -> None:
    asked = Instance(input=recent_bars("AAPL"))
    with pytest.raises(ExplainUnsupportedError, match="unknown method 'attention'"):
        joint.explain(ExplanationQuery(instance=asked, method="attention"), AFTER_ALL_SESSIONS, NEVER)
    with pytest.raises(UnknownHorizonError, match="horizon 3"):
        joint.explain(ExplanationQuery(instance=asked, targets=(TargetPoint(3, 0.5),)), AFTER_ALL_SESSIONS, NEVER)


def test_equal_targets_are_answered_each_in_the_order_asked(joint: Ensemble) -> None:
    asked, other = ExplanationQuery(instance=Instance(input=recent_bars("AAPL"))), TargetPoint(1, 0.5)
    found = joint.explain(replace(asked, targets=(POINT, other, *[POINT] * 22)), AFTER_ALL_SESSIONS, NEVER)
    alone = joint.explain(replace(asked, targets=(POINT, other)), AFTER_ALL_SESSIONS, NEVER)
    assert [(a.horizon, a.quantile) for a in found] == [POINT, other, *[POINT] * 22]
    for k, answer in enumerate(found):
        np.testing.assert_array_equal(answer.per_row, alone[k == 1].per_row)


def test_the_cost_is_that_of_all_members(joint: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ExplanationQuery(instance=Instance(input=recent_bars("AAPL")), targets=(POINT, POINT))
    cost = joint.explain_cost(asked)
    assert cost == sum(member.explain_cost(asked) for member in joint.members.values())
    monkeypatch.setattr("predictor.explain.integrated_gradients.MAX_ROWS", cost - 1)
    with pytest.raises(RequestTooLargeError, match="1 targets of 1 symbols"):
        joint.explain(asked, AFTER_ALL_SESSIONS, NEVER)


# --- ranking members


def test_members_that_all_rank_are_ranked_by_their_mean_rank(tmp_path: Path) -> None:
    stored = {
        str(seed): artifact.load(save_artifact(tmp_path / str(seed), artifact_of("graph", seed=seed)))
        for seed in (1, 2)
    }
    ranking = ensemble_of(manifest_of(stored), stored)
    bars = recent_bars(*UNIVERSE)
    found, members = _forecast(ranking, bars), [_alone(ranking, name, bars) for name in stored]
    ranks = [member.ranks for member in members]
    assert found.scores is not None and found.ranks is not None and ranks[0] is not None and ranks[1] is not None  # noqa: PT018
    assert np.array_equal(found.scores, -(ranks[0] + ranks[1]) / 2)
    better = (found.scores[None] > found.scores[:, None]).sum(axis=1)
    assert np.array_equal(found.ranks, 1 + better)
    assert found.universe_hash == members[0].universe_hash


def test_neighbours_count_as_0_in_members_without_a_graph(tmp_path: Path) -> None:
    kinds = ("graph", "lstm")
    stored = {kind: artifact.load(save_small_artifact(tmp_path / kind, kind)) for kind in kinds}
    mixed, bars = ensemble_of(manifest_of(stored), stored), recent_bars(*UNIVERSE)
    found, graph = _explained(mixed, bars), _explained_alone(mixed, "graph", bars)
    assert found.converged.all()
    neighbours = _row(found, RowKind.NEIGHBOURS, "neighbours")
    np.testing.assert_allclose(neighbours, _row(graph, RowKind.NEIGHBOURS, "neighbours") / 2, rtol=1e-12)
    assert neighbours.all()
    assert _forecast(mixed, bars).ranks is None


def test_a_member_says_what_its_graph_lacks_though_another_shares_its_inputs(tmp_path: Path) -> None:
    kinds = ("lstm", "graph")
    stored = {kind: artifact.load(save_small_artifact(tmp_path / kind, kind)) for kind in kinds}
    found = _forecast(ensemble_of(manifest_of(stored), stored), recent_bars("AAPL"))
    assert [warning.split(",")[0] for warning in found.warnings] == ["AAPL: forecast without the neighbours GOOG"]


def test_some_symbols_of_a_panel_are_explained_as_among_all(tmp_path: Path) -> None:
    kinds = ("graph", "tft")
    stored = {kind: artifact.load(save_small_artifact(tmp_path / kind, kind)) for kind in kinds}
    mixed, instance = ensemble_of(manifest_of(stored), stored), Instance(input=recent_bars(*UNIVERSE))
    (all_of_them,) = mixed.explain(ExplanationQuery(instance=instance, targets=(POINT,)), AFTER_ALL_SESSIONS, NEVER)
    (some,) = mixed.explain(
        ExplanationQuery(instance=instance, targets=(POINT,), symbols=("MSFT", "AAPL")), AFTER_ALL_SESSIONS, NEVER
    )
    assert some.symbols == ("MSFT", "AAPL")
    np.testing.assert_allclose(some.per_row, all_of_them.per_row[[3, 0]], rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(some.prediction, all_of_them.prediction[[3, 0]])
    for mine, every in zip(some.internals, all_of_them.internals, strict=True):
        np.testing.assert_allclose(mine.values, every.values[[3, 0]], rtol=0, atol=1e-6)


def test_an_ensemble_with_a_member_that_does_not_rank_does_not_rank(joint: Ensemble) -> None:
    found = _forecast(joint, recent_bars("AAPL", "IBM"))
    assert (found.scores, found.ranks, found.universe_hash) == (None, None, "")


# --- compatible members


def _other_quantiles(made: Artifact) -> Artifact:
    return replace(made, manifest=replace(made.manifest, quantiles=(0.2, 0.5, 0.8)))


def _other_lag(made: Artifact) -> Artifact:
    return replace(made, manifest=replace(made.manifest, target=Target(lag=1)))


def _other_horizons(made: Artifact) -> Artifact:
    return replace(made, manifest=replace(made.manifest, target=Target(horizons=(1, 5))))


def _other_calendar(made: Artifact) -> Artifact:
    return replace(made, pipeline=replace(made.pipeline, calendar=SessionCalendar.weekdays(20000103, 20180301)))


def _other_meaning(made: Artifact) -> Artifact:
    fitted = made.pipeline.features
    first, *others = fitted.features.observed
    other = FeatureDefinition(
        name=first.name, expression="Log($close / Ref($close, 3))", meaning=first.meaning, unit=first.unit
    )
    features = replace(fitted, features=replace(fitted.features, observed=(other, *others)))
    return replace(made, pipeline=replace(made.pipeline, features=features))


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (_other_quantiles, "the quantiles of a is"),
        (_other_lag, "the target of a is"),
        (_other_horizons, "the target of a is"),
        (_other_calendar, "the calendar of a is XNYS, that of b is weekdays"),
        (_other_meaning, r"feature 'return_1' is .* in a, but .* in b"),
    ],
)
def test_members_that_do_not_fit_are_refused(spoil: Callable[[Artifact], Artifact], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        check_compatible({"a": artifact_of(), "b": spoil(artifact_of())})


def _with_statics(statics: StaticFeatures) -> Artifact:
    made = artifact_of()
    return replace(made, pipeline=replace(made.pipeline, features=replace(made.pipeline.features, statics=statics)))


def test_members_that_read_one_static_covariate_as_number_and_as_text_are_refused() -> None:
    """A covariate is sent once, so no request could serve both."""
    number = StaticFeatures(numbers=(StaticNumber(name="cap", center=0.0, scale=1.0),))
    text = StaticFeatures(categories=(StaticCategory(name="cap", categories=("large", "small")),))
    with pytest.raises(ConfigurationError, match="'cap' of a is a static number, that of b is a static text"):
        check_compatible({"a": _with_statics(number), "b": _with_statics(text)})


# --- served


def test_an_ensemble_is_served_like_any_model(served: Forecaster, joint: Ensemble) -> None:
    bars = recent_bars("AAPL", "IBM")
    np.testing.assert_allclose(served.predict(bars).values, _forecast(joint, bars).values, rtol=0, atol=1e-6)
    found = served.feature_importance(bars, horizon=5, quantile=0.9)
    np.testing.assert_allclose(found.per_row, _explained(joint, bars).per_row, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("weights", [(), UNEVEN])
def test_an_ensemble_is_served_over_grpc_next_to_its_member(
    folders: dict[str, Path], tmp_path: Path, weights: tuple[tuple[float, ...], ...]
) -> None:
    save_ensemble(tmp_path / "joint" / "1", folders, weights)
    shutil.copytree(folders["long"], tmp_path / "long" / "1")
    bars = recent_bars("AAPL", "IBM")
    with PredictionService.open(tmp_path) as service, serving(service) as server:
        with QuantraClient(server.target, "joint") as client:
            forecast, info = client.predict(bars), client.model()
            reasons = client.feature_importance(bars, horizon=5, quantile=0.9)
        with QuantraClient(server.target, "long") as client:
            alone = client.predict(bars)
    with Forecaster.load(tmp_path / "joint" / "1") as forecaster:
        assert np.array_equal(forecast.values, forecaster.predict(bars).values)
        here = forecaster.feature_importance(bars, horizon=5, quantile=0.9)
    np.testing.assert_allclose(reasons.per_row, here.per_row, rtol=0, atol=1e-9)
    assert (forecast.model, forecast.version, info.kind) == ("joint", 1, "ensemble")
    assert not np.allclose(forecast.values, alone.values)
    assert reasons.converged.all()
    assert len(Card.from_json(info.card_json).members) == 2


def test_inspecting_an_ensemble_shows_its_members(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_ensemble(tmp_path / "joint" / "1", folders)
    with pytest.raises(SystemExit) as ended:
        run(app, ["inspect", str(folder), "--all"])
    told = " ".join(capsys.readouterr().out.split())
    assert (ended.value.code or 0) == 0
    assert "members (2)" in told
    assert "short gru, reads 20 sessions of 8 features" in told
    assert "Vincent average" in told


def test_weights_are_read_as_they_were_written(folders: dict[str, Path], tmp_path: Path) -> None:
    stored = artifact.load_ensemble(save_ensemble(tmp_path / "joint" / "1", folders, UNEVEN))
    assert stored.manifest.weights == UNEVEN
    with Forecaster.load(tmp_path / "joint" / "1") as forecaster:
        card = Card.from_json(forecaster.model().card_json)
    assert [member.weights for member in card.members] == list(UNEVEN)
    assert "by the manifest's weights" in dict(card.combination)["quantiles"]


def test_an_ensemble_of_equal_weights_states_none(folders: dict[str, Path], tmp_path: Path) -> None:
    """As before there were weights, so that programs of that time read it, and this one theirs."""
    folder = save_ensemble(tmp_path / "joint" / "1", folders)
    record = json.loads((folder / "manifest.json").read_bytes())
    assert "weights" not in record
    assert record["format_version"] == 2
    assert record["combination"]["quantiles"].endswith("forecasts (Vincent average)")
    assert artifact.load_ensemble(folder).manifest.weights == ()


def test_the_model_info_lists_the_members_and_their_combination(served: Forecaster, folders: dict[str, Path]) -> None:
    info = served.model()
    assert (info.kind, info.encoder_length, info.is_panel_model) == ("ensemble", 60, False)
    assert info.bars_needed == info.encoder_length + info.lookback - 1
    assert len(info.observed_features) == 5
    assert len(info.known_features) == 5
    card = Card.from_json(info.card_json)
    assert [(member.name, member.kind, member.encoder_length) for member in card.members] == [
        ("long", "lstm", 60),
        ("short", "gru", 20),
    ]
    assert "Vincent" in dict(card.combination)["quantiles"]
    hashes = {member.weights_hash for member in card.members}
    assert hashes == {artifact.load(folder).weights_hash for folder in folders.values()}
    assert info.weights_hash not in hashes


def test_the_schema_hash_is_the_members_own_where_they_share_one(twins: Ensemble, joint: Ensemble) -> None:
    hashes = {member.pipeline.features.schema_hash for member in twins.members.values()}
    assert {twins.info((), is_default=True).schema_hash} == hashes
    others = {member.pipeline.features.schema_hash for member in joint.members.values()}
    assert joint.info((), is_default=True).schema_hash not in others


def test_the_same_members_are_saved_as_the_same_bytes(folders: dict[str, Path], tmp_path: Path) -> None:
    one, other = (save_ensemble(tmp_path / name, folders) for name in ("one", "other"))
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def _forecast(model: Ensemble, bars: BarPanel) -> Forecast:
    return model.forecast([model.prepare(Instance(input=bars), AFTER_ALL_SESSIONS)])[0]


def _alone(model: Ensemble, name: str, bars: BarPanel) -> Forecast:
    member = model.members[name]
    return member.forecast([member.prepare(Instance(input=bars), AFTER_ALL_SESSIONS)])[0]


def _explained(model: Ensemble, bars: BarPanel) -> Attribution:
    return model.explain(ExplanationQuery(instance=Instance(input=bars), targets=(POINT,)), AFTER_ALL_SESSIONS, NEVER)[
        0
    ]


def _explained_alone(model: Ensemble, name: str, bars: BarPanel) -> Attribution:
    query = ExplanationQuery(instance=Instance(input=bars), targets=(POINT,))
    return model.members[name].explain(query, AFTER_ALL_SESSIONS, NEVER)[0]


def _attribution(*, added: float, prediction: float, gap: float, converged: bool, nodes: int) -> Attribution:
    """A member's attribution: one feature adds so much to a baseline of 0."""
    return replace(
        attribution(("AAPL",)),
        row_names=("return_1", "conformal"),
        row_kinds=(RowKind.OBSERVED, RowKind.CONFORMAL),
        per_row=np.array([[added, 0.0]]),
        per_time=None,
        cells=None,
        prediction=np.array([prediction]),
        baseline_prediction=np.zeros(1),
        relative_gap=np.array([gap]),
        converged=np.array([converged]),
        nodes=np.array([nodes], np.int32),
    )


def _joined(members: list[Attribution], *, prediction: float) -> Attribution:
    judged = JointPrediction(values=np.array([prediction]), floor=np.array([0.001]), tolerance=0.01)
    named = {str(k): member for k, member in enumerate(members)}
    return combine_attributions(ModelIdentity(name="joint", version=1, weights_hash=""), named, judged, ())


def _row(found: Attribution, kind: RowKind, name: str) -> NDArray[np.float64]:
    """One row [S]; 0 where the explanation lacks it."""
    keys = list(zip(found.row_kinds, found.row_names, strict=True))
    return found.per_row[:, keys.index((kind, name))] if (kind, name) in keys else np.zeros(len(found.symbols))


def _without_last_bar(bars: BarPanel) -> BarPanel:
    """The panel without the last bar of its first symbol."""
    return _without(bars, slice(-1, None))


def _without(bars: BarPanel, sessions: slice) -> BarPanel:
    """The panel without these bars of its first symbol."""
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[0, sessions] = np.nan
    return replace(bars, **columns)
