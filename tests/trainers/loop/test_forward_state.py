"""Rewinding after a memory shortage: generators and buffers are restored."""

import pytest
import torch
from shortages import Shortage, Stage
from torch import Tensor, nn

from trainers.loop import IterableSource, Loop, Loss, Phase
from trainers.loop.step.shared_forward import Rewind

CPU = torch.device("cpu")


@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_those_of_a_run_started_at_the_found_size(stage: Stage, momentum: float | None) -> None:
    found, shortage = normalized(momentum), Shortage(stage, 4, since=3)
    train(found, shortage, limits=(None, None, None))
    started = normalized(momentum)
    train(started, Shortage(stage, 99), limits=(None, None, 4))
    assert shortage.failures == 1
    assert states_equal(found, started)


def normalized(momentum: float | None) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.BatchNorm1d(3, momentum=momentum), nn.Linear(3, 1))


def train(net: nn.Module, shortage: Shortage, *, limits: tuple[int | None, ...]) -> None:
    """Train one window of 8 samples per limit."""
    generator = torch.Generator().manual_seed(2)

    def loss(x: Tensor) -> Loss:
        return Loss(shortage(net(x)).square().mean(), len(x))

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loop = Loop([Phase("main", loss, net.parameters(), optimizer)], modules={"net": net}, batch_coupled="accept")
    with loop.running() as run:
        (phase,) = run._phases
        source = IterableSource([torch.randn(8, 3, generator=generator) for _ in limits])
        waiting = [*limits[1:], None]
        phase.cutter.limit = limits[0]
        for window, _ in enumerate(run.epochs(source, max_epochs=1)):
            if window < len(waiting) and waiting[window] is not None:
                phase.cutter.limit = waiting[window]


def states_equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_buffers_that_torch_changes_without_counting_it_come_back() -> None:
    norm = nn.BatchNorm1d(3)
    rewind = Rewind([norm], CPU)
    rewind.save()
    norm(torch.randn(8, 3, generator=torch.Generator().manual_seed(2)))
    expected = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    mark = rewind.save()
    norm(torch.ones(4, 3))
    rewind.restore(mark)
    assert all(torch.equal(buffer, expected[name]) for name, buffer in norm.named_buffers())


class CachingModule(nn.Module):
    """A module that replaces its buffer by a longer one when needed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.arange(2.0))
        self.register_buffer("empty", None)

    def grow(self) -> None:
        self.positions = torch.arange(4.0)
        self.empty = torch.zeros(1)


def test_buffers_that_were_replaced_come_back() -> None:
    cache = CachingModule()
    before = cache.positions
    rewind = Rewind([cache], CPU)
    mark = rewind.save()
    cache.grow()
    rewind.restore(mark)
    assert cache.positions is before
    assert cache.empty is None
    cache.grow()
    grown = rewind.save()
    cache.positions = torch.zeros(1)
    rewind.restore(grown)
    assert cache.positions.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_buffers_that_have_not_changed_are_not_copied_again() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    rewind = Rewind([net], CPU)
    first = rewind.save()
    net[1](torch.randn(4, 3))
    second = rewind.save()
    assert second.buffers[0] is first.buffers[0]
    assert second.buffers[1] is not first.buffers[1]


def test_an_older_mark_survives_later_ones() -> None:
    norm = nn.BatchNorm1d(3)
    rewind = Rewind([norm], CPU)
    start = rewind.save()
    for _ in range(3):
        norm(torch.randn(4, 3))
        rewind.save()
    rewind.restore(start)
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 0
    assert norm.running_mean is not None
    assert norm.running_mean.tolist() == [0.0] * 3


def test_the_generator_draws_the_same_again() -> None:
    torch.manual_seed(4)
    rewind = Rewind([], CPU)
    mark = rewind.save()
    first = torch.rand(5)
    rewind.restore(mark)
    assert torch.equal(torch.rand(5), first)


def test_a_cache_rebuilt_by_a_validation_does_not_stop_training() -> None:
    module = nn.Module()
    module.register_buffer("cache", torch.zeros(1), persistent=False)
    rewind = Rewind([module], torch.device("cpu"))
    with torch.inference_mode():
        module.cache = made = torch.ones(2)
    mark = rewind.save()
    module.cache = torch.zeros(3)
    rewind.restore(mark)
    assert module.cache is made
