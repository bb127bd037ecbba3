"""Memory shortage in a window: no sample is lost, and the update stays the same."""

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortages import Shortage, Stage, cuda_shortage
from torch import Tensor, nn

from trainers.loop import (
    EpochReport,
    IterableSource,
    Loop,
    LoopError,
    Loss,
    OutOfMemoryError,
    Phase,
    Report,
    StepReport,
    TrainingNotice,
    TrainingRun,
)
from trainers.loop.device.memory import describe_usage, is_out_of_memory

STAGES: tuple[Stage, ...] = ("forward", "backward")


class Rows(NamedTuple):
    x: Tensor
    y: Tensor
    known: Tensor


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training run with two phases, each with its own network and memory limit.

    Attributes:
        sizes: Samples of every batch.
        accumulate: Batches in a window.
        known: Which samples have a target; as many as there are samples.
        fits: The most samples that fit, phase by phase.
        stages: Where more do not.
        since: From which micro-batch on.
        dropout: Probability.
        dtype: Of weights and data.
    """

    sizes: Sequence[int]
    accumulate: int
    known: Sequence[bool]
    fits: tuple[int, int]
    stages: tuple[Stage, Stage] = ("forward", "backward")
    since: tuple[int, int] = (1, 1)
    dropout: float = 0.0
    dtype: torch.dtype = torch.float64


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """Result of a training run."""

    weights: list[Tensor]
    generator: Tensor
    reports: list[Report]
    failures: int

    def windows(self) -> list[StepReport]:
        return [report for report in self.reports if isinstance(report, StepReport)]

    def limits(self) -> list[list[int | None]]:
        """Micro-batch sizes of each window, by phase."""
        by_phase = [
            [report.micro_batch_limit for report in self.windows() if report.phase == name] for name in ("one", "two")
        ]
        return [list(pair) for pair in zip(*by_phase, strict=True)]


@st.composite
def trainings(draw: st.DrawFn, dropout: float = 0.0) -> Training:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    accumulate = draw(st.integers(1, 4))
    known = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    ends = np.cumsum(sizes)
    for last in {*ends[accumulate - 1 :: accumulate], ends[-1]}:  # every window must have a target
        known[last - 1] = True
    return Training(
        sizes=sizes,
        accumulate=accumulate,
        known=known,
        fits=draw(st.tuples(st.integers(1, 6), st.integers(1, 6))),
        stages=draw(st.tuples(st.sampled_from(STAGES), st.sampled_from(STAGES))),
        since=draw(st.tuples(st.integers(1, 9), st.integers(1, 9))),
        dropout=dropout,
    )


def batches_of(training: Training) -> IterableSource[Rows]:
    generator = torch.Generator().manual_seed(5)
    count = sum(training.sizes)
    x = torch.randn(count, 3, generator=generator, dtype=training.dtype)
    y = torch.randn(count, 2, generator=generator, dtype=training.dtype)
    columns = [tensor.split(list(training.sizes)) for tensor in (x, y, torch.tensor(training.known))]
    return IterableSource([Rows(*batch) for batch in zip(*columns, strict=True)])


def phase_of(training: Training, number: int, shortage: Shortage | None) -> tuple[nn.Module, Phase[Rows]]:
    inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(training.dropout))
    net = nn.Sequential(inner, nn.Linear(4, 2)).to(training.dtype)

    def loss(batch: Rows) -> Loss:
        hidden = inner(batch.x)
        outputs = net[1](hidden if shortage is None else shortage(hidden))
        return Loss((outputs - batch.y)[batch.known].square().mean(), int(batch.known.sum()))

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return net, Phase(("one", "two")[number], loss, net.parameters(), optimizer, clip=None)


def set_limits(run: TrainingRun[Rows], limits: Sequence[int | None]) -> None:
    for phase, limit in zip(run._phases, limits, strict=True):
        phase.cutter.limit = limit


def train(training: Training, *, short: bool, limits: Sequence[Sequence[int | None]] = ()) -> TrainingOutcome:
    """Train for an epoch; `limits` sets the micro-batch size before each window."""
    torch.manual_seed(3)
    shortages = [Shortage(training.stages[n], training.fits[n], since=training.since[n]) for n in range(2)]
    made = [phase_of(training, n, shortages[n] if short else None) for n in range(2)]
    nets = {"one": made[0][0], "two": made[1][0]}
    loop = Loop([phase for _, phase in made], modules=nets, device="cpu", accumulate=training.accumulate)
    waiting = list(limits)
    reports: list[Report] = []
    with loop.running() as run:
        set_limits(run, waiting.pop(0) if waiting else (None, None))
        for report in run.epochs(batches_of(training), max_epochs=1):
            reports.append(report)
            if waiting and isinstance(report, StepReport) and report.phase == "two":
                set_limits(run, waiting.pop(0))
    return TrainingOutcome(
        weights=[parameter.detach().clone() for net in nets.values() for parameter in net.parameters()],
        generator=torch.get_rng_state(),
        reports=reports,
        failures=sum(shortage.failures for shortage in shortages),
    )


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor], *, tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max()


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> None:
    """Speed up the garbage collection of each recovery, which is slow in a large process."""
    train_one(nn.Linear(3, 2), Shortage("backward", 1), [2])  # torch imports the rest of itself in the first step
    gc.freeze()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(training=trainings())
def test_after_a_shortage_the_update_is_that_of_the_unsplit_window(training: Training) -> None:
    found, expected = train(training, short=True), train(training, short=False)
    assert_close(found.weights, expected.weights, tolerance=1e-12)
    for one, other in zip(found.windows(), expected.windows(), strict=True):
        assert (one.count, one.step, one.stepped) == (other.count, other.step, True)
        assert one.loss == pytest.approx(other.loss, rel=1e-12)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(training=trainings())
def test_after_a_shortage_the_update_is_that_of_the_unsplit_window_in_single_precision(training: Training) -> None:
    single = replace(training, dtype=torch.float32)
    assert_close(train(single, short=True).weights, train(single, short=False).weights, tolerance=1e-6)


@pytest.mark.slow
@settings(max_examples=120, deadline=None, derandomize=True)
@given(training=trainings(dropout=0.5))
def test_with_dropout_a_shortage_gives_the_bits_of_a_run_started_at_the_found_size(training: Training) -> None:
    found = train(training, short=True)
    started = train(training, short=False, limits=found.limits())
    assert all(torch.equal(one, other) for one, other in zip(found.weights, started.weights, strict=True))
    assert torch.equal(found.generator, started.generator)
    assert [report.loss for report in found.windows()] == [report.loss for report in started.windows()]


def test_after_a_failed_forward_only_the_micro_batch_is_worked_again() -> None:
    shortage = Shortage("forward", 4)
    net = nn.Linear(3, 2)
    train_one(net, shortage, [2, 2, 8, 8], accumulate=4)
    assert shortage.sizes == [2, 2, 8, 4, 4, 4, 4]


def test_after_a_failed_forward_the_window_is_worked_again_if_a_micro_batch_before_was_larger_than_now() -> None:
    shortage = Shortage("forward", 3, since=2)
    train_one(nn.Linear(3, 2), shortage, [4, 6], accumulate=2)
    assert shortage.sizes == [4, 6, 3, 1, 3, 3]


def test_after_a_failed_backward_the_window_is_worked_again() -> None:
    shortage = Shortage("backward", 4)
    train_one(nn.Linear(3, 2), shortage, [2, 2, 8, 8], accumulate=4)
    assert shortage.sizes == [2, 2, 8, 2, 2, 4, 4, 4, 4]


def train_one(
    net: nn.Module,
    shortage: Callable[[Tensor], Tensor],
    sizes: Sequence[int],
    *,
    accumulate: int = 1,
    **chosen: object,
) -> list[Report]:
    """Train one network for an epoch on batches of these sizes."""
    torch.manual_seed(4)

    def loss(batch: Tensor) -> Loss:
        return Loss(net(shortage(batch.requires_grad_())).square().mean(), len(batch))

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    phase = Phase("main", loss, net.parameters(), optimizer)
    loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate, **chosen)  # pyright: ignore[reportArgumentType]
    with loop.running() as run:
        return list(run.epochs(IterableSource([torch.randn(size, 3) for size in sizes]), max_epochs=1))


@pytest.mark.parametrize("stage", STAGES)
def test_the_found_size_is_kept_and_every_window_with_a_shortage_is_told_once(stage: Stage) -> None:
    reports = train_one(nn.Linear(3, 2), Shortage(stage, 2), [8, 8, 8])
    windows = [report for report in reports if isinstance(report, StepReport)]
    notices = [report.message for report in reports if isinstance(report, TrainingNotice)]
    assert [(report.micro_batch_limit, report.shortages) for report in windows] == [(2, 2), (2, 0), (2, 0)]
    assert [report.count for report in windows] == [8, 8, 8]
    (notice,) = notices
    assert "in phase 'main', epoch 1, window 1; no sample was skipped" in notice
    assert "micro-batches of at most 2" in notice
    assert reports.index(windows[0]) < [isinstance(report, TrainingNotice) for report in reports].index(True)
    (epoch,) = [report for report in reports if isinstance(report, EpochReport)]
    assert epoch.phases["main"].shortages == 2


def test_a_shortage_in_a_later_window_is_reported_after_it() -> None:
    reports = train_one(nn.Linear(3, 2), Shortage("forward", 4, since=3), [8, 8, 8])
    windows = [report for report in reports if isinstance(report, StepReport)]
    assert [(report.micro_batch_limit, report.shortages) for report in windows] == [(None, 0), (None, 0), (4, 1)]
    assert "window 3" in "".join(report.message for report in reports if isinstance(report, TrainingNotice))


@pytest.mark.parametrize("stage", STAGES)
def test_a_single_sample_that_does_not_fit_is_an_error_with_place_size_memory_and_advice(stage: Stage) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        train_one(nn.Linear(3, 2), Shortage(stage, 0), [4])
    message = str(caught.value)
    assert f"memory ran out in the {stage} (CUDA out of memory. Tried to allocate 2.00 GiB.; now" in message
    assert re.search(r"now [\d.]+ [KMG]iB in use on cpu of [\d.]+ [GT]iB\)", message)
    assert "samples 0 to 0 of 4" in message
    assert "use a lower precision" in message
    assert "in phase 'main', epoch 0, window 0, batch 0 of 1: batch float32[4, 3]" in message


def test_a_training_that_must_not_split_fails_at_the_first_shortage() -> None:
    shortage = Shortage("forward", 4)
    with pytest.raises(OutOfMemoryError, match=r'oom="fail" is set'):
        train_one(nn.Linear(3, 2), shortage, [8], oom="fail")
    assert shortage.sizes == [8]


def numpy_shortage() -> BaseException:
    try:
        np.empty(1 << 50)
    except MemoryError as error:
        return error
    raise AssertionError


SHORTAGES: dict[str, Callable[[], BaseException]] = {
    "CUDA and XPU": cuda_shortage,
    "CUDA, from a call that is not torch's": lambda: RuntimeError("CUDA error: out of memory"),
    "MPS": lambda: RuntimeError(
        "MPS backend out of memory (MPS allocated: 5.19 GB, other allocations: 1.0 GB, max allowed: 6.80 GB)."
    ),
    "CPU": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "CPU on Windows": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes"
    ),
    "cuBLAS": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuDNN": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuDNN, which torch asked for a kernel": lambda: RuntimeError(
        "GET was unable to find an engine to execute this computation"
    ),
    "cuDNN, which torch asked for the fastest kernel": lambda: RuntimeError(
        "FIND was unable to find an engine to execute this computation"
    ),
    "cuDNN of older versions": lambda: RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    "Python": MemoryError,
    "NumPy": numpy_shortage,
}


@pytest.mark.parametrize("error", SHORTAGES.values(), ids=SHORTAGES.keys())
def test_memory_that_ran_out_is_known_on_every_device(error: Callable[[], BaseException]) -> None:
    assert is_out_of_memory(error())
    shortage = Shortage("forward", 2, error=error)
    windows = [report for report in train_one(nn.Linear(3, 2), shortage, [4]) if isinstance(report, StepReport)]
    assert [(report.micro_batch_limit, report.shortages, report.count) for report in windows] == [(2, 1, 4)]


def test_torch_s_own_refusal_of_a_huge_tensor_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 46)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("stage", STAGES)
def test_a_missing_cudnn_kernel_is_reported_with_both_causes(stage: Stage) -> None:
    text = "GET was unable to find an engine to execute this computation"
    shortage = Shortage(stage, 0, error=lambda: RuntimeError(text))
    with pytest.raises(OutOfMemoryError, match=r"found no memory for its workspace, or it has no kernel") as caught:
        train_one(nn.Linear(3, 2), shortage, [4])
    assert text in str(caught.value)
    assert "use another precision" in str(caught.value)
    assert shortage.sizes[:2] == [4, 2]  # smaller micro-batches were tried before


OTHERS: dict[str, Callable[[], BaseException]] = {
    "memory that was misused": lambda: RuntimeError("CUDA error: an illegal memory access was encountered"),
    "a failed assertion": lambda: RuntimeError("CUDA error: device-side assert triggered"),
    "shapes": lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x3 and 4x2)"),
    "a wrong value": lambda: ValueError("out of memory"),
}


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("stage", STAGES)
def test_any_other_error_ends_the_training_and_says_where(stage: Stage, error: Callable[[], BaseException]) -> None:
    shortage = Shortage(stage, 2, error=error)
    with pytest.raises(type(error()), match=re.escape(str(error()))) as caught:
        train_one(nn.Linear(3, 2), shortage, [1, 4], accumulate=2)
    assert shortage.failures == 1
    assert caught.value.__notes__ == [
        "in phase 'main', epoch 0, window 0, batch 1 of 2: batch float32[4, 3]",
    ]


def test_a_shape_bug_raises_with_batch_and_shapes_and_never_becomes_a_loss_of_zero() -> None:
    net = nn.Linear(5, 2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        train_one(net, lambda x: x, [4])
    assert caught.value.__notes__ == ["in phase 'main', epoch 0, window 0, batch 0 of 1: batch float32[4, 3]"]


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_failed_micro_batch_computed_is_freed_before_it_is_worked_again(stage: Stage) -> None:
    shortage = Shortage(stage, 2)
    net = nn.Linear(3, 2)
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def loss(x: Tensor) -> Loss:
        alive.append(sum(reference() is not None for reference in made))
        hidden = net(x) * 2
        made.append(weakref.ref(hidden))
        return Loss(shortage(hidden).square().mean(), len(x))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    gc.disable()
    try:
        with Loop([phase], modules={"net": net}, device="cpu").running() as run:
            list(run.epochs(IterableSource([torch.randn(8, 3)]), max_epochs=1))
    finally:
        gc.enable()
    assert shortage.sizes == [8, 4, 2, 2, 2, 2]
    assert alive == [0] * 6


def test_a_window_whose_backward_failed_leaves_no_half_gradient() -> None:
    net, reference = nn.Linear(3, 2), nn.Linear(3, 2)
    reference.load_state_dict(net.state_dict())
    train_one(net, Shortage("backward", 3, since=2), [3, 6], accumulate=2)
    train_one(reference, lambda x: x, [3, 6], accumulate=2)
    assert_close([net.weight.detach()], [reference.weight.detach()], tolerance=1e-6)


def test_memory_in_use_is_described_in_words() -> None:
    assert re.fullmatch(r"[\d.]+ \w+ in use on cpu of [\d.]+ \w+", describe_usage(torch.device("cpu")))


def test_the_loop_s_own_errors_are_not_taken_for_memory() -> None:
    assert not is_out_of_memory(LoopError("out of memory"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of address space that the allocator feels")
def test_a_process_whose_memory_is_limited_finds_the_gradient_of_one_that_is_not() -> None:
    program = Path(__file__).with_name("limited_process.py")
    # Large blocks come from the system, not from cached memory, so that the limit applies at the same place.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, str(program), "20", "28"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    both, backward = [json.loads(line) for line in ended.stdout.splitlines()]
    assert both["forward"] >= 1
    assert both["backward"] >= 1
    assert backward["backward"] >= 1
    assert 1 <= both["limit"] < 2048
    assert 0 < both["error"] < 1e-5
    assert 0 < backward["error"] < 1e-5
