"""Gradient scaler: torch's own on CPU and GPU, and one that records its calls."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast, final

import pytest
import torch
from shortages import Shortage, Stage
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import (
    EmptyTargetError,
    IterableSource,
    Loop,
    Loss,
    NonFiniteError,
    Phase,
    Precision,
    StepReport,
    TrainingRun,
)

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
FUSED = pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
START = 65536.0


class Rows(NamedTuple):
    x: Tensor
    overflows: Tensor


def linear(device: str = "cpu") -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(3, 1).to(device)


def batches(sizes: Sequence[int], *, overflow_in: Sequence[int] = ()) -> list[Rows]:
    generator = torch.Generator().manual_seed(5)
    return [
        Rows(torch.randn(size, 3, generator=generator), torch.tensor(number in overflow_in))
        for number, size in enumerate(sizes)
    ]


def loss_of(net: nn.Linear, batch: Rows) -> Loss:
    mean = (net(batch.x).float() - 1.0).square().mean()
    if batch.overflows:  # the root's slope at zero is infinite, while its value is not
        mean = mean + (net.weight.sum() * 0).sqrt()
    return Loss(mean, len(batch.x))


def real(device: str = "cpu", **settings: Any) -> Precision:
    scaler = partial(torch.amp.GradScaler, device, **settings)
    return Precision(name="fp16", dtype=None, scaler=scaler, reason="a test")


def train(
    net: nn.Linear,
    optimizer: Optimizer,
    precision: Precision | str,
    data: Sequence[Rows],
    *,
    loss: Callable[[Rows], Loss] | None = None,
    every: int = 1,
    **chosen: Any,
) -> list[StepReport]:
    scheduler = ExponentialLR(optimizer, gamma=0.5)
    phase = Phase("main", loss or partial(loss_of, net), net.parameters(), optimizer, scheduler, clip=0.5, every=every)
    device = net.weight.device.type
    with Loop([phase], modules={"net": net}, device=device, precision=precision, **chosen).running() as run:
        reports = list(run.epochs(IterableSource(data), max_epochs=1))
    return [report for report in reports if isinstance(report, StepReport)]


def assert_same(one: nn.Linear, other: nn.Linear) -> None:
    # Scales are powers of two, so scaling and unscaling costs no bit; but on a GPU steps without a scaler are clipped
    # there, and with one on the host.
    tolerance = 0.0 if one.weight.device.type == "cpu" else 1e-5
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()), rtol=tolerance, atol=tolerance)


@DEVICES
@FUSED
@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_a_skipped_step_advances_nothing_but_the_scale(device: str, *, fused: bool, skipped: int) -> None:
    net, reference = linear(device), linear(device)
    data = batches([4] * 4, overflow_in=[skipped])
    reports = train(net, AdamW(net.parameters(), lr=0.1, fused=fused), real(device), data)
    kept = [batch for batch in data if not batch.overflows]
    expected = train(reference, AdamW(reference.parameters(), lr=0.1, fused=fused), "fp32", kept)
    assert [report.stepped for report in reports] == [window != skipped for window in range(4)]
    assert [report.loss_scale for report in reports] == [START] * skipped + [START / 2] * (4 - skipped)
    stepped = [report for report in reports if report.stepped]
    assert [report.step for report in stepped] == [1, 2, 3]
    assert [report.learning_rate for report in stepped] == [report.learning_rate for report in expected]
    assert [report.grad_norm for report in stepped] == pytest.approx([report.grad_norm for report in expected])
    assert_same(net, reference)


@pytest.mark.parametrize("precision", ["fp32", real()], ids=["without a scaler", "with a scaler"])
def test_a_skipped_step_moves_no_average_and_no_state(precision: Precision | str) -> None:
    net = linear()
    optimizer = AdamW(net.parameters(), lr=0.1, fused=True)
    scheduler = ExponentialLR(optimizer, gamma=0.5)
    phase = Phase("main", partial(loss_of, net), net.parameters(), optimizer, scheduler)
    loop = Loop([phase], modules={"net": net}, device="cpu", precision=precision, ema=0.9)
    with loop.running() as run:
        reports = run.epochs(IterableSource(batches([4] * 3, overflow_in=[1])), max_epochs=1)
        first, second, third, _ = [copied_state(run, optimizer) for _ in reports]
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(second, third, strict=True))


def copied_state(run: TrainingRun[Rows], optimizer: Optimizer) -> list[Tensor]:
    """Copies of weights, averages, optimizer states and the learning rate."""
    (phase,) = run._phases
    assert phase.averages
    states = [state for parameter in phase.parameters for state in optimizer.state[parameter].values()]
    rate = torch.tensor(optimizer.param_groups[0]["lr"])
    return [tensor.detach().clone() for tensor in (*phase.parameters, *phase.averages[0].tensors, *states, rate)]


@DEVICES
def test_a_scale_that_grows_is_no_skipped_step(device: str) -> None:
    net, reference = linear(device), linear(device)
    data = batches([4] * 5)
    reports = train(net, SGD(net.parameters(), lr=0.1), real(device, growth_interval=2), data)
    train(reference, SGD(reference.parameters(), lr=0.1), "fp32", data)
    assert [report.loss_scale for report in reports] == [START, START * 2, START * 2, START * 4, START * 4]
    assert all(report.stepped for report in reports)
    assert_same(net, reference)


@DEVICES
def test_a_scale_that_shrank_grows_again(device: str) -> None:
    net = linear(device)
    data = batches([4] * 4, overflow_in=[0])
    reports = train(net, SGD(net.parameters(), lr=0.1), real(device, growth_interval=2), data)
    assert [report.loss_scale for report in reports] == [START / 2, START / 2, START, START]
    assert [report.stepped for report in reports] == [False, True, True, True]


@DEVICES
def test_the_tail_window_weighs_as_much_as_its_targets(device: str) -> None:
    net, reference = linear(device), linear(device)
    data = batches([4, 4, 4, 4, 2])
    reports = train(net, SGD(net.parameters(), lr=0.1), real(device), data, accumulate=2)
    train(reference, SGD(reference.parameters(), lr=0.1), "fp32", data, accumulate=2)
    assert [report.count for report in reports] == [8, 8, 2]
    assert_same(net, reference)


@DEVICES
@FUSED
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_shortage_between_windows_leaves_the_scaler_in_order(device: str, *, fused: bool, stage: Stage) -> None:
    net, reference = linear(device), linear(device)
    data = batches([2, 6, 6, 6, 6, 6], overflow_in=[2])
    shortage = Shortage(stage, 3, since=4)

    def loss(batch: Rows) -> Loss:
        outputs = shortage(net(batch.x)).float()
        tail = (net.weight.sum() * 0).sqrt() if batch.overflows else 0.0
        return Loss((outputs - 1.0).square().mean() + tail, len(batch.x))

    reports = train(net, AdamW(net.parameters(), fused=fused), real(device), data, loss=loss, accumulate=2)
    expected = train(reference, AdamW(reference.parameters(), fused=fused), real(device), data, accumulate=2)
    assert shortage.failures == (1 if device == "cpu" else 2)  # a GPU first drops the copies of its batches
    assert [report.stepped for report in reports] == [report.stepped for report in expected] == [True, False, True]
    assert [report.loss_scale for report in reports] == [START, START / 2, START / 2]
    assert torch.allclose(net.weight, reference.weight, rtol=1e-5)


@DEVICES
def test_a_phase_that_works_in_every_second_window_keeps_its_scale_between(device: str) -> None:
    net, reference = linear(device), linear(device)
    data = batches([4] * 6, overflow_in=[1])
    reports = train(net, SGD(net.parameters(), lr=0.1), real(device), data, every=2)
    train(reference, SGD(reference.parameters(), lr=0.1), "fp32", [data[3], data[5]])
    assert [(report.window, report.stepped, report.loss_scale) for report in reports] == [
        (1, False, START / 2),
        (3, True, START / 2),
        (5, True, START / 2),
    ]
    assert_same(net, reference)


def test_a_window_without_targets_is_told_as_such_and_not_as_missing_checks_of_the_scaler() -> None:
    net = linear()

    def loss(batch: Rows) -> Loss:
        return Loss(loss_of(net, batch).mean, 0 if len(batch.x) == 2 else len(batch.x))

    with pytest.raises(EmptyTargetError, match="no batch of the window has a target"):
        train(net, SGD(net.parameters(), lr=0.1), real(), batches([4, 2]), loss=loss)


def test_momentum_that_a_fused_optimizer_makes_in_an_overflowing_first_step_is_not_left_unset() -> None:
    net, reference = linear(), linear()
    data = batches([4] * 4, overflow_in=[0])
    train(net, SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True), real(), data)
    train(reference, SGD(reference.parameters(), lr=0.1, momentum=0.9, fused=True), "fp32", data[1:])
    assert_same(net, reference)


def states(precision: Precision | str, *, overflow: bool = False) -> tuple[dict[str, Any], float | None]:
    """Phase state and scale after a window."""
    net = linear()
    phase = Phase("main", partial(loss_of, net), net.parameters(), SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu", precision=precision).running() as run:
        (report,) = [
            report
            for report in run.epochs(IterableSource(batches([4], overflow_in=[0] if overflow else [])), max_epochs=1)
            if isinstance(report, StepReport)
        ]
        return run._phases[0].state(), report.loss_scale


def resumed_scale(state: dict[str, Any], precision: Precision | str) -> float | None:
    net = linear()
    phase = Phase("main", partial(loss_of, net), net.parameters(), SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu", precision=precision).running() as run:
        run._phases[0].load(state)
        report = next(run.epochs(IterableSource(batches([4])), max_epochs=1))
    assert isinstance(report, StepReport)
    assert report.stepped
    assert report.step == state["step"] + 1
    return report.loss_scale


def test_a_resumed_scaler_keeps_its_scale() -> None:
    state, scale = states(real(), overflow=True)
    assert scale == START / 2
    assert resumed_scale(state, real()) == START / 2


@pytest.mark.parametrize("saved", ["fp32", real(enabled=False)], ids=["without a scaler", "with a disabled one"])
def test_a_training_saved_without_a_scale_resumes_with_a_fresh_one(saved: Precision | str) -> None:
    state, _ = states(saved)
    assert resumed_scale(state, real()) == START


def test_a_training_saved_with_a_scaler_resumes_without_one() -> None:
    state, _ = states(real(), overflow=True)
    assert resumed_scale(state, "fp32") is None


@FUSED
def test_too_many_overflows_in_a_row_are_an_error_even_before_the_first_step(*, fused: bool) -> None:
    net = linear()
    before = net.weight.detach().clone()
    optimizer = AdamW(net.parameters(), lr=0.1, fused=fused)
    with pytest.raises(NonFiniteError, match="in 3 steps in a row"):
        train(
            net,
            optimizer,
            real(),
            batches([4] * 9, overflow_in=range(9)),
            nonfinite="raise",
            skip_limit=3,
        )
    assert torch.equal(net.weight, before)
    assert optimizer.param_groups[0]["lr"] == 0.1


@final
class RecordingScaler:
    """A scaler that records its calls, with overflows in chosen windows."""

    def __init__(self, calls: list[str], *, overflow_in: Sequence[int] = ()) -> None:
        self._calls = calls
        self._overflow_in = overflow_in
        self._scale = 1024.0
        self._window = -1

    def scale(self, outputs: Tensor, /) -> Tensor:
        self._calls.append("scale")
        return outputs * self._scale

    def unscale_(self, optimizer: Optimizer, /) -> None:
        self._calls.append("unscale")
        self._window += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= self._scale

    def step(self, optimizer: Optimizer, /) -> float | None:
        self._calls.append("step")
        if self._window not in self._overflow_in:
            optimizer.step()

    def update(self) -> None:
        self._calls.append("update")
        if self._window in self._overflow_in:
            self._scale /= 2

    def get_scale(self) -> float:
        return self._scale

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        raise NotImplementedError


def test_gradients_are_unscaled_before_they_are_measured_and_clipped() -> None:
    calls: list[str] = []
    net, reference = linear(), linear()
    data = batches([4] * 6)
    precision = Precision(
        name="fp16", dtype=None, scaler=lambda: cast("torch.amp.GradScaler", RecordingScaler(calls)), reason="a test"
    )
    got = train(net, SGD(net.parameters(), lr=1.0), precision, data, accumulate=2)
    expected = train(reference, SGD(reference.parameters(), lr=1.0), "fp32", data, accumulate=2)
    assert calls == ["scale", "scale", "unscale", "step", "update"] * 3
    assert [report.grad_norm for report in got] == [report.grad_norm for report in expected]
    assert all(report.grad_norm > 0.5 for report in got)
    assert_same(net, reference)


def test_every_phase_has_a_scaler_of_its_own() -> None:
    one, other = linear(), linear()
    calls: list[list[str]] = []

    def scaler() -> Any:
        calls.append([])
        return RecordingScaler(calls[-1], overflow_in=(0,) if len(calls) == 1 else ())

    phases = [
        Phase[Rows](name, partial(loss_of, net), net.parameters(), SGD(net.parameters(), lr=0.1))
        for name, net in {"one": one, "other": other}.items()
    ]
    precision = Precision(name="fp16", dtype=None, scaler=scaler, reason="a test")
    with Loop(phases, modules={"one": one, "other": other}, device="cpu", precision=precision).running() as run:
        reports = [*run.epochs(IterableSource(batches([4])), max_epochs=1)]
    assert [report.stepped for report in reports if isinstance(report, StepReport)] == [False, True]
    assert len(calls) == 2
