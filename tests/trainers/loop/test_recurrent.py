"""The layout of parameters in memory."""

import copy
import warnings

import pytest
import torch
from torch import nn

from trainers.loop.device.compilation import compact
from trainers.loop.weights.copies import Average


def strided() -> nn.Linear:
    """A layer whose weight lies transposed in memory."""
    torch.manual_seed(1)
    net = nn.Linear(3, 5)
    net.weight.data = torch.randn(3, 5).t()
    return net


def test_every_parameter_becomes_contiguous_and_keeps_its_values() -> None:
    net = strided()
    before = net.weight.detach().clone()
    compact(net)
    assert net.weight.is_contiguous()
    assert torch.equal(net.weight, before)


def test_parameters_stay_the_same_so_that_their_optimizer_goes_on() -> None:
    net, reference = strided(), strided()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compact(net)
    for trained, stepper in ((net, optimizer), (reference, torch.optim.SGD(reference.parameters(), lr=0.1))):
        trained(torch.ones(2, 3)).sum().backward()
        stepper.step()
    assert torch.equal(net.weight, reference.weight)
    assert not torch.equal(net.weight, strided().weight)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_work_as_before(kind: type[nn.RNN | nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(1)
    net = kind(3, 4, num_layers=2)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape[::-1]).permute(*range(parameter.ndim)[::-1])
    before = net(torch.ones(5, 1, 3))[0]
    compact(net)
    assert all(parameter.is_contiguous() for parameter in net.parameters())
    assert torch.allclose(net(torch.ones(5, 1, 3))[0], before)


def test_a_recurrent_layer_with_weight_norm_is_left_to_itself() -> None:
    torch.manual_seed(1)
    net = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    before = net(torch.ones(5, 1, 3))[0]
    compact(net)
    assert torch.equal(net(torch.ones(5, 1, 3))[0], before)


def test_a_convolution_keeps_the_channels_last_order() -> None:
    net = nn.Conv2d(2, 4, 3)
    net.weight.data = net.weight.data.contiguous(memory_format=torch.channels_last)
    compact(net)
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
    compact(net)
    check_flat(net)
    copied = copy.deepcopy(net)
    compact(copied)
    check_flat(copied)
    copied.load_state_dict({name: tensor.clone() for name, tensor in net.state_dict().items()}, assign=True)
    compact(copied)
    check_flat(copied)
    average = Average(tuple(net.parameters()), 0.9)
    average.update(1)
    with average.applied():
        check_flat(net)
    check_flat(net)
