"""Settings per phase: start, precision, averaged modules, and frozen parameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import Rows, linear, rows, squares
from torch import Tensor, nn

from trainers.loop import (
    Checkpoints,
    ContractError,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    ResumeMismatchError,
    SettingsError,
    StepReport,
    UncoveredParameterError,
    UnusedParameterError,
    seed_everything,
)
from trainers.loop.step.guards import GradientGuard


def phase_of(name: str, net: nn.Module, **settings: Any) -> Phase[Rows]:
    optimizer = settings.pop("optimizer", None) or torch.optim.Adam(net.parameters(), lr=0.1)
    return Phase(name, lambda batch: squares(net, batch), net.parameters(), optimizer, **settings)


def train_loop(loop: Loop[Rows], batches: int, *, epochs: int = 1) -> list[Report]:
    with loop.running() as run:
        return list(run.epochs(IterableSource([rows(4, seed) for seed in range(batches)]), max_epochs=epochs))


# --- a phase with a late start


def test_a_phase_begins_after_its_windows_and_then_counts_its_own() -> None:
    one, other = linear(), linear()
    phases = [phase_of("first", one), phase_of("late", other, after=3, every=2)]
    reports = train_loop(Loop(phases, modules={"one": one, "other": other}, device="cpu"), 4, epochs=2)
    late = [(r.epoch, r.window, r.step) for r in reports if isinstance(r, StepReport) and r.phase == "late"]
    assert late == [(1, 0, 1), (1, 2, 2)]  # the windows 5 and 7 of the training


def test_a_late_phase_resumes_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    def train(checkpoints: Checkpoints | None, stop: int) -> list[Tensor]:
        seed_everything(1)
        one, other = linear(), linear()
        phases = [phase_of("first", one), phase_of("late", other, after=3)]
        with Loop(phases, modules={"one": one, "other": other}, device="cpu").running(checkpoints) as run:
            for _ in run.epochs(IterableSource([rows(4, seed) for seed in range(6)]), max_epochs=1):
                if run.windows == stop:
                    break
        return [one.weight.detach(), other.weight.detach()]

    checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
    train(checkpoints, 3)
    for found, expected in zip(train(checkpoints, 99), train(None, 99), strict=True):
        assert torch.equal(found, expected)


def test_another_beginning_is_another_training(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
    net = linear()
    with Loop([phase_of("main", net)], modules={"net": net}, device="cpu").running(checkpoints) as run:
        list(run.epochs(IterableSource([rows(), rows()]), max_epochs=1))
    loop = Loop([phase_of("main", net, after=2)], modules={"net": net}, device="cpu")
    with pytest.raises(ResumeMismatchError, match="after of phase 'main' is 0 in the checkpoint and 2 here"):
        loop.running(checkpoints).__enter__()


# --- its own precision


def test_a_phase_computes_in_its_own_precision() -> None:
    seen: dict[str, torch.dtype] = {}

    def watched(name: str, net: nn.Module) -> Phase[Rows]:
        def loss(batch: Rows) -> Loss:
            output = net(batch.x)
            seen[name] = output.dtype
            return Loss((output.float() - batch.y).square().mean(), len(batch.x))

        precision = "bf16" if name == "half" else None
        return Phase(name, loss, net.parameters(), torch.optim.SGD(net.parameters()), precision=precision)

    half, full = linear(), linear()
    train_loop(Loop([watched("half", half), watched("full", full)], modules={"a": half, "b": full}, device="cpu"), 1)
    assert seen == {"half": torch.bfloat16, "full": torch.float32}


def test_a_mean_of_16_bits_is_taken_where_its_weight_is_one() -> None:
    def train(accumulate: int) -> float:
        net = linear()

        def hinge(batch: Rows) -> Loss:
            return Loss(nn.functional.relu(1 - net(batch.x)).mean(), len(batch.x))

        phase = Phase("main", hinge, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
        loop = Loop([phase], modules={"net": net}, device="cpu", precision="bf16", accumulate=accumulate)
        return max(r.grad_norm for r in train_loop(loop, 2) if isinstance(r, StepReport))

    assert train(1) > 0
    with pytest.raises(ContractError, match=r"the mean of the loss is torch\.bfloat16.*apply \.float\(\) to the net"):
        train(2)


# --- averages of some modules


def averaged(ema: float | Mapping[str, float]) -> tuple[Loop[Rows], dict[str, nn.Linear]]:
    torch.manual_seed(2)
    nets = {"first": nn.Linear(3, 3), "second": nn.Linear(3, 1)}
    net = nn.Sequential(nets["first"], nets["second"])
    return Loop([phase_of("main", net)], modules=nets, device="cpu", ema=ema), nets


def test_only_the_modules_named_are_averaged_each_with_its_decay() -> None:
    loop, nets = averaged({"second": 0.5})
    with loop.running() as run:
        list(run.epochs(IterableSource([rows(4, seed) for seed in range(6)]), max_epochs=1))
        trained = {name: net.weight.detach().clone() for name, net in nets.items()}
        run.use_average()
    assert torch.equal(nets["first"].weight, trained["first"])
    assert not torch.equal(nets["second"].weight, trained["second"])
    whole, others = averaged(0.5)
    with whole.running() as run:
        list(run.epochs(IterableSource([rows(4, seed) for seed in range(6)]), max_epochs=1))
        run.use_average()
    assert torch.equal(nets["second"].weight, others["second"].weight)


def test_averages_of_several_modules_resume_to_the_bit(tmp_path: Path) -> None:
    def train(checkpoints: Checkpoints | None, stop: int) -> dict[str, Tensor]:
        seed_everything(1)
        loop, nets = averaged({"second": 0.5, "first": 0.9})
        with loop.running(checkpoints) as run:
            for _ in run.epochs(IterableSource([rows(4, seed) for seed in range(6)]), max_epochs=1):
                if run.windows == stop:
                    break
            run.use_average()
        return {name: net.weight.detach() for name, net in nets.items()}

    checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
    train(checkpoints, 3)
    found, expected = train(checkpoints, 99), train(None, 99)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    loop, _ = averaged({"second": 0.5, "first": 0.8})
    with pytest.raises(ResumeMismatchError, match="average's decay of phase 'main'"):
        loop.running(checkpoints).__enter__()


def test_an_average_of_an_unknown_module_is_refused() -> None:
    with pytest.raises(SettingsError, match="ema names third, but the trained modules are first, second"):
        averaged({"third": 0.5})


# --- parameters unfrozen later


def test_a_parameter_group_added_during_training_is_refused_by_name() -> None:
    one, other = linear(), linear()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    other.requires_grad_(False)
    loop = Loop([phase_of("main", one, optimizer=optimizer)], modules={"one": one, "other": other}, device="cpu")
    with loop.running() as run:
        reports = run.epochs(IterableSource([rows(), rows()]), max_epochs=1)
        next(reports)
        other.requires_grad_(True)
        optimizer.add_param_group({"params": list(other.parameters())})
        before = other.weight.detach().clone()
        with pytest.raises(UncoveredParameterError, match=r"1 parameter groups.*2 now.*other\.weight, other\.bias"):
            next(reports)
    assert torch.equal(other.weight, before)


def test_a_parameter_group_that_came_before_the_start_is_refused_too() -> None:
    one, other = linear(), linear()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    loop = Loop([phase_of("main", one, optimizer=optimizer)], modules={"one": one}, device="cpu")
    optimizer.add_param_group({"params": list(other.parameters())})
    with pytest.raises(UncoveredParameterError, match=r"an unnamed \[1, 3\]"):
        train_loop(loop, 1)


class Backbone(nn.Module):
    """A frozen body and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


def unfrozen_by_schedule(
    checkpoints: Checkpoints | None, *, stop: int = 99, since: int = 2
) -> tuple[Backbone, list[int]]:
    """The documented recipe: all parameters are in the optimizer, and the body is frozen for some epochs."""
    seed_everything(1)
    net = Backbone()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.1)
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), optimizer)
    stood: list[int] = []
    start = net.body.weight.detach().clone()
    with Loop([phase], modules={"net": net}, device="cpu", ema=0.9).running(checkpoints) as run:
        net.body.requires_grad_(run.epoch >= since)
        for report in run.epochs(IterableSource([rows(4, seed) for seed in range(10)]), max_epochs=4):
            if isinstance(report, EpochReport):
                net.body.requires_grad_(run.epoch >= since)
            if torch.equal(net.body.weight, start):
                stood.append(run.windows)
            if run.windows == stop:
                break
    return net, stood


def test_what_waits_in_the_optimizer_stands_still_until_it_trains() -> None:
    net, stood = unfrozen_by_schedule(None)
    assert max(stood) == 20
    assert all(parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize("stop", [5, 19, 20, 23])
def test_unfreezing_by_schedule_resumes_to_the_bit(tmp_path: Path, stop: int) -> None:
    checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
    unfrozen_by_schedule(checkpoints, stop=stop)
    found, _ = unfrozen_by_schedule(checkpoints)
    expected, _ = unfrozen_by_schedule(None)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), expected.parameters(), strict=True))


def test_what_waited_is_given_as_many_windows_to_be_used_as_the_others_had() -> None:
    """By then eighteen windows have passed; the audit of sixteen starts again."""
    net = Backbone()
    used = {"body": False}

    def loss(batch: Rows) -> Loss:
        hidden = net.body(batch.x) if used["body"] else batch.x
        return Loss((net.head(hidden) - batch.y).square().mean(), len(batch.x))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.01))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        net.body.requires_grad_(False)
        reports = run.epochs(IterableSource([rows()] * 40), max_epochs=1)
        for _ in range(18):
            next(reports)
        net.body.requires_grad_(True)
        with pytest.raises(UnusedParameterError, match=r"net\.body\.weight, net\.body\.bias in 16 steps"):
            list(reports)
        assert run.windows == 18 + 15


def test_what_begins_to_train_at_the_epochs_end_is_not_judged_by_that_epoch() -> None:
    net = Backbone()
    phase = Phase[Rows](
        "main", lambda batch: squares(net, batch), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.01)
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        net.body.requires_grad_(False)
        for _ in run.epochs(IterableSource([rows()] * 3), max_epochs=2):
            net.body.requires_grad_(run.windows >= 3)
    assert run.epoch == 2


def test_a_resumed_audit_knows_what_has_waited() -> None:
    waiting, used = nn.Parameter(torch.zeros(1), requires_grad=False), nn.Parameter(torch.zeros(1))
    used.grad = torch.ones(1)

    def guard() -> GradientGuard:
        return GradientGuard({used: "used", waiting: "waiting"}, audit_steps=3, nonfinite="skip", skip_limit=1)

    before, after = guard(), guard()
    for _ in range(5):
        before.collect_gradients()
    after.load(before.state())
    waiting.requires_grad_(True)
    after.collect_gradients()
    after.collect_gradients()
    with pytest.raises(UnusedParameterError, match="waiting in 3 steps"):
        after.collect_gradients()


# --- the audit


class RarelyUsedNetwork(nn.Module):
    """A network that uses a part for batches of two only."""

    def __init__(self) -> None:
        super().__init__()
        self.usual, self.rare = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.rare(x) if len(x) == 2 else self.usual(x)


def audited(epochs: int, audit_steps: int | None) -> list[Report]:
    net = RarelyUsedNetwork()
    batches = [rows()] * 3
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), torch.optim.SGD(net.parameters()))
    with Loop([phase], modules={"net": net}, device="cpu", audit_steps=audit_steps).running() as run:
        return list(run.epochs(IterableSource(batches), max_epochs=epochs))


def test_an_audit_of_a_given_length_continues_past_the_epochs_end() -> None:
    audited(2, 7)
    with pytest.raises(UnusedParameterError, match=r"net\.rare\.weight.*in 7 steps"):
        audited(3, 7)


def test_an_audit_of_no_given_length_ends_with_the_epoch() -> None:
    with pytest.raises(UnusedParameterError, match=r"net\.rare\.weight.*in 3 steps"):
        audited(1, None)
