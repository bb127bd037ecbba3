"""Batch splitting on memory shortage, in training and validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from shortages import Shortage
from torch import Tensor, nn

from trainers.loop import (
    BatchSplitter,
    IndivisibleBatch,
    IterableSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    SampleSplitter,
    StepReport,
    Validation,
)
from trainers.loop.data.batch_splitter import BatchCutter


@dataclass(frozen=True)
class Weighed:
    x: Tensor
    y: Tensor
    temperature: Tensor
    name: str


def micro_batches(cutter: BatchCutter[Any], batch: object) -> list[Any]:
    found: list[Any] = []
    start: int | None = 0
    while start is not None:
        micro_batch = cutter.cut(batch, start)
        found.append(micro_batch)
        start = None if micro_batch.is_last else micro_batch.stop
    return found


def cutter_at(limit: int | None, splitter: BatchSplitter[Any] | None = None) -> BatchCutter[Any]:
    cutter = BatchCutter[Any](SampleSplitter() if splitter is None else splitter)
    cutter.limit = limit
    return cutter


def test_a_batch_is_whole_while_everything_fits() -> None:
    batch = torch.zeros(7, 3)
    (micro_batch,) = micro_batches(cutter_at(None), batch)
    assert micro_batch.batch is batch
    assert micro_batch.share == 1.0


def test_every_sample_is_in_one_micro_batch_and_scalars_are_in_all() -> None:
    batch = Weighed(torch.arange(7.0)[:, None], torch.arange(7), torch.tensor(0.5), "a name")
    found = micro_batches(cutter_at(3), batch)
    assert [micro_batch.batch.y.tolist() for micro_batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [micro_batch.batch.x.flatten().tolist() for micro_batch in found] == [
        [0.0, 1.0, 2.0],
        [3.0, 4.0, 5.0],
        [6.0],
    ]
    assert [micro_batch.share for micro_batch in found] == [3 / 7, 3 / 7, 1 / 7]
    assert all(
        micro_batch.batch.temperature is batch.temperature and micro_batch.batch.name == "a name"
        for micro_batch in found
    )


def test_micro_batches_are_views_and_no_copies() -> None:
    batch = torch.arange(6.0)
    (_, last) = micro_batches(cutter_at(3), batch)
    batch[5] = -1.0
    assert last.batch.tolist() == [3.0, 4.0, -1.0]


@pytest.mark.parametrize(
    "batch",
    [
        (torch.zeros(4, 3), torch.zeros(3)),
        (torch.tensor(1.0), torch.tensor(2.0)),
        {"names": ["a", "b", "c", "d"], "x": torch.zeros(4, 3)},
        {"x": torch.zeros(4, 3), "mask": np.zeros(4)},
        "no tensor",
    ],
    ids=["first dimensions that differ", "scalars only", "names beside the tensors", "NumPy beside them", "no tensor"],
)
def test_a_batch_without_a_common_first_dimension_is_one_sample(batch: object) -> None:
    assert SampleSplitter().samples(batch) == 1
    assert [micro_batch.batch for micro_batch in micro_batches(cutter_at(1), batch)] == [batch]


def test_options_next_to_the_tensors_do_not_keep_a_batch_whole() -> None:
    assert SampleSplitter().samples({"x": torch.zeros(4, 3), "kind": "last", "rate": 0.5, "span": (1, 5)}) == 4


@final
class ByFrames:
    """A splitter for padded sequences [samples, frames] that removes needless padding."""

    def samples(self, batch: Tensor) -> int:
        return len(batch)

    def cost(self, batch: Tensor) -> int:
        return batch.shape[1]

    def cut(self, batch: Tensor, start: int, stop: int) -> Tensor:
        rows = batch[start:stop]
        return rows[:, : int(rows.count_nonzero(1).max())]


def sequences(*lengths: int) -> Tensor:
    """One row of ones per length, padded with zeros."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()


def test_a_limit_in_frames_allows_fewer_long_samples_than_short_ones() -> None:
    cutter = cutter_at(8, ByFrames())
    assert [len(micro_batch.batch) for micro_batch in micro_batches(cutter, sequences(2, 2, 2, 2, 2, 2))] == [4, 2]
    assert [len(micro_batch.batch) for micro_batch in micro_batches(cutter, sequences(4, 4, 4))] == [2, 1]
    assert [len(micro_batch.batch) for micro_batch in micro_batches(cutter, sequences(30, 30))] == [1, 1]


def train_network(
    batches: Sequence[Any], shortage: Shortage, *, accumulate: int = 1, splitter: BatchSplitter[Any] | None = None
) -> tuple[nn.Module, list[StepReport]]:
    torch.manual_seed(1)
    net = nn.Linear(1, 1)

    def loss(batch: Any) -> Loss:
        x = batch if isinstance(batch, Tensor) else batch[0]
        totals = shortage(net(x.sum(1, keepdim=True)))
        return Loss((totals - 1.0).square().mean(), len(x))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.01))
    loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate, splitter=splitter)
    with loop.running() as run:
        reports = list(run.epochs(IterableSource(batches), max_epochs=1))
    return net, [report for report in reports if isinstance(report, StepReport)]


def test_the_found_size_is_told_in_the_units_of_the_cutting() -> None:
    batches = [sequences(6, 6, 6, 6), sequences(2, 2, 2, 2, 2, 2)]
    shortage = Shortage("forward", 3)
    net, reports = train_network(batches, shortage, splitter=ByFrames())
    reference, _ = train_network(batches, Shortage("forward", 99), splitter=ByFrames())
    assert [report.micro_batch_limit for report in reports] == [12, 6]
    assert shortage.sizes == [4, 2, 2, 6, 3, 3]
    assert all(torch.allclose(one, other) for one, other in zip(net.parameters(), reference.parameters(), strict=True))


def test_less_padding_in_a_micro_batch_does_not_hide_that_it_would_be_cut_now() -> None:
    cutter = cutter_at(16, ByFrames())
    short, long = micro_batches(cutter, sequences(1, 1, 8, 8))
    assert short.batch.shape == (2, 1)
    cutter.lower(long, "a test")
    assert cutter.limit == 8
    assert cutter.exceeds_limit(short)


def test_a_single_sample_above_the_limit_is_not_worked_again() -> None:
    cutter = cutter_at(16, ByFrames())
    (single,) = micro_batches(cutter, sequences(30))
    cutter.lower(micro_batches(cutter, sequences(8, 8))[0], "a test")
    assert not cutter.exceeds_limit(single)


@pytest.mark.parametrize(
    ("batch", "splitter"),
    [((torch.ones(4, 3), torch.ones(2)), None), (torch.ones(4, 3), IndivisibleBatch())],
    ids=["first dimensions that differ", "IndivisibleBatch"],
)
def test_an_indivisible_batch_that_does_not_fit_is_an_error(batch: object, splitter: BatchSplitter[Any] | None) -> None:
    shortage = Shortage("forward", 2)
    with pytest.raises(OutOfMemoryError, match=r"with the whole batch, which cannot be cut.*by Loop\(splitter=…\)"):
        train_network([batch], shortage, splitter=splitter)
    assert shortage.sizes == [4]


def rows(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(8))


def scored(shortage: Shortage, **chosen: object) -> tuple[float, int]:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def score(x: Tensor) -> Loss:
        return Loss(shortage(net(x)).square().mean(), len(x))

    phase = Phase("main", score, net.parameters(), torch.optim.SGD(net.parameters()))
    source = IterableSource(rows(10).split([6, 1, 3]))
    with Loop([phase], modules={"net": net}, device="cpu", **chosen).running() as run:  # pyright: ignore[reportArgumentType]  checked by Loop
        report = run.validate(score, source)
        assert run.validate(score, source).mean == report.mean
    return report.mean, report.count


@pytest.mark.slow
@pytest.mark.parametrize("fits", [1, 2, 4])
def test_validation_is_cut_too_and_scores_the_same(fits: int) -> None:
    whole, count = scored(Shortage("forward", 99))
    shortage = Shortage("forward", fits)
    assert scored(shortage) == (pytest.approx(whole, rel=1e-6), count)
    assert shortage.failures > 0


def test_a_validation_that_must_not_split_fails_at_the_first_shortage() -> None:
    with pytest.raises(OutOfMemoryError, match=r'ran out in the validation .*oom="fail" is set'):
        scored(Shortage("forward", 2), oom="fail")


@pytest.mark.slow
def test_a_validation_sample_that_does_not_fit_is_an_error_that_names_it() -> None:
    with pytest.raises(OutOfMemoryError, match=r"ran out in the validation .*samples 0 to 0 of 6") as caught:
        scored(Shortage("forward", 0))
    assert caught.value.position == "phase 'validation', epoch 0, window 0 of 1 batches: batch float32[6, 3]"


def test_a_shortage_in_the_validation_does_not_cut_the_training() -> None:
    net = nn.Linear(3, 1)
    shortage = Shortage("forward", 2)

    def loss(x: Tensor) -> Loss:
        return Loss(net(x).square().mean(), len(x))

    def score(x: Tensor) -> Loss:
        return Loss(shortage(net(x)).square().mean(), len(x))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    source = IterableSource([rows(8)])
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        reports = list(run.epochs(source, max_epochs=2, validation=Validation(score, source)))
    assert [report.micro_batch_limit for report in reports if isinstance(report, StepReport)] == [None, None]
    assert shortage.failures == 2
