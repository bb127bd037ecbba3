"""Explanations find the two planted features of eight in every network kind."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from predictor.call_context import NEVER
from predictor.explain import Baseline, Contributions, Explainer, build_attribution_view
from predictor.inference import freeze
from predictor.networks import (
    Edges,
    GraphForecaster,
    Inputs,
    InputSizes,
    NetworkKind,
    OutputMap,
    Setting,
    Target,
    build_network,
    compute_pinball_loss,
    get_kind,
    make_config,
)

ENCODER, FEATURES = 12, 8
PLANTED = {1: (ENCODER - 1, 1.0), 5: (ENCODER - 3, -0.8)}
"""The session and the weight of each feature that decides."""
OF_NEIGHBOUR, NEIGHBOURS_WEIGHT = 3, 0.7
"""The feature of the other stock's last session that decides too, and its weight."""
TARGET = Target(horizons=(1,))
LEVELS = (0.5,)
SIZES = InputSizes(encoder_length=ENCODER, future_length=1, observed=FEATURES, known=0, static=0)
SCALE = 0.02
WINDOWS = 64
SETTINGS: dict[str, dict[str, Setting]] = {
    "lstm": {"hidden": 16, "layers": 1},
    "gru": {"hidden": 16, "layers": 1},
    "hybrid": {"hidden": 16, "heads": 2, "layers": 1},
    "tft": {"hidden": 8, "heads": 2},
    "graph": {"hidden": 16, "heads": 2, "neighbours": 1, "frequencies": 2},
}

each_kind = pytest.mark.parametrize("name", [name for name in SETTINGS if name != "graph"])
PAIR = replace(SIZES, nodes=2)


class PlantedWindows(NamedTuple):
    """Windows and their labels."""

    inputs: Inputs
    labels: Tensor
    """[N] in units of the window's volatility."""


def planted_windows(rows: int, source: torch.Generator) -> PlantedWindows:
    """Windows in which the planted cells decide, plus a little noise."""
    observed = torch.randn(rows, ENCODER, FEATURES, generator=source)
    labels = 0.1 * torch.randn(rows, generator=source)
    labels += sum(weight * observed[:, session, feature] for feature, (session, weight) in PLANTED.items())
    return PlantedWindows(windows(observed), labels)


def planted_pairs(pairs: int, source: torch.Generator) -> PlantedWindows:
    """Panels of two stocks that depend on each other."""
    inputs, labels = planted_windows(2 * pairs, source)
    return PlantedWindows(inputs, labels + NEIGHBOURS_WEIGHT * swapped_pairs(inputs.observed[:, -1, OF_NEIGHBOUR]))


def swapped_pairs(values: Tensor) -> Tensor:
    """Values [2 x pairs, ...] swapped within each pair."""
    return values.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def windows(observed: Tensor) -> Inputs:
    rows = len(observed)
    return Inputs(
        observed=observed,
        known=torch.zeros(rows, ENCODER + 1, 0),
        static=torch.zeros(rows, 0),
        mask=torch.ones_like(observed, dtype=torch.bool),
        location=torch.zeros(rows, 1, dtype=torch.float64),
        scale=torch.full((rows, 1), SCALE, dtype=torch.float64),
    )


def fresh(name: str, sizes: InputSizes = SIZES) -> nn.Module:
    kind: NetworkKind = get_kind(name)
    config = make_config(kind, {**SETTINGS[name], "dropout": 0.0})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return build_network(kind, config, sizes=sizes, target=TARGET, levels=LEVELS)


def train_briefly(network: nn.Module, steps: int = 150) -> nn.Module:
    """The network after a short training."""
    source = torch.Generator().manual_seed(2)
    is_graph = isinstance(network, GraphForecaster)
    optimizer = torch.optim.Adam(network.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=steps)
    for _ in range(steps):
        inputs, labels = planted_pairs(WINDOWS, source) if is_graph else planted_windows(WINDOWS, source)
        found = network(inputs, nodes(WINDOWS), WINDOWS).quantiles if is_graph else network(inputs)
        loss = compute_pinball_loss(found, labels[:, None], torch.tensor(LEVELS)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return freeze(network)


def nodes(pairs: int) -> Tensor:
    return torch.tensor([0, 1]).repeat(pairs)


def explainer(network: nn.Module, *, members: int | None = None) -> Explainer:
    spread, offsets = torch.from_numpy(TARGET.spread), torch.zeros(1, 1, dtype=torch.float64)
    empty = np.zeros(0, np.float32)
    baseline = Baseline(name="train_mean", known=empty, static=empty, location=np.zeros(1), scale=np.full(1, SCALE))
    output = OutputMap(spread=spread, offsets=offsets, levels=LEVELS)
    return Explainer(build_attribution_view(network), output, baseline, max_rows=256, members=members)


def sizes_of(found: Contributions) -> NDArray[np.float64]:
    """Mean absolute contribution of each cell, [T, F]."""
    return np.abs(found.observed).mean(0)


def share_learnt(found: Contributions, labels: Tensor) -> float:
    """Share of the labels' variance that the network explains; explanations are judged only if it has learnt."""
    errors = found.prediction / SCALE - labels.numpy()
    return 1 - float(errors.var()) / float(labels.var(correction=0))


def correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def assert_names_the_planted(found: Contributions, inputs: Inputs) -> None:
    """Assert that the two features come first, with the right session, sign and size."""
    size = sizes_of(found)
    assert set(np.argsort(size.sum(0))[-2:].tolist()) == set(PLANTED)
    for feature, (session, weight) in PLANTED.items():
        truth = SCALE * weight * inputs.observed[:, session, feature].double().numpy()
        assert int(np.argmax(size[:, feature])) == session
        assert correlation(found.observed[:, session, feature], truth) > 0.9


@each_kind
def test_the_two_features_that_decide_rank_first(name: str) -> None:
    network = train_briefly(fresh(name))
    inputs, labels = planted_windows(WINDOWS, torch.Generator().manual_seed(9))
    (found,) = explainer(network).explain(inputs, [(0, 0)], deadline=NEVER)
    assert share_learnt(found, labels) > 0.6
    assert_names_the_planted(found, inputs)


def test_a_neighbour_that_decides_shows_in_the_neighbours_row() -> None:
    network = fresh("graph", PAIR)
    assert isinstance(network, GraphForecaster)
    network.connect(Edges(neighbours=torch.tensor([[1], [0]]), weights=torch.ones(2, 1)))
    train_briefly(network)
    inputs, labels = planted_pairs(WINDOWS, torch.Generator().manual_seed(9))
    with_other = Inputs(*(torch.stack([group, swapped_pairs(group)], dim=1) for group in inputs))
    (found,) = explainer(network, members=2).explain(
        with_other, [(0, 0)], deadline=NEVER, nodes=torch.tensor([[0, 1], [1, 0]]).repeat(WINDOWS, 1)
    )
    truth = SCALE * NEIGHBOURS_WEIGHT * swapped_pairs(inputs.observed[:, -1, OF_NEIGHBOUR]).double().numpy()
    assert share_learnt(found, labels) > 0.6
    assert_names_the_planted(found, inputs)
    assert correlation(found.neighbours[:, 0], truth) > 0.9
    assert 0.5 < np.abs(found.neighbours).mean() / np.abs(truth).mean() < 2


def test_small_panels_that_are_worked_on_in_parts_are_explained_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    network = fresh("graph", PAIR)
    assert isinstance(network, GraphForecaster)
    network.connect(Edges(neighbours=torch.tensor([[1], [0]]), weights=torch.ones(2, 1)))
    tested = explainer(freeze(network), members=2)
    inputs, _ = planted_pairs(5, torch.Generator().manual_seed(9))
    with_other = Inputs(*(torch.stack([group, swapped_pairs(group)], dim=1) for group in inputs))
    places = torch.tensor([[0, 1], [1, 0]]).repeat(5, 1)
    (whole,) = tested.explain(with_other, [(0, 0)], deadline=NEVER, nodes=places)
    monkeypatch.setattr("predictor.explain.integrated_gradients.BATCH_NUMBERS", 1)  # window by window
    (parted,) = tested.explain(with_other, [(0, 0)], deadline=NEVER, nodes=places)
    np.testing.assert_allclose(parted.neighbours, whole.neighbours, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(parted.observed, whole.observed, rtol=1e-5, atol=1e-9)
    assert np.array_equal(parted.nodes, whole.nodes)
