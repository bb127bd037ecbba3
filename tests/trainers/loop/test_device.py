"""Devices, precisions, and steps with a scaler."""

from functools import partial
from typing import final

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainers.loop import (
    DeviceUnavailableError,
    Hardware,
    IterableSource,
    Loop,
    Loss,
    NonFiniteError,
    Phase,
    Precision,
    PrecisionError,
    WindowReport,
    choose_device,
    choose_precision,
)

NOTHING = Hardware()
NEW_GPUS = Hardware(cuda=("H200", "H200"), cuda_bf16=True)
OLD_GPU = Hardware(cuda=("T4",))
INTEL = Hardware(xpu=("Arc",))
APPLE = Hardware(mps=True)


@pytest.mark.parametrize(
    ("requested", "hardware", "device", "reason"),
    [
        ("auto", NOTHING, "cpu", "no accelerator"),
        ("auto", NEW_GPUS, "cuda:0", "H200"),
        ("auto", INTEL, "xpu:0", "Arc"),
        ("auto", APPLE, "mps", "Apple"),
        ("cpu", NEW_GPUS, "cpu", "asked for"),
        ("cuda", NEW_GPUS, "cuda:0", "asked for"),
        ("cuda:1", NEW_GPUS, "cuda:1", "asked for"),
        ("xpu", INTEL, "xpu:0", "asked for"),
        ("mps", APPLE, "mps", "asked for"),
    ],
)
def test_the_device_follows_request_and_hardware(requested: str, hardware: Hardware, device: str, reason: str) -> None:
    choice = choose_device(requested, hardware)
    assert choice.device == torch.device(device)
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("requested", "hardware", "present"),
    [
        ("cuda", NOTHING, "this machine has cpu;"),
        ("cuda:2", NEW_GPUS, "cuda:0, cuda:1, cpu"),
        ("mps", INTEL, "xpu:0, cpu"),
        ("gpu", NOTHING, "'gpu' was asked for"),
    ],
)
def test_a_device_that_is_not_there_names_those_that_are(requested: str, hardware: Hardware, present: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=present):
        choose_device(requested, hardware)


@pytest.mark.parametrize(
    ("requested", "device", "hardware", "name", "dtype", "scaled"),
    [
        ("auto", "cuda:0", NEW_GPUS, "bf16", torch.bfloat16, False),
        ("auto", "cuda:0", OLD_GPU, "fp16", torch.float16, True),
        ("auto", "xpu:0", INTEL, "bf16", torch.bfloat16, False),
        ("auto", "mps", APPLE, "fp32", None, False),
        ("auto", "cpu", NEW_GPUS, "fp32", None, False),
        ("bf16", "cpu", NOTHING, "bf16", torch.bfloat16, False),
        ("fp32", "cuda:0", NEW_GPUS, "fp32", None, False),
        ("fp16", "cuda:0", NEW_GPUS, "fp16", torch.float16, True),
        ("fp16", "mps", APPLE, "fp16", torch.float16, True),
    ],
)
def test_the_precision_follows_request_and_device(
    requested: str, device: str, hardware: Hardware, name: str, dtype: torch.dtype | None, *, scaled: bool
) -> None:
    precision = choose_precision(requested, torch.device(device), hardware)
    assert (precision.name, precision.dtype, precision.scaler is not None) == (name, dtype, scaled)
    assert precision.reason


def test_emulated_bfloat16_is_said_to_be_slow() -> None:
    assert "slow" in choose_precision("bf16", torch.device("cuda:0"), OLD_GPU).reason


def test_float16_on_a_cpu_is_refused_with_the_reason() -> None:
    with pytest.raises(PrecisionError, match=r"no float16 kernel.*take fp32 or bf16"):
        choose_precision("fp16", torch.device("cpu"), NOTHING)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(PrecisionError, match="'fp8' is not a precision; take one of auto, fp32, bf16, fp16"):
        choose_precision("fp8", torch.device("cpu"), NOTHING)


@final
class Overflowing:
    """Stands in for a scaler whose gradients overflow in chosen windows, and notes the order of the calls."""

    def __init__(self, calls: list[str], *, overflow_in: tuple[int, ...] = (), scale: float = 1024.0) -> None:
        self.calls = calls
        self._overflow_in = overflow_in
        self._scale = scale
        self._window = -1

    def scale(self, outputs: Tensor, /) -> Tensor:
        self.calls.append("scale")
        return outputs * self._scale

    def unscale_(self, optimizer: Optimizer, /) -> None:
        self.calls.append("unscale")
        self._window += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= self._scale

    def step(self, optimizer: Optimizer, /) -> float | None:
        self.calls.append("step")
        if self._window not in self._overflow_in:
            optimizer.step()

    def update(self) -> None:
        self.calls.append("update")
        if self._window in self._overflow_in:
            self._scale /= 2

    def get_scale(self) -> float:
        return self._scale


def scaled(scaler: Overflowing) -> Precision:
    return Precision(name="fp16", dtype=None, scaler=lambda: scaler, reason="a test")


def linear_loss(net: nn.Module, batch: Tensor) -> Loss:
    return Loss(nn.functional.mse_loss(net(batch), batch[:, :1]), len(batch))


def linear() -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(3, 1)


def batches(count: int) -> IterableSource[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return IterableSource([torch.randn(4, 3, generator=generator) for _ in range(count)])


def train(
    net: nn.Linear,
    optimizer: Optimizer,
    precision: Precision | str,
    *,
    windows: int = 3,
    accumulate: int = 1,
    clip: float | None = None,
) -> list[WindowReport]:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    phase = Phase[Tensor]("main", partial(linear_loss, net), net.parameters(), optimizer, scheduler, clip=clip)
    loop = Loop([phase], modules={"net": net}, device="cpu", precision=precision, accumulate=accumulate)
    with loop.running() as run:
        reports = list(run.epochs(batches(windows * accumulate), max_epochs=1))
    return [report for report in reports if isinstance(report, WindowReport)]


def test_a_skipped_step_advances_neither_weights_nor_schedule_nor_step_number() -> None:
    net = linear()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    reports = train(net, optimizer, scaled(Overflowing([], overflow_in=(0, 2))))
    other = linear()
    second = batches(3)
    (_, kept, _) = second.batches(0)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    linear_loss(other, kept).mean.backward()
    other_optimizer.step()
    assert [report.stepped for report in reports] == [False, True, False]
    assert [report.step for report in reports] == [0, 1, 1]
    assert [report.learning_rate for report in reports] == [1.0, 1.0, 0.5]
    assert [report.loss_scale for report in reports] == [512.0, 512.0, 256.0]
    assert torch.allclose(net.weight, other.weight, rtol=1e-5)


def test_gradients_are_unscaled_before_they_are_measured_and_clipped() -> None:
    calls: list[str] = []
    plain, with_scaler = linear(), linear()
    expected = train(plain, torch.optim.SGD(plain.parameters(), lr=1.0), "fp32", accumulate=2, clip=0.1)
    got = train(
        with_scaler,
        torch.optim.SGD(with_scaler.parameters(), lr=1.0),
        scaled(Overflowing(calls)),
        accumulate=2,
        clip=0.1,
    )
    assert calls == ["scale", "scale", "unscale", "step", "update"] * 3
    assert [report.grad_norm for report in got] == pytest.approx([report.grad_norm for report in expected], rel=1e-5)
    assert all(report.grad_norm > 0.1 for report in got)
    assert torch.allclose(with_scaler.weight, plain.weight, rtol=1e-5)


def test_torch_s_own_scaler_changes_nothing_but_the_scale() -> None:
    plain, with_scaler = linear(), linear()
    real = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a test")
    expected = train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), "fp32")
    got = train(with_scaler, torch.optim.SGD(with_scaler.parameters(), lr=0.1), real)
    assert [report.loss_scale for report in got] == [65536.0] * 3
    assert [report.loss_scale for report in expected] == [None] * 3
    assert torch.allclose(with_scaler.weight, plain.weight, rtol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_in_torch_s_scaler_is_skipped_also_by_a_fused_optimizer(*, fused: bool) -> None:
    net = linear()
    before = net.weight.detach().clone()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=fused)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)

    def loss(batch: Tensor) -> Loss:
        # The root's slope at zero is infinite, while its value is not.
        return Loss(net(batch).mean() + (net.weight.sum() * 0).sqrt(), len(batch))

    phase = Phase("main", loss, net.parameters(), optimizer, scheduler)
    real = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a test")
    loop = Loop([phase], modules={"net": net}, device="cpu", precision=real, nonfinite="raise", skip_limit=3)
    with loop.running() as run:
        reports = run.epochs(batches(9), max_epochs=1)
        skipped = [next(reports), next(reports)]
        with pytest.raises(NonFiniteError, match="in 3 windows in a row"):
            next(reports)
    assert [report.stepped for report in skipped if isinstance(report, WindowReport)] == [False, False]
    assert torch.equal(net.weight, before)
    assert scheduler.get_last_lr() == [0.1]


def test_every_phase_has_a_scaler_of_its_own() -> None:
    one, other = linear(), linear()
    calls: list[list[str]] = []

    def scaler() -> Overflowing:
        calls.append([])
        return Overflowing(calls[-1], overflow_in=(0,) if len(calls) == 1 else ())

    phases = [
        Phase[Tensor](name, partial(linear_loss, net), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
        for name, net in {"one": one, "other": other}.items()
    ]
    precision = Precision(name="fp16", dtype=None, scaler=scaler, reason="a test")
    with Loop(phases, modules={"one": one, "other": other}, device="cpu", precision=precision).running() as run:
        stepped = [
            report.stepped for report in run.epochs(batches(1), max_epochs=1) if isinstance(report, WindowReport)
        ]
    assert stepped == [False, True]
    assert len(calls) == 2


def test_bfloat16_on_a_cpu_is_computed_by_autocast_and_without_a_scaler() -> None:
    net, reference = linear(), linear()
    reports = train(net, torch.optim.SGD(net.parameters(), lr=0.1), "bf16", accumulate=3)
    train(reference, torch.optim.SGD(reference.parameters(), lr=0.1), "fp32", accumulate=3)
    assert [report.loss_scale for report in reports] == [None] * 3
    assert torch.allclose(net.weight, reference.weight, atol=0.01)
    assert not torch.equal(net.weight, reference.weight)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["auto", "fp16", "bf16", "fp32"])
def test_a_gpu_trains_in_every_precision_and_agrees_with_the_cpu(precision: str) -> None:
    on_gpu, on_cpu = linear(), linear()
    optimizer = torch.optim.SGD(on_gpu.parameters(), lr=0.1)
    phase = Phase[Tensor]("main", lambda batch: linear_loss(on_gpu, batch), on_gpu.parameters(), optimizer, clip=0.5)
    loop = Loop([phase], modules={"net": on_gpu}, device="cuda", precision=precision, accumulate=2)
    with loop.running() as run:
        reports = [report for report in run.epochs(batches(8), max_epochs=2) if isinstance(report, WindowReport)]
    reference = Phase[Tensor](
        "main",
        lambda batch: linear_loss(on_cpu, batch),
        on_cpu.parameters(),
        torch.optim.SGD(on_cpu.parameters(), lr=0.1),
        clip=0.5,
    )
    with Loop([reference], modules={"net": on_cpu}, device="cpu", accumulate=2).running() as run:
        list(run.epochs(batches(8), max_epochs=2))
    assert all(report.stepped for report in reports)
    assert torch.allclose(on_gpu.weight.cpu(), on_cpu.weight, atol=1e-6 if precision == "fp32" else 2e-2)
