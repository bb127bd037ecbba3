"""Training guards: what each detects, names, and ignores."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from regression import Rows, linear, rows, squares
from shortages import Shortage
from torch import Tensor, nn

from trainers.loop import (
    BatchCoupledError,
    ContractError,
    DetachedLossError,
    EmptyTargetError,
    EpochReport,
    FrozenModule,
    IterableSource,
    Loop,
    LoopError,
    Loss,
    NoGradientError,
    NonFiniteError,
    OutOfMemoryError,
    Phase,
    Report,
    StepReport,
    UncoveredParameterError,
    UnusedParameterError,
    ZeroGradientError,
)


def train(
    net: nn.Module,
    loss: Callable[[Rows], Loss],
    batches: Sequence[Rows] | None = None,
    **settings: object,
) -> list[Report]:
    phase = Phase("main", loss, net.parameters(), torch.optim.AdamW(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu", **settings)  # pyright: ignore[reportArgumentType]  checked by Loop
    with loop.running() as run:
        return list(run.epochs(IterableSource([rows()] if batches is None else batches), max_epochs=1))


def stepped(reports: Sequence[Report]) -> list[bool]:
    return [report.stepped for report in reports if isinstance(report, StepReport)]


def test_an_error_names_phase_epoch_window_and_shapes() -> None:
    net = linear()

    def loss(batch: Rows) -> Loss:
        return Loss(net(batch.x).mean().detach() if len(batch.x) == 2 else squares(net, batch).mean, len(batch.x))

    with pytest.raises(DetachedLossError) as caught:
        train(net, loss, [rows(), rows(), rows(), rows(2)], accumulate=2)
    place = "phase 'main', epoch 0, window 1, batch 1 of 2: batch.x float32[2, 3], batch.y float32[2, 1]"
    assert caught.value.position == place
    assert str(caught.value) == f"{caught.value.message} (in {place})"
    assert isinstance(caught.value, LoopError)


def detached(net: nn.Module, batch: Rows) -> Tensor:
    return net(batch.x).detach().mean()


def under_no_grad(net: nn.Module, batch: Rows) -> Tensor:
    with torch.no_grad():
        return net(batch.x).mean()


def under_inference_mode(net: nn.Module, batch: Rows) -> Tensor:
    with torch.inference_mode():
        return net(batch.x).mean()


def rebuilt(net: nn.Module, batch: Rows) -> Tensor:
    return torch.tensor(net(batch.x).mean().item())


@pytest.mark.parametrize(
    ("mean", "cause"),
    [
        (detached, r"look in the loss function for \.detach\(\)"),
        (under_no_grad, r"a torch\.no_grad\(\) around the trained network"),
        (under_inference_mode, r"under torch\.inference_mode\(\)"),
        (rebuilt, r"torch\.tensor\(loss\)"),
    ],
)
def test_a_detached_loss_is_an_error_with_its_cause(mean: Callable[[nn.Module, Rows], Tensor], cause: str) -> None:
    net = linear()
    with pytest.raises(DetachedLossError, match=cause):
        train(net, lambda batch: Loss(mean(net, batch), len(batch.x)))


def test_training_under_no_grad_is_an_error() -> None:
    net = linear()
    with torch.no_grad(), pytest.raises(DetachedLossError, match="gradients are disabled here"):
        train(net, lambda batch: squares(net, batch))


def test_freezing_everything_after_creating_the_loop_is_an_error() -> None:
    net = linear()
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), torch.optim.SGD(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu")
    net.requires_grad_(False)
    with loop.running() as run, pytest.raises(DetachedLossError, match="frozen after the loop was created"):
        next(run.epochs(IterableSource([rows()]), max_epochs=1))


def test_a_loss_that_misses_the_parameters_is_an_error() -> None:
    net = linear()
    with pytest.raises(NoGradientError, match="a constant with requires_grad=True"):
        train(net, lambda batch: Loss(torch.ones((), requires_grad=True) * batch.x.mean(), len(batch.x)))


class Forgetful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(3, 1)
        self.forgotten = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.forgotten(x) if len(x) == 2 else self.used(x)


def test_parameters_that_no_loss_reaches_are_named_after_the_audit() -> None:
    net = Forgetful()
    with pytest.raises(UnusedParameterError, match=r"net\.forgotten\.weight, net\.forgotten\.bias in 3 ") as caught:
        train(net, lambda batch: squares(net, batch), [rows()] * 9, audit_steps=3)
    assert caught.value.position is not None
    assert "window 2" in caught.value.position


def test_parameters_that_no_loss_reaches_are_named_at_the_end_of_the_first_epoch() -> None:
    net = Forgetful()
    with pytest.raises(UnusedParameterError, match=r"net\.forgotten\.weight.*in 2 steps"):
        train(net, lambda batch: squares(net, batch), [rows()] * 2)


def test_a_parameter_that_is_used_now_and_then_passes_the_audit() -> None:
    net = Forgetful()
    assert stepped(train(net, lambda batch: squares(net, batch), [rows(), rows(), rows(2)])) == [True] * 3


def test_gradients_that_are_all_zero_are_an_error_before_weight_decay_sets_in() -> None:
    net = linear()
    before = net.weight.detach().clone()
    with pytest.raises(ZeroGradientError, match="exactly zero"):
        train(net, lambda batch: Loss(squares(net, batch).mean * 0, len(batch.x)))
    assert torch.equal(net.weight, before)


def test_a_zero_gradient_after_others_is_a_step_like_any_other() -> None:
    net = linear()

    def hinge(batch: Rows) -> Loss:
        return Loss(squares(net, batch).mean * (0.0 if len(batch.x) == 2 else 1.0), len(batch.x))

    assert stepped(train(net, hinge, [rows(), rows(2)])) == [True, True]


def test_a_window_without_targets_is_an_error() -> None:
    net = linear()
    with pytest.raises(EmptyTargetError, match="no batch of the window has a target") as caught:
        train(net, lambda batch: Loss(squares(net, batch).mean, 0), [rows(), rows()], accumulate=2)
    assert caught.value.position is not None
    assert "window 0 of 2 batches" in caught.value.position


def test_an_epoch_without_batches_is_an_error() -> None:
    net = linear()
    with pytest.raises(EmptyTargetError, match="no batch in epoch 0"):
        train(net, lambda batch: squares(net, batch), [])


def test_a_validation_without_targets_is_an_error() -> None:
    net = linear()
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), torch.optim.SGD(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu")
    with loop.running() as run, pytest.raises(EmptyTargetError, match="its source is empty or every count is 0"):
        run.validate(lambda batch: Loss(squares(net, batch).mean, 0), IterableSource([rows()]))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"returned None \(is a `return` missing\?\); expected Loss"),
        ({"features": 1}, r"returned a dict with the keys \['features'\]"),
        (torch.zeros(3), r"returned a tensor of shape \[3\]"),
        (Loss(torch.zeros(4, 2), 8), r"Loss.mean has shape \[4, 2\]; expected a scalar"),
        (Loss(torch.zeros((), dtype=torch.int64), 8), r"Loss.mean is torch.int64; expected floating point"),
        (Loss(0.5, 8), r"Loss.mean is a float; expected a scalar tensor"),  # pyright: ignore[reportArgumentType]  the mistake
        (Loss(torch.zeros(()), -1), r"Loss.count is -1; expected 0 or more"),
        (Loss(torch.zeros(()), 1.5), r"Loss.count is a float; expected an int"),  # pyright: ignore[reportArgumentType]  likewise
        (Loss(torch.zeros(()), 1, {"day 5": torch.zeros(2)}), r"Loss.parts\['day 5'\] has shape \[2\]"),
    ],
)
def test_a_loss_function_with_a_wrong_result_is_refused_with_the_expected_type(returned: Loss, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        train(linear(), lambda _: returned)


def bad_in(bad: tuple[int, ...], count: int) -> list[Rows]:
    batches = [rows() for _ in range(count)]
    for number in bad:
        batches[number].x[0, 0] = torch.nan
    return batches


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    net, reference = linear(), linear()
    *windows, epoch = train(net, lambda batch: squares(net, batch), bad_in((1,), 3))
    train(reference, lambda batch: squares(reference, batch), bad_in((), 2))
    assert stepped(windows) == [True, False, True]
    assert torch.equal(net.weight, reference.weight)
    assert isinstance(epoch, EpochReport)
    assert (epoch.phases["main"].skipped, epoch.phases["main"].step, epoch.phases["main"].count) == (1, 2, 8)


def test_too_many_skipped_steps_in_a_row_are_an_error_that_names_the_data() -> None:
    net = linear()
    with pytest.raises(NonFiniteError, match=r"in 2 steps in a row; not finite in the data: batch 0\.x\. ") as caught:
        train(net, lambda batch: squares(net, batch), bad_in((0, 2, 3), 5), skip_limit=2)
    assert caught.value.position is not None
    assert "window 3" in caught.value.position


def test_skipped_steps_apart_from_each_other_are_no_error() -> None:
    net = linear()
    assert stepped(train(net, lambda batch: squares(net, batch), bad_in((0, 2, 4), 5), skip_limit=2)).count(False) == 3


def test_a_step_that_is_not_finite_raises_at_once_if_asked_to() -> None:
    net = linear()
    with pytest.raises(NonFiniteError, match="the loss is nan and the gradient's norm nan; not finite in the data"):
        train(net, lambda batch: squares(net, batch), bad_in((0,), 1), nonfinite="raise")


def test_weights_that_are_not_finite_are_named() -> None:
    net = linear()
    with torch.no_grad():
        net.bias.fill_(torch.inf)
    with pytest.raises(NonFiniteError, match=r"the data is finite, but these weights are not: net\.bias"):
        train(net, lambda batch: squares(net, batch), nonfinite="raise")


def test_gradients_that_are_not_finite_are_named_while_the_loss_is() -> None:
    net = linear()

    def loss(batch: Rows) -> Loss:
        return Loss(squares(net, batch).mean + (net.bias.sum() * 0).sqrt(), len(batch.x))

    with pytest.raises(NonFiniteError, match=r"data and weights are finite, but these gradients are not: net\.bias\. "):
        train(net, loss, nonfinite="raise")


class Pair(NamedTuple):
    net: nn.Linear
    other: nn.Linear


def pair() -> Pair:
    return Pair(nn.Linear(2, 1), nn.Linear(2, 1))


def phase_over(
    parameters: Sequence[nn.Parameter], held: Sequence[nn.Parameter] | None = None, name: str = "main"
) -> Phase[Rows]:
    optimizer = torch.optim.SGD(parameters if held is None else held)
    return Phase(name, lambda batch: Loss(batch.x.mean(), 1), parameters, optimizer)


def test_a_trainable_parameter_without_an_optimizer_is_named() -> None:
    net, other = pair()
    with pytest.raises(UncoveredParameterError, match=r"no optimizer holds .*: other\.bias, other\.weight"):
        Loop([phase_over(list(net.parameters()))], modules={"net": net, "other": other}, device="cpu")


def test_a_frozen_module_needs_no_optimizer() -> None:
    net, other = pair()
    Loop([phase_over(list(net.parameters()))], modules={"net": net, "other": FrozenModule(other)}, device="cpu")
    assert not any(parameter.requires_grad for parameter in other.parameters())


def test_an_optimizer_of_frozen_parameters_names_them() -> None:
    net, _ = pair()
    net.bias.requires_grad_(False)
    with pytest.raises(UncoveredParameterError, match=r"holds frozen parameters .*: net\.bias"):
        Loop([phase_over(list(net.parameters()))], modules={"net": net}, device="cpu")


def test_an_optimizer_of_a_module_that_was_not_given_is_an_error() -> None:
    net, other = pair()
    with pytest.raises(
        UncoveredParameterError, match=r"of no module given in `modules`: an unnamed \[1, 2\], an unnamed \[1\]"
    ):
        Loop([phase_over([*net.parameters(), *other.parameters()])], modules={"net": net}, device="cpu")


def test_an_optimizer_over_other_parameters_than_its_phase_is_an_error() -> None:
    net, _ = pair()
    with pytest.raises(UncoveredParameterError, match=r"its optimizer's differ in net\.bias"):
        Loop([phase_over(list(net.parameters()), list(net.parameters())[:1])], modules={"net": net}, device="cpu")


def test_two_phases_over_one_parameter_are_an_error() -> None:
    net, _ = pair()
    phases = [phase_over(list(net.parameters()), name="one"), phase_over(list(net.parameters())[:1], name="two")]
    with pytest.raises(UncoveredParameterError, match=r"another phase trains the same parameters: net\.weight"):
        Loop(phases, modules={"net": net}, device="cpu")


def network() -> nn.Sequential:
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    return nn.Sequential(inner, nn.BatchNorm1d(3), nn.Linear(3, 1))


def loop_over(
    net: nn.Module, shortage: Shortage | None = None, *, frozen: nn.Module | None = None, **chosen: object
) -> Loop[Tensor]:
    def loss(x: Tensor) -> Loss:
        outputs = net(x)
        return Loss((outputs if shortage is None else shortage(outputs)).square().mean(), len(x))

    modules: dict[str, nn.Module | FrozenModule] = {"net": net}
    if frozen is not None:
        modules["frozen"] = FrozenModule(frozen)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    phase = Phase("main", loss, parameters, torch.optim.SGD(parameters, lr=0.1))
    return Loop([phase], modules=modules, device="cpu", **chosen)  # pyright: ignore[reportArgumentType]  checked by Loop


def coupled_training(loop: Loop[Tensor], sizes: list[int]) -> list[StepReport]:
    generator = torch.Generator().manual_seed(2)
    source = IterableSource([torch.randn(size, 3, generator=generator) for size in sizes])
    with loop.running() as run:
        return [report for report in run.epochs(source, max_epochs=1) if isinstance(report, StepReport)]


def test_batch_normalization_is_refused_in_a_window_of_several_batches_and_named() -> None:
    with (
        pytest.raises(BatchCoupledError, match=r"net\.0\.1, net\.1 compute with the mean .*GroupNorm or LayerNorm"),
        loop_over(network(), accumulate=2).running(),
    ):
        pass


def test_batch_normalization_trains_with_one_batch_a_window() -> None:
    (report,) = coupled_training(loop_over(network()), [8])
    assert report.stepped


def test_a_batch_with_batch_normalization_is_not_cut() -> None:
    shortage = Shortage("forward", 4)
    with pytest.raises(OutOfMemoryError, match=r"the batch is not cut, because net\.0\.1, net\.1 mix its samples"):
        coupled_training(loop_over(network(), shortage), [8])
    assert shortage.sizes == [8]


def test_batch_normalization_is_cut_where_that_is_accepted() -> None:
    shortage = Shortage("backward", 4)
    (report,) = coupled_training(loop_over(network(), shortage, accumulate=2, batch_coupled="accept"), [8, 6])
    assert (report.micro_batch_limit, report.count) == (4, 14)
    assert shortage.sizes == [8, 4, 4, 4, 2]


def test_batch_normalization_in_a_frozen_part_mixes_nothing() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Linear(3, 1))
    loop = loop_over(net, Shortage("forward", 4), frozen=net[0].requires_grad_(False), accumulate=2)
    (report,) = coupled_training(loop, [8, 6])
    assert (report.micro_batch_limit, report.count) == (4, 14)


def test_batch_normalization_without_running_statistics_mixes_samples_even_where_it_is_frozen() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1))
    loop = loop_over(net, frozen=net[0].requires_grad_(False), accumulate=2)
    with pytest.raises(BatchCoupledError, match=r"net\.0"), loop.running():
        pass


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.InstanceNorm1d(3)])
def test_layers_that_look_at_one_sample_only_are_welcome(norm: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(3, 3), norm, nn.Linear(3, 1))
    with loop_over(net, accumulate=2).running():
        pass


def test_a_validation_with_batch_normalization_is_cut_because_its_statistics_are_fixed_there() -> None:
    net, shortage = network(), Shortage("forward", 2)
    loop = loop_over(net)
    with loop.running() as run:
        report = run.validate(lambda x: Loss(shortage(net(x)).mean(), len(x)), IterableSource([torch.ones(4, 3)]))
    assert report.count == 4
    assert shortage.sizes == [4, 2, 2]
