"""Explanations find the three planted cells that a small LSTM has learnt."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.call_context import NEVER
from predictor.explain import Baseline, Contributions, Explainer, build_attribution_view
from predictor.networks import Inputs, InputSizes, LSTMConfig, LSTMForecaster, OutputMap, Target, compute_pinball_loss

ENCODER, FEATURES = 12, 8
CELLS = [(ENCODER - 1, 1), (ENCODER - 4, 4), (ENCODER - 2, 6)]
WEIGHTS = [1.0, -0.8, 0.6]
TARGET = Target(horizons=(1,))
SCALE = 0.02
MEDIAN = [(0, 0)]


class PlantedData(NamedTuple):
    """A trained network, unseen windows, and the planted effects."""

    network: LSTMForecaster
    inputs: Inputs
    labels: Tensor
    """[N] in units of the window's volatility."""
    truth: NDArray[np.float64]
    """[N, T, F] contributions in the target's unit."""


def fresh_network(seed: int) -> LSTMForecaster:
    torch.manual_seed(seed)
    sizes = InputSizes(encoder_length=ENCODER, future_length=1, observed=FEATURES, known=0, static=0)
    config = LSTMConfig(hidden=16, layers=1, dropout=0.0)
    return LSTMForecaster(config, sizes=sizes, target=TARGET, levels=(0.5,))


def planted_windows(rows: int, source: torch.Generator) -> tuple[Inputs, Tensor]:
    observed = torch.randn(rows, ENCODER, FEATURES, generator=source)
    noise = 0.1 * torch.randn(rows, generator=source)
    labels = noise + sum(w * observed[:, t, f] for w, (t, f) in zip(WEIGHTS, CELLS, strict=True))
    inputs = Inputs(
        observed=observed,
        known=torch.zeros(rows, ENCODER + 1, 0),
        static=torch.zeros(rows, 0),
        mask=torch.ones_like(observed, dtype=torch.bool),
        location=torch.zeros(rows, 1, dtype=torch.float64),
        scale=torch.full((rows, 1), SCALE, dtype=torch.float64),
    )
    return inputs, labels


@pytest.fixture(scope="module")
def planted_data() -> PlantedData:
    source = torch.Generator().manual_seed(1)
    network = fresh_network(1)
    steps = 400
    optimizer = torch.optim.Adam(network.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=steps)
    for _ in range(steps):
        inputs, labels = planted_windows(64, source)
        loss = compute_pinball_loss(network(inputs), labels[:, None], torch.tensor([0.5])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval().requires_grad_(requires_grad=False)
    inputs, labels = planted_windows(128, source)
    truth = np.zeros((128, ENCODER, FEATURES))
    for weight, (t, f) in zip(WEIGHTS, CELLS, strict=True):
        truth[:, t, f] = SCALE * weight * inputs.observed[:, t, f].numpy()
    return PlantedData(network, inputs, labels, truth)


def explained(network: LSTMForecaster, inputs: Inputs, *, tolerance: float = 0.01) -> Contributions:
    output = OutputMap(
        spread=torch.from_numpy(TARGET.spread), offsets=torch.zeros(1, 1, dtype=torch.float64), levels=(0.5,)
    )
    empty = np.zeros(0, np.float32)
    baseline = Baseline(name="train_mean", known=empty, static=empty, location=np.zeros(1), scale=np.full(1, SCALE))
    tested = Explainer(build_attribution_view(network), output, baseline, max_rows=256)
    (found,) = tested.explain(inputs, MEDIAN, deadline=NEVER, tolerance=tolerance)
    return found


@pytest.fixture(scope="module")
def contributions(planted_data: PlantedData) -> NDArray[np.float64]:
    return explained(planted_data.network, planted_data.inputs).observed


def units(network: LSTMForecaster, inputs: Inputs) -> NDArray[np.float64]:
    with torch.inference_mode():
        return network(inputs)[:, 0, 0].to(torch.float64).numpy()


def correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.ravel().argsort().argsort().astype(np.float64)


def test_the_network_has_learnt_what_was_planted(planted_data: PlantedData) -> None:
    """The tests below are meaningful only if this one passes."""
    errors = units(planted_data.network, planted_data.inputs) - planted_data.labels.numpy()

    assert 1 - errors.var() / planted_data.labels.numpy().var() >= 0.97


def test_the_planted_features_and_cells_rank_first(contributions: NDArray[np.float64]) -> None:
    size = np.abs(contributions).mean(0)
    first = {divmod(int(k), FEATURES) for k in np.argsort(size.ravel())[-3:]}

    assert set(np.argsort(size.sum(0))[-3:].tolist()) == {f for _, f in CELLS}
    assert first == set(CELLS)
    assert sum(size[cell] for cell in CELLS) / size.sum() >= 0.7


def test_contributions_have_the_sign_and_size_of_the_truth(
    planted_data: PlantedData, contributions: NDArray[np.float64]
) -> None:
    at_cells = (slice(None), [t for t, _ in CELLS], [f for _, f in CELLS])
    same_sign = np.sign(contributions[at_cells]) == np.sign(planted_data.truth[at_cells])
    per_window = [correlation(a, b) for a, b in zip(contributions, planted_data.truth, strict=True)]

    assert same_sign.mean() >= 0.99
    assert np.median(per_window) >= 0.95


def test_contributions_of_a_learnt_forecast_are_complete(planted_data: PlantedData) -> None:
    found = explained(planted_data.network, planted_data.inputs, tolerance=0.001)
    both = found.prediction - found.baseline_prediction

    assert found.converged.all()
    np.testing.assert_allclose(found.observed.sum((1, 2)), both, rtol=0.001, atol=0.001 * SCALE)
    np.testing.assert_allclose(found.observed.sum(1).sum(1), found.observed.sum(2).sum(1), atol=1e-15)


def without_cells(inputs: Inputs, cells: NDArray[np.int64]) -> Inputs:
    """The windows with the given cells [N, count] (flat indices) set to the baseline."""
    flat = inputs.observed.clone().flatten(1)
    return inputs._replace(observed=flat.scatter(1, torch.from_numpy(cells), 0.0).view_as(inputs.observed))


def test_forecasts_move_most_without_the_cells_that_contributed_most(
    planted_data: PlantedData, contributions: NDArray[np.float64]
) -> None:
    order = np.argsort(-np.abs(contributions.reshape(128, -1)), axis=1)
    chance = np.random.default_rng(0).permuted(order, axis=1)
    full = units(planted_data.network, planted_data.inputs)

    def moved(cells: NDArray[np.int64]) -> float:
        return float(np.abs(full - units(planted_data.network, without_cells(planted_data.inputs, cells))).mean())

    assert moved(order[:, :3]) >= 5 * moved(chance[:, :3])


def test_the_order_of_contributions_beats_chance_at_deleting_and_at_keeping(
    planted_data: PlantedData, contributions: NDArray[np.float64]
) -> None:
    order = np.argsort(-np.abs(contributions.reshape(128, -1)), axis=1)
    chance = np.random.default_rng(0).permuted(order, axis=1)
    full = units(planted_data.network, planted_data.inputs)

    def fit(cells: NDArray[np.int64]) -> float:
        return correlation(full, units(planted_data.network, without_cells(planted_data.inputs, cells)))

    counts = range(1, order.shape[1], 8)
    deletion = np.mean([fit(order[:, :k]) for k in counts])
    random = np.mean([fit(chance[:, :k]) for k in counts])
    insertion = np.mean([fit(order[:, k:]) for k in counts])
    assert deletion < random < insertion


def test_a_little_noise_turns_an_explanation_little(
    planted_data: PlantedData, contributions: NDArray[np.float64]
) -> None:
    source = torch.Generator().manual_seed(5)
    noise = 0.01 * torch.randn(planted_data.inputs.observed.shape, generator=source)
    noisy = explained(
        planted_data.network, planted_data.inputs._replace(observed=planted_data.inputs.observed + noise)
    ).observed.reshape(128, -1)
    plain = contributions.reshape(128, -1)

    cosine = (noisy * plain).sum(1) / np.linalg.norm(noisy, axis=1) / np.linalg.norm(plain, axis=1)
    assert cosine.min() >= 0.99


def test_other_weights_give_another_explanation(planted_data: PlantedData, contributions: NDArray[np.float64]) -> None:
    """Adebayo et al. 2018, "Sanity checks for saliency maps": an explanation must depend on the weights."""
    random = fresh_network(2).eval().requires_grad_(requires_grad=False)
    other = explained(random, planted_data.inputs).observed

    assert abs(correlation(ranks(contributions), ranks(other))) < 0.5
