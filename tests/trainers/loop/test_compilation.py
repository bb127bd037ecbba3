"""Preparing modules for a device: compilation without recurrent layers, and contiguous weights."""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn

from trainers.loop.device.hardware import compact_parameters, compile_modules
from trainers.loop.weights import AveragedWeights

# torch's compiler itself looks at the gradient of its inputs.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")


@final
class Network(nn.Module):
    """A network with a compilable part before a recurrent layer, two after it in a list, and a single cell."""

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
class CountingBackend:
    """A compiler backend that counts graphs and runs them unchanged."""

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
    net, backend = network(), CountingBackend()
    expected = net(inputs())
    with compile_modules({"net": net}, backend=backend) as names:
        found = net(inputs())
    assert names == PARTS
    assert backend.graphs == len(PARTS)
    assert torch.allclose(found, expected)


def test_gradients_reach_the_parameters_of_compiled_parts() -> None:
    net, reference = network(), network()
    reference(inputs()).sum().backward()
    with compile_modules({"net": net}, backend="eager"):
        net(inputs()).sum().backward()
    for parameter, other in zip(net.parameters(), reference.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.allclose(parameter.grad, other.grad)


def test_a_network_without_recurrent_layers_is_compiled_whole() -> None:
    with compile_modules({"net": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))}, backend="eager") as names:
        assert names == ["net"]


def test_many_parts_are_compiled_beyond_torch_s_limit_for_one_piece_of_code() -> None:
    net, backend = nn.ModuleList([nn.Linear(1, width) for width in range(1, 13)]), CountingBackend()
    with compile_modules({"net": net}, backend=backend):
        for part in net:
            part(torch.ones(2, 1))
    assert backend.graphs == 12


def test_hooks_of_a_compiled_part_still_run() -> None:
    net = network()

    def doubled(_: nn.Module, __: object, output: Tensor) -> Tensor:
        return 2 * output

    net.heads[0].register_forward_hook(doubled)
    expected = net(inputs())
    with compile_modules({"net": net}, backend="eager"):
        assert torch.allclose(net(inputs()), expected)


@pytest.mark.parametrize("module", [nn.LSTM(3, 4), nn.GRUCell(3, 4), nn.Dropout(0.5), nn.ModuleList([nn.RNN(3, 4)])])
def test_a_recurrent_layer_and_a_module_without_parameters_are_left_alone(module: nn.Module) -> None:
    with compile_modules({"net": module}, backend="eager") as names:
        assert names == []


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4), nn.GRUCell(3, 4)])
def test_a_parametrized_recurrent_layer_is_left_alone_too(layer: nn.Module) -> None:
    name = next(name for name, _ in layer.named_parameters() if name.startswith("weight_hh"))
    with compile_modules({"net": nn.utils.parametrizations.weight_norm(layer, name)}, backend="eager") as names:
        assert names == []


def test_afterwards_nothing_is_compiled_even_after_an_error() -> None:
    net, backend = network(), CountingBackend()
    with pytest.raises(KeyError), compile_modules({"net": net}, backend=backend):
        raise KeyError
    net(inputs())
    assert backend.graphs == 0


def test_a_part_that_was_compiled_before_stays_compiled_as_it_was() -> None:
    net, own, ours = network(), CountingBackend(), CountingBackend()
    with compile_modules({"net": net}, backend=own):
        with compile_modules({"net": net}, backend=ours):
            pass
        net(inputs())
    assert (own.graphs, ours.graphs) == (len(PARTS), 0)


def test_names_and_copies_of_a_compiled_network_are_those_of_a_plain_one() -> None:
    net, backend = network(), CountingBackend()
    plain = list(net.state_dict())
    with compile_modules({"net": net}, backend=backend):
        assert list(net.state_dict()) == plain
        copied = copy.deepcopy(net)
    copied(inputs())
    assert backend.graphs == 0


def transposed_layer() -> nn.Linear:
    """A layer with a transposed weight."""
    torch.manual_seed(1)
    net = nn.Linear(3, 5)
    net.weight.data = torch.randn(3, 5).t()
    return net


def test_every_parameter_becomes_contiguous_and_keeps_its_values() -> None:
    net = transposed_layer()
    before = net.weight.detach().clone()
    compact_parameters(net)
    assert net.weight.is_contiguous()
    assert torch.equal(net.weight, before)


def test_parameters_stay_the_same_so_that_their_optimizer_goes_on() -> None:
    net, reference = transposed_layer(), transposed_layer()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compact_parameters(net)
    for trained, stepper in ((net, optimizer), (reference, torch.optim.SGD(reference.parameters(), lr=0.1))):
        trained(torch.ones(2, 3)).sum().backward()
        stepper.step()
    assert torch.equal(net.weight, reference.weight)
    assert not torch.equal(net.weight, transposed_layer().weight)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_work_as_before(kind: type[nn.RNN | nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(1)
    net = kind(3, 4, num_layers=2)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape[::-1]).permute(*range(parameter.ndim)[::-1])
    before = net(torch.ones(5, 1, 3))[0]
    compact_parameters(net)
    assert all(parameter.is_contiguous() for parameter in net.parameters())
    assert torch.allclose(net(torch.ones(5, 1, 3))[0], before)


def test_a_recurrent_layer_with_weight_norm_is_left_to_itself() -> None:
    torch.manual_seed(1)
    net = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    before = net(torch.ones(5, 1, 3))[0]
    compact_parameters(net)
    assert torch.equal(net(torch.ones(5, 1, 3))[0], before)


def test_a_convolution_keeps_the_channels_last_order() -> None:
    net = nn.Conv2d(2, 4, 3)
    net.weight.data = net.weight.data.contiguous(memory_format=torch.channels_last)
    compact_parameters(net)
    assert net.weight.is_contiguous(memory_format=torch.channels_last)


def check_flat(net: nn.LSTM) -> None:
    """The weights share one storage, and cuDNN does not complain."""
    assert len({parameter.untyped_storage().data_ptr() for parameter in net.parameters()}) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="RNN module weights are not part of single contiguous chunk")
        net(torch.ones(5, 1, 3, device="cuda"))[0].sum().backward()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recurrent_weights_stay_one_buffer_after_every_way_of_replacing_them() -> None:
    net = nn.LSTM(3, 4, num_layers=2).cuda()
    compact_parameters(net)
    check_flat(net)
    copied = copy.deepcopy(net)
    compact_parameters(copied)
    check_flat(copied)
    copied.load_state_dict({name: tensor.clone() for name, tensor in net.state_dict().items()}, assign=True)
    compact_parameters(copied)
    check_flat(copied)
    average = AveragedWeights(tuple(net.parameters()), 0.9)
    average.update(1)
    with average.applied():
        check_flat(net)
    check_flat(net)
