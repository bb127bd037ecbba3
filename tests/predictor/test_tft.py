"""Temporal Fusion Transformer: against a literal implementation, causality, internals, and row blocks."""

from itertools import product

import pytest
import torch
from paper_tft import literal_quantiles
from torch import Tensor
from torch.nn import functional

from predictor.errors import ConfigurationError
from predictor.explain import build_attribution_view
from predictor.networks import Inputs, InputSizes, Target, compute_pinball_loss
from predictor.networks.gated_residuals import GatedSumWeights, compute_gated_sum
from predictor.networks.layers import Dropout
from predictor.networks.tft import TFTConfig, TFTForecaster

ENCODER, FUTURE, OBSERVED = 9, 6, 4
LEVELS = (0.1, 0.25, 0.5, 0.9)
TARGET = Target(lag=1, horizons=(1, 3, 5))
ONE_HOT = (1, 3, 1)
KINDS = list(product([0, 2], [(), ONE_HOT], [False, True]))
SMALL_BLOCK = 100
"""Cells; a few rows."""


@pytest.fixture(params=[False, True], ids=["plain", "blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations of the sum over variables."""
    if request.param:
        monkeypatch.setattr("predictor.networks.gated_residuals.CELLS", SMALL_BLOCK)


# --- against the literal implementation


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("known", "static", "highway"), KINDS)
def test_forecasts_are_those_of_the_literal_network(known: int, static: tuple[int, ...], *, highway: bool) -> None:
    network, inputs = _tft(known, static, highway=highway), _inputs(5, known, static)
    torch.testing.assert_close(
        network(inputs), literal_quantiles(network, inputs, static_widths=static), atol=1e-5, rtol=0
    )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("known", "static", "highway"), KINDS)
def test_gradients_are_those_of_the_literal_network(known: int, static: tuple[int, ...], *, highway: bool) -> None:
    """For every weight and input, in float64."""
    network, inputs = _tft(known, static, highway=highway).double(), _double(_inputs(3, known, static))
    wanted = [inputs.observed, *([inputs.known] if known else []), *([inputs.static] if static else [])]
    by_input = [group.requires_grad_() for group in wanted]
    sources = [*network.parameters(), *by_input]
    ours = torch.autograd.grad(_loss(network(inputs)), sources)
    theirs = torch.autograd.grad(
        _loss(literal_quantiles(network, inputs, static_widths=static)), sources, materialize_grads=True
    )
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-9, rtol=1e-6)


# --- causality


def test_a_horizon_does_not_see_what_is_known_of_later_sessions() -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(4, 2, ONE_HOT)
    after_second = ENCODER + TARGET.lag + 3
    changed = inputs.known.clone()
    changed[:, after_second:] += 7.0
    with torch.no_grad():
        before, after = network(inputs), network(inputs._replace(known=changed))
    assert torch.equal(before[:, :2], after[:, :2])
    assert float((before[:, 2] - after[:, 2]).abs().min()) > 1e-4


def test_a_horizon_sees_what_is_known_of_the_session_it_ends_on() -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(4, 2, ONE_HOT)
    changed = inputs.known.clone()
    changed[:, ENCODER - 1 + TARGET.lag + 1] += 7.0
    with torch.no_grad():
        moved = (network(inputs._replace(known=changed)) - network(inputs)).abs()
    assert float(moved[:, 0].min()) > 1e-4


def test_every_past_session_and_variable_matters() -> None:
    network, inputs = _tft(2, ONE_HOT, highway=False), _inputs(1, 2, ONE_HOT)
    groups = [inputs.observed.requires_grad_(), inputs.known.requires_grad_(), inputs.static.requires_grad_()]
    gradients = torch.autograd.grad(network(inputs).square().sum(), groups)
    assert all(bool((gradient[..., : ENCODER + TARGET.reach, :] != 0).all()) for gradient in gradients[:2])
    assert bool((gradients[2] != 0).all())


def test_whether_a_cell_is_known_reaches_the_network() -> None:
    network, inputs = _tft(2, ()), _inputs(2, 2, ())
    assert not torch.equal(network(inputs), network(inputs._replace(mask=~inputs.mask)))


@pytest.mark.usefixtures("blocks")
def test_a_window_gives_the_same_alone_and_among_others() -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(9, 2, ONE_HOT)
    together = network(inputs)
    alone = torch.cat([network(inputs.rows(k, k + 1)) for k in range(9)])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-6)


def test_windows_in_another_order_give_the_same_forecasts_in_that_order() -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(9, 2, ONE_HOT)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    shuffled = Inputs(*(group[order] for group in inputs))
    torch.testing.assert_close(network(shuffled), network(inputs)[order], atol=1e-6, rtol=0)


def test_many_windows_are_forecast_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(11, 2, ONE_HOT)
    at_once, _ = network.with_internals(inputs)
    monkeypatch.setattr("predictor.networks.tft.ROWS", 4)
    torch.testing.assert_close(network(inputs), at_once, atol=1e-6, rtol=1e-6)


# --- the head


def test_quantiles_never_cross() -> None:
    network, inputs = _tft(2, ONE_HOT), _inputs(50, 2, ONE_HOT)
    with torch.no_grad():
        network.head.weight.mul_(50)
        quantiles = network(inputs._replace(observed=inputs.observed * 100))
    assert bool((torch.diff(quantiles, dim=-1) >= 0).all())


def test_the_highway_starts_without_effect_and_moves_all_quantiles_of_a_horizon_alike() -> None:
    with_it, inputs = _tft(2, ONE_HOT, highway=True, fresh=True), _inputs(3, 2, ONE_HOT)
    assert with_it.highway is not None
    before = with_it(inputs)
    with torch.no_grad():
        with_it.highway.weight[1] = 0.5
    moved = with_it(inputs) - before
    assert torch.equal(moved[:, [0, 2]], torch.zeros(3, 2, 4))
    expected = inputs.observed.sum((1, 2)).mul(0.5).unsqueeze(-1).expand(-1, 4)
    torch.testing.assert_close(moved[:, 1], expected, atol=1e-5, rtol=0)


def test_the_gate_closes_the_highway_or_doubles_it() -> None:
    network, inputs = _tft(2, ONE_HOT, highway=True, fresh=True), _inputs(3, 2, ONE_HOT)
    assert network.highway is not None
    without = network(inputs)
    with torch.no_grad():
        network.highway.weight.fill_(0.5)
        open_ = network(inputs) - without
        network.highway.gate.bias.fill_(40.0)
        doubled = network(inputs) - without
        network.highway.gate.bias.fill_(-40.0)
        closed = network(inputs) - without
    torch.testing.assert_close(doubled, 2 * open_, atol=1e-5, rtol=0)
    torch.testing.assert_close(closed, torch.zeros_like(closed), atol=1e-6, rtol=0)


# --- internals


@pytest.mark.parametrize(("known", "static"), list(product([0, 2], [(), ONE_HOT])))
def test_internals_have_their_shapes_and_sum_to_1(known: int, static: tuple[int, ...]) -> None:
    network, inputs = _tft(known, static), _inputs(5, known, static)
    quantiles, internals = network.with_internals(inputs)
    assert torch.equal(quantiles, network(inputs))
    assert internals.past.shape == (5, ENCODER, OBSERVED + known + 1)
    assert internals.future.shape == (5, FUTURE, known)
    assert internals.static.shape == (5, len(static))
    assert internals.attention.shape == (5, 3, ENCODER + FUTURE)
    for weights in internals:
        if weights.shape[-1]:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6, rtol=0)


def test_attention_looks_at_nothing_after_the_session_that_asks() -> None:
    with torch.no_grad():
        _, internals = _tft(2, ONE_HOT).with_internals(_inputs(5, 2, ONE_HOT))
    for place, horizon in enumerate(TARGET.horizons):
        end = ENCODER - 1 + TARGET.lag + horizon
        assert float(internals.attention[:, place, end + 1 :].abs().sum()) == 0
        assert float(internals.attention[:, place, : end + 1].min()) > 0


def test_a_variable_that_its_selection_prefers_has_the_largest_weight() -> None:
    """The order of the weights is the documented one: observed, known, share of known cells."""
    for variable in range(OBSERVED + 3):
        network = _tft(2, ())
        with torch.no_grad():
            network.past.rest.add.norm.bias[variable] = 20.0
        _, internals = network.with_internals(_inputs(2, 2, ()))
        assert bool((internals.past.argmax(-1) == variable).all())


# --- explanations and training


def test_an_attribution_view_gives_the_forecasts_and_input_gradients() -> None:
    network, inputs = _tft(2, ONE_HOT).requires_grad_(requires_grad=False), _inputs(3, 2, ONE_HOT)
    view = build_attribution_view(network)
    observed = inputs.observed.requires_grad_()
    quantiles = view(inputs)
    (gradient,) = torch.autograd.grad(quantiles[:, 1, 2].sum(), observed)
    torch.testing.assert_close(quantiles.detach(), network(inputs).detach(), atol=1e-6, rtol=0)
    assert bool((gradient != 0).any(dim=(0, 1)).all())


@pytest.mark.usefixtures("blocks")
def test_every_weight_learns() -> None:
    network, inputs = _tft(2, ONE_HOT, dropout=0.2).train(), _inputs(6, 2, ONE_HOT)
    _loss(network(inputs)).backward()
    assert [name for name, weight in network.named_parameters() if weight.grad is None] == []


@pytest.mark.usefixtures("blocks")
def test_a_seed_decides_what_is_dropped() -> None:
    network, inputs = _tft(2, ONE_HOT, dropout=0.5).train(), _inputs(6, 2, ONE_HOT)
    outcomes: list[Tensor] = []
    for seed in (1, 1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            outcomes.append(network(inputs))
    assert torch.equal(outcomes[0], outcomes[1])
    assert not torch.equal(outcomes[0], outcomes[2])


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    dropout = Dropout(0.3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        dropped = dropout(torch.ones(1000, 1000))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.002)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.003)
    assert sorted(dropped.unique().tolist()) == pytest.approx([0, 1 / 0.7])
    assert torch.equal(dropout.eval()(dropped), dropped)


def test_what_dropout_drops_is_independent_along_every_axis() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        kept = Dropout(0.5).kept(torch.Size((400, 400)), torch.device("cpu")).float() - 0.5
    for shift in range(1, 9):
        assert abs(float((kept[:, shift:] * kept[:, :-shift]).mean())) < 0.003
        assert abs(float((kept[shift:] * kept[:-shift]).mean())) < 0.003


@pytest.mark.parametrize("dropping", [False, True])
def test_blocks_give_the_sum_and_the_gradients_of_plain_operations(
    *, dropping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, shares, keep, weights = _sum_arguments(dropping=dropping)
    sources = [columns, shares, *weights]
    x = functional.pad(columns, (0, 1), value=1.0)
    plain = compute_gated_sum(x, shares, keep, weights)
    expected = torch.autograd.grad(plain.square().sum(), sources)
    monkeypatch.setattr("predictor.networks.gated_residuals.CELLS", SMALL_BLOCK)
    blocks = compute_gated_sum(x, shares, keep, weights)
    torch.testing.assert_close(blocks, plain, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(blocks.square().sum(), sources), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


def test_the_fast_path_rounds_no_worse_than_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, shares, _, weights = _sum_arguments(dropping=False)
    x = functional.pad(columns, (0, 1), value=1.0)
    exact = compute_gated_sum(x, shares, None, weights)
    monkeypatch.setattr("predictor.networks.gated_residuals.CELLS", SMALL_BLOCK)
    rounded = compute_gated_sum(x.float(), shares.float(), None, GatedSumWeights(*(w.float() for w in weights)))
    torch.testing.assert_close(rounded.double(), exact, atol=1e-5, rtol=1e-5)


# --- settings


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden": 1}, "hidden is 1, but must be 2 to 4096"),
        ({"hidden": 4100}, "hidden is 4100"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": 5}, "hidden is 32, but must be a multiple of heads, 5"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"dropout": -0.1}, "dropout is -0.1"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        TFTConfig(**change)  # pyright: ignore[reportArgumentType] - of the setting's own type each


@pytest.mark.parametrize("widths", [(1, 3), (1, 3, 2), (5, 0)])
def test_static_widths_that_do_not_fit_are_refused(widths: tuple[int, ...]) -> None:
    sizes = InputSizes(
        encoder_length=ENCODER, future_length=FUTURE, observed=4, known=0, static=5, static_widths=widths
    )
    with pytest.raises(ConfigurationError, match="static_widths is"):
        TFTForecaster(TFTConfig(), sizes=sizes, target=TARGET, levels=LEVELS)


def _tft(
    known: int,
    static: tuple[int, ...],
    *,
    highway: bool = True,
    dropout: float = 0.1,
    fresh: bool = False,
) -> TFTForecaster:
    """A TFT in eval mode; unless fresh, all weights have an effect."""
    sizes = InputSizes(
        encoder_length=ENCODER,
        future_length=FUTURE,
        observed=OBSERVED,
        known=known,
        static=sum(static),
        static_widths=static,
    )
    config = TFTConfig(hidden=8, heads=2, dropout=dropout, highway=highway)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = TFTForecaster(config, sizes=sizes, target=TARGET, levels=LEVELS)
        if not fresh:
            with torch.no_grad():
                for weight in network.parameters():
                    weight.add_(torch.randn_like(weight) * 0.2)
    return network.eval()


def _inputs(rows: int, known: int, static: tuple[int, ...]) -> Inputs:
    generator = torch.Generator().manual_seed(4)
    mask = torch.rand(rows, ENCODER, OBSERVED, generator=generator) > 0.2
    return Inputs(
        observed=torch.randn(rows, ENCODER, OBSERVED, generator=generator) * mask,
        known=torch.randn(rows, ENCODER + FUTURE, known, generator=generator),
        static=torch.randn(rows, sum(static), generator=generator),
        mask=mask,
        location=torch.zeros(rows, len(TARGET.horizons), dtype=torch.float64),
        scale=torch.ones(rows, len(TARGET.horizons), dtype=torch.float64),
    )


def _double(inputs: Inputs) -> Inputs:
    return inputs._replace(
        observed=inputs.observed.double(), known=inputs.known.double(), static=inputs.static.double()
    )


def _loss(quantiles: Tensor) -> Tensor:
    target = torch.linspace(-1, 1, quantiles[..., 0].numel(), dtype=quantiles.dtype).view(quantiles.shape[:2])
    return compute_pinball_loss(quantiles, target, torch.tensor(LEVELS, dtype=quantiles.dtype)).mean()


def _sum_arguments(*, dropping: bool) -> tuple[Tensor, Tensor, Tensor | None, GatedSumWeights]:
    """Random float64: 3 variables of 1 column, 23 rows, width 4; fewer cells than a block, more than a small one."""
    generator = torch.Generator().manual_seed(6)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    keep = (torch.rand(3, 23, 4, generator=generator) > 0.3).to(torch.uint8) if dropping else None
    layers = (random(3, 4, 4), random(3, 1, 4), random(3, 4, 8), random(3, 1, 8))
    weights = GatedSumWeights(
        random(3, 2, 4), random(3, 2, 4), random(3, 1, 4), *layers, random(3, 1, 4), random(3, 1, 4)
    )
    return random(3, 23, 1), random(23, 3), keep, weights
