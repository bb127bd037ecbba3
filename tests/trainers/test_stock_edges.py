"""Graph edges: from the training window only, net of the market, or given and kept."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from baseline_cases import few_baselines
from market import bokeh_panel, learnable_bars
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.model import Model
from predictor.networks import Edges, GraphConfig, Target, WindowNormaliser
from trainers.progress import ConsumerChain
from trainers.stock import Optimisation, StockRecipe, train
from trainers.stock.audit import AuditBudget, audit
from trainers.stock.backtest import (
    BacktestFolder,
    ModelSource,
    StrategySettings,
    TradingTerms,
    WalkForwardPlan,
    artifact_source,
    backtest,
)
from trainers.stock.backtest.backtest import USER_EDGES_NOTE, collect_settings
from trainers.stock.backtest.refits import ForecastStore, RefitMaterial, make_tradable, split_sessions
from trainers.stock.data import NO_COVARIATE_FILES, TrainingWindows
from trainers.stock.edges import (
    correlate,
    fit_edges,
    fit_training_edges,
    read_edges,
    read_user_edges,
    remove_market,
    select_edges,
)
from trainers.stock.evaluation.bound_model import bind_model, find_calendar, find_last_seen
from trainers.stock.evaluation.comparison import SeedRefits, average_horizons, pinball
from trainers.stock.evaluation.evaluation import EvaluationSettings, evaluate
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.evaluation.scores import MODEL_NAME
from trainers.stock.splits import select_unseen_part
from trainers.stock.training_data import TrainingMaterial

FloatArray = NDArray[np.float64]

SYMBOLS = ("AAPL", "GOOG", "IBM", "MSFT")
FEATURES = FeatureSet(observed=(FeatureDefinition("r1", "Log($close / Ref($close, 1))", "return", "log return"),))
RECIPE = StockRecipe(
    kind="graph",
    calendar="XNYS",
    config=GraphConfig(hidden=4, heads=1, neighbours=2, frequencies=1, patch=2),
    target=Target(lag=1, horizons=(1, 3)),
    encoder_length=8,
    scale="window",
    normaliser=WindowNormaliser(window=20),
    optimisation=Optimisation(max_epochs=3, batch_size=64, learning_rate=0.003, device="cpu"),
)
GIVEN = Edges(
    neighbours=torch.tensor([[3, -1], [2, 0], [1, -1], [-1, -1]]),
    weights=torch.tensor([[0.5, 0.0], [-2.0, 1.0], [3.0, 0.0], [0.0, 0.0]]),
)
"""Edges that no correlation would give."""


def sectors(*, sessions: int = 400, seed: int = 0) -> FloatArray:
    """Returns of two sectors of three stocks each, with a common market factor."""
    rng = np.random.default_rng(seed)
    market, sector = rng.normal(size=sessions), rng.normal(size=(2, sessions))
    return 0.01 * (2 * market + np.repeat(sector, 3, axis=0) + 0.5 * rng.normal(size=(6, sessions)))


def other_order_after(panel: BarPanel, last: int) -> BarPanel:
    """The panel with all bars after a session (yyyymmdd) shuffled, and a rebased adjustment."""
    first = int(np.searchsorted(panel.sessions, last, side="right"))
    order = np.arange(len(panel.sessions))
    order[first:] = np.random.default_rng(1).permutation(order[first:])
    columns = {name: getattr(panel, name)[:, order] for name in ("open", "high", "low", "close", "volume", "adj_close")}
    columns["adj_close"][:, first:] *= 0.37
    return replace(panel, **columns)


def test_the_nearest_are_those_of_the_same_sector_whatever_the_market_does() -> None:
    edges = fit_edges(sectors(), neighbours=2)
    assert [set(row) for row in edges.neighbours.tolist()] == [{1, 2}, {0, 2}, {0, 1}, {4, 5}, {3, 5}, {3, 4}]
    assert (edges.weights > 0.5).all()


def test_a_negative_correlation_is_no_edge() -> None:
    edges = fit_edges(sectors(), neighbours=5)
    assert edges.neighbours[0].tolist()[2:] == [-1, -1, -1]
    assert not edges.weights[0, 2:].any()


def test_correlations_over_what_both_know_are_numpys() -> None:
    values = sectors()
    np.testing.assert_allclose(correlate(values), np.corrcoef(values), atol=1e-12)
    holey = values.copy()
    holey[0, :100] = np.nan
    late = np.isfinite(holey[0])
    found = correlate(holey)
    assert found[0, 1] == pytest.approx(np.corrcoef(values[0, late], values[1, late]).item(1), abs=0.02)


def test_stocks_that_share_too_few_sessions_are_not_near() -> None:
    values = sectors()
    values[0, 50:] = np.nan
    assert fit_edges(values, neighbours=2).neighbours[0].tolist() == [-1, -1]


def test_residuals_do_not_move_with_the_market() -> None:
    returns = sectors()
    residuals, market = remove_market(returns), returns.mean(0)
    assert np.abs(residuals @ (market - market.mean())).max() < 1e-9


def test_edges_do_not_know_what_comes_after_the_training_window() -> None:
    bars = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").between(20080102, 20101231)
    last = 20091231
    plain, other = (fit_training_edges(panel, last, neighbours=2) for panel in (bars, other_order_after(bars, last)))
    assert plain.neighbours.tolist() == other.neighbours.tolist()
    np.testing.assert_allclose(plain.weights, other.weights, atol=1e-6)


def test_edges_are_rebuilt_for_every_training_window() -> None:
    bars = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").between(20080102, 20101231)
    first, second = (fit_training_edges(bars, last, neighbours=2) for last in (20081231, 20091231))
    assert not np.allclose(first.weights, second.weights, atol=1e-3)


def test_no_returns_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"no stock of 3 has any"):
        fit_edges(np.full((3, 10), np.nan), neighbours=1)


def write_edges(tmp_path: Path, *lines: str, header: str = "symbol,neighbour,weight") -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_given_edges_keep_the_largest_weights(tmp_path: Path) -> None:
    path = write_edges(tmp_path, "A,B,0.2", "A,C,0.9", "A,D,0.5", "C,A,1")
    edges = read_edges(path, ("A", "B", "C", "D"), neighbours=2)
    assert edges.neighbours.tolist() == [[2, 3], [-1, -1], [0, -1], [-1, -1]]
    np.testing.assert_allclose(edges.weights[0], [0.9, 0.5])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A,X,1", "line 2: 'X' is not among the 2 symbols"),
        ("A,B,near", "'near' is not a number"),
        ("A,B,inf", "must be finite"),
        ("A,A,1", "line 2: the edge from A to A leads to the stock itself"),
        ("A,B", "line 2: a line must have 3 cells"),
        ("A,B,1,9", "line 2: a line must have 3 cells"),
        ("A,B,1\nA,B,2", "line 3: the edge from A to B appears twice"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_edges(write_edges(tmp_path, line), ("A", "B"), neighbours=1)


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has the columns"):
        read_edges(write_edges(tmp_path, header="from,to"), ("A",), neighbours=1)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.csv cannot be read: No such file"):
        read_edges(tmp_path / "missing.csv", ("A",), neighbours=1)
    (tmp_path / "latin.csv").write_bytes("symbol,neighbour,weight\nÄ,B,1\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"latin\.csv is not UTF-8 text"):
        read_edges(tmp_path / "latin.csv", ("A",), neighbours=1)


def test_a_file_of_a_spreadsheet_begins_with_a_mark_that_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("symbol,neighbour,weight\nA,B,1\n", encoding="utf-8-sig")
    assert read_edges(path, ("A", "B"), neighbours=1).neighbours.tolist() == [[1], [-1]]


def test_a_handful_of_stocks_is_near_by_plain_returns() -> None:
    market = np.random.default_rng(3).normal(0, 0.01, 300)
    edges = fit_edges(market + np.random.default_rng(4).normal(0, 0.01, (3, 300)), neighbours=2)
    assert [set(row) for row in edges.neighbours.tolist()] == [{1, 2}, {0, 2}, {0, 1}]


# --- given edges are kept


@cache
def graph_bars() -> BarPanel:
    return learnable_bars(bokeh_panel(*SYMBOLS).last(600))


@pytest.fixture(autouse=True, scope="module")
def with_few_baselines() -> Iterator[None]:
    with few_baselines():
        yield


@pytest.fixture(scope="module")
def given_edges_model(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A graph artifact trained with given edges, on all but the newest year."""
    learnt = graph_bars().until(int(graph_bars().sessions[399]))
    folder = tmp_path_factory.mktemp("given") / "1"
    train(TrainingMaterial(learnt, FEATURES, NO_COVARIATE_FILES, GIVEN), RECIPE, folder, consume=ConsumerChain())
    return artifact_source(folder, "cpu")


def model_of(source: ModelSource) -> Model:
    assert source.trained_model is not None
    assert isinstance(source.trained_model.model, Model)
    return source.trained_model.model


def assert_given(found: Edges | None) -> None:
    assert found is not None
    assert found.neighbours.tolist() == GIVEN.neighbours.tolist()
    assert found.weights.tolist() == GIVEN.weights.tolist()


def test_an_artifact_tells_that_its_edges_were_given_and_holds_them(given_edges_model: ModelSource) -> None:
    assert given_edges_model.card["edges"] == {"source": "given"}
    assert_given(given_edges_model.user_edges(SYMBOLS))


def test_edges_from_returns_are_not_those_of_another_training(tmp_path: Path) -> None:
    material = TrainingMaterial(graph_bars().last(300), FEATURES)
    made = train(material, RECIPE, tmp_path / "1", consume=ConsumerChain())
    assert made.card["edges"] == {"source": "training returns"}
    assert artifact_source(made.folder, "cpu").user_edges(SYMBOLS) is None


def test_edges_among_other_symbols_lead_to_the_same_stocks() -> None:
    found = select_edges(GIVEN, SYMBOLS, ("IBM", "FB", "GOOG", "AAPL"))
    assert found.neighbours.tolist() == [[2, -1], [-1, -1], [0, 3], [-1, -1]]
    assert found.weights.tolist() == [[3.0, 0.0], [0.0, 0.0], [-2.0, 1.0], [0.0, 0.0]]


def refitting_of(source: ModelSource, windows: TrainingWindows) -> SeedRefits:
    """The recipe with the artifact's given edges."""
    assert source.trained_model is not None
    model = model_of(source)
    return SeedRefits(
        bars=graph_bars(),
        features=FEATURES,
        recipe=source.known_recipe(),
        splits=source.trained_model.splits,
        covariates=NO_COVARIATE_FILES,
        edges=read_user_edges(model.manifest, model.engine.network.state_dict(), SYMBOLS),
        windows=windows,
        cache=None,
        consume=ConsumerChain(),
    )


def test_the_same_seed_again_with_the_given_edges_is_the_artifact_again(given_edges_model: ModelSource) -> None:
    assert given_edges_model.trained_model is not None
    seed = given_edges_model.known_recipe().optimisation.seed
    reading = bind_model(model_of(given_edges_model), graph_bars())
    windows = reading.windows(given_edges_model.trained_model.splits.require_test())
    refitting = refitting_of(given_edges_model, windows)
    ours = reading.forecasts(windows).calibrated
    again = refitting.forecast(seed)
    np.testing.assert_allclose(again, ours, rtol=0, atol=1e-7)
    other = replace(refitting, edges=None).forecast(seed)
    assert np.abs(other - ours).max() > 1e-5


@pytest.mark.slow
def test_the_other_seeds_of_an_evaluation_have_the_given_edges(given_edges_model: ModelSource) -> None:
    model = model_of(given_edges_model)
    found = evaluate(
        model, graph_bars(), EvaluationSettings(seeds=2, device="cpu"), consume=ConsumerChain(), announce=ignore_reports
    )
    assert found.seeds is not None
    (ours,) = [row.mean.value for row in found.rows if row.name == MODEL_NAME]
    other = 2 * found.seeds.mean.mean - ours
    reading = bind_model(model, graph_bars())
    days = select_unseen_part(
        graph_bars().sessions, find_last_seen(model), RECIPE.target, find_calendar(model), start=None, end=None
    )
    windows = reading.windows(days)
    refitting = refitting_of(given_edges_model, windows)
    judged = EvaluationSet.of(reading.history, windows, RECIPE.quantiles)

    def loss(edges: Edges | None) -> float:
        """Loss of the other seed, retrained with these edges."""
        assert found.seeds is not None
        made = replace(refitting, edges=edges).forecast(found.seeds.seeds[1])
        return float(np.nanmean(average_horizons(judged, pinball(judged, made))))

    assert other == pytest.approx(loss(GIVEN), abs=1e-12)
    assert other != pytest.approx(loss(None), abs=1e-9)


@pytest.mark.slow
def test_an_audit_trains_on_shuffled_labels_with_the_given_edges(
    given_edges_model: ModelSource, tmp_path: Path
) -> None:
    """Two artifacts with different edges: retrained without them, they would be the same."""
    learnt = graph_bars().until(int(graph_bars().sessions[399]))
    train(TrainingMaterial(learnt, FEATURES), RECIPE, tmp_path / "1", consume=ConsumerChain())

    def shuffled(source: ModelSource) -> float:
        depth = AuditBudget(sessions=1, permutations=1, epochs=3)
        found = audit(
            source,
            graph_bars(),
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            depth=depth,
            announce=ignore_reports,
        )
        return found.permutation.permuted[0]

    assert abs(shuffled(given_edges_model) - shuffled(artifact_source(tmp_path / "1", "cpu"))) > 1e-9


def ignore_reports(_stage: str) -> None:
    """A consumer that ignores all reports."""


def test_every_fold_of_a_backtest_has_the_given_edges_and_says_so(
    given_edges_model: ModelSource, tmp_path: Path
) -> None:
    bars = graph_bars()
    plan = WalkForwardPlan(start=int(bars.sessions[500]), end=int(bars.sessions[520]), refit=30)
    terms, folder = TradingTerms(horizon=3), BacktestFolder(path=tmp_path / "backtest")
    found = backtest(given_edges_model, bars, plan, terms=terms, strategy_settings=StrategySettings(), folder=folder)
    assert USER_EDGES_NOTE in found.notes
    (fold,) = split_sessions(bars.sessions, plan)
    kept = ForecastStore(folder.path, collect_settings(given_edges_model, bars, plan)).read(fold)
    wanted, other = (
        RefitMaterial(
            bars=bars, features=FEATURES, recipe=make_tradable(given_edges_model.known_recipe()), edges=edges
        ).forecast(fold)
        for edges in (GIVEN, None)
    )
    np.testing.assert_array_equal(kept.values, wanted.values)
    assert np.abs(kept.values - other.values).max() > 1e-5
