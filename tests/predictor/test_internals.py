"""Internals of the Temporal Fusion Transformer: named, complete, and separate from attributions."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import covariate_files
import numpy as np
import pytest
import torch
from artifacts import UNIVERSE, recent_bars, save_artifact, save_small_artifact, small_artifact, small_model
from ensembles import ensemble_of, manifest_of
from market import without_last_bar

from predictor import artifact
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.features import FittedFeatures
from predictor.forecast import Attribution, RowKind, TargetPoint
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance
from predictor.internals import Internal, InternalAxis, describe_session, format_largest_shares
from predictor.model import Model
from predictor.model.model import SHARE_KNOWN, build_internals
from predictor.networks import Internals, Target, TFTForecaster

PAST, FUTURE, STATIC = (f"selection of {kind} variables" for kind in ("past", "future", "static"))


@pytest.fixture(scope="module")
def tft() -> Model:
    return small_model(small_artifact("tft"))


def explained(model: Model, bars: BarPanel, *horizons: int) -> tuple[Attribution, ...]:
    query = ExplanationQuery(instance=Instance(input=bars), targets=tuple(TargetPoint(h, 0.5) for h in horizons))
    return model.explain(query, AFTER_ALL_SESSIONS, NEVER)


def by_name(found: Attribution) -> Mapping[str, Internal]:
    return {one.name: one for one in found.internals}


def test_internals_come_in_order_and_only_those_that_the_network_has(tft: Model) -> None:
    (found,) = explained(tft, recent_bars("AAPL"), 5)
    assert [one.name for one in found.internals] == [PAST, FUTURE, "attention"]


def test_past_variables_are_the_rows_names_and_the_share_of_known_cells(tft: Model) -> None:
    (found,) = explained(tft, recent_bars("AAPL"), 5)
    rows = zip(found.row_names, found.row_kinds, strict=True)
    names = [name for name, kind in rows if kind in {RowKind.OBSERVED, RowKind.KNOWN}]
    assert by_name(found)[PAST].labels == (*names, SHARE_KNOWN)
    assert by_name(found)[FUTURE].labels == tuple(names[-5:])


def test_every_internal_is_shares_that_add_up_to_1(tft: Model) -> None:
    for found in explained(tft, recent_bars(*UNIVERSE), 1, 20):
        for one in found.internals:
            assert one.values.shape == (4, len(one.labels))
            assert one.values.dtype == np.float64
            assert (one.values >= 0).all()
            np.testing.assert_allclose(one.values.sum(axis=1), 1, rtol=0, atol=1e-5)


def test_attention_is_of_the_explained_horizon_up_to_its_end(tft: Model) -> None:
    near, far = (by_name(found)["attention"] for found in explained(tft, recent_bars("AAPL"), 1, 20))
    assert (near.labels[0], near.labels[59], near.labels[-1]) == ("-59", "0", "+1")
    assert (len(near.labels), len(far.labels), far.labels[-1]) == (61, 80, "+20")
    assert not np.allclose(near.values, far.values[:, :61])


def test_a_lag_moves_the_end_of_a_horizon() -> None:
    delayed = small_model(small_artifact("tft", target=Target(lag=1)))
    (found,) = explained(delayed, recent_bars("AAPL"), 5)
    assert by_name(found)["attention"].labels[-1] == "+6"


def test_a_symbol_without_a_forecast_has_no_internals(tft: Model) -> None:
    (found,) = explained(tft, without_last_bar(recent_bars("AAPL", "IBM"), "AAPL"), 5)
    for one in found.internals:
        assert np.isnan(one.values[0]).all()
        assert np.isfinite(one.values[1]).all()


def test_internals_are_those_of_the_forward_that_is_served(tft: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    prepared = tft.prepare(Instance(input=bars), AFTER_ALL_SESSIONS)
    network = tft.engine.network
    assert isinstance(network, TFTForecaster)
    with torch.inference_mode():
        quantiles, told = network.with_internals(prepared.inputs)
    (found,) = explained(tft, bars, 20)
    torch.testing.assert_close(quantiles, tft.runner.compute_units(prepared), rtol=0, atol=1e-6)
    np.testing.assert_allclose(by_name(found)["attention"].values, told.attention[:, 3].numpy(), rtol=0, atol=1e-6)
    past = told.past.double().mean(1).numpy()
    np.testing.assert_allclose(by_name(found)[PAST].values, past, rtol=0, atol=1e-6)


def test_many_rows_are_reported_like_few() -> None:
    made = small_artifact("tft")
    one, many = (
        Model.assemble(small_model(made).identity, made, device=torch.device("cpu"), max_rows=rows) for rows in (1, 256)
    )
    bars = recent_bars(*UNIVERSE)
    for alone, together in zip(
        explained(one, bars, 5)[0].internals, explained(many, bars, 5)[0].internals, strict=True
    ):
        np.testing.assert_allclose(alone.values, together.values, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "gru", "hybrid", "graph"])
def test_networks_without_internals_have_none(kind: str) -> None:
    (found,) = explained(small_model(small_artifact(kind)), recent_bars("AAPL"), 5)
    assert found.internals == ()


# --- columns and variables


@pytest.fixture(scope="module")
def with_covariates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Attribution]:
    """A network that reads a known covariate, a static number and a static text."""
    source = covariate_files.source(tmp_path_factory.mktemp("covariates"))
    model = small_model(covariate_files.artifact_with(covariate_files.pipeline_with(source), "tft"))
    bars = covariate_files.bars().last(200)
    instance = Instance(input=bars, covariates=source.for_model(model.info((), is_default=True), bars))
    query = ExplanationQuery(instance=instance, targets=(TargetPoint(5, 0.5),))
    return model, model.explain(query, AFTER_ALL_SESSIONS, NEVER)[0]


def test_a_variable_of_several_columns_is_named_once(with_covariates: tuple[Model, Attribution]) -> None:
    _, found = with_covariates
    told = by_name(found)
    assert list(told) == [PAST, FUTURE, STATIC, "attention"]
    assert told[STATIC].labels == ("cap", "sector")
    assert not [label for one in found.internals for label in one.labels if label.endswith("_is_known")]
    assert told[FUTURE].labels.count("rebalance") == told[PAST].labels.count("rebalance") == 1
    for one in found.internals:
        np.testing.assert_allclose(one.values.sum(axis=1), 1, rtol=0, atol=1e-5)


def test_the_weights_of_a_variables_columns_are_added(with_covariates: tuple[Model, Attribution]) -> None:
    features = with_covariates[0].pipeline.features
    (past, future, static, attention) = build_internals(
        weights_by_column(features), features, covariate_files.TARGET, 0
    )
    plain, paired = len(features.features.names), features.features.known_names.index("rebalance")
    first, second = paired, len(features.features.known_names)
    assert past.values[0, plain + paired] == (plain + first) + (plain + second)
    assert future.values[0, paired] == first + second
    assert past.values[0, -1] == plain + len(features.known_columns)
    assert static.values.tolist() == [[7.0, 9.0]]
    assert attention.values.shape == (1, 3 + 1)


def weights_by_column(features: FittedFeatures) -> Internals:
    """Weights of three past and two future sessions: each is its column number, but 1000 on the last session."""
    past, known = len(features.features.names) + len(features.known_columns) + 1, len(features.known_columns)
    ahead = torch.stack([torch.arange(float(known)), torch.full((known,), 1000.0)])
    return Internals(
        past=torch.arange(float(past)).expand(1, 3, -1),
        future=ahead.unsqueeze(0),
        static=torch.tensor([[7.0, 9.0]]),
        attention=torch.zeros(1, 2, 5),
    )


# --- ensembles


def test_an_ensemble_gives_each_members_internals_under_its_name(tmp_path: Path) -> None:
    stored = {
        "plain": artifact.load(save_small_artifact(tmp_path / "plain")),
        "fused": artifact.load(save_artifact(tmp_path / "fused", small_artifact("tft"))),
    }
    joint = ensemble_of(manifest_of(stored), stored)
    bars = recent_bars("AAPL", "IBM")
    query = ExplanationQuery(instance=Instance(input=bars), targets=(TargetPoint(5, 0.5),))
    (found,) = joint.explain(query, AFTER_ALL_SESSIONS, NEVER)
    (alone,) = joint.members["fused"].explain(query, AFTER_ALL_SESSIONS, NEVER)
    assert [one.name for one in found.internals] == [f"fused: {PAST}", f"fused: {FUTURE}", "fused: attention"]
    for mine, members in zip(found.internals, alone.internals, strict=True):
        assert (mine.labels, mine.values.tolist()) == (members.labels, members.values.tolist())


# --- shown


def test_shares_come_largest_first(tft: Model) -> None:
    (found,) = explained(tft, recent_bars("AAPL", "IBM"), 5)
    attention = by_name(found)["attention"]
    shares = attention.table(1)
    assert [one.share for one in shares] == sorted(attention.values[1].tolist(), reverse=True)
    assert describe_session(int(attention.labels[int(np.argmax(attention.values[1]))])) == shares[0].label


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (-26, "26 sessions before the last"),
        (-1, "1 session before the last"),
        (0, "last session"),
        (1, "1 session after the last"),
        (5, "5 sessions after the last"),
    ],
)
def test_a_session_is_described_in_words(offset: int, words: str) -> None:
    assert describe_session(offset) == words


def test_the_largest_shares_are_a_sentence_that_needs_no_key() -> None:
    values = np.array([[0.5, 0.3, 0.2]])
    attention = Internal(name="attention", axis=InternalAxis.SESSIONS, labels=("-26", "0", "+1"), values=values)
    assert format_largest_shares(attention, 0) == (
        "26 sessions before the last: 50 %, last session: 30 %, 1 session after the last: 20 %"
    )
    selection = Internal(name="selection", axis=InternalAxis.INPUTS, labels=("7", "cap", "sector"), values=values)
    assert format_largest_shares(selection, 0) == "7: 50 %, cap: 30 %, sector: 20 %"


def test_html_shows_internals_below_a_heading_that_says_what_they_are(tft: Model) -> None:
    (found,) = explained(tft, recent_bars("AAPL"), 5)
    contributions, internals = found._repr_html_().split("Internals: ")
    assert internals.startswith("what the network attended to, not what moved the forecast")
    assert by_name(found)[PAST].table()[0].label in internals
    assert "attention" not in contributions
    assert "Internals" not in replace(found, internals=())._repr_html_()
