"""The loop on CUDA: precision, memory, recurrent weights, and synchronisation."""

import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.loop import (
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    Report,
    ResidentSource,
    StepReport,
    adamw,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MEBIBYTE = 2**20
WIDTH = 4096
SAMPLES = 4096


def windows_of(reports: Sequence[Report]) -> list[StepReport]:
    return [report for report in reports if isinstance(report, StepReport)]


def wide_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def squares(net: nn.Module, batch: Tensor) -> Loss:
    return Loss((net(batch).float() - 1.0).square().mean(), len(batch))


def gradients(net: nn.Module) -> list[Tensor]:
    return [parameter.grad.detach().cpu() for parameter in net.parameters() if parameter.grad is not None]


@pytest.fixture
def short_memory() -> Generator[Callable[[int], None]]:
    """Limit memory to so many MiB above the current allocation, until the test ends."""

    def limit(headroom_mib: int) -> None:
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + headroom_mib * MEBIBYTE) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def window_under(
    net: nn.Module, headroom_mib: int | None, limit: Callable[[int], None]
) -> tuple[list[Tensor], StepReport, int]:
    """Gradient, report and number of failed forwards of one window of 4096 samples."""
    begun, done = 0, 0

    def loss(batch: Tensor) -> Loss:
        nonlocal begun, done
        begun += 1
        found = squares(net, batch)
        done += 1
        return found

    generator = torch.Generator().manual_seed(2)
    source = IterableSource([torch.randn(SAMPLES, 64, generator=generator)])
    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0), clip=None)
    with Loop([phase], modules={"net": net}, device="cuda", precision="fp32").running() as run:
        reports = run.epochs(source, max_epochs=1)
        if headroom_mib is not None:
            limit(headroom_mib)
        report = next(reports)
        assert isinstance(report, StepReport)
        return gradients(net), report, begun - done


# A layer's activations of the whole batch take 64 MiB. The forward needs three of them at once and keeps two, the
# backward needs four. The workspace of cuBLAS is there since the window without a limit.
@pytest.mark.parametrize(("headroom_mib", "stage"), [(150, "forward"), (225, "backward")])
def test_a_gpu_that_runs_out_of_memory_finds_the_gradient_of_the_whole_window(
    short_memory: Callable[[int], None], headroom_mib: int, stage: str
) -> None:
    expected, whole, _ = window_under(wide_network(), None, short_memory)
    assert whole.shortages == 0
    found, report, failed_forwards = window_under(wide_network(), headroom_mib, short_memory)
    assert report.shortages > 0
    assert report.micro_batch_limit is not None
    assert report.count == SAMPLES
    assert failed_forwards > 0 if stage == "forward" else report.shortages > failed_forwards
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_a_sample_that_does_not_fit_a_gpu_is_an_error_with_its_memory(
    short_memory: Callable[[int], None],
) -> None:
    with pytest.raises(OutOfMemoryError, match=r"in use on cuda:0 of [\d.]+ GiB\), with samples 0 to 0 of 4096"):
        window_under(wide_network(), 4, short_memory)


def test_memory_use_returns_to_its_start_after_fifty_recoveries() -> None:
    net = wide_network()
    limit = 2 * WIDTH

    def loss(batch: Tensor) -> Loss:
        hidden = net[:4](batch)
        if len(batch) > limit:
            torch.empty(1 << 50, device="cuda")
        return Loss(net[4](hidden).square().mean(), len(batch))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0))
    source = IterableSource([torch.randn(256, 64)] * 51)
    held: list[int] = []
    recoveries = 0
    with Loop([phase], modules={"net": net}, device="cuda", precision="fp32").running() as run:
        for report in run.epochs(source, max_epochs=1):
            if isinstance(report, StepReport):
                recoveries += report.shortages
                torch.cuda.synchronize()
                held.append(torch.cuda.memory_allocated())
                limit = 128
                run._phases[0].cutter.limit = None
    assert recoveries == 51  # first the copy of the batch is dropped and the whole batch retried
    assert held[-1] == held[1]
    assert held[-1] - held[0] < MEBIBYTE


def is_flat(lstm: nn.LSTM) -> bool:
    """Whether all weights share one block of memory, as cuDNN requires."""
    pointers = {parameter.untyped_storage().data_ptr() for parameter in lstm.parameters()}
    return len(pointers) == 1


class Forecaster(nn.Module):
    """A small LSTM that forecasts the mean of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.head(states[:, -1])


def forecaster() -> Forecaster:
    torch.manual_seed(3)
    return Forecaster()


def sequences(samples: int = 512) -> Tensor:
    return torch.randn(samples, 12, 4, generator=torch.Generator().manual_seed(4))


def forecast_loss(net: nn.Module, x: Tensor) -> Loss:
    return Loss((net(x).float()[:, 0] - x.mean((1, 2))).square().mean(), len(x))


def train(net: nn.Module, precision: str, *, epochs: int = 30, **chosen: Any) -> list[Report]:
    phase = Phase[Tensor]("main", lambda x: forecast_loss(net, x), net.parameters(), adamw(net.parameters(), lr=3e-3))
    source = ResidentSource.of(sequences(), batch_size=64, seed=5)
    with Loop([phase], modules={"net": net}, device="cuda", precision=precision, **chosen).running() as run:
        return list(run.epochs(source, max_epochs=epochs))


def test_recurrent_weights_are_flat_while_an_average_is_kept_and_applied() -> None:
    net = forecaster()
    phase = Phase[Tensor]("main", lambda x: forecast_loss(net, x), net.parameters(), adamw(net.parameters(), lr=1e-3))
    flat: list[bool] = []

    def score(x: Tensor) -> Loss:
        flat.append(is_flat(net.lstm))
        return forecast_loss(net, x)

    source = ResidentSource.of(sequences(), batch_size=64, seed=5)
    with Loop([phase], modules={"net": net}, device="cuda", precision="fp32", ema=0.9).running() as run:
        flat.extend(is_flat(net.lstm) for _ in run.epochs(source, max_epochs=1))
        run.validate(score, source)
        flat.append(is_flat(net.lstm))
    assert len(flat) > 10
    assert all(flat)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_as_well_as_single_precision(precision: str) -> None:
    single = [report.loss for report in train(forecaster(), "fp32") if isinstance(report, EpochReport)]
    half = [report.loss for report in train(forecaster(), precision) if isinstance(report, EpochReport)]
    assert half[0] == pytest.approx(single[0], rel=0.1)
    assert single[-1] < 0.01 * single[0]
    assert sum(half[-5:]) == pytest.approx(sum(single[-5:]), rel=0.5)


def test_float16_trains_with_autocast_and_a_scaler_that_settles() -> None:
    reports = windows_of(train(forecaster(), "fp16", epochs=3))
    assert all(report.loss_scale is not None for report in reports)
    assert sum(report.stepped for report in reports) >= len(reports) - 8
    assert reports[-1].stepped


def test_a_gradient_that_overflows_float16_lowers_the_scale_until_it_fits() -> None:
    torch.manual_seed(6)
    net = nn.Linear(4, 1)

    def loss(x: Tensor) -> Loss:
        return Loss(net(x).float().sum() * 100.0, len(x))  # times 65536 it exceeds 65504 in the backward

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=1e-6), clip=None)
    source = IterableSource([torch.ones(8, 4)] * 20)
    with Loop([phase], modules={"net": net}, device="cuda", precision="fp16").running() as run:
        reports = windows_of(list(run.epochs(source, max_epochs=1)))
    stepped = [report.stepped for report in reports]
    assert not stepped[0]
    assert stepped[-1]
    assert stepped == sorted(stepped)  # once it fits it goes on fitting
    assert reports[-1].step == sum(stepped)
    assert reports[-1].grad_norm == pytest.approx(800.0 * 5**0.5, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_a_step_that_is_not_finite_is_left_out_on_a_gpu(precision: str) -> None:
    net = forecaster()
    phase = Phase[Tensor]("main", lambda x: forecast_loss(net, x), net.parameters(), adamw(net.parameters(), lr=1e-2))
    good = sequences(8)
    bad = good.clone()
    bad[0, 0, 0] = torch.nan
    kept: list[list[Tensor]] = []
    with Loop([phase], modules={"net": net}, device="cuda", precision=precision).running() as run:
        reports: list[Report] = []
        for report in run.epochs(IterableSource([good, bad, good]), max_epochs=1):
            reports.append(report)
            kept.append([parameter.detach().clone() for parameter in net.parameters()])
    assert [report.stepped for report in windows_of(reports)] == [True, False, True]
    assert all(torch.equal(one, other) for one, other in zip(kept[0], kept[1], strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(kept[1], kept[2], strict=True))


def test_a_window_waits_for_the_device_once() -> None:
    net = forecaster()
    phase = Phase[Tensor]("main", lambda x: forecast_loss(net, x), net.parameters(), adamw(net.parameters(), lr=1e-3))
    batch = sequences(64).cuda()
    waits: list[int] = []
    with Loop([phase], modules={"net": net}, device="cuda", precision="fp32", accumulate=2).running() as run:
        reports = run.epochs(IterableSource([batch] * 12), max_epochs=1)
        next(reports)  # creates the optimizer's states
        next(reports)
        for _ in range(4):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    next(reports)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            waits.append(sum("synchronizing CUDA operation" in str(warning.message) for warning in caught))
    assert waits == [1] * 4


def test_dropout_after_a_shortage_on_a_gpu_is_that_of_a_run_started_at_the_found_size() -> None:
    weights: list[list[Tensor]] = []
    for fits, limit in ((16, None), (64, 16)):
        torch.manual_seed(7)
        net = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.Linear(32, 1))

        def loss(x: Tensor, net: nn.Sequential = net, fits: int = fits) -> Loss:
            hidden = net[1](net[0](x))
            if len(x) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return Loss(net[2](hidden).square().mean(), len(x))

        phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
        data = torch.randn(64, 8, generator=torch.Generator().manual_seed(8))
        with Loop([phase], modules={"net": net}, device="cuda", precision="fp32").running() as run:
            run._phases[0].cutter.limit = limit
            list(run.epochs(IterableSource([data]), max_epochs=1))
        weights.append([parameter.detach().cpu() for parameter in net.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
