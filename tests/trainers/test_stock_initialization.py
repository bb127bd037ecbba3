"""Network initialisation: linear part solved, head at the quantiles of the residuals."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from predictor.networks import Inputs, InputSizes, LSTMConfig, LSTMForecaster, Target, TFTConfig, TFTForecaster
from trainers.stock.data import TrainingWindows, WindowBatch
from trainers.stock.initialization import initialize

SIZES = InputSizes(encoder_length=6, future_length=5, observed=2, known=0, static=0)
TARGET = Target(horizons=(1, 5))
LEVELS = (0.1, 0.5, 0.9)
ROWS, SIZE = 2000, 250


def inputs() -> Inputs:
    observed = torch.randn(ROWS, 6, 2, generator=torch.Generator().manual_seed(0))
    return Inputs(
        observed=observed,
        known=torch.zeros(ROWS, 11, 0),
        static=torch.zeros(ROWS, 0),
        mask=torch.ones(ROWS, 6, 2, dtype=torch.bool),
        location=torch.zeros(ROWS, 2, dtype=torch.float64),
        scale=torch.ones(ROWS, 2, dtype=torch.float64),
    )


def noise() -> Tensor:
    return torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))


def started(target: Tensor, network: TFTForecaster | None = None) -> TFTForecaster:
    torch.manual_seed(0)
    made = network or TFTForecaster(TFTConfig(hidden=8, heads=2), sizes=SIZES, target=TARGET, levels=LEVELS)
    everything = inputs()

    def batches() -> Iterator[WindowBatch]:
        for k in range(0, ROWS, SIZE):
            yield WindowBatch(inputs=everything.rows(k, k + SIZE), target=target[k : k + SIZE])

    initialize(made, batches, LEVELS)
    return made


def weights_of(network: TFTForecaster) -> Tensor:
    """Weights of the linear highway, [H, T, F]."""
    assert network.highway is not None
    return network.highway.weight.unflatten(1, (6, 2))


def linear() -> Tensor:
    """Targets [N, H]: twice the last session's first feature minus the first session's second one."""
    observed = inputs().observed
    return torch.stack([2 * observed[:, -1, 0], -observed[:, 0, 1]], dim=1)


def test_the_highway_finds_what_is_linear() -> None:
    weights = weights_of(started(linear() + 0.1 * noise()))
    wanted = torch.zeros(2, 6, 2)
    wanted[0, -1, 0], wanted[1, 0, 1] = 2, -1
    torch.testing.assert_close(weights.detach(), wanted, atol=0.1, rtol=0)


def test_the_highway_is_next_to_nothing_where_nothing_is_linear() -> None:
    assert float(weights_of(started(noise())).abs().max()) < 0.02


def test_the_highway_is_zero_where_what_was_linear_has_turned() -> None:
    """The penalty is chosen on the newest windows, where no penalty helps."""
    turned = torch.where(torch.arange(ROWS)[:, None] < 0.8 * ROWS, linear(), -linear())
    assert not bool(weights_of(started(turned)).any())


def test_the_highway_is_not_trained_on() -> None:
    network = started(linear() + noise())
    assert [name for name, parameter in network.named_parameters() if not parameter.requires_grad] == ["highway.weight"]


def test_the_head_starts_at_the_quantiles_of_what_the_highway_leaves() -> None:
    network = started(linear() + 0.1 * noise())
    rest = torch.quantile(0.1 * noise(), torch.tensor(LEVELS), dim=0).T
    torch.testing.assert_close(_quantiles_at_zero(network), rest, atol=0.05, rtol=0)


def test_a_few_windows_beyond_all_bounds_do_not_decide_the_highway() -> None:
    target = linear() + 0.1 * noise()
    target[:3] = 1e4
    torch.testing.assert_close(weights_of(started(target))[0, -1, 0].item(), 2.0, atol=0.2, rtol=0)


def test_windows_with_an_unknown_outcome_are_left_out_of_the_highway() -> None:
    target = linear() + 0.1 * noise()
    target[::3, 1] = torch.nan
    weights = weights_of(started(target))
    assert weights[0, -1, 0].item() == pytest.approx(2.0, abs=0.1)
    assert bool(torch.isfinite(weights).all())


def test_a_network_without_a_highway_starts_at_the_quantiles_of_the_targets() -> None:
    network = TFTForecaster(TFTConfig(hidden=8, heads=2, highway=False), sizes=SIZES, target=TARGET, levels=LEVELS)
    wanted = torch.quantile(noise(), torch.tensor(LEVELS), dim=0).T
    torch.testing.assert_close(_quantiles_at_zero(started(noise(), network)), wanted, atol=1e-4, rtol=0)


def test_any_head_starts_at_the_quantiles_of_the_targets() -> None:
    network = LSTMForecaster(LSTMConfig(hidden=4), sizes=SIZES, target=TARGET, levels=LEVELS)
    initialize(network, lambda: [WindowBatch(inputs=inputs(), target=noise())], LEVELS)
    wanted = torch.quantile(noise(), torch.tensor(LEVELS), dim=0).T
    torch.testing.assert_close(network.head(torch.zeros(1, 2, 4))[0], wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("most", [5, 10])
def test_few_windows_are_all_kept(most: int) -> None:
    windows = TrainingWindows(symbols=np.zeros(5, np.int64), positions=np.arange(5))
    assert windows.subsample(most) is windows


def test_thinned_windows_are_of_all_days_and_of_all_symbols_alike() -> None:
    symbols, days = 500, 1000
    windows = TrainingWindows(symbols=np.tile(np.arange(symbols), days), positions=np.repeat(np.arange(days), symbols))
    some = windows.subsample(20_000)
    assert 19_900 < len(some) <= 20_000
    assert np.all(np.diff(some.positions * symbols + some.symbols) > 0)
    assert np.bincount(some.positions, minlength=days).min() >= 18
    assert np.bincount(some.symbols, minlength=symbols).min() >= 18


def _quantiles_at_zero(network: TFTForecaster) -> Tensor:
    """Quantiles [H, Q] of a zero context."""
    return network.head(torch.zeros(1, 2, 8))[0].detach()


def test_where_every_window_lacks_an_outcome_the_highway_is_zero_and_the_head_still_starts() -> None:
    target = linear() + noise()
    target[::2, 0] = torch.nan
    target[1::2, 1] = torch.nan
    network = started(target)
    assert (weights_of(network) == 0).all()
    assert all(bool(parameter.isfinite().all()) for parameter in network.parameters())
