"""CUDA transfers: current device, prefetched batches, and weight copies on the host."""

import warnings
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn

from trainers.loop import BestWeights, IterableSource, Loop, Loss, Phase, ResidentSource, Source, StepReport
from trainers.loop.data.transfer import MAX_UNPINNED_BYTES, DeviceTransfer, DirectFeeder
from trainers.loop.weights import LARGE, AveragedWeights, copy_tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SEVERAL = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

ROWS, WIDTH = 512, 256


def data(windows: int = 12) -> Tensor:
    """Host data; only pinned memory is copied asynchronously."""
    generator = torch.Generator().manual_seed(1)
    found = torch.randn(windows * ROWS, WIDTH, generator=generator)
    assert found[:ROWS].numel() * 4 > MAX_UNPINNED_BYTES
    return found


def resident(device: str) -> Source[Tensor]:
    return ResidentSource[Tensor].of(data().to(device), batch_size=ROWS, seed=2)


SOURCES: dict[str, Callable[[], Source[Tensor]]] = {
    "data in memory": lambda: resident("cpu"),
    "a list": lambda: IterableSource(list(data().split(ROWS))),
    "data on the device": lambda: resident("cuda"),
}


def phases(count: int) -> tuple[dict[str, nn.Module], list[Phase[Tensor]]]:
    torch.manual_seed(3)
    nets: dict[str, nn.Module] = {
        f"net{k}": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)) for k in range(count)
    }

    def loss(net: nn.Module, batch: Tensor) -> Loss:
        return Loss((net(batch) - batch.mean(1, keepdim=True)).square().mean(), len(batch))

    made = [
        Phase[Tensor](
            name,
            lambda batch, net=net: loss(net, batch),
            net.parameters(),
            torch.optim.SGD(net.parameters(), lr=0.05),
        )
        for name, net in nets.items()
    ]
    return nets, made


def train(source: Source[Tensor], *, count: int = 2, stop_after: int | None = None) -> list[Tensor]:
    """Train for two epochs; returns the weights on the host."""
    nets, made = phases(count)
    with Loop(made, modules=nets, device="cuda", precision="fp32", accumulate=2).running() as run:
        for number, _ in enumerate(run.epochs(source, max_epochs=2), start=1):
            if number == stop_after:
                break
        for _ in run.epochs(source, max_epochs=2):
            pass
    return [parameter.detach().cpu() for net in nets.values() for parameter in net.parameters()]


def equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("stop_after", [None, 3])
def test_batches_that_are_fetched_ahead_have_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, source: Callable[[], Source[Tensor]], stop_after: int | None
) -> None:
    found = train(source(), stop_after=stop_after)

    def direct(device: torch.device, *, phases: int) -> DirectFeeder:  # noqa: ARG001
        return DirectFeeder(device)

    monkeypatch.setattr("trainers.loop.run_parts.create_feeder", direct)
    assert equal(found, train(source()))


def test_a_copy_that_was_sent_is_there_once_it_was_received() -> None:
    device = torch.device("cuda", 0)
    carrier = DeviceTransfer(device)
    for seed in range(20):
        host = torch.full((1 << 22,), float(seed))
        ready = carrier.prepare(host)
        assert ready.is_pinned()
        torch.cuda._sleep(10_000_000)  # the computing stream is busy
        copy = carrier.start_copy(ready)
        carrier.finish_copy(copy)
        assert float((copy - seed).abs().max()) == 0.0
        del copy, ready  # its memory may be reused in the next round


@pytest.mark.parametrize("source", [SOURCES["data in memory"], SOURCES["a list"]], ids=["data in memory", "a list"])
@pytest.mark.parametrize("stop_after", [None, 3])
def test_no_copy_of_a_batch_stays_on_the_device(source: Callable[[], Source[Tensor]], stop_after: int | None) -> None:
    train(source(), count=1)  # cuBLAS's workspace
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    nets, made = phases(1)
    with Loop(made, modules=nets, device="cuda", precision="fp32").running() as run:
        for number, _ in enumerate(run.epochs(source(), max_epochs=1), start=1):
            if number == stop_after:
                break
        torch.cuda.synchronize()
        weights = sum(parameter.numel() * 4 for parameter in nets["net0"].parameters())
        assert torch.cuda.memory_allocated() - before < 3 * weights + 2**20  # weights, gradients, seeds
    nets["net0"].cpu()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 2**16


def test_a_window_whose_batches_come_from_the_host_waits_for_the_device_once() -> None:
    nets, made = phases(1)
    waits: list[int] = []
    with Loop(made, modules=nets, device="cuda", precision="fp32", accumulate=2).running() as run:
        reports = run.epochs(SOURCES["data in memory"](), max_epochs=1)
        next(reports)
        next(reports)
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    assert isinstance(next(reports), StepReport)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            waits.append(sum("synchronizing CUDA operation" in str(warning.message) for warning in caught))
    assert waits == [1] * 3


@pytest.fixture
def second() -> Iterator[None]:
    """Run on the second device; the first is current before and after."""
    assert torch.cuda.current_device() == 0
    yield
    assert torch.cuda.current_device() == 0


@SEVERAL
@pytest.mark.usefixtures("second")
def test_the_gpu_of_a_process_is_torch_s_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    nets, made = phases(1)
    with Loop(made, modules=nets, device="cuda", precision="fp32").running() as run:
        assert torch.cuda.current_device() == 1
        assert torch.empty(1, device="cuda").device == torch.device("cuda", 1)
        for _ in run.epochs(SOURCES["a list"](), max_epochs=1):
            assert torch.cuda.current_device() == 1


def test_large_copies_lie_pinned_on_the_host_and_come_back_to_the_bit() -> None:
    net = nn.Linear(2**13, 2**13, bias=False, device="cuda")
    assert net.weight.numel() * 4 == LARGE
    net = nn.Sequential(net, nn.Linear(8, 8, device="cuda"))  # a little more
    expected = [parameter.detach().clone() for parameter in net.parameters()]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    best = BestWeights({"net": net})
    best.record(1.0)
    assert torch.cuda.memory_allocated() == before
    assert all(tensor.is_pinned() for tensor in best.tensors.values())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    best.restore()
    assert equal([*net.parameters()], expected)


def test_weights_that_give_way_to_their_average_take_no_memory_of_the_device_where_they_are_large() -> None:
    weight = nn.Parameter(torch.ones(LARGE // 4 + 1, device="cuda"))
    average = AveragedWeights([weight], 0.5)
    with torch.no_grad():
        weight.mul_(3)
    before = torch.cuda.memory_allocated()
    with average.applied():
        assert torch.cuda.memory_allocated() == before
        assert bool((weight == 1).all())
    assert bool((weight == 3).all())


def test_small_copies_stay_on_the_device() -> None:
    weight = torch.ones(8, device="cuda")
    (copy,) = copy_tensors([weight])
    assert copy.device == weight.device
    (aside,) = copy_tensors([weight], large=0)
    assert aside.is_pinned()
    assert torch.equal(aside, torch.ones(8))


def test_a_convolution_that_finds_no_memory_is_worked_in_micro_batches() -> None:
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv1d(16, 64, 3, padding=1), nn.Tanh(), nn.Conv1d(64, 1, 3, padding=1))

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase[Tensor]("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0), clip=None)
    batch = torch.randn(2048, 16, 256, generator=torch.Generator().manual_seed(5))  # 32 MiB, then 128 MiB a layer
    try:
        with Loop([phase], modules={"net": net}, device="cuda", precision="fp32").running() as run:
            reports = run.epochs(IterableSource([batch[:8], batch]), max_epochs=1)
            next(reports)
            torch.cuda.empty_cache()
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 200 * 2**20) / total)
            report = next(reports)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert isinstance(report, StepReport)
    assert report.count == len(batch)
    assert report.shortages > 0
