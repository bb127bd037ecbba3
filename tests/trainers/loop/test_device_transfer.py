"""Device transfer: one copy per window for all phases, prefetching one window, and unchanged results.

The device is fake: a copy in flight has no value until it is received.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pytest
import torch
from shortages import Shortage, cuda_shortage
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from trainers.loop import (
    Checkpoints,
    IterableSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    Report,
    ResidentSource,
    Source,
    StepReport,
    TrainingNotice,
)
from trainers.loop.data.transfer import DeviceTransfer, DirectFeeder, Prefetcher, can_read_ahead, create_feeder
from trainers.loop.data.tree import iterate_tensors, map_tensors

Tree = TypeVar("Tree")
PLENTY = 2**30


class Rows(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass
class FakeDevice:
    """A fake device to which copies arrive late.

    Attributes:
        log: What it was asked, with the first number of the batch.
        short: How many more copies find no memory.
    """

    log: list[str] = field(default_factory=list[str])
    short: int = 0
    can_overlap: bool = True
    _waiting: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])

    def prepare(self, batch: Tree) -> Tree:
        self.log.append(f"ready {_first(batch)}")
        return map_tensors(batch, torch.clone)

    def copy(self, batch: Tree) -> Tree:
        self.log.append(f"move {_first(batch)}")
        return map_tensors(batch, torch.clone)

    def start_copy(self, batch: Tree) -> Tree:
        if self.short:
            self.short -= 1
            raise cuda_shortage()
        self.log.append(f"send {_first(batch)}")
        copy = map_tensors(batch, lambda tensor: torch.full_like(tensor, torch.nan))
        self._waiting.append((copy, batch))
        return copy

    def finish_copy(self, batch: Any) -> None:
        (found,) = [pair for pair in self._waiting if pair[0] is batch]
        self._waiting = [pair for pair in self._waiting if pair is not found]
        for (_, target), (_, source) in zip(iterate_tensors(found[0]), iterate_tensors(found[1]), strict=True):
            target.copy_(source)
        self.log.append(f"receive {_first(batch)}")

    def count(self, word: str) -> int:
        return sum(entry.startswith(word) for entry in self.log)


def _first(batch: object) -> int:
    return int(next(iterate_tensors(batch))[1].flatten()[0])


def rows(count: int = 24, width: int = 3) -> Rows:
    """Rows whose first column numbers them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, width, generator=generator)
    x[:, 0] = torch.arange(count) + 0.5
    return Rows(x, torch.randn(count, 1, generator=generator))


def list_source(size: int = 4) -> IterableSource[Rows]:
    data = rows()
    return IterableSource([Rows(*batch) for batch in zip(data.x.split(size), data.y.split(size), strict=True)])


def resident(size: int = 4) -> ResidentSource[Rows]:
    return ResidentSource.of(rows(), batch_size=size, seed=3)


Seen = Callable[[int, Rows], None]


def train(
    source: Source[Rows],
    *,
    phases: int = 2,
    accumulate: int = 2,
    epochs: int = 2,
    shortage: Callable[[Tensor], Tensor] | None = None,
    seen: Seen | None = None,
    stop_after: int | None = None,
    folder: Path | None = None,
    **chosen: Any,
) -> tuple[list[Tensor], list[Report]]:
    """Weights and reports of networks trained on the same batches, one phase each."""
    torch.manual_seed(2)
    nets = {f"net{k}": nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1)) for k in range(phases)}

    def loss(k: int, batch: Rows) -> Loss:
        if seen is not None:
            seen(k, batch)
        x = batch.x / 24 if shortage is None else shortage(batch.x.requires_grad_()) / 24
        return Loss((nets[f"net{k}"](x) - batch.y).square().mean(), len(batch.x))

    made = [
        Phase[Rows](
            name, lambda batch, k=k: loss(k, batch), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.05)
        )
        for k, (name, net) in enumerate(nets.items())
    ]
    reports: list[Report] = []
    loop = Loop(made, modules=nets, device="cpu", accumulate=accumulate, **chosen)
    with loop.running(None if folder is None else Checkpoints(folder, every_windows=2)) as run:
        for report in run.epochs(source, max_epochs=epochs):
            reports.append(report)
            if stop_after is not None and sum(isinstance(report, StepReport) for report in reports) == stop_after:
                break
        for _ in run.epochs(source, max_epochs=epochs):
            pass
    return [parameter.detach().clone() for net in nets.values() for parameter in net.parameters()], reports


Feed = Callable[..., tuple[FakeDevice, list[Prefetcher]]]


@pytest.fixture
def feed_all(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Use the fake device in every loop; returns it and the created feeders."""

    def feed(*, most: int = PLENTY, **chosen: Any) -> tuple[FakeDevice, list[Prefetcher]]:
        carrier, made = FakeDevice(**chosen), list[Prefetcher]()

        def feeder(_device: torch.device, *, phases: int) -> Prefetcher:
            made.append(Prefetcher(cast("DeviceTransfer", carrier), max_bytes=most, shared=phases > 1))
            return made[-1]

        monkeypatch.setattr("trainers.loop.run_parts.create_feeder", feeder)
        return carrier, made

    return feed


def equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def nothing_held(feeder: Prefetcher) -> bool:
    return feeder._next is None and feeder._current.window is None and not feeder._current.copies


SOURCES: dict[str, Callable[[], Source[Rows]]] = {
    "a list": list_source,
    "data in memory": resident,
    "a loader without workers": lambda: IterableSource(_loader(0)),
    "any iterable": lambda: IterableSource(_RandomBatches()),
}


class _RandomBatches:
    """Batches drawn from torch's generator while they are read."""

    def __iter__(self) -> Iterator[Rows]:
        return (Rows(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(6))


def _loader(workers: int) -> "DataLoader[Any]":
    data = rows()
    return DataLoader(
        TensorDataset(data.x, data.y),
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        collate_fn=_collated,
        multiprocessing_context="fork" if workers else None,
    )


def _collated(samples: Sequence[tuple[Tensor, Tensor]]) -> Rows:
    return Rows(torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples]))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("phases", [1, 2])
def test_a_training_that_is_fed_has_the_bits_of_one_that_is_not(
    feed_all: Feed, source: Callable[[], Source[Rows]], phases: int
) -> None:
    expected, _ = train(source(), phases=phases)
    _, made = feed_all()
    found, _ = train(source(), phases=phases)
    assert equal(found, expected)
    assert nothing_held(made[0])


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("windows", [2, 3])
def test_leaving_the_loop_in_mid_epoch_loses_no_window(
    feed_all: Feed, source: Callable[[], Source[Rows]], windows: int
) -> None:
    expected, _ = train(source(), phases=1)
    _, made = feed_all()
    found, _ = train(source(), phases=1, stop_after=windows)
    assert equal(found, expected)
    assert nothing_held(made[0])


def test_the_next_window_is_sent_before_this_one_is_reported_and_received_only_when_it_is_worked(
    feed_all: Feed,
) -> None:
    carrier, _ = feed_all()
    train(
        list_source(),
        phases=1,
        accumulate=1,
        epochs=1,
        seen=lambda _, batch: carrier.log.append(f"work {_first(batch)}"),
    )
    middle = [entry for entry in carrier.log if entry.split()[1] in ("4", "8", "12")]
    assert middle == [
        "ready 4", "send 4", "receive 4", "work 4",
        "ready 8", "send 8", "receive 8", "work 8",
        "ready 12", "send 12", "receive 12", "work 12",
    ]  # fmt: skip
    assert carrier.log.index("send 8") < carrier.log.index("receive 8") == carrier.log.index("work 8") - 1
    assert carrier.log.index("work 4") < carrier.log.index("ready 8")


@pytest.mark.parametrize("source", [list_source, lambda: IterableSource(_loader(0))], ids=["list", "loader"])
def test_every_batch_is_copied_once_for_all_phases(feed_all: Feed, source: Callable[[], Source[Rows]]) -> None:
    carrier, _ = feed_all()
    train(source(), phases=3, epochs=1)
    assert carrier.count("send") + carrier.count("move") == carrier.count("ready") == 6


def test_a_phase_alone_keeps_no_copy_of_what_was_not_sent_ahead(feed_all: Feed) -> None:
    _, made = feed_all()
    held: list[int] = []
    source = IterableSource(_loader(0))
    train(source, phases=1, epochs=1, seen=lambda _, __: held.append(len(made[0]._current.copies)))
    assert held == [0] * 6


def test_a_source_that_may_depend_on_the_training_is_read_when_its_window_is_due(feed_all: Feed) -> None:
    feed_all()
    steps: list[str] = []

    class Rollouts:
        def __iter__(self) -> Iterator[Rows]:
            for number in range(3):
                steps.append(f"read {number}")
                yield Rows(torch.full((2, 3), float(number)), torch.zeros(2, 1))

    train(
        IterableSource(Rollouts()),
        phases=1,
        accumulate=1,
        epochs=1,
        seen=lambda _, batch: steps.append(f"work {_first(batch)}"),
    )
    assert steps == ["read 0", "work 0", "read 1", "work 1", "read 2", "work 2"]


def test_only_data_in_memory_lists_and_loaders_with_workers_are_read_ahead() -> None:
    assert can_read_ahead(resident())
    assert can_read_ahead(list_source())
    assert can_read_ahead(IterableSource(_loader(1)))
    assert not can_read_ahead(IterableSource(_loader(0)))
    assert not can_read_ahead(IterableSource(_RandomBatches()))


def test_an_error_of_the_source_comes_when_its_window_is_due(feed_all: Feed) -> None:
    feed_all()

    def gather(index: Tensor) -> Rows:
        if int(index[0]) == 8:
            raise KeyError("no such row")
        return Rows(*(tensor[index] for tensor in rows()))

    source = ResidentSource(gather, samples=24, batch_size=4, shuffle=False)
    worked: list[int] = []
    reports: list[Report] = []
    net = nn.Linear(3, 1)

    def loss(batch: Rows) -> Loss:
        worked.append(_first(batch))
        return Loss((net(batch.x) - batch.y).square().mean(), 4)

    phase = Phase[Rows]("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0))
    with (
        Loop([phase], modules={"net": net}, device="cpu").running() as run,
        pytest.raises(KeyError, match="no such row") as caught,
    ):
        reports.extend(run.epochs(source, max_epochs=1))
    assert worked == [0, 4]
    assert caught.value.__notes__ == ["in the reading of epoch 0, window 2"]  # not in the previous window's


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_where_memory_runs_out_the_copies_go_first_and_the_batch_is_not_cut(feed_all: Feed, stage: Any) -> None:
    carrier, made = feed_all()
    shortage = _TemporaryShortage(stage, made)
    found, reports = train(list_source(), phases=1, epochs=1, shortage=shortage)
    (notice,) = [report.message for report in reports if isinstance(report, TrainingNotice)]
    assert "no batch was cut: windows are no longer copied to the device in advance" in notice
    assert [report.micro_batch_limit for report in reports if isinstance(report, StepReport)] == [None] * 3
    sent = carrier.count("send")
    assert 0 < sent < 6
    expected, _ = train(list_source(), phases=1, epochs=1)
    assert equal(found, expected)


class _TemporaryShortage:
    """A memory shortage in the second window, while copies exist."""

    def __init__(self, stage: Any, made: Sequence[Prefetcher]) -> None:
        self._made = made
        self._inner = Shortage(stage, 0)

    def __call__(self, x: Tensor) -> Tensor:
        held = self._made[0]._current.copies
        return self._inner(x) if held and not self._inner.failures else x


def test_once_batches_are_cut_only_micro_batches_are_moved(feed_all: Feed) -> None:
    carrier, made = feed_all()
    shortage = Shortage("forward", 2, since=3)
    held: list[int] = []
    _, reports = train(
        list_source(),
        phases=1,
        epochs=1,
        shortage=shortage,
        seen=lambda _, __: held.append(len(made[0]._current.copies) + (made[0]._next is not None)),
    )
    windows = [report for report in reports if isinstance(report, StepReport)]
    assert [(report.micro_batch_limit, report.shortages) for report in windows] == [(None, 0), (2, 2), (2, 0)]
    assert sum(report.count for report in windows) == 24
    assert held[-6:] == [0] * 6
    assert carrier.count("send") == 2  # those of the second window; the first was not read ahead


def test_a_sample_that_does_not_fit_without_copies_either_is_an_error(feed_all: Feed) -> None:
    feed_all()
    with pytest.raises(OutOfMemoryError, match="which cannot be cut"):
        train(list_source(size=1), phases=1, shortage=Shortage("forward", 0, since=3))


def test_a_device_without_room_for_the_next_window_is_fed_by_the_batch(feed_all: Feed) -> None:
    carrier, made = feed_all(short=1)
    found, _ = train(list_source(), phases=1)
    assert made[0]._crowded
    assert carrier.count("send") == 0
    expected, _ = train(list_source(), phases=1)
    assert equal(found, expected)


def test_a_window_that_is_too_large_is_moved_by_the_batch(feed_all: Feed) -> None:
    carrier, _ = feed_all(most=2 * 4 * 4 * 4 - 1)  # a window is two batches of four rows of four numbers
    train(list_source(), phases=2, epochs=1)
    assert carrier.count("send") == 0
    assert carrier.count("move") == 2 * carrier.count("ready")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_training_that_resumes_in_mid_epoch_reads_what_it_would_have_read(
    feed_all: Feed, tmp_path: Path, source: Callable[[], Source[Rows]]
) -> None:
    expected, _ = train(source(), phases=1, accumulate=1)
    _, _ = feed_all()

    class KilledError(Exception):
        pass

    batches = 0

    def seen(_phase: int, _batch: Rows) -> None:
        nonlocal batches
        batches += 1
        if batches == 4:
            raise KilledError

    with pytest.raises(KilledError):
        train(source(), phases=1, accumulate=1, folder=tmp_path, seen=seen)
    found, _ = train(source(), phases=1, accumulate=1, folder=tmp_path)
    assert equal(found, expected)


def test_before_a_checkpoint_nothing_is_read_ahead(feed_all: Feed, tmp_path: Path) -> None:
    carrier, _ = feed_all()
    held: list[str] = []

    def seen(_phase: int, batch: Rows) -> None:
        held.append(carrier.log[-1].split()[0] + f" {_first(batch)}")

    train(list_source(), phases=1, accumulate=1, epochs=1, folder=tmp_path, seen=seen)
    # A checkpoint follows every second window, whose successor is read after it.
    assert held == ["move 0", "receive 4", "move 8", "receive 12", "move 16", "receive 20"]


def test_on_a_cpu_windows_pass_as_they_are() -> None:
    feeder = create_feeder(torch.device("cpu"), phases=2)
    assert isinstance(feeder, DirectFeeder)
    windows = iter([(rows(),)])
    assert feeder.windows(windows, ahead=True) is windows
    batch = rows()
    feeder.prefetch()
    assert next(windows, None) is not None
    assert feeder.move(batch) is batch
    assert not feeder.release_copies()


def test_other_devices_are_fed_without_a_stream_of_their_own() -> None:
    feeder = cast("Prefetcher", create_feeder(torch.device("meta"), phases=2))
    source = iter([(rows(),), (rows(),)])
    found = feeder.windows(source, ahead=True)
    (batch,) = next(found)
    feeder.prefetch()
    assert next(source, None) is not None
    assert feeder.move(batch).x.device.type == "meta"
    assert batch.x.device.type == "cpu"
