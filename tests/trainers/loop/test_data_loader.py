"""`DataLoader` as source: order, random draws of its workers, and prefetching."""

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import on_ranks, results_on_ranks
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from training_results import messages

from trainers.loop import (
    CheckpointReport,
    Checkpoints,
    ContractError,
    IterableSource,
    LiveSource,
    Loop,
    Loss,
    ParallelismError,
    Phase,
    Report,
    ResumeMismatchError,
    Source,
    StepReport,
    launched_rank,
    seed_everything,
)
from trainers.loop.data.sources import read_batches

SAMPLES = 16
ENDLESS = 10_000
FORKED = "fork" if "fork" in multiprocessing.get_all_start_methods() else None  # other workers import torch anew


@dataclass(frozen=True)
class AugmentedDataset(Dataset[Tensor]):
    """Sample numbers, each with random draws of three generators while it is decoded, recorded in a file.

    Attributes:
        notes: The file; None for no notes.
        samples: How many there are.
    """

    notes: Path | None = None
    samples: int = SAMPLES

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Tensor:
        return decoded(index, self.notes)


def decoded(index: int, notes: Path | None) -> Tensor:
    if notes is not None:
        with notes.open("a") as file:
            file.write(f"{index}\n")
    return torch.tensor([index, *draw_each_generator()], dtype=torch.float64)


def draw_each_generator() -> list[float]:
    """One draw of each global generator."""
    return [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002  the global one


class StreamedDataset(IterableDataset[Tensor]):
    """The same samples as an iterable dataset, with workers taking turns."""

    def __init__(self, notes: Path | None = None) -> None:
        self._notes = notes

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        for index in range(*((0, SAMPLES) if worker is None else (worker.id, SAMPLES, worker.num_workers))):
            yield decoded(index, self._notes)


def decoded_samples(notes: Path) -> list[int]:
    """Samples decoded by any process since the last call."""
    found = sorted(int(line) for line in notes.read_text().split())
    notes.write_text("")
    return found


Batches = list[list[list[float]]]


def train_on_source(
    source: Source[Tensor] | DataLoader[Tensor],
    folder: Path | None = None,
    *,
    windows: int = ENDLESS,
    accumulate: int = 1,
    look: Callable[[Report], object] = str,
) -> Batches:
    """Train for two epochs, or to the checkpoint after so many windows; returns every batch.

    The loss draws from all generators, as an uninterrupted training's and a resumed one's do.
    """
    seed_everything(99 if folder is not None and any(folder.glob("window-*")) else 1)
    net = nn.Linear(1, 1)
    seen: Batches = []

    def loss(batch: Tensor) -> Loss:
        seen.append([*batch.reshape(-1, 4).tolist(), draw_each_generator()])
        return Loss(net(torch.ones(1, 1)).mean(), 1)

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    checkpoints = None if folder is None else Checkpoints(folder, every_windows=1, every_seconds=None)
    loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate)
    with loop.running(checkpoints) as run:
        worked = 0
        for report in run.epochs(source, max_epochs=2):
            look(report)
            worked += isinstance(report, StepReport)
            if isinstance(report, CheckpointReport) and worked >= windows:
                break
    return seen


def numbers(batches: Batches) -> list[int]:
    """The samples, without the loss's draws."""
    return [int(row[0]) for batch in batches for row in batch[:-1]]


def skip_fsync(_: int) -> None:
    """Replaces flushing a file."""


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: written data outlives the process anyway."""
    monkeypatch.setattr(os, "fsync", skip_fsync)


# --- resuming in mid-epoch -------------------------------------------------------------------------------------------

working = partial(DataLoader[Tensor], batch_size=2, num_workers=2, multiprocessing_context=FORKED)
LOADERS: dict[str, Callable[[Path], DataLoader[Tensor]]] = {
    "no workers": lambda notes: DataLoader(AugmentedDataset(notes), batch_size=2, shuffle=True),
    "workers": lambda notes: working(AugmentedDataset(notes), shuffle=True),
    "workers that stay": lambda notes: working(AugmentedDataset(notes), shuffle=True, persistent_workers=True),
    "a stream": lambda notes: DataLoader(StreamedDataset(notes), batch_size=2),
    "a stream with workers": lambda notes: working(StreamedDataset(notes)),
    "a stream with workers that stay": lambda notes: working(StreamedDataset(notes), persistent_workers=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
def test_a_training_left_after_any_window_sees_what_one_that_was_not_left_sees(
    tmp_path: Path, make: Callable[[Path], DataLoader[Tensor]]
) -> None:
    notes = tmp_path / "notes"
    whole = train_on_source(IterableSource(make(notes)), accumulate=2)
    assert sorted(numbers(whole)) == sorted([*range(SAMPLES)] * 2)
    for windows in (1, 2, 4, 7):
        folder = tmp_path / str(windows)
        begun = train_on_source(IterableSource(make(notes)), folder, windows=windows, accumulate=2)
        assert begun + train_on_source(IterableSource(make(notes)), folder, accumulate=2) == whole


@pytest.mark.parametrize("kind", ["no workers", "a stream"])
def test_a_loader_that_is_not_wrapped_is_read_as_a_wrapped_one(tmp_path: Path, kind: str) -> None:
    notes = tmp_path / "notes"
    assert train_on_source(LOADERS[kind](notes)) == train_on_source(IterableSource(LOADERS[kind](notes)))


def test_a_loader_keeps_its_order_over_several_calls_of_a_run() -> None:
    orders: list[list[float]] = []
    for calls in ((2,), (1, 2)):
        seen: list[float] = []
        net = nn.Linear(1, 1)

        def loss(batch: Tensor, net: nn.Module = net, seen: list[float] = seen) -> Loss:
            seen.extend(batch[:, 0].tolist())
            return Loss(net(torch.ones(1, 1)).mean(), 1)

        phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters()))
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(AugmentedDataset(), batch_size=2, shuffle=True, generator=generator)
        with Loop([phase], modules={"net": net}, device="cpu").running() as run:
            for epochs in calls:
                for _ in run.epochs(loader, max_epochs=epochs):
                    pass
        orders.append(seen)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_training_decodes_nothing_twice(tmp_path: Path, workers: int) -> None:
    notes = tmp_path / "notes"
    make = partial(DataLoader, AugmentedDataset(notes), batch_size=2, shuffle=True, num_workers=workers)
    begun = train_on_source(IterableSource(make()), tmp_path / "folder", windows=11)
    decoded_samples(notes)
    rest = train_on_source(IterableSource(make()), tmp_path / "folder")
    assert decoded_samples(notes) == sorted(numbers(rest))
    assert sorted(numbers(begun + rest)) == sorted([*range(SAMPLES)] * 2)


# --- a group ---------------------------------------------------------------------------------------------------------


def share(folder: Path, kind: str, windows: int) -> tuple[Batches, list[str]]:
    os.fsync = skip_fsync
    reports: list[Report] = []
    source = IterableSource(LOADERS[kind](folder / f"notes {launched_rank()}"), length=SAMPLES // 2)
    seen = train_on_source(source, folder, windows=windows, accumulate=2, look=reports.append)
    return seen, messages(reports)


@pytest.mark.parametrize("kind", ["no workers", "workers that stay"])
def test_each_process_of_a_group_decodes_half_of_the_samples_and_goes_on_with_them(tmp_path: Path, kind: str) -> None:
    begun = results_on_ranks(share, tmp_path, kind, 1)
    notes = [tmp_path / f"notes {rank}" for rank in range(2)]
    decoded_so_far = [decoded_samples(each) for each in notes]
    if kind == "no workers":
        assert [len(each) for each in decoded_so_far] == [SAMPLES // 4] * 2
    rest = results_on_ranks(share, tmp_path, kind, ENDLESS)
    epochs = [numbers(first[0] + second[0]) for first, second in zip(begun, rest, strict=True)]
    for epoch in (0, 1):
        halves = [each[epoch * SAMPLES // 2 : (epoch + 1) * SAMPLES // 2] for each in epochs]
        assert sorted(halves[0] + halves[1]) == [*range(SAMPLES)]
    assert [decoded_samples(each) for each in notes] == [sorted(numbers(seen)) for seen, _ in rest]


def test_processes_that_all_read_a_stream_say_so_and_work_each_batch_once(tmp_path: Path) -> None:
    results = results_on_ranks(share, tmp_path, "a stream", ENDLESS)
    assert sorted(numbers(results[0][0] + results[1][0])) == sorted([*range(SAMPLES)] * 2)
    for rank, (_, told) in enumerate(results):
        assert (
            sum(
                "each of the 2 processes reads and decodes all of DataLoader of StreamedDataset" in each
                for each in told
            )
            == 1
        )
        assert len(decoded_samples(tmp_path / f"notes {rank}")) >= 2 * (SAMPLES - 2)  # without the last batch


def order_of_its_own() -> None:
    generator = torch.Generator().manual_seed(launched_rank())
    train_on_source(IterableSource(DataLoader(AugmentedDataset(), batch_size=2, shuffle=True, generator=generator)))


def test_processes_whose_loaders_are_seeded_differently_are_refused() -> None:
    for ended in on_ranks(order_of_its_own):
        assert ended.error.startswith(ParallelismError.__name__)
        assert "the order of the loader's batches" in ended.error


# --- samplers --------------------------------------------------------------------------------------------------------


class ShufflingSampler(Sampler[int]):
    """A sampler that draws its order with a given function."""

    def __init__(self, draw: Callable[[], Sequence[int]]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[int]:
        return iter(self._draw())


class GeneratorSampler(Sampler[int]):
    """A sampler with its own generator."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __iter__(self) -> Iterator[int]:
        match self.kept:
            case torch.Generator():
                yield from torch.randperm(SAMPLES, generator=self.kept).tolist()
            case random.Random():
                yield from self.kept.sample(range(SAMPLES), SAMPLES)
            case _:
                yield from self.kept.permutation(SAMPLES).tolist()


class EpochSampler(Sampler[int]):
    """A sampler that depends on `set_epoch`."""

    def __init__(self) -> None:
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self._epoch)).tolist()


class BucketSampler:
    """A batch sampler of unequal, random batches and unknown length."""

    def __iter__(self) -> Iterator[list[int]]:
        left = [*range(SAMPLES)]
        while left:
            size = int(torch.randint(1, 4, ()))
            yield [left.pop(random.randrange(len(left))) for _ in range(min(size, len(left)))]


class ContinuingSampler(Sampler[int]):
    """A sampler that continues where it stopped, within a process."""

    def __init__(self) -> None:
        self._turn = 0

    def __iter__(self) -> Iterator[int]:
        self._turn += 1
        return iter([(self._turn + index) % SAMPLES for index in range(SAMPLES)])


def numpy_order() -> list[int]:
    return np.random.permutation(SAMPLES).tolist()  # noqa: NPY002  the global generator


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


data = AugmentedDataset()
SAMPLERS: dict[str, Callable[[], DataLoader[Tensor]]] = {
    "shuffled": lambda: DataLoader(data, batch_size=3, shuffle=True),
    "shuffled by a generator of its own": lambda: DataLoader(data, batch_size=3, shuffle=True, generator=seeded()),
    "without a last batch": lambda: DataLoader(data, batch_size=3, shuffle=True, drop_last=True),
    "single samples": lambda: DataLoader(data, batch_size=None, shuffle=True),
    "a subset": lambda: DataLoader(data, batch_size=3, sampler=SubsetRandomSampler([*range(SAMPLES)])),
    "weighted": lambda: DataLoader(
        data, batch_size=3, sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES, generator=seeded())
    ),
    "Python's generator": lambda: DataLoader(
        data, batch_size=3, sampler=ShufflingSampler(lambda: random.sample(range(SAMPLES), SAMPLES))
    ),
    "NumPy's generator": lambda: DataLoader(data, batch_size=3, sampler=ShufflingSampler(numpy_order)),
    "a generator of torch that is kept": lambda: DataLoader(data, batch_size=3, sampler=GeneratorSampler(seeded())),
    "a generator of Python that is kept": lambda: DataLoader(
        data, batch_size=3, sampler=GeneratorSampler(random.Random())
    ),
    "a generator of NumPy that is kept": lambda: DataLoader(
        data, batch_size=3, sampler=GeneratorSampler(np.random.default_rng())
    ),
    "an old generator of NumPy": lambda: DataLoader(
        data, batch_size=3, sampler=GeneratorSampler(np.random.RandomState())
    ),
    "told the epoch": lambda: DataLoader(data, batch_sampler=BatchSampler(EpochSampler(), 3, drop_last=False)),
    "buckets": lambda: DataLoader(data, batch_sampler=BucketSampler()),  # pyright: ignore[reportArgumentType]  any iterable will do
}


def epoch_of(loader: DataLoader[Tensor], epoch: int, *, start: int = 0, step: int = 1) -> list[list[list[float]]]:
    source = IterableSource(loader)
    return [batch[..., :2].tolist() for batch in read_batches(source, epoch, start=start, step=step, seed=5)]


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_every_sampler_gives_an_epoch_again_from_any_batch_on(make: Callable[[], DataLoader[Tensor]]) -> None:
    loader = make()
    source = IterableSource(loader)
    epochs = [
        [batch[..., :2].tolist() for batch in read_batches(source, epoch, start=0, step=1, seed=5)] for epoch in (0, 1)
    ]
    assert epochs[0] != epochs[1]
    for start, step in ((0, 1), (2, 1), (3, 2)):
        seed_everything(start)
        assert epoch_of(make(), 1, start=start, step=step) == epochs[1][start::step]


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_gives_every_sample_once_an_epoch(name: str) -> None:
    whole = np.concatenate([np.reshape(batch, (-1, 2)) for batch in epoch_of(SAMPLERS[name](), 0)])
    expected = {"without a last batch": SAMPLES - 1, "weighted": len(set(whole[:, 0]))}
    assert len(set(whole[:, 0])) == expected.get(name, SAMPLES)
    assert len(set(whole[:, 1])) == len(whole)  # no two samples draw the same noise


def test_an_order_that_is_replayed_leaves_the_generators_alone() -> None:
    seed_everything(4)
    expected = draw_each_generator()
    seed_everything(4)
    IterableSource(SAMPLERS["buckets"]()).digest(0)
    assert draw_each_generator() == expected


def test_a_sampler_whose_order_cannot_be_had_again_is_refused_by_name() -> None:
    source = IterableSource(DataLoader(data, batch_size=2, sampler=ContinuingSampler()))
    with pytest.raises(
        ContractError, match=r"the sampler ContinuingSampler gives the same epoch in a different order.*LiveSource"
    ):
        train_on_source(source)


def lists() -> Iterator[list[int]]:
    yield [0, 1]
    yield [2]


@pytest.mark.parametrize("batch_sampler", [lists(), BatchSampler(iter(range(4)), 2, drop_last=False)])
def test_a_sampler_that_can_be_read_only_once_is_refused(batch_sampler: Iterable[list[int]]) -> None:
    with pytest.raises(ContractError, match=r"the loader's sampler is a .*, which can be read only once"):
        IterableSource(DataLoader(data, batch_sampler=batch_sampler))  # pyright: ignore[reportArgumentType]


class SharedBucketSampler(Sampler[list[int]]):
    """A sampler with other samplers in a list."""

    def __init__(self, samplers: list[Sampler[int]]) -> None:
        self._samplers = samplers

    def __iter__(self) -> Iterator[list[int]]:
        return ([index] for sampler in self._samplers for index in sampler)


class DistributedOfMine(DistributedSampler[Tensor]):
    """A user's subclass of DistributedSampler."""


@pytest.mark.parametrize("kind", [DistributedSampler, DistributedOfMine])
def test_a_distributed_sampler_is_refused_also_in_one_process(kind: type[Any]) -> None:
    sampler = kind(data, num_replicas=1, rank=0)
    for loader in (
        DataLoader(data, sampler=sampler),
        DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False)),
        DataLoader(data, batch_sampler=SharedBucketSampler([SequentialSampler(data), sampler])),
    ):
        with pytest.raises(ContractError, match=f"sampler is a {kind.__name__}, which shards the data by process"):
            IterableSource(loader)


def test_batches_in_the_order_of_the_workers_speed_are_refused() -> None:
    with pytest.raises(ContractError, match="in_order=False"):
        IterableSource(DataLoader(data, num_workers=1, in_order=False))


def test_a_loader_whose_sampler_does_not_know_its_length_has_none() -> None:
    assert IterableSource(SAMPLERS["buckets"]()).length is None
    assert IterableSource(DataLoader(data, batch_size=2, sampler=ShufflingSampler(numpy_order))).length is None


# --- the loader's own settings ---------------------------------------------------------------------------------------


class BulkDataset(Dataset[Tensor]):
    """A dataset that fetches all samples of a batch at once."""

    opened = "nowhere"

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        raise AssertionError("samples are not fetched one by one")

    def __getitems__(self, index: list[int]) -> list[str]:
        return [f"{self.opened} {one}" for one in index]


def open_here(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.opened = f"worker {worker}"


def collated(samples: list[str]) -> str:
    return ", ".join(samples)


def test_workers_are_started_as_the_loader_says_and_see_their_own_dataset() -> None:
    loader = DataLoader(
        BulkDataset(),
        batch_size=2,
        num_workers=2,
        worker_init_fn=open_here,
        collate_fn=collated,
        prefetch_factor=1,
        multiprocessing_context=FORKED,
    )
    batches = list(IterableSource(loader).batches(0, start=1, step=4))
    assert batches == ["worker 0 2, worker 0 3", "worker 1 10, worker 1 11"]


@pytest.mark.parametrize("stay", [False, True])
def test_a_source_can_be_read_while_it_is_read_unless_its_workers_stay(*, stay: bool) -> None:
    source = IterableSource(working(data, persistent_workers=stay))
    outer = source.batches(0)
    begun = [next(outer), *source.batches(0, start=7)]
    assert numbers([[*batch.tolist(), []] for batch in begun]) == [0, 1, 14, 15]
    if stay:
        with pytest.raises(ContractError, match="was read again in the middle of an epoch"):
            next(outer)
    else:
        assert next(outer)[:, 0].tolist() == [2, 3]


def test_workers_that_stay_are_those_of_the_first_epoch() -> None:
    source = IterableSource(working(ProcessIdDataset(), persistent_workers=True))
    first, second = ({int(pid) for batch in source.batches(epoch) for pid in batch} for epoch in (0, 1))
    assert first == second
    assert len(first) == 2


def test_what_a_worker_begins_with_is_a_function_of_the_epoch() -> None:
    source = IterableSource(working(SeedDataset()))
    epochs = [[int(seed) for batch in source.batches(epoch) for seed in batch] for epoch in (0, 1)]
    assert set(epochs[0]).isdisjoint(epochs[1])
    again = IterableSource(working(SeedDataset())).batches(1, start=2)
    assert {int(seed) for batch in again for seed in batch} == set(epochs[1])


class SeedDataset(AugmentedDataset):
    """A dataset that returns its worker's seed."""

    def __getitem__(self, index: int) -> Tensor:
        info: Any = get_worker_info()
        return torch.tensor(info.seed)


class ProcessIdDataset(AugmentedDataset):
    """A dataset that returns the decoding process's id."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(os.getpid())


class CustomLoader(DataLoader[Tensor]):
    """A loader with its own iteration."""

    def __iter__(self) -> Any:
        return (batch * 2 for batch in super().__iter__())


def test_a_class_of_loader_that_reads_in_its_own_way_is_read_as_it_is() -> None:
    source = IterableSource(CustomLoader(data, batch_size=2, sampler=RandomSampler(data)))
    assert source.sequential_class == "CustomLoader of AugmentedDataset"
    whole = train_on_source(source)
    assert sorted(numbers(whole)) == sorted([*range(0, 2 * SAMPLES, 2)] * 2)
    again = [batch[..., 0].tolist() for batch in read_batches(source, 1, start=3, step=2, seed=1)]
    assert again == [batch[..., 0].tolist() for batch in read_batches(source, 1, start=0, step=1, seed=1)][3::2]
    with pytest.raises(ContractError, match=r"a CustomLoader has a custom way of reading.*persistent_workers=False"):
        IterableSource(CustomLoader(data, num_workers=1, persistent_workers=True))


# --- what goes wrong -------------------------------------------------------------------------------------------------


class BrokenDataset(AugmentedDataset):
    """A dataset in which one sample fails to decode."""

    def __getitem__(self, index: int) -> Tensor:
        if index == SAMPLES - 1:
            raise ValueError("no such picture")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_while_a_batch_is_read_passes_and_says_where(workers: int) -> None:
    source = IterableSource(DataLoader(BrokenDataset(), batch_size=2, num_workers=workers))
    with pytest.raises(ValueError, match="no such picture") as raised:
        train_on_source(source, accumulate=3)
    assert raised.value.__notes__ == ["in the reading of epoch 0, window 2"]


def unused(_: object) -> Loss:
    return Loss(torch.zeros(()), 0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([torch.zeros(4)], r"the source is a list; wrap it in IterableSource\(...\)"),
        (iter([torch.zeros(4)]), r"the source is a list_iterator; wrap it in LiveSource\(...\)"),
        (3, "the source is a int, which has no batches"),
    ],
)
def test_what_is_no_source_is_refused_with_what_to_give(source: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        train_on_source(source)
    net = nn.Linear(1, 1)
    phase = Phase[Any]("main", unused, net.parameters(), torch.optim.SGD(net.parameters()))
    with (
        Loop([phase], modules={"net": net}, device="cpu").running() as run,
        pytest.raises(ContractError, match=message),
    ):
        run.validate(unused, source)


# --- live sources ----------------------------------------------------------------------------------------------------


class LiveGame:
    """Live batches that are played once each."""

    def __init__(self, first: int = 0) -> None:
        self.turn = first

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            self.turn += 1
            yield torch.tensor([float(self.turn), float(torch.rand(())), 0.0, 0.0])


def test_a_live_source_resumes_with_the_next_batch_and_a_notice(tmp_path: Path) -> None:
    whole = train_on_source(LiveSource(LiveGame(), length=6))
    game, reports = LiveGame(), list[Report]()
    begun = train_on_source(LiveSource(game, length=6), tmp_path, windows=8)
    rest = train_on_source(LiveSource(LiveGame(game.turn), length=6), tmp_path, look=reports.append)
    assert numbers(begun + rest) == [*range(1, 13)]
    assert begun + rest == whole  # it draws from the training's generators
    told = "the source is live, so no batch of epoch 2 is read again or skipped: the next batches are window 3"
    assert told in messages(reports)


def test_an_endless_generator_continues_from_epoch_to_epoch() -> None:
    assert numbers(train_on_source(LiveSource(iter(LiveGame()), length=4))) == [*range(1, 9)]


def test_a_live_source_of_unknown_length_ends_when_it_ends() -> None:
    assert numbers(train_on_source(LiveSource([torch.zeros(4)] * 3))) == [0] * 6


def play() -> list[int]:
    return numbers(train_on_source(LiveSource(LiveGame(100 * launched_rank()), length=5)))


def test_each_process_of_a_group_reads_a_live_source_of_its_own() -> None:
    assert results_on_ranks(play) == [[1, 2, 3, 4, 5, 6], [101, 102, 103, 104]]


class PrioritisedSampler(Sampler[int]):
    """A sampler whose weights change during training."""

    def __init__(self) -> None:
        self.weights = torch.ones(SAMPLES)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.multinomial(self.weights, SAMPLES).tolist())

    def __len__(self) -> int:
        return SAMPLES


def test_an_order_that_the_training_has_changed_is_refused_in_mid_epoch(tmp_path: Path) -> None:
    sampler = PrioritisedSampler()

    def source() -> Source[Tensor]:
        return IterableSource(DataLoader(AugmentedDataset(), batch_size=4, sampler=sampler))

    train_on_source(source(), tmp_path, windows=3)
    sampler.weights = torch.arange(1.0, SAMPLES + 1)
    with pytest.raises(ResumeMismatchError, match=r"epoch 1 a different order than before.*LiveSource\(loader\)"):
        train_on_source(source(), tmp_path)


def test_an_epoch_ends_after_the_length_that_was_given() -> None:
    batches = [torch.full((4,), float(number)) for number in range(10)]
    assert numbers(train_on_source(IterableSource(batches, length=6))) == [*range(6)] * 2
    loader = DataLoader(AugmentedDataset(), batch_size=4)
    assert len(train_on_source(IterableSource(loader, length=3))) == 2 * 3


def ended_early() -> None:
    train_on_source(IterableSource([torch.zeros(4)] * 10, length=13))


def test_a_source_shorter_than_its_length_is_an_error_in_a_group() -> None:
    for ended in on_ranks(ended_early):
        assert ended.error.startswith("ContractError: the source has fewer batches than its length")
