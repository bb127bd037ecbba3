"""A graph model behind a server: ranks and explanations of complete and incomplete panels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars, save_artifact, save_small_artifact, small_artifact
from market import without_last_bar
from numpy.typing import NDArray
from serving import serving

from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.errors import InvalidInputError, NoUsableSymbolError, QuantraError
from predictor.forecast import Attribution, Forecast, RowKind, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, Instance
from predictor.model.predictor import rank_scores
from predictor.networks import GraphConfig
from predictor.service import PredictionService

SAME = 1e-6
"""Largest difference on returns."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_small_artifact(folder / "graph" / "1", "graph")
    return folder


@pytest.fixture(scope="module")
def client(models: Path) -> Iterator[QuantraClient]:
    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def full_forecast(client: QuantraClient) -> Forecast:
    return client.predict(recent_bars(*UNIVERSE))


@pytest.fixture(scope="module")
def reasons(client: QuantraClient) -> Attribution:
    return client.feature_importance(recent_bars(*UNIVERSE))


def row(found: Attribution, kind: RowKind) -> NDArray[np.float64]:
    """The single row of a kind, [S]."""
    return found.per_row[:, found.row_kinds.index(kind)]


def scores(found: Forecast) -> NDArray[np.float64]:
    assert found.scores is not None
    return found.scores


def ranks(found: Forecast) -> NDArray[np.int32]:
    assert found.ranks is not None
    return found.ranks


def with_changed_closes(bars: BarPanel, symbol: str) -> BarPanel:
    """The panel with changed last closes of one symbol."""
    close, s = bars.close.copy(), bars.symbols.index(symbol)
    close[s, -5:] = bars.low[s, -5:]
    return replace(bars, close=close)


# --- forecasts


def test_each_horizon_ranks_the_panel_by_score(full_forecast: Forecast) -> None:
    assert np.array_equal(np.sort(ranks(full_forecast), axis=0), np.tile(np.arange(1, 5)[:, None], (1, 4)))
    for h in range(4):
        by_rank = scores(full_forecast)[np.argsort(ranks(full_forecast)[:, h]), h]
        assert (np.diff(by_rank) <= 0).all()


def test_the_server_ranks_as_the_forecaster_does(models: Path, full_forecast: Forecast) -> None:
    with Forecaster.load(models / "graph" / "1") as forecaster:
        mine = forecaster.predict(recent_bars(*UNIVERSE))
    assert np.array_equal(scores(full_forecast), scores(mine))
    assert np.array_equal(ranks(full_forecast), ranks(mine))
    assert (full_forecast.universe_hash, full_forecast.forecast_id) == (mine.universe_hash, mine.forecast_id)


def test_a_panel_in_another_order_has_its_answers_in_that_order(
    client: QuantraClient, full_forecast: Forecast, reasons: Attribution
) -> None:
    order = [2, 0, 3, 1]
    other = recent_bars(*UNIVERSE).select([UNIVERSE[k] for k in order])
    found, why = client.predict(other), client.feature_importance(other)
    np.testing.assert_allclose(found.values, full_forecast.values[order], rtol=0, atol=SAME)
    np.testing.assert_allclose(scores(found), scores(full_forecast)[order], rtol=0, atol=SAME)
    assert np.array_equal(ranks(found), ranks(full_forecast)[order])
    assert found.universe_hash == full_forecast.universe_hash
    np.testing.assert_allclose(why.per_row, reasons.per_row[order], rtol=0, atol=SAME)


def test_a_stock_alone_is_forecast_without_its_neighbours(client: QuantraClient, full_forecast: Forecast) -> None:
    alone = client.predict(recent_bars("AAPL"))
    assert np.isfinite(alone.values).all()
    assert ranks(alone).tolist() == [[1, 1, 1, 1]]
    assert alone.universe_hash != full_forecast.universe_hash
    assert np.abs(alone.values[0] - full_forecast.values[0]).max() > SAME


def test_neighbours_that_are_not_there_are_named(client: QuantraClient, full_forecast: Forecast) -> None:
    assert full_forecast.warnings == ()
    (warning,) = client.predict(recent_bars("AAPL", "MSFT")).warnings
    assert warning.startswith("AAPL, MSFT: forecast without the neighbours GOOG, IBM, ")
    reasons = client.feature_importance(recent_bars("AAPL", "MSFT"))
    assert reasons.warnings == (warning,)


def test_a_neighbour_without_its_last_bar_is_named(client: QuantraClient) -> None:
    warnings = client.predict(without_last_bar(recent_bars(*UNIVERSE), "GOOG")).warnings
    assert [warning.split(" neighbours")[0] for warning in warnings[1:]] == ["AAPL, MSFT: forecast without the"]


def test_a_stranger_is_named(client: QuantraClient) -> None:
    found = client.predict(replace(recent_bars(*UNIVERSE), symbols=("AAPL", "GOOG", "IBM", "NEW")))
    assert found.warnings[0].startswith("IBM: forecast without the neighbours MSFT, ")
    assert found.warnings[1] == "NEW: forecast without neighbours, because training had no data of such stocks"


def test_an_unknown_symbol_is_forecast_as_a_stock_without_neighbours(
    client: QuantraClient, full_forecast: Forecast
) -> None:
    """A stock of the universe under another name: its own contributions stay, those to others vanish."""
    found = client.predict(replace(recent_bars(*UNIVERSE), symbols=("AAPL", "GOOG", "IBM", "NEW")))
    alone = client.predict(recent_bars("MSFT"))
    np.testing.assert_allclose(found.values[3], alone.values[0], rtol=0, atol=SAME)
    np.testing.assert_allclose(found.values[:2], full_forecast.values[:2], rtol=0, atol=SAME)
    assert np.abs(found.values[2] - full_forecast.values[2]).max() > SAME  # IBM looks at MSFT
    assert sorted(ranks(found)[:, 0].tolist()) == [1, 2, 3, 4]


def test_a_symbol_that_misses_the_last_bar_is_out_of_the_ranking_and_out_of_sight(client: QuantraClient) -> None:
    found = client.predict(without_last_bar(recent_bars(*UNIVERSE), "GOOG"))
    rest = client.predict(recent_bars("AAPL", "IBM", "MSFT"))
    others = [0, 2, 3]
    assert np.isnan(found.values[1]).all()
    assert np.isnan(scores(found)[1]).all()
    assert ranks(found)[1].tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(found.values[others], rest.values, rtol=0, atol=SAME)
    assert np.array_equal(ranks(found)[others], ranks(rest))
    assert found.universe_hash == rest.universe_hash
    assert "GOOG" in found.refusals
    assert any(warning.startswith("no forecast of GOOG: ") for warning in found.warnings)


# --- reasons


def test_reasons_add_up_to_the_served_forecast_and_neighbours_are_among_them(
    full_forecast: Forecast, reasons: Attribution
) -> None:
    np.testing.assert_allclose(reasons.prediction, full_forecast.values[:, 1, 1], rtol=0, atol=SAME)
    assert reasons.converged.all()
    difference = reasons.prediction - reasons.baseline_prediction
    np.testing.assert_allclose(reasons.per_row.sum(axis=1), difference, rtol=0.01, atol=1e-5)
    neighbours = np.abs(row(reasons, RowKind.NEIGHBOURS))
    assert (neighbours > 10 * np.abs(reasons.per_row.sum(axis=1) - difference)).all()


def test_some_stocks_are_explained_as_among_all(client: QuantraClient, reasons: Attribution) -> None:
    asked = ExplanationQuery(
        instance=Instance(input=recent_bars(*UNIVERSE)), targets=(TargetPoint(5, 0.5),), symbols=("IBM", "AAPL")
    )
    (found,) = client.explain(asked).attributions
    assert found.symbols == ("IBM", "AAPL")
    np.testing.assert_allclose(found.per_row, reasons.per_row[[2, 0]], rtol=0, atol=SAME)
    assert row(found, RowKind.NEIGHBOURS).all()
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("symbols", "error", "message"),
    [
        (("AAPL", "NEW"), InvalidInputError, "no symbol 'NEW' to explain; the instance has AAPL, GOOG"),
        (("AAPL", "AAPL"), InvalidInputError, "symbol 'AAPL' appears twice among those to explain"),
        (("GOOG",), NoUsableSymbolError, "GOOG: has no bar on the panel's last session, 2013-03-01"),
    ],
)
def test_stocks_that_cannot_be_explained_are_refused_by_name(
    client: QuantraClient, symbols: tuple[str, ...], error: type[QuantraError], message: str
) -> None:
    bars = without_last_bar(recent_bars(*UNIVERSE), "GOOG")
    with pytest.raises(error, match=message):
        client.explain(ExplanationQuery(instance=Instance(input=bars), symbols=symbols))


def test_a_stock_alone_owes_nothing_to_neighbours(client: QuantraClient) -> None:
    found = client.feature_importance(recent_bars("AAPL"))
    assert found.converged.all()
    assert row(found, RowKind.NEIGHBOURS).tolist() == [0.0]


def test_a_model_without_a_graph_is_explained_without_neighbours(tmp_path: Path) -> None:
    made = small_artifact("graph")
    assert isinstance(made.manifest.config, GraphConfig)
    manifest = replace(made.manifest, config=replace(made.manifest.config, neighbours=0))
    weights = {**made.weights, **{name: made.weights[name][:, :0] for name in ("neighbours", "weights")}}
    save_artifact(tmp_path / "graph" / "1", replace(made, manifest=manifest, weights=weights))
    with Forecaster.load(tmp_path / "graph" / "1") as forecaster:
        bars = recent_bars(*UNIVERSE)
        forecast, found = forecaster.predict(bars), forecaster.feature_importance(bars)
    assert found.converged.all()
    assert RowKind.NEIGHBOURS not in found.row_kinds
    np.testing.assert_allclose(found.prediction, forecast.values[:, 1, 1], rtol=0, atol=SAME)
    difference = found.prediction - found.baseline_prediction
    np.testing.assert_allclose(found.per_row.sum(axis=1), difference, rtol=0.01, atol=1e-5)


def test_only_neighbours_move_the_neighbours_row(client: QuantraClient, reasons: Attribution) -> None:
    found = client.feature_importance(with_changed_closes(recent_bars(*UNIVERSE), "MSFT"))
    moved = np.abs(row(found, RowKind.NEIGHBOURS) - row(reasons, RowKind.NEIGHBOURS)) > 1e-9
    assert moved.tolist() == [False, False, True, True]  # IBM looks at MSFT; MSFT sees the others from another place


def test_an_unknown_symbol_owes_nothing_to_neighbours_and_lends_nothing(
    client: QuantraClient, reasons: Attribution
) -> None:
    found = client.feature_importance(replace(recent_bars(*UNIVERSE), symbols=("AAPL", "GOOG", "IBM", "NEW")))
    neighbours = row(found, RowKind.NEIGHBOURS)
    assert found.converged.all()
    assert neighbours[3] == 0
    np.testing.assert_allclose(neighbours[:2], row(reasons, RowKind.NEIGHBOURS)[:2], rtol=0, atol=SAME)
    assert abs(neighbours[2] - row(reasons, RowKind.NEIGHBOURS)[2]) > SAME


def test_a_symbol_that_misses_the_last_bar_has_no_reasons_and_is_nobodys_reason(client: QuantraClient) -> None:
    found = client.feature_importance(without_last_bar(recent_bars(*UNIVERSE), "GOOG"))
    rest = client.feature_importance(recent_bars("AAPL", "IBM", "MSFT"))
    assert np.isnan(found.per_row[1]).all()
    assert found.converged.tolist() == [True, False, True, True]
    np.testing.assert_allclose(found.per_row[[0, 2, 3]], rest.per_row, rtol=0, atol=SAME)


def test_stocks_of_equal_score_share_the_best_of_their_places() -> None:
    scores = np.array([[0.5, 1.0], [0.5, 1.0], [2.0, 1.0], [-1.0, 1.0]])
    assert rank_scores(scores).tolist() == [[2, 1], [2, 1], [1, 1], [4, 1]]
