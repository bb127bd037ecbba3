"""Shared forward: one phase runs the generator once per batch for all phases."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from rank_processes import results_on_ranks
from shortages import Shortage, Stage
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from trainers.loop import (
    Checkpoints,
    ContractError,
    IterableSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    Report,
    SettingsError,
    StepReport,
    TrainingNotice,
    seed_everything,
)
from trainers.loop.group.processes import launched_rank
from trainers.loop.run_parts import PhaseRun

Order = Literal["owner last", "owner first"]
CLIP = None


def unchanged(x: Tensor) -> Tensor:
    return x


@dataclass
class Adversaries:
    """A generator and a discriminator with hooks for faults.

    Attributes:
        in_forward: Goes over what the generator makes.
        in_user: Goes over what the discriminator's loss is given.
        in_owner: Goes over what the generator's loss is given.
        noise: Whether the generator draws a number in every forward.
        drawn: What it drew.
        calls: Samples of every forward.
    """

    in_forward: Callable[[Tensor], Tensor] = unchanged
    in_user: Callable[[Tensor], Tensor] = unchanged
    in_owner: Callable[[Tensor], Tensor] = unchanged
    noise: bool = False
    normalized: bool = False
    every: int = 1
    after: int = 0
    drawn: list[float] = field(default_factory=list[float])
    calls: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        torch.manual_seed(4)
        norm = [nn.BatchNorm1d(4)] if self.normalized else []
        self.maker = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), *norm, nn.Linear(4, 3)).double()
        norm = [nn.BatchNorm1d(4)] if self.normalized else []
        self.critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), *norm, nn.Linear(4, 1)).double()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.calls.append(len(x))
        if self.noise:
            self.drawn.append(float(torch.rand(())))
            x = x + 0.1 * self.drawn[-1]
        return {"samples": self.in_forward(self.maker(x))}

    def told_apart(self, x: Tensor, made: dict[str, Tensor]) -> Loss:
        samples = self.in_user(made["samples"])
        mean = nn.functional.softplus(-self.critic(x)).mean() + nn.functional.softplus(self.critic(samples)).mean()
        return Loss(mean, len(x))

    def taken_for_real(self, x: Tensor, made: dict[str, Tensor]) -> Loss:
        samples = self.in_owner(made["samples"])
        return Loss(nn.functional.softplus(-self.critic(samples)).mean() + (samples - x).square().mean(), len(x))

    def phases(self, order: Order = "owner last") -> list[Phase[Tensor]]:
        maker = Phase[Tensor](
            "maker",
            self.taken_for_real,
            self.maker.parameters(),
            torch.optim.Adam(self.maker.parameters(), lr=0.02),
            clip=CLIP,
            forward=self.forward,
            every=self.every,
        )
        critic = Phase[Tensor](
            "critic",
            self.told_apart,
            self.critic.parameters(),
            torch.optim.Adam(self.critic.parameters(), lr=0.05),
            clip=CLIP,
            uses="maker",
            after=self.after,
        )
        return [critic, maker] if order == "owner last" else [maker, critic]

    def loop(self, order: Order = "owner last", *, accumulate: int = 1, **settings: Any) -> Loop[Tensor]:
        return Loop(
            self.phases(order),
            modules={"maker": self.maker, "critic": self.critic},
            device="cpu",
            accumulate=accumulate,
            **settings,
        )

    def weights(self) -> list[Tensor]:
        return [*self.maker.parameters(), *self.critic.parameters()]

    def buffers(self) -> dict[str, Tensor]:
        modules = {"maker": self.maker, "critic": self.critic}
        return {
            f"{name}.{path}": buffer.clone()
            for name, module in modules.items()
            for path, buffer in module.named_buffers()
        }


def batches(count: int, size: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, 3, generator=generator, dtype=torch.float64) for _ in range(count)]


def train_pair(
    pair: Adversaries,
    source: Sequence[Tensor],
    order: Order = "owner last",
    *,
    limit: int | None = None,
    **settings: Any,
) -> list[Report]:
    torch.manual_seed(9)
    with pair.loop(order, **settings).running() as run:
        for phase in run._phases:
            phase.cutter.limit = limit
        return list(run.epochs(IterableSource(source), max_epochs=1))


def by_hand(pair: Adversaries, source: Sequence[Tensor], order: Order, accumulate: int) -> None:
    """A hand-written loop: one forward per batch, and a detached copy for the critic."""
    critic = torch.optim.Adam(pair.critic.parameters(), lr=0.05)
    maker = torch.optim.Adam(pair.maker.parameters(), lr=0.02)
    waiting = iter(source)
    while window := list(islice(waiting, accumulate)):
        made = [pair.forward(x) for x in window]
        detached = [{"samples": one["samples"].detach()} for one in made]
        steps = [(critic, pair.told_apart, detached), (maker, pair.taken_for_real, made)]
        for optimizer, loss, given in steps if order == "owner last" else reversed(steps):
            critic.zero_grad()
            maker.zero_grad()
            losses = [loss(x, one) for x, one in zip(window, given, strict=True)]
            mean = torch.stack([one.mean * one.count for one in losses]).sum() / sum(one.count for one in losses)
            mean.backward()
            optimizer.step()


def assert_same(found: Adversaries, expected: Adversaries, tolerance: float = 1e-12) -> None:
    for one, other in zip(found.weights(), expected.weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("order", ["owner last", "owner first"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_steps_are_those_of_a_loop_by_hand_that_forwards_once(order: Order, accumulate: int) -> None:
    found, expected = Adversaries(noise=accumulate == 1), Adversaries(noise=accumulate == 1)
    source = [*batches(4), *batches(1, size=2)]
    train_pair(found, source, order, accumulate=accumulate)
    torch.manual_seed(9)
    by_hand(expected, source, order, accumulate)
    assert found.calls == [4, 4, 4, 4, 2]
    assert_same(found, expected)


def test_an_owner_that_is_not_due_makes_values_without_a_graph() -> None:
    attached: list[bool] = []

    def look(samples: Tensor) -> Tensor:
        attached.append(samples.requires_grad)
        return samples

    pair = Adversaries(in_forward=look, every=2)
    before = [weight.detach().clone() for weight in pair.maker.parameters()]
    reports = train_pair(pair, batches(1))
    assert [report.phase for report in reports if isinstance(report, StepReport)] == ["critic"]
    assert attached == [False]
    assert all(torch.equal(one, other) for one, other in zip(before, pair.maker.parameters(), strict=True))


def test_a_user_that_begins_late_leaves_the_owner_alone_until_then() -> None:
    pair, alone = Adversaries(after=2), Adversaries()
    reports = train_pair(pair, batches(3))
    assert [(report.window, report.phase) for report in reports if isinstance(report, StepReport)] == [
        (0, "maker"),
        (1, "maker"),
        (2, "critic"),
        (2, "maker"),
    ]
    before = Adversaries(after=2)
    train_pair(before, batches(2))
    optimizer = torch.optim.Adam(alone.maker.parameters(), lr=0.02)
    for x in batches(2):
        optimizer.zero_grad()
        alone.taken_for_real(x, alone.forward(x)).mean.backward()
        optimizer.step()
    assert_same(before, alone)


Place = Literal["in_forward", "in_user", "in_owner"]


@pytest.mark.parametrize("order", ["owner last", "owner first"])
@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("since", [1, 2])
@pytest.mark.parametrize("place", ["in_forward", "in_user", "in_owner"])
def test_a_shortage_anywhere_changes_nothing_and_repeats_no_step(
    place: Place, since: int, stage: Stage, order: Order
) -> None:
    shortage = Shortage(stage, 2, since=since)

    def short(samples: Tensor) -> Tensor:
        return shortage(samples.requires_grad_() if stage == "backward" and not samples.requires_grad else samples)

    found, expected = Adversaries(), Adversaries()
    setattr(found, place, short)
    reports = train_pair(found, batches(4), order, accumulate=2)
    # After the owner's step the forward is repeated with its new weights, which the critic then sees.
    late = order == "owner first" and place == "in_user"
    train_pair(expected, batches(4), order, accumulate=2)
    assert shortage.failures
    steps = {report.phase: report.step for report in reports if isinstance(report, StepReport)}
    assert steps == {"critic": 2, "maker": 2}
    if late:
        assert not all(torch.equal(a, b) for a, b in zip(found.weights(), expected.weights(), strict=True))
        assert_same(found, expected, 0.2)
    else:
        assert_same(found, expected, 1e-11)


def test_both_phases_work_the_same_micro_batches_and_report_so() -> None:
    pair = Adversaries(in_owner=Shortage("forward", 2))
    reports = train_pair(pair, batches(2))
    assert [(report.phase, report.micro_batch_limit) for report in reports if isinstance(report, StepReport)] == [
        ("critic", None),
        ("maker", 2),
        ("critic", 2),
        ("maker", 2),
    ]
    assert pair.calls == [4, 2, 2, 2, 2]


def test_what_is_made_again_draws_the_same_numbers_again() -> None:
    pair = Adversaries(noise=True, in_owner=Shortage("forward", 2))
    train_pair(pair, batches(1))
    assert len(pair.drawn) == 3
    assert pair.drawn[0] == pair.drawn[1]


def test_the_owners_buffers_move_once_and_the_users_are_not_undone() -> None:
    """By hand: one forward of the generator, two of the critic for its own loss, one more for the generator's."""
    pair = Adversaries(normalized=True)
    train_pair(pair, batches(1), batch_coupled="accept")
    moved = {name: int(value) for name, value in pair.buffers().items() if name.endswith("num_batches_tracked")}
    assert moved == {"maker.2.num_batches_tracked": 1, "critic.2.num_batches_tracked": 3}
    cut = Adversaries(normalized=True, in_owner=Shortage("forward", 2))
    train_pair(cut, batches(1), batch_coupled="accept")
    moved = {name: int(value) for name, value in cut.buffers().items() if name.endswith("num_batches_tracked")}
    assert moved == {"maker.2.num_batches_tracked": 2, "critic.2.num_batches_tracked": 2 + 2}


@dataclass
class ForwardWatch:
    """State during a forward: whether the generator's and critic's parameters train, and whether there is a graph."""

    pair: Adversaries
    seen: list[tuple[bool, bool, bool]] = field(default_factory=list[tuple[bool, bool, bool]])

    def __call__(self, samples: Tensor) -> Tensor:
        maker, critic = (
            all(parameter.requires_grad for parameter in module.parameters())
            for module in (self.pair.maker, self.pair.critic)
        )
        self.seen.append((maker, critic, torch.is_grad_enabled()))
        return samples


@pytest.mark.parametrize("order", ["owner last", "owner first"])
def test_while_the_forward_runs_only_the_owners_parameters_train(order: Order) -> None:
    pair = Adversaries()
    watch = pair.in_forward = ForwardWatch(pair)
    train_pair(pair, batches(2), order, accumulate=2)
    assert watch.seen == [(True, False, True)] * 2
    assert all(parameter.requires_grad for parameter in pair.weights())


def test_a_forward_for_values_alone_makes_no_graph() -> None:
    pair = Adversaries(in_user=Shortage("forward", 2))
    watch = pair.in_forward = ForwardWatch(pair)
    train_pair(pair, batches(1), "owner first")
    assert [graph for _, _, graph in watch.seen] == [True, False, False]


def test_abandoned_requests_are_dropped_at_once() -> None:
    made: list[weakref.ref[torch.UntypedStorage]] = []
    alive: list[int] = []

    def remember(samples: Tensor) -> Tensor:
        made.append(weakref.ref(samples.untyped_storage()))
        return samples

    def look(samples: Tensor) -> Tensor:
        alive.append(sum(one() is not None for one in made))
        return samples

    train_pair(Adversaries(in_forward=remember, in_owner=look), batches(3), accumulate=3)
    assert alive == [3, 2, 1]


def test_what_an_error_left_behind_is_not_taken_for_the_next_windows() -> None:
    fails = iter([True])

    def fail_once(samples: Tensor) -> Tensor:
        if next(fails, False):
            raise ValueError("once")
        return samples

    pair = Adversaries(in_owner=fail_once)
    with pair.loop(accumulate=2).running() as run:
        with pytest.raises(ValueError, match="once"):
            list(run.epochs(IterableSource(batches(4)), max_epochs=1))
        list(run.epochs(IterableSource(batches(4)), max_epochs=1))
    assert pair.calls == [4] * (2 + 4)


def test_a_users_skipped_step_leaves_what_the_owner_goes_on_with() -> None:
    def ruined(samples: Tensor) -> Tensor:
        return samples * torch.inf

    pair, other = Adversaries(normalized=True, in_user=ruined), Adversaries(normalized=True)
    reports = train_pair(pair, batches(1), batch_coupled="accept")
    assert [report.stepped for report in reports if isinstance(report, StepReport)] == [False, True]
    train_pair(other, batches(1), batch_coupled="accept")
    found, expected = pair.buffers(), other.buffers()
    assert torch.equal(found["maker.2.running_mean"], expected["maker.2.running_mean"])


def test_an_owners_skipped_step_puts_its_buffers_back_to_the_windows_start() -> None:
    pair = Adversaries(normalized=True, in_owner=lambda samples: samples * torch.inf)
    before = pair.buffers()
    reports = train_pair(pair, batches(1), batch_coupled="accept")
    assert [report.stepped for report in reports if isinstance(report, StepReport)] == [True, False]
    after = pair.buffers()
    assert torch.equal(before["maker.2.running_mean"], after["maker.2.running_mean"])
    assert int(after["critic.2.num_batches_tracked"]) == 2


def test_what_is_written_in_place_is_refused_by_name() -> None:
    pair = Adversaries(in_user=lambda samples: samples.mul_(0.5))
    with pytest.raises(ContractError, match=r"'critic' has written to result\['samples'\] in place.*'maker'"):
        train_pair(pair, batches(1))


def packed(x: Tensor) -> object:
    return pack_sequence([x])


def hidden(x: Tensor) -> object:
    return {"samples": SimpleNamespace(x=x)}


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (packed, r"returned result PackedSequence, whose tensors cannot be detached"),
        (hidden, r"result\['samples'\] is a SimpleNamespace that holds tensors"),
    ],
)
def test_what_is_made_must_show_its_tensors(wrap: Callable[[Tensor], Any], message: str) -> None:
    pair = Adversaries()
    critic, maker = pair.phases()

    def forward(x: Tensor) -> object:
        return wrap(pair.maker(x))

    loop = Loop(
        [critic, replace(maker, forward=forward)], modules={"maker": pair.maker, "critic": pair.critic}, device="cpu"
    )
    with loop.running() as run, pytest.raises(ContractError, match=message):
        list(run.epochs(IterableSource(batches(1)), max_epochs=1))


def inferred(x: Tensor) -> object:
    with torch.inference_mode():
        return x * 2


def test_what_is_made_under_inference_mode_is_refused_by_name() -> None:
    pair = Adversaries()
    critic, maker = pair.phases()
    loop = Loop(
        [critic, replace(maker, forward=inferred)], modules={"maker": pair.maker, "critic": pair.critic}, device="cpu"
    )
    with loop.running() as run, pytest.raises(ContractError, match=r"returned result from torch\.inference_mode\(\)"):
        list(run.epochs(IterableSource(batches(1)), max_epochs=1))


def test_what_later_windows_make_is_looked_at_too() -> None:
    pair = Adversaries()
    critic, maker = pair.phases()

    def forward(x: Tensor) -> dict[str, object]:
        made: dict[str, object] = {**pair.forward(x)}
        return made if len(pair.calls) == 1 else made | {"extra": SimpleNamespace(x=x)}

    loop = Loop(
        [critic, replace(maker, forward=forward)], modules={"maker": pair.maker, "critic": pair.critic}, device="cpu"
    )
    with loop.running() as run, pytest.raises(ContractError, match=r"result\['extra'\] is a SimpleNamespace") as caught:
        list(run.epochs(IterableSource(batches(2)), max_epochs=1))
    assert caught.value.position is not None
    assert "window 1" in caught.value.position


class WithCode(nn.Module):
    """A generator that returns one of its weights with the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"samples": x * self.code, "code": self.code}


def test_a_weight_that_is_handed_on_is_what_it_was_before_the_owners_step() -> None:
    maker, critic = WithCode(), nn.Linear(3, 1).double()
    seen: list[Tensor] = []

    def judged(x: Tensor, made: dict[str, Tensor]) -> Loss:
        seen.append(made["code"].clone())
        return Loss(critic(made["samples"]).square().mean(), len(x))

    phases = [
        Phase[Tensor](
            "maker",
            lambda x, made: Loss(made["samples"].square().mean(), len(x)),
            maker.parameters(),
            torch.optim.SGD(maker.parameters(), lr=0.1),
            forward=maker,
        ),
        Phase[Tensor](
            "critic", judged, critic.parameters(), torch.optim.SGD(critic.parameters(), lr=0.1), uses="maker"
        ),
    ]
    with Loop(phases, modules={"maker": maker, "critic": critic}, device="cpu").running() as run:
        list(run.epochs(IterableSource(batches(1)), max_epochs=1))
    assert seen[0].tolist() == [1.0] * 3
    assert maker.code.tolist() != [1.0] * 3


def test_an_owner_that_writes_in_place_is_the_one_that_is_named() -> None:
    def write(samples: Tensor) -> Tensor:
        samples.detach().clamp_(-0.1, 0.1)
        return samples

    with pytest.raises(ContractError, match=r"phase 'maker' has written to result\['samples'\] in place"):
        train_pair(Adversaries(in_owner=write), batches(1), "owner first")


def one_module(pair: Adversaries) -> nn.Module:
    return nn.ModuleDict({"maker": pair.maker, "critic": pair.critic})


@pytest.mark.parametrize("place", ["in_user", "in_owner"])
def test_phases_within_one_module_keep_their_statistics_apart(place: Place) -> None:
    """As with separate modules: a skipped step of one phase does not roll back the other."""

    def ruined(samples: Tensor) -> Tensor:
        return samples * torch.inf

    apart, together = Adversaries(normalized=True), Adversaries(normalized=True)
    for pair, modules in ((apart, {"m": apart.maker, "c": apart.critic}), (together, {"gan": one_module(together)})):
        setattr(pair, place, ruined)
        torch.manual_seed(9)
        with Loop(pair.phases(), modules=modules, device="cpu", batch_coupled="accept").running() as run:
            list(run.epochs(IterableSource(batches(1)), max_epochs=1))
    found, expected = together.buffers(), apart.buffers()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_error_leaves_no_graph_behind() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def remember(samples: Tensor) -> Tensor:
        alive.append(weakref.ref(samples))
        return samples

    def fail(_: Tensor) -> Tensor:
        raise ValueError("no")

    pair = Adversaries(in_forward=remember, in_user=fail)
    with pair.loop().running() as run:
        with pytest.raises(ValueError, match="no") as caught:
            list(run.epochs(IterableSource(batches(1)), max_epochs=1))
        caught.value.__traceback__ = None
        del caught
        gc.collect()
        assert [one() is None for one in alive] == [True]


def test_no_phase_leaves_a_gradient_in_the_other() -> None:
    pair = Adversaries()
    leaks: list[tuple[str, int]] = []

    def watch(phase: PhaseRun[Tensor], foreign: nn.Module) -> Callable[..., object]:
        original = phase.update.apply

        def apply(*given: Any) -> object:
            leaks.append((phase.phase.name, sum(parameter.grad is not None for parameter in foreign.parameters())))
            return original(*given)

        return apply

    with pair.loop().running() as run:
        critic, maker = run._phases
        critic.update.apply = watch(critic, pair.maker)  # pyright: ignore[reportAttributeAccessIssue]  to look in between
        for _ in run.epochs(IterableSource(batches(1)), max_epochs=1):
            pass
    assert leaks == [("critic", 0)]
    assert maker.steps == 1


def test_the_forward_runs_in_the_owners_precision() -> None:
    seen: list[torch.dtype] = []

    def look(x: Tensor, made: Tensor) -> Loss:
        seen.append(made.dtype)
        return Loss(second(x).mean() + made.float().mean(), len(x))

    torch.manual_seed(1)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    user = Phase[Tensor]("user", look, second.parameters(), torch.optim.SGD(second.parameters()), uses="owner")
    owner = Phase[Tensor](
        "owner",
        lambda x, made: Loss(made.float().square().mean(), len(x)),
        first.parameters(),
        torch.optim.SGD(first.parameters()),
        forward=first,
        precision="bf16",
    )
    with Loop([user, owner], modules={"first": first, "second": second}, device="cpu").running() as run:
        list(run.epochs(IterableSource([torch.ones(2, 3)]), max_epochs=1))
    assert seen == [torch.bfloat16]


def test_several_users_are_given_what_one_forward_made() -> None:
    pair = Adversaries()
    other = nn.Linear(3, 1).double()
    second = Phase[Tensor](
        "second",
        lambda x, made: Loss(other(made["samples"]).square().mean(), len(x)),
        other.parameters(),
        torch.optim.SGD(other.parameters()),
        uses="maker",
    )
    critic, maker = pair.phases()
    modules = {"maker": pair.maker, "critic": pair.critic, "other": other}
    for phases in ([critic, second, maker], [critic, maker, second]):
        pair.calls.clear()
        with Loop(phases, modules=modules, device="cpu").running() as run:
            reports = list(run.epochs(IterableSource(batches(2)), max_epochs=1))
        assert pair.calls == [4, 4]
        assert sum(isinstance(report, StepReport) and report.stepped for report in reports) == 6


@pytest.mark.slow
def test_kept_graphs_are_told_at_the_start_and_gone_after_the_window() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def remember(samples: Tensor) -> Tensor:
        alive.append(weakref.ref(samples))
        return samples

    pair = Adversaries(in_forward=remember)
    left: list[int] = []
    with pair.loop(accumulate=2).running() as run:
        reports: Iterator[Report] = run.epochs(IterableSource(batches(4)), max_epochs=1)
        first = next(reports)
        for _ in reports:
            gc.collect()
            left.append(sum(one() is not None for one in alive))
    assert first == TrainingNotice(
        message="phase 'critic' runs before 'maker' and uses its forward: the graphs of a window (2 batches) are "
        "kept in memory until then"
    )
    assert set(left) == {0}


def test_an_owner_that_works_first_keeps_no_graph_and_says_nothing() -> None:
    assert not any(
        isinstance(report, TrainingNotice) for report in train_pair(Adversaries(), batches(2), "owner first")
    )


def test_a_shortage_caused_by_kept_graphs_names_them() -> None:
    with pytest.raises(OutOfMemoryError, match=r"the graphs of \d forwards are kept for phase 'maker'.*put it first"):
        train_pair(Adversaries(in_user=Shortage("forward", 0, since=2)), batches(2), accumulate=2)


def unexpected_loss(_: Tensor) -> Tensor:
    raise AssertionError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uses": "nobody"}, r"uses the forward of 'nobody', but the phases with a forward are \['maker'\]"),
        ({"uses": "critic"}, r"uses the forward of 'critic', but the phases with a forward are \['maker'\]"),
        ({"uses": "maker", "forward": unexpected_loss}, "chains of forwards are not supported"),
        ({"after": -1}, "after is -1; it must be 0 or more"),
    ],
)
def test_phases_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    pair = Adversaries()
    critic, maker = pair.phases()
    with pytest.raises(SettingsError, match=message):
        Loop([replace(critic, **changes), maker], modules={"maker": pair.maker, "critic": pair.critic}, device="cpu")


def noisy_and_short() -> Adversaries:
    return Adversaries(noise=True, in_owner=Shortage("forward", 2))


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_a_resumed_training_gives_the_same_bits(tmp_path: Path, stop: int) -> None:
    def train(pair: Adversaries, checkpoints: Checkpoints | None, windows: int) -> None:
        seed_everything(3)
        with pair.loop(accumulate=2).running(checkpoints) as run:
            for _ in run.epochs(IterableSource(batches(6)), max_epochs=2):
                if run.windows > windows:
                    return

    checkpoints = Checkpoints(tmp_path, every_windows=1, every_seconds=None)
    train(noisy_and_short(), checkpoints, stop)
    resumed, whole = noisy_and_short(), noisy_and_short()
    train(resumed, checkpoints, 99)
    train(whole, None, 99)
    assert all(torch.equal(one, other) for one, other in zip(resumed.weights(), whole.weights(), strict=True))


def train_on_ranks(accumulate: int) -> list[Tensor]:
    seed_everything(1 + launched_rank())
    pair = Adversaries()
    with pair.loop(accumulate=accumulate).running() as run:
        list(run.epochs(IterableSource([*batches(4), *batches(1, size=2)]), max_epochs=2))
    return [weight.detach() for weight in pair.weights()]


def test_two_ranks_share_no_forward_and_train_as_one_process() -> None:
    expected = train_on_ranks(2)
    for found in results_on_ranks(train_on_ranks, 1):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
