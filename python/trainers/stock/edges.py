"""Edges of a graph of stocks: from returns of the training split, a file or an artifact."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from predictor.arrays import BoolArray, FloatArray
from predictor.artifact import Manifest
from predictor.bars import BarPanel
from predictor.bars.suspects import select_usable_bars
from predictor.canonical import Json, Record
from predictor.card import SOURCE
from predictor.errors import ConfigurationError
from predictor.networks import Edges, GraphForecaster

MIN_SESSIONS: Final = 60
"""Shared sessions needed for a correlation."""
MIN_MARKET_STOCKS: Final = 5
"""Fewest stocks whose mean return counts as the market."""
COLUMNS: Final = ("symbol", "neighbour", "weight")
RETURNS: Final = "training returns"
GIVEN: Final = "given"


def fit_training_edges(bars: BarPanel, last: int, *, neighbours: int) -> Edges:
    """Edges from the returns up to the last session of the training split (yyyymmdd).

    Bars are cut there first, so that later bars have no effect, not even by rebasing an adjustment factor.
    """
    close = select_usable_bars(bars.until(last)).adjusted().close
    return fit_edges(np.diff(np.log(close), axis=1), neighbours=neighbours)


def fit_edges(returns: FloatArray, *, neighbours: int) -> Edges:
    """The nearest neighbours of each stock, by correlation of returns that the market does not explain.

    The market is the mean return of the day. Its effect is removed by regression: otherwise the stocks that follow
    the market most closely would be everyone's neighbours. With fewer than `MIN_MARKET_STOCKS` stocks, plain
    returns are used.

    Args:
        returns: [S, T] daily log returns, NaN where unknown.
        neighbours: most edges per stock (k); a stock has fewer if fewer correlations are positive.

    Raises:
        ConfigurationError: no stock has returns.
    """
    if not np.isfinite(returns).any():
        raise ConfigurationError(f"edges need returns, but no stock of {len(returns)} has any; give more training bars")
    nearness = correlate(remove_market(returns) if len(returns) >= MIN_MARKET_STOCKS else returns)
    count = min(neighbours, len(nearness) - 1)
    np.fill_diagonal(nearness, -np.inf)
    order = np.argsort(-nearness, axis=1, kind="stable")[:, :count]
    weights = np.take_along_axis(nearness, order, axis=1)
    there = weights > 0
    return Edges(
        neighbours=torch.from_numpy(np.where(there, order, -1).astype(np.int64)),
        weights=torch.from_numpy(np.where(there, weights, 0).astype(np.float32)),
    )


def remove_market(returns: FloatArray) -> FloatArray:
    """[S, T] residuals of each stock's regression on the mean return of the day; NaN where unknown."""
    is_known = np.isfinite(returns)
    market = np.where(is_known, returns, 0).sum(0) / np.maximum(is_known.sum(0), 1)
    centred = _subtract_means(returns, is_known)
    factor = _subtract_means(np.broadcast_to(market, returns.shape), is_known)
    slope = (centred * factor).sum(1) / np.maximum((factor * factor).sum(1), np.finfo(np.float64).tiny)
    return np.where(is_known, centred - slope[:, None] * factor, np.nan)


def correlate(values: FloatArray) -> FloatArray:
    """[S, S] correlations of series [S, T] over shared sessions; 0 with fewer than `MIN_SESSIONS`."""
    is_known = np.isfinite(values)
    centred = _subtract_means(values, is_known)
    shared = is_known.astype(np.float64)
    power = (centred * centred) @ shared.T
    spread = np.sqrt(power * power.T)
    enough = (shared @ shared.T >= MIN_SESSIONS) & (spread > 0)
    return np.divide(centred @ centred.T, spread, out=np.zeros_like(spread), where=enough)


def _subtract_means(values: FloatArray, is_known: BoolArray) -> FloatArray:
    """Deviations from each row's mean over its known values, 0 where unknown."""
    mean = np.where(is_known, values, 0).sum(1) / np.maximum(is_known.sum(1), 1)
    return np.where(is_known, values - mean[:, None], 0.0)


def read_edges(path: Path, symbols: Sequence[str], *, neighbours: int) -> Edges:
    """Read edges from a CSV file with the columns symbol, neighbour and weight, one edge per line.

    Args:
        path: the file.
        symbols: the universe, in node order.
        neighbours: number of edges to keep per symbol, the heaviest first.

    Raises:
        ConfigurationError: the file cannot be read, a column or a cell is missing, a symbol is not in the universe, an
            edge leads to its own stock or appears twice, or a weight is not a number.
    """
    node_of = {symbol: node for node, symbol in enumerate(symbols)}
    lists: list[list[tuple[float, int]]] = [[] for _ in symbols]
    for location, (symbol, neighbour, text) in _read_lines(path):
        for name in (symbol, neighbour):
            if name not in node_of:
                raise ConfigurationError(
                    f"{location}: {name!r} is not among the {len(node_of)} symbols of the bars; remove the line"
                )
        node, other = node_of[symbol], node_of[neighbour]
        if node == other or other in (neighbour_node for _, neighbour_node in lists[node]):
            problem = "leads to the stock itself, which it always sees" if node == other else "appears twice"
            raise ConfigurationError(f"{location}: the edge from {symbol} to {neighbour} {problem}; remove the line")
        try:
            weight = float(text)
        except ValueError as error:
            raise ConfigurationError(f"{location}: the weight {text!r} is not a number") from error
        if not isfinite(weight):
            raise ConfigurationError(f"{location}: the weight is {text}, but must be finite")
        lists[node].append((weight, other))
    edges = Edges(neighbours=torch.full((len(lists), neighbours), -1), weights=torch.zeros(len(lists), neighbours))
    for node, candidates in enumerate(lists):
        strongest = sorted(candidates, key=lambda edge: (-edge[0], edge[1]))[:neighbours]
        for k, (weight, other) in enumerate(strongest):
            edges.neighbours[node, k], edges.weights[node, k] = other, weight
    return edges


def _read_lines(path: Path) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The position of each line, for messages, with its symbol, neighbour and weight."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"edges {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"edges {path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    reader = csv.DictReader(text.splitlines())
    if sorted(reader.fieldnames or ()) != sorted(COLUMNS):
        raise ConfigurationError(f"{path.name} has the columns {reader.fieldnames}, but needs {list(COLUMNS)}")
    for row in reader:
        location = f"{path.name}, line {reader.line_num}"
        if None in row or None in row.values():
            raise ConfigurationError(f"{location}: a line must have {len(COLUMNS)} cells, {', '.join(COLUMNS)}")
        yield location, (row["symbol"], row["neighbour"], row["weight"])


def describe_edges(network: nn.Module, user_edges: Edges | None) -> dict[str, Json]:
    """The card's section on the source of a graph's edges; empty without a graph."""
    if not isinstance(network, GraphForecaster):
        return {}
    return {"edges": {"source": RETURNS if user_edges is None else GIVEN}}


def read_user_edges(manifest: Manifest, weights: Mapping[str, Tensor], symbols: Sequence[str]) -> Edges | None:
    """The edges that were given to a model's first training, for a refit; `weights` are those of its network.

    Returns:
        None if the model has no graph or took its edges from returns, which each training split computes again.

    Raises:
        ArtifactError: the card names edges without their source.
    """
    card = Record(manifest.card, f"{SOURCE}, card")
    if not manifest.kind.is_panel_model or not card.has("edges"):
        return None
    if card.record("edges").text("source") == RETURNS:
        return None
    edges = Edges(neighbours=weights["neighbours"].cpu(), weights=weights["weights"].cpu())
    return select_edges(edges, manifest.universe, symbols)


def select_edges(edges: Edges, universe: Sequence[str], symbols: Sequence[str]) -> Edges:
    """The edges between these symbols, renumbered from the universe; a new symbol has none."""
    node_of = {symbol: node for node, symbol in enumerate(universe)}
    new_node_of = {symbol: node for node, symbol in enumerate(symbols)}
    nodes = torch.tensor([node_of.get(symbol, -1) for symbol in symbols])
    new_nodes = torch.tensor([*(new_node_of.get(symbol, -1) for symbol in universe), -1])  # last: no neighbour
    neighbours = torch.where(nodes[:, None] >= 0, new_nodes[edges.neighbours[nodes]], -1)
    weights = torch.where(neighbours >= 0, edges.weights[nodes], 0.0)
    return Edges(neighbours=neighbours, weights=weights)
