"""The graph forecaster: neighbours, missing symbols, and independence from the rest of the panel."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.inference import freeze
from predictor.networks import Inputs, InputSizes, Target
from predictor.networks.graph import GraphConfig, GraphForecaster, NeighbourAttention
from predictor.networks.inputs import Edges
from predictor.networks.output import PanelOutput, describe_fault

STOCKS = 6
LEVELS = (0.1, 0.5, 0.9)
SIZES = InputSizes(encoder_length=12, future_length=5, observed=3, known=2, static=1, nodes=STOCKS)
TARGET = Target(horizons=(1, 5))
RING = Edges(
    neighbours=torch.tensor([[(s + 1) % STOCKS, (s + 2) % STOCKS] for s in range(STOCKS)]),
    weights=torch.full((STOCKS, 2), 0.5),
)
"""Each stock's neighbours are the next two."""


def network(*, edges: Edges | None = RING, config: GraphConfig | None = None) -> GraphForecaster:
    """A network without zero weights."""
    torch.manual_seed(3)
    made = GraphForecaster(
        config or GraphConfig(hidden=8, heads=2, neighbours=2, frequencies=2), sizes=SIZES, target=TARGET, levels=LEVELS
    )
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    if edges is not None:
        made.connect(edges)
    freeze(made)
    return made


def panel(*, rows: int = STOCKS, seed: int = 0) -> Inputs:
    """A panel without missing cells."""
    generator = torch.Generator().manual_seed(seed)
    observed = torch.randn(rows, SIZES.encoder_length, SIZES.observed, generator=generator)
    known = torch.randn(SIZES.encoder_length + SIZES.future_length, SIZES.known, generator=generator)
    return Inputs(
        observed=observed,
        known=known.expand(rows, -1, -1),
        static=torch.randn(rows, SIZES.static, generator=generator),
        mask=torch.ones(observed.shape, dtype=torch.bool),
        location=torch.zeros(rows, len(TARGET.horizons), dtype=torch.float64),
        scale=torch.ones(rows, len(TARGET.horizons), dtype=torch.float64),
    )


def picked(inputs: Inputs, rows: Tensor) -> Inputs:
    return Inputs(*(group[rows] for group in inputs))


def join_panels(*parts: Inputs) -> Inputs:
    return Inputs(*(torch.cat(groups) for groups in zip(*parts, strict=True)))


def with_absent(inputs: Inputs, row: int) -> Inputs:
    mask = inputs.mask.clone()
    mask[row, -1] = False
    return inputs._replace(mask=mask)


def with_other(inputs: Inputs, row: int) -> Inputs:
    """The panel with one window replaced."""
    observed = inputs.observed.clone()
    observed[row] = observed[row].flip(0) * 3
    return inputs._replace(observed=observed)


def nodes() -> Tensor:
    return torch.arange(STOCKS)


def assert_same(found: PanelOutput, expected: PanelOutput, *, atol: float = 1e-6) -> None:
    torch.testing.assert_close(found.quantiles, expected.quantiles, atol=atol, rtol=0)
    torch.testing.assert_close(found.scores, expected.scores, atol=atol, rtol=0)


def rows_that_moved(before: PanelOutput, after: PanelOutput) -> list[int]:
    moved = (before.quantiles - after.quantiles).abs().amax(dim=(1, 2)) > 1e-6
    return torch.nonzero(moved).flatten().tolist()


def test_the_answer_has_the_promised_shapes_and_never_crosses() -> None:
    found = network()(panel(), nodes())
    assert describe_fault(found, rows=STOCKS, horizons=2, quantiles=3) is None
    assert (found.quantiles.diff(dim=-1) > 0).all()


def test_a_stock_affects_only_those_that_have_it_as_a_neighbour() -> None:
    model = network()
    assert rows_that_moved(model(panel(), nodes()), model(with_other(panel(), 3), nodes())) == [1, 2, 3]


def test_without_edges_every_stock_is_independent() -> None:
    model = network(edges=Edges.none(STOCKS, 2))
    assert rows_that_moved(model(panel(), nodes()), model(with_other(panel(), 3), nodes())) == [3]


def test_a_config_without_neighbours_is_a_network_without_edges() -> None:
    model = network(edges=None, config=GraphConfig(hidden=8, heads=2, neighbours=0, frequencies=2))
    assert rows_that_moved(model(panel(), nodes()), model(with_other(panel(), 3), nodes())) == [3]


def test_an_absent_stock_affects_no_other() -> None:
    model, before = network(), with_absent(panel(), 3)
    moved = rows_that_moved(model(before, nodes()), model(with_other(before, 3), nodes()))
    assert set(moved) <= {3}


def test_an_absent_stock_is_as_one_that_was_not_given() -> None:
    model, rest = network(), torch.tensor([0, 1, 2, 4, 5])
    absent = model(with_absent(panel(), 3), nodes())
    without = model(picked(panel(), rest), rest)
    assert_same(PanelOutput(absent.quantiles[rest], absent.scores[rest]), without)


def test_an_unknown_stock_has_no_neighbours_in_either_direction() -> None:
    model = network()
    stranger = nodes().clone()
    stranger[3] = -1
    before, after = model(panel(), stranger), model(with_other(panel(), 3), stranger)
    assert rows_that_moved(before, after) == [3]
    alone = network(edges=Edges.none(STOCKS, 2))(panel(), nodes())
    torch.testing.assert_close(before.quantiles[3], alone.quantiles[3])


def test_panels_in_one_call_are_panels_one_by_one() -> None:
    model, panels = network(), [panel(seed=1), with_absent(panel(seed=2), 4), panel(seed=3)]
    together = model(join_panels(*panels), nodes().repeat(3), 3)
    single = [model(one, nodes()) for one in panels]
    assert_same(together, PanelOutput(*(torch.cat(parts) for parts in zip(*single, strict=True))))


def test_another_order_of_the_stocks_is_another_order_of_the_answers() -> None:
    model, order = network(), torch.tensor([4, 0, 5, 2, 1, 3])
    plain = model(panel(), nodes())
    assert_same(model(picked(panel(), order), nodes()[order]), PanelOutput(plain.quantiles[order], plain.scores[order]))


def test_future_known_features_beyond_a_horizon_do_not_move_it() -> None:
    model, inputs = network(), panel()
    known = inputs.known.clone()
    known[:, SIZES.encoder_length + 1 :] += 1  # after the first horizon's last session
    moved = (model(inputs, nodes()).quantiles - model(inputs._replace(known=known), nodes()).quantiles).abs()
    assert not moved[:, 0].any()
    assert moved[:, 1].any()


def test_what_all_stocks_share_is_not_seen_through_the_edges() -> None:
    generator = torch.Generator().manual_seed(5)
    state, source = torch.randn(STOCKS, 8, generator=generator), torch.randn(STOCKS, 4, generator=generator)
    attention = NeighbourAttention(8, heads=2, values=4)
    plain = attention(state, source, RING.neighbours, RING.weights)
    shared = attention(state, source + torch.randn(4, generator=generator), RING.neighbours, RING.weights)
    torch.testing.assert_close(plain, shared)
    assert plain.abs().min() > 0


def test_edges_travel_with_the_weights() -> None:
    model = network()
    fresh = network(edges=None)
    fresh.load_state_dict(model.state_dict())
    assert_same(fresh(panel(), nodes()), model(panel(), nodes()), atol=0)


def test_a_copy_answers_alike_and_a_forward_leaves_nothing_behind() -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attributes = set(vars(model))
    assert_same(deepcopy(model)(panel(), nodes()), model(panel(), nodes()), atol=0)
    assert set(vars(model)) == attributes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_edges_for_other_stocks_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\[5, 2\], but the network has \[6, 2\]"):
        network().connect(Edges.none(5, 2))


def test_edges_that_lead_nowhere_or_to_the_stock_itself_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="leads to stock 9, but there are 2"):
        Edges(neighbours=torch.tensor([[9], [0]]), weights=torch.zeros(2, 1))
    with pytest.raises(ConfigurationError, match="to itself"):
        Edges(neighbours=torch.tensor([[0], [0]]), weights=torch.zeros(2, 1))
    with pytest.raises(ConfigurationError, match="not a number"):
        Edges(neighbours=torch.tensor([[1], [0]]), weights=torch.full((2, 1), torch.nan))
    with pytest.raises(ConfigurationError, match=r"neighbours \[2, 1\] and weights \[2, 2\]"):
        Edges(neighbours=torch.tensor([[1], [0]]), weights=torch.zeros(2, 2))


@pytest.mark.parametrize("wrong", [{"heads": 3}, {"neighbours": -1}, {"dropout": 1.0}, {"frequencies": 1000}])
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        replace(GraphConfig(), **wrong)  # pyright: ignore[reportArgumentType] - the values are wrong on purpose
