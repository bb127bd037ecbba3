"""Edges come from the training window alone, find who moves together beyond the market, or are read from a file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from trainers.stock.edges import correlations, fit_edges, read_edges, training_edges, without_market

FloatArray = NDArray[np.float64]


def sectors(*, sessions: int = 400, seed: int = 0) -> FloatArray:
    """Returns of two sectors of three stocks each, in a market that moves them all."""
    rng = np.random.default_rng(seed)
    market, sector = rng.normal(size=sessions), rng.normal(size=(2, sessions))
    return 0.01 * (2 * market + np.repeat(sector, 3, axis=0) + 0.5 * rng.normal(size=(6, sessions)))


def other_order_after(panel: BarPanel, last: int) -> BarPanel:
    """The panel with all bars after a session (yyyymmdd) in another order, and a rebased adjustment."""
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
    np.testing.assert_allclose(correlations(values), np.corrcoef(values), atol=1e-12)
    holey = values.copy()
    holey[0, :100] = np.nan
    late = np.isfinite(holey[0])
    found = correlations(holey)
    assert found[0, 1] == pytest.approx(np.corrcoef(values[0, late], values[1, late]).item(1), abs=0.02)


def test_stocks_that_share_too_few_sessions_are_not_near() -> None:
    values = sectors()
    values[0, 50:] = np.nan
    assert fit_edges(values, neighbours=2).neighbours[0].tolist() == [-1, -1]


def test_residuals_do_not_move_with_the_market() -> None:
    returns = sectors()
    residuals, market = without_market(returns), returns.mean(0)
    assert np.abs(residuals @ (market - market.mean())).max() < 1e-9


def test_edges_do_not_know_what_comes_after_the_training_window() -> None:
    bars = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").between(20080102, 20101231)
    last = 20091231
    plain, other = (training_edges(panel, last, neighbours=2) for panel in (bars, other_order_after(bars, last)))
    assert plain.neighbours.tolist() == other.neighbours.tolist()
    np.testing.assert_allclose(plain.weights, other.weights, atol=1e-6)


def test_edges_are_built_anew_for_every_training_window() -> None:
    bars = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").between(20080102, 20101231)
    first, second = (training_edges(bars, last, neighbours=2) for last in (20081231, 20091231))
    assert not np.allclose(first.weights, second.weights, atol=1e-3)


def test_no_returns_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="none is known"):
        fit_edges(np.full((3, 10), np.nan), neighbours=1)


def written(tmp_path: Path, *lines: str, header: str = "symbol,neighbour,weight") -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_given_edges_keep_the_largest_weights(tmp_path: Path) -> None:
    path = written(tmp_path, "A,B,0.2", "A,C,0.9", "A,D,0.5", "C,A,1")
    edges = read_edges(path, ("A", "B", "C", "D"), neighbours=2)
    assert edges.neighbours.tolist() == [[2, 3], [-1, -1], [0, -1], [-1, -1]]
    np.testing.assert_allclose(edges.weights[0], [0.9, 0.5])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A,X,1", "line 2: 'X' is not among the 2 symbols"),
        ("A,B,near", "'near' is no number"),
        ("A,B,inf", "must be finite"),
        ("A,A,1", "to itself"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_edges(written(tmp_path, line), ("A", "B"), neighbours=1)


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has the columns"):
        read_edges(written(tmp_path, header="from,to"), ("A",), neighbours=1)


def test_a_handful_of_stocks_is_near_by_plain_returns() -> None:
    market = np.random.default_rng(3).normal(0, 0.01, 300)
    edges = fit_edges(market + np.random.default_rng(4).normal(0, 0.01, (3, 300)), neighbours=2)
    assert [set(row) for row in edges.neighbours.tolist()] == [{1, 2}, {0, 2}, {0, 1}]
