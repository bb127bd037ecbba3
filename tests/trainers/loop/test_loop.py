"""Training loop arithmetic: windows, counts, phases, validation, best weights, and repetition."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trainers.loop import (
    EpochReport,
    FrozenModule,
    IterableSource,
    Loop,
    Loss,
    NoBestWeightsError,
    Phase,
    Report,
    ResidentSource,
    SettingsError,
    StepReport,
    Validation,
    seed_everything,
)


class Rows(NamedTuple):
    x: Tensor
    y: Tensor


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def rows(count: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return Rows(
        torch.randn(count, 3, generator=generator, dtype=dtype), torch.randn(count, 2, generator=generator, dtype=dtype)
    )


def split_rows(data: Rows, sizes: Sequence[int]) -> list[Rows]:
    return [Rows(x, y) for x, y in zip(data.x.split(list(sizes)), data.y.split(list(sizes)), strict=True)]


def masked_loss(net: nn.Module, batch: Rows) -> Loss:
    known = ~batch.y.isnan()
    return Loss((net(batch.x) - batch.y)[known].square().mean(), int(known.sum()))


def train(
    net: nn.Module,
    batches: Sequence[Rows],
    *,
    accumulate: int,
    epochs: int = 1,
    lr: float = 0.1,
    clip: float | None = 1.0,
) -> list[Report]:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    phase = Phase[Rows]("main", lambda batch: masked_loss(net, batch), net.parameters(), optimizer, clip=clip)
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate).running() as run:
        return list(run.epochs(IterableSource(batches), max_epochs=epochs))


def windows_of(reports: Sequence[Report]) -> list[StepReport]:
    return [report for report in reports if isinstance(report, StepReport)]


def assert_same_weights(one: nn.Module, other: nn.Module, *, tolerance: float) -> None:
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert (left - right).abs().max() <= tolerance * right.abs().max()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), clip=st.sampled_from([None, 0.1]))
def test_any_partition_of_a_window_gives_the_same_update(
    data: st.DataObject, sizes: list[int], clip: float | None
) -> None:
    everything = rows(sum(sizes), seed=data.draw(st.integers(0, 99)), dtype=torch.float64)
    known = data.draw(st.lists(st.booleans(), min_size=2 * sum(sizes), max_size=2 * sum(sizes)).filter(any))
    everything.y[~torch.tensor(known).reshape(-1, 2)] = torch.nan
    whole, parts = network(torch.float64), network(torch.float64)
    (expected,) = windows_of(train(whole, [everything], accumulate=1, clip=clip))
    (got,) = windows_of(train(parts, split_rows(everything, sizes), accumulate=len(sizes), clip=clip))
    assert_same_weights(parts, whole, tolerance=1e-12)
    assert got.count == expected.count == sum(known)
    assert got.loss == pytest.approx(expected.loss, rel=1e-12)
    assert got.grad_norm == pytest.approx(expected.grad_norm, rel=1e-10)


def test_unequal_batches_agree_in_single_precision() -> None:
    whole, parts = network(), network()
    data = rows(9)
    train(whole, [data], accumulate=1, epochs=5)
    train(parts, split_rows(data, [8, 1]), accumulate=2, epochs=5)
    assert_same_weights(parts, whole, tolerance=1e-6)


def test_the_update_is_that_of_a_loop_written_by_hand() -> None:
    ours, by_hand = network(), network()
    batches = split_rows(rows(12), [4, 4, 4])
    train(ours, batches, accumulate=1, epochs=3)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for batch in batches * 3:
        optimizer.zero_grad()
        (by_hand(batch.x) - batch.y).square().mean().backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
    assert_same_weights(ours, by_hand, tolerance=1e-6)


def test_a_short_last_window_weighs_as_much_as_its_targets() -> None:
    ours, by_hand = network(), network()
    data = rows(10)
    reports = windows_of(train(ours, split_rows(data, [4, 4, 2]), accumulate=2, clip=None))
    train(by_hand, [Rows(data.x[:8], data.y[:8]), Rows(data.x[8:], data.y[8:])], accumulate=1, clip=None)
    assert_same_weights(ours, by_hand, tolerance=1e-6)
    assert [report.count for report in reports] == [16, 4]
    assert [report.windows for report in reports] == [2, 2]


def test_the_epoch_s_loss_weighs_windows_by_their_targets() -> None:
    data = rows(5)
    reports = train(network(), split_rows(data, [4, 1]), accumulate=1, lr=0.0)
    expected = (network()(data.x) - data.y).square().mean().item()
    (epoch,) = [report for report in reports if isinstance(report, EpochReport)]
    assert epoch.loss == pytest.approx(expected, rel=1e-6)
    assert epoch.monitored == epoch.loss


def test_parts_are_means_over_the_batches_that_have_them() -> None:
    net = nn.Linear(1, 1)

    def loss(batch: tuple[Tensor, dict[str, float]]) -> Loss:
        x, parts = batch
        return Loss(net(x).square().mean(), len(x), {name: torch.tensor(value) for name, value in parts.items()})

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0))
    batches = [(torch.ones(3, 1), {"day 1": 5.0}), (torch.ones(1, 1), {"day 1": 1.0, "day 5": 8.0})]
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        report = next(run.epochs(IterableSource(batches), max_epochs=1))
    assert isinstance(report, StepReport)
    assert report.parts == {"day 1": 4.0, "day 5": 8.0}


def test_validation_weighs_batches_by_their_targets() -> None:
    net = network()
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters()))
    data = rows(9)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        report = run.validate(lambda batch: masked_loss(net, batch), IterableSource(split_rows(data, [8, 1])))
    assert report.mean == pytest.approx((net(data.x) - data.y).square().mean().item(), rel=1e-6)
    assert report.count == 18


def test_validation_runs_in_evaluation_and_inference_mode_and_restores_each_mode() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2), nn.Dropout(0.5))
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters()))
    seen: list[tuple[bool, bool]] = []

    def score(batch: Rows) -> Loss:
        seen.append((net.training, torch.is_inference_mode_enabled()))
        return masked_loss(net, batch)

    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        net.train()
        net[2].eval()
        first = run.validate(score, IterableSource([rows(4)]))
        second = run.validate(score, IterableSource([rows(4)]))
    assert seen == [(False, True)] * 2
    assert first.mean == second.mean
    assert [part.training for part in net] == [True, True, False]
    assert net.training


class Duel(NamedTuple):
    generator: nn.Linear
    critic: nn.Linear
    loop: Loop[Tensor]


def duel(*, critic_every: int = 1) -> Duel:
    torch.manual_seed(3)
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)

    def generator_loss(noise: Tensor) -> Loss:
        return Loss(-critic(generator(noise)).mean(), len(noise))

    def critic_loss(noise: Tensor) -> Loss:
        fake = generator(noise)
        assert not fake.requires_grad
        return Loss(critic(fake).mean() - critic(noise + 3.0).mean(), len(noise))

    phases = [
        Phase("critic", critic_loss, critic.parameters(), torch.optim.Adam(critic.parameters()), every=critic_every),
        Phase("generator", generator_loss, generator.parameters(), torch.optim.Adam(generator.parameters())),
    ]
    return Duel(generator, critic, Loop(phases, modules={"generator": generator, "critic": critic}, device="cpu"))


def test_a_phase_leaves_no_gradient_in_foreign_parameters() -> None:
    generator, critic, loop = duel(critic_every=2)
    with loop.running() as run:
        first = next(run.epochs(IterableSource([torch.randn(4, 2)]), max_epochs=1))
        assert isinstance(first, StepReport)
        assert first.phase == "generator"
        assert all(parameter.grad is None for parameter in critic.parameters())
        assert all(parameter.grad is not None for parameter in generator.parameters())
    assert all(parameter.requires_grad for parameter in critic.parameters())


def test_every_phase_works_in_its_turn_and_is_reported() -> None:
    *_, loop = duel(critic_every=2)
    with loop.running() as run:
        reports = windows_of(list(run.epochs(IterableSource([torch.randn(4, 2)] * 4), max_epochs=1)))
    assert [(report.window, report.phase, report.step) for report in reports] == [
        (0, "generator", 1),
        (1, "critic", 1),
        (1, "generator", 2),
        (2, "generator", 3),
        (3, "critic", 2),
        (3, "generator", 4),
    ]


def test_all_phases_of_a_window_are_done_before_the_first_of_their_reports() -> None:
    generator, _, loop = duel()
    before = generator.weight.detach().clone()
    with loop.running() as run:
        report = next(run.epochs(IterableSource([torch.randn(4, 2)]), max_epochs=1))
    assert isinstance(report, StepReport)
    assert report.phase == "critic"
    assert not torch.equal(generator.weight, before)


def test_a_frozen_part_stays_in_evaluation_mode_and_unchanged() -> None:
    norm, head = nn.BatchNorm1d(3), nn.Linear(3, 2)
    encoder = nn.Sequential(nn.Linear(3, 3), norm)
    net = nn.Sequential(encoder, head)
    kept = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    optimizer = torch.optim.AdamW(head.parameters())
    phase = Phase[Rows]("main", lambda batch: masked_loss(net, batch), head.parameters(), optimizer)
    modes: list[tuple[bool, bool]] = []
    with Loop([phase], modules={"net": net, "encoder": FrozenModule(encoder)}, device="cpu").running() as run:
        modes.extend((head.training, norm.training) for _ in run.epochs(IterableSource([rows(4)]), max_epochs=2))
    assert modes == [(True, False)] * 4
    assert all(torch.equal(tensor, kept[name]) for name, tensor in encoder.state_dict().items())


def test_training_stops_early_and_the_best_weights_come_back() -> None:
    net = network()
    phase = Phase[Rows](
        "main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1)
    )
    values = iter([3.0, 1.0, 2.0, 1.0, 0.5])
    stopped_after = -1
    best: list[Tensor] = []
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        for report in run.epochs(IterableSource([rows(4)]), max_epochs=5):
            if isinstance(report, EpochReport):
                stopped_after = report.epoch
                if run.stalled(next(values), patience=2):
                    break
                if run.best.stale == 0:
                    best = [parameter.detach().clone() for parameter in net.parameters()]
        assert run.best.value == 1.0
        run.restore_best()
    assert stopped_after == 3
    assert all(torch.equal(left, right) for left, right in zip(net.parameters(), best, strict=True))


def test_best_weights_include_running_statistics() -> None:
    norm = nn.BatchNorm1d(2)
    net = nn.Sequential(nn.Linear(3, 2), norm)
    phase = Phase[Rows](
        "main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1)
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        run.best.record(1.0)
        list(run.epochs(IterableSource([rows(4)]), max_epochs=1))
        assert norm.running_mean is not None
        assert norm.running_mean.abs().sum() > 0
        run.restore_best()
    assert norm.running_mean.abs().sum() == 0


def test_what_is_validated_after_the_best_average_came_back_is_that() -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), optimizer)
    source = IterableSource([rows(4)])
    validation = Validation[Rows](lambda b: masked_loss(net, b), source)
    with Loop([phase], modules={"net": net}, device="cpu", ema=0.5).running() as run:
        for report in run.epochs(source, max_epochs=3, validation=validation):
            if isinstance(report, EpochReport):
                run.stalled(float(report.epoch), patience=9)
        run.restore_best()
        assert run.validate(validation.score, source).mean == run.history[0].monitored


def test_restoring_without_a_recorded_value_is_an_error() -> None:
    *_, loop = duel()
    with loop.running() as run, pytest.raises(NoBestWeightsError, match="no value was recorded"):
        run.restore_best()


def test_the_epoch_s_validation_is_part_of_its_report() -> None:
    net = network()
    phase = Phase[Rows](
        "main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1)
    )
    validation = Validation[Rows](lambda batch: masked_loss(net, batch), IterableSource([rows(5, seed=1)]))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        *_, epoch = run.epochs(IterableSource([rows(4)]), max_epochs=1, validation=validation)
        again = run.validate(validation.score, validation.source)
    assert isinstance(epoch, EpochReport)
    assert epoch.validation is not None
    assert epoch.monitored == epoch.validation.mean == again.mean


def test_epochs_resume_after_the_last_complete_one() -> None:
    net = network()
    phase = Phase[Rows](
        "main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1)
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        first = list(run.epochs(IterableSource([rows(4)]), max_epochs=2))
        second = list(run.epochs(IterableSource([rows(4)]), max_epochs=3))
    told = [report.epoch for report in (*first, *second) if isinstance(report, StepReport | EpochReport)]
    assert told == [0, 0, 1, 1, 2, 2]
    assert windows_of(second)[0].step == 3


def trained_bytes() -> bytes:
    seed_everything(11)
    net = nn.Sequential(nn.LSTM(3, 4, batch_first=True), nn.Identity())
    head = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 2))

    def loss(batch: Rows) -> Loss:
        states, _ = net[0](batch.x.unsqueeze(1))
        return Loss((head(states[:, -1]) - batch.y).square().mean(), len(batch.x))

    parameters = [*net.parameters(), *head.parameters()]
    phase = Phase("main", loss, parameters, torch.optim.AdamW(parameters, lr=1e-2))
    source = ResidentSource.of(rows(50), batch_size=8, seed=4)
    with Loop([phase], modules={"net": net, "head": head}, device="cpu", accumulate=3).running() as run:
        list(run.epochs(source, max_epochs=3))
    return b"".join(parameter.detach().numpy().tobytes() for parameter in parameters)


def test_the_same_training_gives_the_same_bits() -> None:
    assert trained_bytes() == trained_bytes()


def test_gradients_are_dropped_when_the_run_ends() -> None:
    net = network()
    train(net, [rows(4)], accumulate=1)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_schedule_follows_the_steps() -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), optimizer, scheduler)
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        reports = windows_of(list(run.epochs(IterableSource(split_rows(rows(10), [2] * 5)), max_epochs=1)))
    assert [report.learning_rate for report in reports] == [1.0, 0.5, 0.25]
    assert scheduler.get_last_lr() == [0.125]


def test_a_scheduler_of_another_optimizer_is_refused() -> None:
    net = network()
    optimizer, other = (torch.optim.SGD(net.parameters(), lr=1.0) for _ in range(2))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(other, gamma=0.5)
    with pytest.raises(SettingsError, match="another optimizer"):
        Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), optimizer, scheduler)


def test_a_scheduler_that_follows_a_value_is_refused() -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(SettingsError, match="follows a value"):
        Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), optimizer, scheduler)


def test_a_parameter_that_the_caller_freezes_stays_frozen_when_other_phases_work() -> None:
    nets = network(), network()
    phases = [
        Phase[Rows](name, partial(masked_loss, net), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
        for name, net in zip("ab", nets, strict=True)
    ]
    weight = next(nets[1].parameters())
    with Loop(phases, modules={"a": nets[0], "b": nets[1]}, device="cpu").running() as run:
        for report in run.epochs(IterableSource([rows(4), rows(4)]), max_epochs=1):
            if isinstance(report, StepReport) and report.window == 0:
                weight.requires_grad_(False)
        assert not weight.requires_grad


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"accumulate": 0}, "accumulate is 0"),
        ({"skip_limit": 0}, "skip_limit is 0"),
        ({"audit_steps": -1}, "audit_steps is -1"),
    ],
)
def test_a_number_below_one_is_refused(setting: dict[str, int], message: str) -> None:
    net = network()
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters()))
    with pytest.raises(SettingsError, match=message):
        Loop([phase], modules={"net": net}, device="cpu", **setting)  # pyright: ignore[reportArgumentType]  one of three


@pytest.mark.parametrize(("clip", "every"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_a_phase_refuses_numbers_out_of_range(clip: float, every: int) -> None:
    net = network()
    with pytest.raises(SettingsError, match="must be"):
        Phase[Rows](
            "main",
            lambda b: masked_loss(net, b),
            net.parameters(),
            torch.optim.SGD(net.parameters()),
            clip=clip,
            every=every,
        )


def test_phases_need_names_of_their_own() -> None:
    net = network()
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters()))
    with pytest.raises(SettingsError, match="a different name to each"):
        Loop([phase, phase], modules={"net": net}, device="cpu")


def test_a_module_name_with_a_dot_is_refused_because_two_parameters_could_share_a_name() -> None:
    net = network()
    phase = Phase[Rows]("main", lambda b: masked_loss(net, b), net.parameters(), torch.optim.SGD(net.parameters()))
    with pytest.raises(SettingsError, match="contain a dot"):
        Loop([phase], modules={"net.0": net}, device="cpu")


def test_a_skipped_window_leaves_no_trace_in_the_statistics_of_a_layer() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase[Tensor]("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    good, bad = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.full((8, 3), torch.nan)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        first, second, _ = run.epochs(IterableSource([good, bad]), max_epochs=1)
    assert isinstance(first, StepReport)
    assert isinstance(second, StepReport)
    assert (first.stepped, second.stepped) == (True, False)
    statistics = net[0].running_mean
    assert isinstance(statistics, Tensor)
    torch.testing.assert_close(statistics, 0.1 * good.mean(0))


def test_a_cache_that_grows_is_no_part_of_the_best_weights() -> None:
    class Cached(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 1)
            self.register_buffer("cache", torch.zeros(1), persistent=False)

        def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as torch names it
            self.cache = torch.zeros(len(input))
            return super().forward(input)

    net = Cached()

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase[Tensor]("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    validation = Validation[Tensor](loss, IterableSource([torch.ones(9, 3)]))
    weights: list[Tensor] = []
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        for report in run.epochs(IterableSource([torch.ones(4, 3)]), max_epochs=2, validation=validation):
            if isinstance(report, EpochReport):
                run.stalled(float(report.epoch), patience=9)
                weights.append(net.weight.detach().clone())
        run.restore_best()
    torch.testing.assert_close(net.weight.detach(), weights[0])


def test_an_optimizer_that_needs_a_closure_is_refused() -> None:
    net = nn.Linear(3, 1)
    with pytest.raises(SettingsError, match="LBFGS computes the loss itself"):
        Phase[Tensor]("main", lambda _: Loss(torch.ones(()), 1), net.parameters(), torch.optim.LBFGS(net.parameters()))
