"""Batch sources and the trees of tensors that they yield."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainers.loop import ContractError, IterableSource, ResidentSource, SettingsError, shuffle_indices
from trainers.loop.data.tree import describe, map_tensors, move


class Rows(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Graph:
    nodes: Tensor
    edges: tuple[Tensor, ...]
    name: str


def numbered_rows(count: int) -> Rows:
    return Rows(torch.arange(count), torch.arange(count) * 10)


def test_an_epoch_s_order_depends_on_seed_and_epoch_alone() -> None:
    torch.manual_seed(1)
    first = shuffle_indices(100, seed=3, epoch=5)
    torch.manual_seed(2)
    assert torch.equal(first, shuffle_indices(100, seed=3, epoch=5))
    assert not torch.equal(first, shuffle_indices(100, seed=3, epoch=6))
    assert not torch.equal(first, shuffle_indices(100, seed=4, epoch=5))
    assert torch.equal(first.sort().values, torch.arange(100))


def test_drawing_an_order_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    list(ResidentSource.of(numbered_rows(10), batch_size=3).batches(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_sample_comes_once_an_epoch_with_its_own_target() -> None:
    source = ResidentSource.of(numbered_rows(10), batch_size=4, seed=1)
    batches = list(source.batches(2))
    assert [len(batch.x) for batch in batches] == [4, 4, 2]
    assert source.length == 3
    x = torch.cat([batch.x for batch in batches])
    assert not torch.equal(x, torch.arange(10))
    assert torch.equal(x.sort().values, torch.arange(10))
    assert torch.equal(torch.cat([batch.y for batch in batches]), x * 10)


def test_a_last_batch_that_is_not_full_can_be_left_out() -> None:
    source = ResidentSource.of(numbered_rows(10), batch_size=4, drop_last=True)
    assert [len(batch.x) for batch in source.batches(0)] == [4, 4]
    assert source.length == 2


def test_without_shuffling_samples_keep_their_order() -> None:
    source = ResidentSource.of(numbered_rows(5), batch_size=2, shuffle=False)
    assert torch.equal(torch.cat([batch.x for batch in source.batches(7)]), torch.arange(5))


def test_dicts_tuples_and_lists_of_tensors_are_picked_from_alike() -> None:
    data = {"x": torch.arange(4), "more": (torch.arange(4) + 1, [torch.arange(4) + 2])}
    (batch,) = ResidentSource.of(data, batch_size=4, seed=1).batches(0)
    order = shuffle_indices(4, seed=1, epoch=0)
    assert torch.equal(batch["x"], order)
    more, (most,) = batch["more"]
    assert torch.equal(more, order + 1)
    assert torch.equal(most, order + 2)


def test_a_gather_function_makes_windows_from_a_series() -> None:
    series = torch.arange(10)
    source = ResidentSource(lambda index: series.unfold(0, 3, 1)[index], samples=8, batch_size=8, shuffle=False)
    (batch,) = source.batches(0)
    assert torch.equal(batch[7], torch.tensor([7, 8, 9]))


def test_tensors_of_different_lengths_are_refused_with_their_shapes() -> None:
    with pytest.raises(ContractError, match=r"batch\.x int64\[3\], batch\.y int64\[4\]"):
        ResidentSource.of(Rows(torch.arange(3), torch.arange(4)), batch_size=2)


@pytest.mark.parametrize("data", [(), (torch.tensor(1.0),)])
def test_data_without_samples_is_refused(data: tuple[Tensor, ...]) -> None:
    with pytest.raises(ContractError, match="common first dimension"):
        ResidentSource.of(data, batch_size=2)


def test_a_batch_size_of_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match="batch_size is 0"):
        ResidentSource.of(numbered_rows(3), batch_size=0)


def test_a_generator_is_refused_because_it_can_be_read_only_once() -> None:
    with pytest.raises(ContractError, match="a generator can be read only once"):
        IterableSource(number for number in range(3))


class Endless:
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_the_length_is_known_where_the_iterable_knows_it() -> None:
    assert IterableSource([1, 2, 3]).length == 3
    assert IterableSource(Endless()).length is None
    assert IterableSource(Endless(), length=3).length == 3


def test_an_iterable_is_read_again_every_epoch() -> None:
    source = IterableSource(Endless())
    assert list(source.batches(0)) == list(source.batches(1)) == [0, 1, 2]


def test_trees_keep_their_types_and_other_leaves() -> None:
    tree = {
        "graph": Graph(torch.ones(2), (torch.ones(1),), "west"),
        "rows": numbered_rows(2),
        "list": [torch.ones(1), 3],
    }
    doubled = map_tensors(tree, lambda tensor: tensor * 2)
    graph = doubled["graph"]
    assert isinstance(graph, Graph)
    assert graph.name == "west"
    assert graph.edges[0].item() == 2
    assert isinstance(doubled["rows"], Rows)
    assert doubled["list"] == [torch.tensor([2.0]), 3]


def test_tensors_move_to_the_device() -> None:
    rows = numbered_rows(3)
    assert move(rows, torch.device("meta")).x.device.type == "meta"
    assert move(rows, torch.device("cpu")).x is rows.x


def test_a_description_names_paths_kinds_and_shapes() -> None:
    with torch.inference_mode():
        made_there = torch.ones(2, 3)
    tree = {"x": [made_there], "graph": Graph(torch.ones(1), (torch.ones(2),), "west")}
    assert describe(tree) == (
        "batch['x'][0] float32[2, 3] (inference tensor), batch.graph".replace("batch.graph", "batch['graph'].nodes")
        + " float32[1], batch['graph'].edges[0] float32[2]"
    )
    assert describe("text") == "no tensor in str"


def test_windows_are_cut_from_the_series() -> None:
    series = {"x": torch.arange(20.0).reshape(10, 2), "y": torch.arange(10)}
    source = ResidentSource.of_windows(series, length=4, batch_size=3, shuffle=False)
    first, *_, last = source.batches(0)
    assert source.length == 3
    assert first["y"].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert torch.equal(first["x"][1], series["x"][1:5])
    assert last["y"].tolist() == [[6, 7, 8, 9]]


def test_every_window_comes_once_an_epoch_and_only_where_it_may_begin() -> None:
    source = ResidentSource.of_windows((torch.arange(10),), length=3, starts=torch.tensor([0, 2, 7]), batch_size=2)
    begun = [int(start) for (window,) in source.batches(1) for start in window[:, 0]]
    assert sorted(begun) == [0, 2, 7]


@pytest.mark.parametrize("starts", [[8], [-1], []])
def test_a_window_beyond_the_series_is_refused(starts: list[int]) -> None:
    with pytest.raises(ContractError, match=r"no window of 3 steps.*\[10\]"):
        ResidentSource.of_windows((torch.arange(10),), length=3, starts=torch.tensor(starts), batch_size=2)


def test_series_of_different_lengths_are_refused() -> None:
    with pytest.raises(ContractError, match="one common length in time"):
        ResidentSource.of_windows((torch.zeros(3), torch.zeros(4)), length=2, batch_size=2)


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_from_the_middle_on_are_those_of_the_whole_epoch(*, shuffle: bool) -> None:
    source = ResidentSource.of((torch.arange(23),), batch_size=2, seed=3, shuffle=shuffle)
    whole = [batch[0].tolist() for batch in source.batches(4)]
    assert [batch[0].tolist() for batch in source.batches(4, start=5)] == whole[5:]
    assert [batch[0].tolist() for batch in source.batches(4, start=1, step=3)] == whole[1::3]


def test_an_iterable_begins_where_it_is_asked_to() -> None:
    source = IterableSource([0, 1, 2, 3, 4, 5, 6])
    assert list(source.batches(0, start=1, step=3)) == [1, 4]


def test_a_loader_with_a_generator_of_its_own_reads_an_epoch_again_in_the_same_order() -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(20)), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(7)
    )
    source = IterableSource(loader)
    first, second = ([batch[0].tolist() for batch in source.batches(epoch)] for epoch in (0, 1))
    assert first != second
    assert [batch[0].tolist() for batch in source.batches(0, start=2)] == first[2:]


def test_a_loader_knows_its_length_where_its_data_do() -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    assert IterableSource(DataLoader(TensorDataset(torch.arange(10)), batch_size=4)).length == 3
    assert IterableSource(DataLoader(Endless(), batch_size=2)).length is None
