"""Contract of every row-wise network kind: shapes, row independence, and the inputs that matter."""

import copy

import pytest
import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.explain import build_attribution_view
from predictor.inference import freeze
from predictor.networks import (
    KINDS,
    Inputs,
    InputSizes,
    NetworkKind,
    Target,
    build_network,
    compute_pinball_loss,
    get_kind,
    list_config_settings,
    make_config,
    read_config,
)

SIZES = InputSizes(encoder_length=12, future_length=6, observed=4, known=2, static=1)
TARGET = Target(lag=1, horizons=(1, 5))
LEVELS = (0.1, 0.5, 0.9)
WITHIN = 2e-5
"""In units of the window's volatility: at a daily volatility of 2 %, 4e-7 of return."""
BY_ROW = [kind for kind in KINDS.values() if kind.is_trainable and not kind.is_panel_model]
SCALES = [kind for kind in KINDS.values() if kind.is_scale_only]

each_kind = pytest.mark.parametrize("kind", BY_ROW, ids=lambda kind: kind.name)


def _network(kind: NetworkKind, sizes: InputSizes = SIZES) -> nn.Module:
    """A small network whose head depends on the context."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = build_network(kind, make_config(kind, {"hidden": 8}), sizes=sizes, target=TARGET, levels=LEVELS)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if name.startswith("head."):
                weights.mul_(20)
    return freeze(network)


def _inputs(rows: int, sizes: InputSizes = SIZES) -> Inputs:
    generator = torch.Generator().manual_seed(4)
    length, after = sizes.encoder_length, sizes.future_length
    return Inputs(
        observed=torch.randn(rows, length, sizes.observed, generator=generator),
        known=torch.randn(rows, length + after, sizes.known, generator=generator),
        static=torch.randn(rows, sizes.static, generator=generator),
        mask=torch.ones(rows, length, sizes.observed, dtype=torch.bool),
        location=torch.zeros(rows, len(TARGET.horizons), dtype=torch.float64),
        scale=torch.ones(rows, len(TARGET.horizons), dtype=torch.float64),
    )


def _moved(network: nn.Module, before: Inputs, after: Inputs) -> Tensor:
    """Distance that each horizon's quantiles move, [H]."""
    return (network(after) - network(before)).abs().amax(dim=(0, 2))


@each_kind
def test_a_network_gives_rising_quantiles_for_each_row_and_horizon(kind: NetworkKind) -> None:
    quantiles = _network(kind)(_inputs(5))
    assert quantiles.shape == (5, 2, 3)
    assert quantiles.dtype == torch.float32
    assert bool((torch.diff(quantiles, dim=-1) > 0).all())


@each_kind
def test_a_row_is_forecast_alike_alone_and_among_others(kind: NetworkKind) -> None:
    network, inputs = _network(kind), _inputs(70)
    together = network(inputs)
    alone = torch.cat([network(inputs.rows(k, k + 1)) for k in range(70)])
    torch.testing.assert_close(alone, together, rtol=0, atol=WITHIN)


@each_kind
def test_other_rows_may_change_as_they_like(kind: NetworkKind) -> None:
    network, inputs = _network(kind), _inputs(7)
    observed = torch.cat([inputs.observed[:3], inputs.observed[3:] * 5])
    torch.testing.assert_close(
        network(inputs._replace(observed=observed))[:3], network(inputs)[:3], rtol=0, atol=WITHIN
    )


@each_kind
@pytest.mark.parametrize("group", ["observed", "known", "static"])
def test_every_group_of_inputs_reaches_every_horizon(kind: NetworkKind, group: str) -> None:
    inputs = _inputs(3)
    changed = inputs._replace(**{group: getattr(inputs, group) + 1.0})
    assert bool((_moved(_network(kind), inputs, changed) > 1e-5).all())


@each_kind
def test_whether_a_cell_is_known_reaches_the_forecast(kind: NetworkKind) -> None:
    inputs = _inputs(1)
    assert bool((_moved(_network(kind), inputs, inputs._replace(mask=~inputs.mask)) > 0).all())


@each_kind
def test_the_first_session_of_the_encoder_is_read(kind: NetworkKind) -> None:
    inputs = _inputs(2)
    observed = inputs.observed.clone()
    observed[:, 0] += 3.0
    assert bool((_moved(_network(kind), inputs, inputs._replace(observed=observed)) > 0).all())


@each_kind
def test_a_horizon_does_not_see_known_features_of_sessions_after_its_end(kind: NetworkKind) -> None:
    inputs = _inputs(2)
    known = inputs.known.clone()
    known[:, SIZES.encoder_length + TARGET.lag + TARGET.horizons[0] :] += 3.0
    moved = _moved(_network(kind), inputs, inputs._replace(known=known))
    assert float(moved[0]) == pytest.approx(0, abs=WITHIN)
    assert float(moved[1]) > 1e-5


@each_kind
@pytest.mark.parametrize(("known", "static"), [(0, 0), (0, 2), (2, 0)])
def test_missing_groups_of_inputs_need_no_stand_in(kind: NetworkKind, known: int, static: int) -> None:
    sizes = InputSizes(encoder_length=12, future_length=6, observed=4, known=known, static=static)
    assert bool(torch.isfinite(_network(kind, sizes)(_inputs(3, sizes))).all())


@each_kind
def test_the_attribution_view_forecasts_alike_and_has_gradients(kind: NetworkKind) -> None:
    network, inputs = _network(kind), _inputs(3)
    observed = inputs.observed.clone().requires_grad_()
    seen = build_attribution_view(network)(inputs._replace(observed=observed))
    torch.testing.assert_close(seen.detach(), network(inputs), rtol=0, atol=WITHIN)
    (gradient,) = torch.autograd.grad(seen.sum(), observed)
    assert bool((gradient.abs().amax(dim=(0, 2)) > 0).all())


@each_kind
def test_a_forward_leaves_nothing_on_the_network(kind: NetworkKind) -> None:
    network = _network(kind)
    before = {name: set(vars(module)) for name, module in network.named_modules()}
    network(_inputs(3))
    assert {name: set(vars(module)) for name, module in network.named_modules()} == before


@pytest.mark.slow
@each_kind
def test_a_network_learns_a_planted_dependence(kind: NetworkKind) -> None:
    torch.manual_seed(0)
    network = build_network(
        kind, make_config(kind, {"hidden": 16, "dropout": 0.0}), sizes=SIZES, target=TARGET, levels=LEVELS
    )
    inputs, levels = _inputs(256), torch.tensor(LEVELS)
    targets = inputs.observed[:, -1, :1].expand(-1, 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses: list[float] = []
    for _ in range(100):
        loss = compute_pinball_loss(network(inputs), targets, levels).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]


@each_kind
def test_a_config_of_each_kind_is_written_and_read_back(kind: NetworkKind) -> None:
    config = make_config(kind, {"hidden": 8})
    assert read_config(kind, list_config_settings(config)) == config


@each_kind
@pytest.mark.parametrize(("name", "value"), [("hidden", 0), ("hidden", 10**9), ("dropout", 1.0), ("dropout", -0.1)])
def test_a_size_that_cannot_be_is_refused_by_name(kind: NetworkKind, name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is"):
        make_config(kind, {name: value})


@pytest.mark.parametrize("kind", [kind for kind in BY_ROW if hasattr(kind.config(), "heads")], ids=lambda k: k.name)
def test_heads_that_do_not_divide_the_width_are_refused(kind: NetworkKind) -> None:
    with pytest.raises(ConfigurationError, match="heads"):
        make_config(kind, {"hidden": 8, "heads": 3})


@pytest.mark.parametrize(
    ("kind", "setting", "advice"),
    [("gru", "heads", "its settings are dropout, hidden"), ("har", "hidden", "it has no settings")],
)
def test_a_setting_of_another_kind_is_refused_and_the_kinds_own_are_named(kind: str, setting: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has no setting '{setting}'; {advice}"):
        make_config(get_kind(kind), {setting: 2})


# --- kinds without a network


@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_a_kind_without_a_network_gives_every_window_the_heads_quantiles(kind: NetworkKind) -> None:
    network = build_network(kind, make_config(kind, {}), sizes=SIZES, target=TARGET, levels=LEVELS)
    quantiles = torch.tensor([[-1.2, 0.1, 1.5], [-1.0, 0.2, 1.1]])
    network.get_submodule("head").start_at(quantiles)  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(freeze(network)(_inputs(3)), quantiles.expand(3, -1, -1))


@each_kind
def test_a_copy_of_a_network_forecasts_alike(kind: NetworkKind) -> None:
    network, inputs = _network(kind), _inputs(2)
    assert torch.equal(copy.deepcopy(network)(inputs), network(inputs))
