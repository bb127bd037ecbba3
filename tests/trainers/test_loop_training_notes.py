"""Training failures that people really had; each must be impossible here."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from trainers.loop import (
    DetachedLossError,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    NoGradientError,
    Phase,
    Report,
    WindowReport,
)


class Rows(NamedTuple):
    x: Tensor
    y: Tensor


def rows(count: int, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return Rows(torch.randn(count, 3, generator=generator), torch.randn(count, 1, generator=generator))


def linear() -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(3, 1)


def squares(net: nn.Module, batch: Rows) -> Loss:
    return Loss((net(batch.x) - batch.y).square().mean(), len(batch.x))


def loop_over(net: nn.Linear, *, accumulate: int = 1, nonfinite: str = "skip") -> Loop[Rows]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), optimizer, clip=None)
    return Loop(
        [phase],
        modules={"net": net},
        device="cpu",
        accumulate=accumulate,
        nonfinite="raise" if nonfinite == "raise" else "skip",
    )


def reports_of(loop: Loop[Rows], batches: list[Rows], *, epochs: int = 1) -> list[Report]:
    with loop.running() as run:
        return list(run.epochs(IterableSource(batches), max_epochs=epochs))


def test_a_cpu_training_makes_no_scaler_although_torch_has_an_enabled_one() -> None:
    assert torch.amp.GradScaler("cpu").is_enabled()
    net = linear()
    loop = loop_over(net)
    assert loop.precision.scaler is None
    report, _ = reports_of(loop, [rows(4)])
    assert isinstance(report, WindowReport)
    assert report.loss_scale is None
    assert report.stepped


def test_no_step_is_taken_without_a_backward_although_a_whole_window_was_skipped() -> None:
    """Every batch of window 1 fails to be finite; its neighbours step as if it had not been."""
    net, reference = linear(), linear()
    bad = Rows(torch.full((4, 3), torch.nan), torch.ones(4, 1))
    good = [rows(4, seed) for seed in range(4)]
    reports = reports_of(loop_over(net, accumulate=2), [good[0], good[1], bad, bad, good[2], good[3]])
    reports_of(loop_over(reference, accumulate=2), good)
    assert [report.stepped for report in reports if isinstance(report, WindowReport)] == [True, False, True]
    assert torch.equal(net.weight, reference.weight)


def test_the_tail_of_an_epoch_is_stepped_and_leaks_nothing_into_the_next() -> None:
    net, by_hand = linear(), linear()
    batches = [rows(4, seed) for seed in range(5)]
    reports = reports_of(loop_over(net, accumulate=2), batches, epochs=2)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(2):
        for window in (batches[0:2], batches[2:4], batches[4:5]):
            optimizer.zero_grad()
            squares(by_hand, Rows(*(torch.cat(field) for field in zip(*window, strict=True)))).mean.backward()
            optimizer.step()
    assert [report.step for report in reports if isinstance(report, WindowReport)] == [1, 2, 3, 4, 5, 6]
    assert torch.allclose(net.weight, by_hand.weight, rtol=1e-6)


def test_a_tail_of_one_batch_has_its_full_gradient_not_an_eighth() -> None:
    net, by_hand = linear(), linear()
    batch = rows(4)
    reports_of(loop_over(net, accumulate=8), [batch])
    squares(by_hand, batch).mean.backward()
    assert by_hand.weight.grad is not None
    assert torch.allclose(net.weight, by_hand.weight - 0.1 * by_hand.weight.grad, rtol=1e-6)


def test_a_window_of_eight_and_one_samples_is_no_mean_of_means() -> None:
    net, by_hand = linear(), linear()
    large, small = rows(8), rows(1, seed=1)
    reports_of(loop_over(net, accumulate=2), [large, small])
    squares(by_hand, Rows(torch.cat([large.x, small.x]), torch.cat([large.y, small.y]))).mean.backward()
    assert by_hand.weight.grad is not None
    assert torch.allclose(net.weight, by_hand.weight - 0.1 * by_hand.weight.grad, rtol=1e-6)


def test_a_shape_bug_raises_with_its_place_and_does_not_become_a_loss_of_zero() -> None:
    net = linear()
    wrong = Rows(torch.ones(4, 5), torch.ones(4, 1))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        reports_of(loop_over(net), [rows(4), wrong])
    assert caught.value.__notes__ == [
        "in phase 'main', epoch 0, window 1, batch 0 of 1: batch.x float32[4, 5], batch.y float32[4, 1]"
    ]


def test_running_out_of_memory_does_not_drop_the_batch_silently() -> None:
    net = linear()

    def loss(batch: Rows) -> Loss:
        if len(batch.x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        return squares(net, batch)

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu")
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        reports_of(loop, [rows(4), rows(8)])


def test_an_epoch_s_loss_is_that_of_the_windows_that_were_stepped() -> None:
    net = linear()
    expected = squares(linear(), rows(4)).mean.item()
    bad = Rows(torch.full((4, 3), torch.inf), torch.ones(4, 1))
    *_, epoch = reports_of(loop_over(net), [bad, rows(4), bad])
    assert isinstance(epoch, EpochReport)
    assert epoch.loss == pytest.approx(expected, rel=1e-6)
    assert epoch.phases["main"].skipped == 2


def test_a_loss_between_samples_generated_without_gradients_is_refused() -> None:
    net = linear()

    def reward_loss(batch: Rows) -> Loss:
        with torch.no_grad():
            samples = net(batch.x)
        return Loss(nn.functional.mse_loss(samples, batch.y), len(batch.x))

    phase = Phase("main", reward_loss, net.parameters(), torch.optim.SGD(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu")
    with pytest.raises(DetachedLossError, match="samples generated without gradients"):
        reports_of(loop, [rows(4)])


@pytest.mark.parametrize(("requires_grad", "error"), [(True, NoGradientError), (False, DetachedLossError)])
def test_a_zero_loss_for_want_of_matching_horizons_is_refused(*, requires_grad: bool, error: type[Exception]) -> None:
    net = linear()

    def multi_horizon_loss(batch: Rows) -> Loss:
        outputs = {"features": net(batch.x)}
        matched = [outputs[name] for name in ("horizon_1", "horizon_5") if name in outputs]
        mean = torch.stack(matched).mean() if matched else torch.zeros((), requires_grad=requires_grad)
        return Loss(mean, len(batch.x))

    phase = Phase("main", multi_horizon_loss, net.parameters(), torch.optim.SGD(net.parameters()))
    loop = Loop([phase], modules={"net": net}, device="cpu")
    with pytest.raises(error):
        reports_of(loop, [rows(4)])


def test_gradients_left_over_from_elsewhere_do_not_enter_a_step() -> None:
    net, reference = linear(), linear()
    squares(net, rows(4, seed=9)).mean.backward()
    reports_of(loop_over(net), [rows(4)])
    reports_of(loop_over(reference), [rows(4)])
    assert torch.equal(net.weight, reference.weight)
