"""Losses of several terms with their own target counts: frames, tokens, samples."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rank_processes import on_ranks, results_on_ranks
from shortages import Shortage, Stage
from torch import Tensor, nn

from trainers.loop import (
    ContractError,
    DetachedLossError,
    EmptyTargetError,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    StepReport,
    Term,
    Validation,
    seed_everything,
)
from trainers.loop.group.processes import launched_rank
from trainers.loop.loss import WeightedMean, combine_losses, list_scalars, read
from trainers.loop.step.accumulation import backward


class Speech(NamedTuple):
    """A batch: frames [N, T, 3], their real lengths [N], and tokens [N, 4], -1 where missing."""

    frames: Tensor
    lengths: Tensor
    tokens: Tensor


def speech(samples: int, seed: int) -> Speech:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(-1, 5, (samples, 4), generator=generator).double()
    return Speech(
        torch.randn(samples, 6, 3, generator=generator, dtype=torch.float64),
        torch.randint(0, 7, (samples,), generator=generator),
        tokens,
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.frame = nn.Linear(3, 1, dtype=torch.float64)
        self.token = nn.Linear(1, 1, dtype=torch.float64)


WEIGHTS = {"mel": 45.0, "duration": 0.5}


def sums(net: Net, batch: Speech) -> dict[str, tuple[Tensor, Tensor]]:
    """Losses of each term at all positions, and which positions are targets."""
    real = torch.arange(batch.frames.shape[1]) < batch.lengths[:, None]
    mel = net.frame(batch.frames)[..., 0].square()
    tokens = batch.tokens >= 0
    duration = (net.token(batch.tokens[..., None])[..., 0] + net.frame.bias - 1).square()
    return {"mel": (mel, real), "duration": (duration, tokens)}


def counts(batch: Speech) -> dict[str, int]:
    return {"mel": int(batch.lengths.sum()), "duration": int((batch.tokens >= 0).sum())}


def loss_of(net: Net, batch: Speech) -> Loss:
    return Loss.of(
        **{
            name: Term(losses[mask].sum() / mask.sum().clamp(min=1), int(mask.sum()), weight=WEIGHTS[name])
            for name, (losses, mask) in sums(net, batch).items()
        }
    )


def gradients_by_hand(net: Net, window: Sequence[Speech]) -> list[Tensor]:
    """Gradients of the weighted sum of each term's mean over all targets of the window."""
    total = torch.zeros((), dtype=torch.float64)
    for name, weight in WEIGHTS.items():
        pairs = [sums(net, batch)[name] for batch in window]
        count = sum(int(mask.sum()) for _, mask in pairs)
        if count:
            total = total + weight * torch.stack([losses[mask].sum() for losses, mask in pairs]).sum() / count
    return list(torch.autograd.grad(total, list(net.parameters())))


class GradientRecorder(torch.optim.SGD):
    """An optimizer that records the gradients of its last step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.seen = [parameter.grad.clone() for parameter in self.param_groups[0]["params"]]
        return super().step(closure)


def train_epoch(
    net: Net,
    batches: Sequence[Speech],
    *,
    accumulate: int,
    loss: Callable[[Speech], Loss] | None = None,
    count: Callable[[Speech], Mapping[str, int]] | None = counts,
    limit: int | None = None,
) -> tuple[list[Tensor], list[Report]]:
    """Train for one epoch; returns the last gradients and the reports."""
    optimizer = GradientRecorder(net.parameters(), lr=0.0)

    def usual(batch: Speech) -> Loss:
        return loss_of(net, batch)

    phase = Phase("main", loss or usual, net.parameters(), optimizer, clip=None, counts=count)
    loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate)
    with loop.running() as run:
        run._phases[0].cutter.limit = limit
        reports = list(run.epochs(IterableSource(batches), max_epochs=1))
    return optimizer.seen, reports


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), limit=st.sampled_from([None, 1, 2, 3]))
def test_the_gradient_is_that_of_every_terms_own_mean_however_the_window_is_cut(
    sizes: list[int], limit: int | None
) -> None:
    window = [speech(size, seed) for seed, size in enumerate(sizes)]
    assume(all(sum(counts(batch)[name] for batch in window) for name in WEIGHTS))
    net = Net()
    found, _ = train_epoch(net, window, accumulate=len(window), limit=limit)
    for one, other in zip(found, gradients_by_hand(net, window), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_mean_of_the_batches_means_would_be_wrong() -> None:
    window = [speech(1, 3), speech(5, 4)]
    net = Net()
    right = torch.cat([gradient.flatten() for gradient in gradients_by_hand(net, window)])
    torch.stack([loss_of(net, batch).mean for batch in window]).mean().backward()
    wrong = torch.cat([parameter.grad.flatten() for parameter in net.parameters() if parameter.grad is not None])
    assert (wrong - right).norm() / right.norm() > 0.05


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_shortage_does_not_change_the_gradient_of_several_terms(stage: Stage) -> None:
    window = [speech(4, 1), speech(4, 2)]
    net = Net()
    shortage = Shortage(stage, 2, since=2)

    def short(batch: Speech) -> Loss:
        return loss_of(net, batch._replace(frames=shortage(batch.frames.requires_grad_())))

    found, reports = train_epoch(net, window, accumulate=2, loss=short)
    assert shortage.failures
    assert isinstance(reports[0], StepReport)
    assert reports[0].micro_batch_limit == 2
    for one, other in zip(found, gradients_by_hand(net, window), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_reports_weigh_each_term_by_its_own_count() -> None:
    batches = [speech(1, 3), speech(5, 4), speech(2, 5)]
    net = Net()
    _, (first, second, epoch) = train_epoch(net, batches, accumulate=2)
    assert isinstance(first, StepReport)
    pairs = {name: [sums(net, batch)[name] for batch in batches[:2]] for name in WEIGHTS}
    parts = {
        name: sum(float(losses[mask].sum().detach()) for losses, mask in found)
        / sum(int(mask.sum()) for _, mask in found)
        for name, found in pairs.items()
    }
    assert dict(first.parts) == pytest.approx(parts)
    assert first.loss == pytest.approx(sum(WEIGHTS[name] * part for name, part in parts.items()))
    assert first.count == sum(sum(counts(batch).values()) for batch in batches[:2])
    assert epoch.phases["main"].count == first.count + second.count  # pyright: ignore[reportAttributeAccessIssue]


def test_a_validation_weighs_each_term_by_its_own_count() -> None:
    batches = [speech(1, 3), speech(5, 4)]
    net = Net()
    phase = Phase[Speech](
        "main", lambda batch: loss_of(net, batch), net.parameters(), torch.optim.SGD(net.parameters()), counts=counts
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        score = Validation(lambda batch: loss_of(net, batch), IterableSource(batches))
        found = run.validate(score.score, score.source)
        whole = run.validate(score.score, IterableSource([_joined(batches)]))
    assert found.mean == pytest.approx(whole.mean, rel=1e-12)
    assert dict(found.parts) == pytest.approx(dict(whole.parts), rel=1e-12)


def _joined(batches: Sequence[Speech]) -> Speech:
    return Speech(*(torch.cat(columns) for columns in zip(*batches, strict=True)))


def test_several_terms_without_counts_are_refused_at_the_first_window() -> None:
    net = Net()
    with pytest.raises(ContractError, match=r"terms 'mel', 'duration'.*give Phase\('main', …, counts=…\)") as caught:
        train_epoch(net, [speech(2, 1)], accumulate=1, count=None)
    assert caught.value.position is not None
    assert "window 0" in caught.value.position


def test_one_term_needs_no_counts_and_its_weight_multiplies_the_gradient() -> None:
    window = [speech(2, 1), speech(5, 2)]

    def of(weight: float, net: Net) -> Callable[[Speech], Loss]:
        def loss(batch: Speech) -> Loss:
            mean = loss_of(net, batch).terms["duration"]
            return Loss.of(duration=Term(mean.mean, mean.count, weight=weight))

        return loss

    one, other = Net(), Net()
    for net in (one, other):
        net.frame.weight.requires_grad_(False)
    single, _ = _trained_without_frame(one, window, of(1.0, one))
    triple, reports = _trained_without_frame(other, window, of(3.0, other))
    for small, large in zip(single, triple, strict=True):
        torch.testing.assert_close(large, 3 * small, rtol=1e-12, atol=1e-12)
    assert isinstance(reports[0], StepReport)
    assert reports[0].loss == pytest.approx(3 * reports[0].parts["duration"])


def _trained_without_frame(
    net: Net, window: Sequence[Speech], loss: Callable[[Speech], Loss]
) -> tuple[list[Tensor], list[Report]]:
    trained = [net.frame.bias, *net.token.parameters()]
    optimizer = GradientRecorder(trained, lr=0.0)
    phase = Phase("main", loss, trained, optimizer, clip=None)
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        reports = list(run.epochs(IterableSource(window), max_epochs=1))
    return optimizer.seen, reports


def test_a_term_of_weight_zero_is_reported_and_trains_nothing() -> None:
    net = Net()

    def loss(batch: Speech) -> Loss:
        terms = loss_of(net, batch).terms
        return Loss.of(mel=terms["mel"], duration=Term(terms["duration"].mean.detach(), terms["duration"].count, 0.0))

    net.token.requires_grad_(False)
    trained = list(net.frame.parameters())
    phase = Phase("main", loss, trained, torch.optim.SGD(trained), counts=counts)
    batch = speech(3, 1)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        (report, _) = run.epochs(IterableSource([batch]), max_epochs=1)
    assert isinstance(report, StepReport)
    assert report.loss == pytest.approx(45 * report.parts["mel"])
    assert report.parts["duration"] > 0
    assert report.count == counts(batch)["mel"]


def test_a_term_of_weight_zero_may_be_no_number() -> None:
    net = Net()
    before = net.frame.weight.detach().clone()

    def loss(batch: Speech) -> Loss:
        mel = loss_of(net, batch).terms["mel"]
        return Loss.of(mel=mel, duration=Term(torch.tensor(torch.nan), counts(batch)["duration"], 0.0))

    net.token.requires_grad_(False)
    trained = list(net.frame.parameters())
    phase = Phase("main", loss, trained, torch.optim.SGD(trained, lr=0.1), counts=counts)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        (report, _) = run.epochs(IterableSource([speech(3, 1)]), max_epochs=1)
    assert isinstance(report, StepReport)
    assert report.stepped
    assert math.isfinite(report.loss)
    assert math.isnan(report.parts["duration"])
    assert not torch.equal(net.frame.weight, before)


def test_a_validation_shows_a_term_of_weight_zero_where_no_other_has_targets() -> None:
    """By hand: (2 * 1 + 5 * 3) / 4."""
    net = Net()
    phase = Phase[Speech](
        "main", lambda batch: loss_of(net, batch), net.parameters(), torch.optim.SGD(net.parameters()), counts=counts
    )

    def score(batch: Term) -> Loss:
        trained = Term(torch.tensor(1.0), batch.count if batch.count == 1 else 0)
        return Loss.of(trained=trained, shown=Term(batch.mean, batch.count, 0.0))

    batches = [Term(torch.tensor(2.0), 1), Term(torch.tensor(5.0), 3)]
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        report = run.validate(score, IterableSource(batches))
    assert report.parts["shown"] == 17 / 4
    assert (report.mean, report.count) == (1.0, 1)


def test_an_epoch_weighs_each_term_by_its_own_count() -> None:
    batches = [speech(1, 3), speech(5, 4), speech(2, 5)]
    net = Net()
    phase = Phase[Speech](
        "main",
        lambda batch: loss_of(net, batch),
        net.parameters(),
        torch.optim.SGD(net.parameters(), lr=0.0),
        counts=counts,
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        *_, epoch = run.epochs(IterableSource(batches), max_epochs=1)
        expected = run.validate(lambda batch: loss_of(net, batch), IterableSource([_joined(batches)]))
    assert isinstance(epoch, EpochReport)
    assert epoch.monitored == pytest.approx(expected.mean, rel=1e-12)
    assert dict(epoch.phases["main"].parts) == pytest.approx(dict(expected.parts), rel=1e-12)


def test_a_term_of_16_bits_is_named_where_its_weight_does_not_fit() -> None:
    net = Net()

    def loss(batch: Speech) -> Loss:
        terms = loss_of(net, batch).terms
        return Loss.of(mel=terms["mel"], duration=Term(terms["duration"].mean.bfloat16(), terms["duration"].count, 0.5))

    with pytest.raises(ContractError, match=r"the mean of the term 'duration' of the loss is torch\.bfloat16"):
        train_epoch(net, [speech(3, 1)], accumulate=1, loss=loss)


def test_a_term_without_targets_adds_nothing() -> None:
    silent = speech(3, 1)._replace(lengths=torch.zeros(3, dtype=torch.int64))
    net = Net()
    found, reports = train_epoch(net, [silent], accumulate=1, loss=lambda batch: _without_frame_gradient(net, batch))
    for one, other in zip(found[1:], gradients_by_hand_of_tokens(net, silent), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert isinstance(reports[0], StepReport)
    assert "mel" not in reports[0].parts


def _without_frame_gradient(net: Net, batch: Speech) -> Loss:
    """The terms with an explicit zero gradient for the frames' weight, which has none here."""
    terms = loss_of(net, batch).terms
    duration = terms["duration"]
    return Loss.of(mel=terms["mel"], duration=Term(duration.mean + 0 * net.frame.weight.sum(), duration.count, 0.5))


def gradients_by_hand_of_tokens(net: Net, batch: Speech) -> tuple[Tensor, ...]:
    losses, mask = sums(net, batch)["duration"]
    return torch.autograd.grad(0.5 * losses[mask].mean(), [net.frame.bias, *net.token.parameters()])


def test_a_window_without_any_target_is_an_error() -> None:
    empty = Speech(torch.zeros(2, 6, 3).double(), torch.zeros(2, dtype=torch.int64), -torch.ones(2, 4).double())
    with pytest.raises(EmptyTargetError):
        train_epoch(Net(), [empty], accumulate=1)


def test_a_count_that_differs_from_the_loss_names_the_term() -> None:
    with pytest.raises(ContractError, match=r"the term 'mel' has \d+ targets in the loss and \d+ by counts"):
        train_epoch(
            Net(), [speech(3, 1)], accumulate=1, count=lambda batch: counts(batch) | {"mel": batch.frames.numel()}
        )


def test_a_term_that_counts_does_not_know_is_named() -> None:
    with pytest.raises(ContractError, match=r"the term 'duration' has \d+ targets in the loss and 0 by counts"):
        train_epoch(Net(), [speech(3, 1)], accumulate=1, count=lambda batch: {"mel": counts(batch)["mel"]})


def test_micro_batches_that_do_not_add_up_to_their_batch_name_the_term() -> None:
    net = Net()

    def padded(batch: Speech) -> Mapping[str, int]:
        return {"mel": int(batch.lengths.sum()), "duration": int(batch.lengths.max()) if len(batch.lengths) == 4 else 1}

    def loss(batch: Speech) -> Loss:
        terms = loss_of(net, batch).terms
        return Loss.of(mel=terms["mel"], duration=Term(terms["duration"].mean, padded(batch)["duration"]))

    with pytest.raises(
        ContractError, match=r"micro-batches of a batch do not have the targets.*'duration': 4 instead of"
    ):
        train_epoch(net, [speech(4, 2)], accumulate=1, loss=loss, count=padded, limit=1)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "counts returned a NoneType"),
        ({"mel": -1}, "-1 for 'mel'"),
        ({"mel": 2.0}, r"2\.0 for 'mel'"),
        ({"mel": True}, "True for 'mel'"),
    ],
)
def test_invalid_counts_are_refused(returned: Mapping[str, int], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        train_epoch(Net(), [speech(2, 1)], accumulate=1, count=lambda _: returned)


def test_a_plain_loss_with_counts_is_refused() -> None:
    net = Net()
    with pytest.raises(ContractError, match=r"returned Loss\(mean, count\), but the phase has counts"):
        train_epoch(net, [speech(2, 1)], accumulate=1, loss=lambda batch: Loss(loss_of(net, batch).mean, 3))


def test_a_weight_that_changes_within_a_window_is_refused_and_between_windows_taken() -> None:
    net = Net()
    weights = iter([1.0, 1.0, 2.0, 2.0])

    def loss(batch: Speech) -> Loss:
        terms, weight = loss_of(net, batch).terms, next(weights)
        return Loss.of(**{name: Term(term.mean, term.count, weight) for name, term in terms.items()})

    train_epoch(net, [speech(2, 1), speech(2, 2), speech(2, 1), speech(2, 2)], accumulate=2, loss=loss)
    weights = iter([1.0, 2.0])
    with pytest.raises(ContractError, match=r"the weight of the term 'mel' is 2\.0 and was 1\.0"):
        train_epoch(net, [speech(2, 1), speech(2, 2)], accumulate=2, loss=loss)


def test_a_detached_term_is_named() -> None:
    net = Net()

    def loss(batch: Speech) -> Loss:
        terms = loss_of(net, batch).terms
        return Loss.of(mel=terms["mel"], duration=Term(terms["duration"].mean.detach(), terms["duration"].count))

    with pytest.raises(DetachedLossError, match="the term 'duration' of the loss is detached"):
        train_epoch(net, [speech(3, 1)], accumulate=1, loss=loss)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, r"Loss\.of\(\) has no term"),
        ({"mel": Loss(torch.zeros(()), 1)}, r"the term 'mel' is a Loss; expected Term"),
        ({"mel": Term(torch.zeros(2), 1)}, r"of\(mel\)\.mean has shape \[2\]"),
        ({"mel": Term(torch.zeros(()), -1)}, "the count of the term 'mel' is -1"),
        ({"mel": Term(torch.zeros(()), 1, math.nan)}, "the weight of the term 'mel' is nan"),
        ({"mel": Term(torch.zeros(()), 1, True)}, "the weight of the term 'mel' is True"),
    ],
)
def test_what_is_no_term_is_refused_with_its_name(terms: Mapping[str, Term], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Loss.of(**terms)


def test_the_mean_of_a_batch_alone_is_the_weighted_sum() -> None:
    loss = Loss.of(
        mel=Term(torch.tensor(2.0), 3, weight=45.0),
        kl=Term(torch.tensor(7.0), 5),
        none=Term(torch.tensor(torch.nan), 0, weight=9.0),
        shown=Term(torch.tensor(11.0), 2, weight=0.0),
    )
    assert (float(loss.mean), loss.count) == (97.0, 8)


def test_a_tally_of_terms_goes_through_a_checkpoint_and_a_merge() -> None:
    """By hand: mel (1 * 2 + 3 * 4) / 6 = 7/3 at weight 2, kl 5 at weight 1."""
    losses = [
        Loss.of(mel=Term(torch.tensor(1.0), 2, 2.0), kl=Term(torch.tensor(5.0), 1)),
        Loss.of(mel=Term(torch.tensor(3.0), 4, 2.0), kl=Term(torch.tensor(0.0), 0)),
    ]
    parts = [combine_losses([loss], iter(read(list_scalars([loss])))) for loss in losses]
    total = WeightedMean()
    total.load(parts[0].state())
    total.merge(parts[1])
    assert total.mean() == pytest.approx(2 * 7 / 3 + 5)
    assert total.parts() == pytest.approx({"mel": 7 / 3, "kl": 5.0})
    assert total.count == 7


def test_batches_of_both_kinds_cannot_be_added_up() -> None:
    losses = [Loss.of(mel=Term(torch.tensor(1.0), 2)), Loss(torch.tensor(1.0), 2)]
    with pytest.raises(ContractError, match="return the same kind for every batch"):
        combine_losses(losses, iter(read(list_scalars(losses))))


def test_the_backward_of_several_roots_is_that_of_their_weighted_sum() -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    backward((weight.square().sum(), weight.prod()), (torch.tensor(0.5), torch.tensor(3.0)))
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.5 * 2 * 1.0 + 3 * 2.0, 0.5 * 2 * 2.0 + 3 * 1.0]


# --- two processes


def course() -> list[Speech]:
    """Five batches, so that one rank has none in the last window; the fourth has no frames on one rank."""
    batches = [speech(size, seed) for seed, size in enumerate((5, 2, 4, 3, 6))]
    batches[3] = batches[3]._replace(lengths=torch.zeros(3, dtype=torch.int64))
    return batches


def train_rank(accumulate: int) -> tuple[list[Tensor], list[tuple[float, int, dict[str, float]]]]:
    seed_everything(1 + launched_rank())
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    phase = Phase[Speech]("main", lambda batch: loss_of(net, batch), net.parameters(), optimizer, counts=counts)
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate).running() as run:
        reports = list(run.epochs(IterableSource(course()), max_epochs=2))
    windows = [(report.loss, report.count, dict(report.parts)) for report in reports if isinstance(report, StepReport)]
    return [parameter.detach() for parameter in net.parameters()], windows


def test_two_ranks_weigh_the_terms_as_one_process_does() -> None:
    weights, windows = train_rank(2)
    for found_weights, found_windows in results_on_ranks(train_rank, 1):
        for one, other in zip(found_weights, weights, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
        for (loss, count, parts), (other_loss, other_count, other_parts) in zip(found_windows, windows, strict=True):
            assert (loss, count) == (pytest.approx(other_loss, rel=1e-9), other_count)
            assert parts == pytest.approx(other_parts, rel=1e-9)


def trained_with_weights_of_its_own() -> None:
    net = Net()

    def loss(batch: Speech) -> Loss:
        terms = loss_of(net, batch).terms
        return Loss.of(**{name: Term(term.mean, term.count, 1.0 + launched_rank()) for name, term in terms.items()})

    phase = Phase[Speech]("main", loss, net.parameters(), torch.optim.SGD(net.parameters()), counts=counts)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        list(run.epochs(IterableSource(course()), max_epochs=1))


def test_weights_that_differ_from_rank_to_rank_are_refused_on_both() -> None:
    for ended in on_ranks(trained_with_weights_of_its_own):
        assert "the weight of the term 'mel' differs between the processes of the group: [1.0, 2.0]" in ended.error


def trained_with_a_late_term() -> None:
    net = Net()

    def of_tokens(batch: Speech) -> Loss:
        return Loss.of(**{name: term for name, term in loss_of(net, batch).terms.items() if name in named(batch)})

    def named(batch: Speech) -> dict[str, int]:
        found = counts(batch)
        return found if len(batch.lengths) == 6 else {"mel": found["mel"], "tokens of rank 0": 0}

    phase = Phase[Speech]("main", of_tokens, net.parameters(), torch.optim.SGD(net.parameters()), counts=named)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        list(run.epochs(IterableSource(course()), max_epochs=1))


def test_a_term_that_no_rank_counted_in_the_first_window_is_named() -> None:
    first, _ = on_ranks(trained_with_a_late_term)
    assert "counts has the terms 'duration', which no process had in the phase's first window" in first.error
