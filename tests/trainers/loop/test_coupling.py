"""Layers that mix the samples of a batch, and what the loop does about them."""

import pytest
import torch
from shortages import Shortage
from torch import Tensor, nn

from trainers.loop import (
    BatchCoupledError,
    Frozen,
    IterableSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    WindowReport,
)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    return nn.Sequential(inner, nn.BatchNorm1d(3), nn.Linear(3, 1))


def loop_over(
    net: nn.Module, shortage: Shortage | None = None, *, frozen: nn.Module | None = None, **chosen: object
) -> Loop[Tensor]:
    def loss(x: Tensor) -> Loss:
        outputs = net(x)
        return Loss((outputs if shortage is None else shortage(outputs)).square().mean(), len(x))

    modules: dict[str, nn.Module | Frozen] = {"net": net}
    if frozen is not None:
        modules["frozen"] = Frozen(frozen)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    phase = Phase("main", loss, parameters, torch.optim.SGD(parameters, lr=0.1))
    return Loop([phase], modules=modules, device="cpu", **chosen)  # pyright: ignore[reportArgumentType]  checked by Loop


def train(loop: Loop[Tensor], sizes: list[int]) -> list[WindowReport]:
    generator = torch.Generator().manual_seed(2)
    source = IterableSource([torch.randn(size, 3, generator=generator) for size in sizes])
    with loop.running() as run:
        return [report for report in run.epochs(source, max_epochs=1) if isinstance(report, WindowReport)]


def test_batch_normalization_is_refused_in_a_window_of_several_batches_and_named() -> None:
    with (
        pytest.raises(BatchCoupledError, match=r"net\.0\.1, net\.1 compute with the mean .*GroupNorm or LayerNorm"),
        loop_over(network(), accumulate=2).running(),
    ):
        pass


def test_batch_normalization_trains_with_one_batch_a_window() -> None:
    (report,) = train(loop_over(network()), [8])
    assert report.stepped


def test_a_batch_with_batch_normalization_is_not_cut() -> None:
    shortage = Shortage("forward", 4)
    with pytest.raises(OutOfMemoryError, match=r"the batch is not cut, because net\.0\.1, net\.1 mix its samples"):
        train(loop_over(network(), shortage), [8])
    assert shortage.sizes == [8]


def test_batch_normalization_is_cut_where_that_is_accepted() -> None:
    shortage = Shortage("backward", 4)
    (report,) = train(loop_over(network(), shortage, accumulate=2, batch_coupled="accept"), [8, 6])
    assert (report.micro, report.count) == (4, 14)
    assert shortage.sizes == [8, 4, 4, 4, 2]


def test_batch_normalization_in_a_frozen_part_mixes_nothing() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Linear(3, 1))
    loop = loop_over(net, Shortage("forward", 4), frozen=net[0].requires_grad_(False), accumulate=2)
    (report,) = train(loop, [8, 6])
    assert (report.micro, report.count) == (4, 14)


def test_batch_normalization_without_running_statistics_mixes_samples_even_where_it_is_frozen() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1))
    loop = loop_over(net, frozen=net[0].requires_grad_(False), accumulate=2)
    with pytest.raises(BatchCoupledError, match=r"net\.0"), loop.running():
        pass


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.InstanceNorm1d(3)])
def test_layers_that_look_at_one_sample_only_are_welcome(norm: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(3, 3), norm, nn.Linear(3, 1))
    with loop_over(net, accumulate=2).running():
        pass


def test_a_validation_with_batch_normalization_is_cut_because_its_statistics_are_fixed_there() -> None:
    net, shortage = network(), Shortage("forward", 2)
    loop = loop_over(net)
    with loop.running() as run:
        report = run.validate(lambda x: Loss(shortage(net(x)).mean(), len(x)), IterableSource([torch.ones(4, 3)]))
    assert report.count == 4
    assert shortage.sizes == [4, 2, 2]
