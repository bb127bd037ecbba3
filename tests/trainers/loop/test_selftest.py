"""The comparison of a device with the CPU; devices that compute wrongly are stood in for by networks that do."""

from collections.abc import Callable
from functools import partial
from typing import final

import pytest
import torch
from torch import Tensor, nn

from trainers.loop.device.hardware import CPU, Probe, check_device, figures
from trainers.loop.errors import SelfTestError

SOME_GPU = torch.device("cuda", 0)


def check(make: Callable[[float], nn.Module]) -> None:
    """The self-test of a GPU whose networks are made by `make`."""
    check_device(SOME_GPU, compute=lambda _: figures(CPU, make))


def test_a_device_that_computes_like_the_cpu_passes() -> None:
    check(Probe)


def test_on_the_cpu_nothing_is_computed() -> None:
    def compute(_: torch.device) -> dict[str, Tensor]:
        raise AssertionError

    check_device(CPU, compute=compute)


def with_wrong_gradient(dropout: float, *, factor: float) -> nn.Module:
    probe = Probe(dropout)

    def falsified(gradient: Tensor) -> Tensor:
        return gradient * factor

    dict(probe.named_parameters())["recurrent.weight_hh_l1"].register_hook(falsified)
    return probe


def test_a_wrong_gradient_is_named_with_its_error() -> None:
    with pytest.raises(
        SelfTestError,
        match=r"^cuda:0 computes wrongly.*the gradient of recurrent\.weight_hh_l1 is off by 0\.0456 where the largest "
        r"value is 0\.0456, the step of recurrent\.weight_hh_l1 is off by \S+ where .* train on device 'cpu'$",
    ):
        check(partial(with_wrong_gradient, factor=2.0))


def test_a_gradient_that_never_arrives_is_noticed() -> None:
    with pytest.raises(SelfTestError, match=r"the gradient of recurrent\.weight_hh_l1 is off by 0\.0456"):
        check(partial(with_wrong_gradient, factor=0.0))


def test_not_a_number_is_noticed() -> None:
    with pytest.raises(SelfTestError, match=r"the gradient of recurrent\.weight_hh_l1 is off by nan"):
        check(partial(with_wrong_gradient, factor=float("nan")))


@final
class AlwaysDropping(nn.Module):
    """Applies dropout in evaluation too, as an Apple GPU did once it had trained."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        probe = Probe(dropout)
        self.recurrent, self.head = probe.recurrent, probe.head

    def forward(self, inputs: Tensor) -> Tensor:
        self.recurrent.train()
        return self.head(self.recurrent(inputs)[0][:, -1])


def test_dropout_in_evaluation_is_noticed() -> None:
    with pytest.raises(SelfTestError, match="with the CPU, the output in evaluation, after training with dropout is"):
        check(AlwaysDropping)


def in_tf32(dropout: float) -> nn.Module:
    probe = Probe(dropout)
    with torch.no_grad():
        for parameter in probe.parameters():
            mantissa, exponent = torch.frexp(parameter)
            parameter.copy_(torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent))
    return probe


def test_the_rounding_of_tf32_passes() -> None:
    check(in_tf32)


def test_the_generator_and_the_modes_stay_as_they_were() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with torch.no_grad():
        check(Probe)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_gpu_passes_and_its_generator_stays_as_it_was() -> None:
    before = torch.cuda.get_rng_state(SOME_GPU)
    check_device(SOME_GPU)
    assert torch.equal(torch.cuda.get_rng_state(SOME_GPU), before)
