"""Which parts are compiled, and that nothing remains of it."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn

from trainers.loop.device.compilation import compiled

# torch's compiler itself looks at the gradient of its inputs.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")


@final
class Network(nn.Module):
    """A part to compile before a recurrent layer, two behind it in a list, and a cell that stands alone."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.dropout = nn.Dropout(0.0)
        self.memory = nn.ModuleDict({"lstm": nn.LSTM(4, 4, batch_first=True), "norm": nn.LayerNorm(4)})
        self.cell = nn.GRUCell(4, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 2)])

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.dropout(self.encoder(inputs))
        hidden = self.memory["norm"](self.memory["lstm"](hidden)[0][:, -1])
        hidden = self.cell(hidden)
        return torch.cat([head(hidden) for head in self.heads], dim=-1)


@final
class Counting:
    """A backend that counts the graphs it is given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:  # noqa: ARG002  torch's signature
        self.graphs += 1
        return graph.forward


PARTS = ["net.encoder", "net.memory.norm", "net.heads.0", "net.heads.1"]


def network() -> Network:
    torch.manual_seed(1)
    return Network()


def inputs() -> Tensor:
    return torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(2))


def test_the_largest_parts_without_recurrent_layers_are_compiled() -> None:
    net, backend = network(), Counting()
    expected = net(inputs())
    with compiled({"net": net}, backend=backend) as names:
        found = net(inputs())
    assert names == PARTS
    assert backend.graphs == len(PARTS)
    assert torch.allclose(found, expected)


def test_gradients_reach_the_parameters_of_compiled_parts() -> None:
    net, reference = network(), network()
    reference(inputs()).sum().backward()
    with compiled({"net": net}, backend="eager"):
        net(inputs()).sum().backward()
    for parameter, other in zip(net.parameters(), reference.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.allclose(parameter.grad, other.grad)


def test_a_network_without_recurrent_layers_is_compiled_whole() -> None:
    with compiled({"net": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))}, backend="eager") as names:
        assert names == ["net"]


def test_many_parts_are_compiled_beyond_torch_s_limit_for_one_piece_of_code() -> None:
    net, backend = nn.ModuleList([nn.Linear(1, width) for width in range(1, 13)]), Counting()
    with compiled({"net": net}, backend=backend):
        for part in net:
            part(torch.ones(2, 1))
    assert backend.graphs == 12


def test_hooks_of_a_compiled_part_still_run() -> None:
    net = network()

    def doubled(_: nn.Module, __: object, output: Tensor) -> Tensor:
        return 2 * output

    net.heads[0].register_forward_hook(doubled)
    expected = net(inputs())
    with compiled({"net": net}, backend="eager"):
        assert torch.allclose(net(inputs()), expected)


@pytest.mark.parametrize("module", [nn.LSTM(3, 4), nn.GRUCell(3, 4), nn.Dropout(0.5), nn.ModuleList([nn.RNN(3, 4)])])
def test_a_recurrent_layer_and_a_module_without_parameters_are_left_alone(module: nn.Module) -> None:
    with compiled({"net": module}, backend="eager") as names:
        assert names == []


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4), nn.GRUCell(3, 4)])
def test_a_parametrized_recurrent_layer_is_left_alone_too(layer: nn.Module) -> None:
    name = next(name for name, _ in layer.named_parameters() if name.startswith("weight_hh"))
    with compiled({"net": nn.utils.parametrizations.weight_norm(layer, name)}, backend="eager") as names:
        assert names == []


def test_afterwards_nothing_is_compiled_even_after_an_error() -> None:
    net, backend = network(), Counting()
    with pytest.raises(KeyError), compiled({"net": net}, backend=backend):
        raise KeyError
    net(inputs())
    assert backend.graphs == 0


def test_a_part_that_was_compiled_before_stays_compiled_as_it_was() -> None:
    net, own, ours = network(), Counting(), Counting()
    with compiled({"net": net}, backend=own):
        with compiled({"net": net}, backend=ours):
            pass
        net(inputs())
    assert (own.graphs, ours.graphs) == (len(PARTS), 0)


def test_names_and_copies_of_a_compiled_network_are_those_of_a_plain_one() -> None:
    net, backend = network(), Counting()
    plain = list(net.state_dict())
    with compiled({"net": net}, backend=backend):
        assert list(net.state_dict()) == plain
        copied = copy.deepcopy(net)
    copied(inputs())
    assert backend.graphs == 0
