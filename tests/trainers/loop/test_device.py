"""Devices and precisions of the training loop."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
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
    Phase,
    PrecisionError,
    StepReport,
    choose_device,
    choose_precision,
)
from trainers.loop.device.hardware import CPU, Probe, check_device, run_probe, use_device
from trainers.loop.errors import SelfTestError

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
        ("cpu", NEW_GPUS, "cpu", "requested"),
        ("cuda", NEW_GPUS, "cuda:0", "requested"),
        ("cuda:1", NEW_GPUS, "cuda:1", "requested"),
        ("xpu", INTEL, "xpu:0", "requested"),
        ("mps", APPLE, "mps", "requested"),
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
        ("gpu", NOTHING, "'gpu' was requested"),
    ],
)
def test_a_device_that_is_not_there_names_those_that_are(requested: str, hardware: Hardware, present: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=present):
        choose_device(requested, hardware)


@pytest.mark.parametrize(("device", "index"), [("cuda:1", 1), ("xpu:2", 2), ("cpu", None), ("mps", None)])
def test_a_gpu_is_torch_s_current_device_inside_and_not_afterwards(
    monkeypatch: pytest.MonkeyPatch, device: str, index: int | None
) -> None:
    current = [0]

    @contextmanager
    def device_index(chosen: int) -> Generator[None]:
        current.append(chosen)
        yield
        current.pop()

    monkeypatch.setattr("torch.accelerator.device_index", device_index)
    with use_device(torch.device(device)):
        assert current[-1] == (0 if index is None else index)
    assert current == [0]


def _noting(steps: list[str]) -> Callable[[torch.device], None]:
    return lambda device: steps.append(f"self-test on {device}")


def test_the_device_is_current_from_the_self_test_to_the_end_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @contextmanager
    def current(device: torch.device) -> Generator[None]:
        steps.append(f"{device} is current")
        try:
            yield
        finally:
            steps.append("no more")

    monkeypatch.setattr("trainers.loop.loop.use_device", current)
    monkeypatch.setattr("trainers.loop.loop.check_device", _noting(steps))
    net = linear()
    phase = Phase[Tensor]("main", partial(linear_loss, net), net.parameters(), torch.optim.SGD(net.parameters()))
    with Loop([phase], modules={"net": net}, device="cpu").running():
        steps.append("training")
    assert steps == ["cpu is current", "self-test on cpu", "training", "no more"]


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


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("fp16", r"no float16 kernel.*use fp32 or bf16"),
        ("fp8", "'fp8' is not a precision; use one of auto, fp32, bf16, fp16"),
    ],
)
def test_an_unusable_precision_is_refused_with_the_alternatives(precision: str, message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        choose_precision(precision, torch.device("cpu"), NOTHING)


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
    precision: str,
    *,
    windows: int = 3,
    accumulate: int = 1,
    clip: float | None = None,
) -> list[StepReport]:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    phase = Phase[Tensor]("main", partial(linear_loss, net), net.parameters(), optimizer, scheduler, clip=clip)
    loop = Loop([phase], modules={"net": net}, device="cpu", precision=precision, accumulate=accumulate)
    with loop.running() as run:
        reports = list(run.epochs(batches(windows * accumulate), max_epochs=1))
    return [report for report in reports if isinstance(report, StepReport)]


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
        reports = [report for report in run.epochs(batches(8), max_epochs=2) if isinstance(report, StepReport)]
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


SOME_GPU = torch.device("cuda", 0)


def check(make: Callable[[float], nn.Module]) -> None:
    """Run the GPU self-test with networks made by `make`."""
    check_device(SOME_GPU, compute=lambda _: run_probe(CPU, make))


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
        match=r"^cuda:0 computes incorrectly.*the gradient of recurrent\.weight_hh_l1 is off by 0\.0456 where the "
        r"largest value is 0\.0456, the step of recurrent\.weight_hh_l1 is off by \S+ where .* train on device 'cpu'$",
    ):
        check(partial(with_wrong_gradient, factor=2.0))


@pytest.mark.parametrize(("factor", "error"), [(0.0, r"0\.0456"), (float("nan"), "nan")], ids=["missing", "nan"])
def test_a_missing_or_nan_gradient_is_noticed(factor: float, error: str) -> None:
    with pytest.raises(SelfTestError, match=rf"the gradient of recurrent\.weight_hh_l1 is off by {error}"):
        check(partial(with_wrong_gradient, factor=factor))


@final
class AlwaysDropping(nn.Module):
    """An LSTM that drops out in evaluation mode too, as on Apple GPUs after training."""

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


def test_the_generator_and_the_modes_stay_unchanged() -> None:
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
