"""Copies of weights: beside them, or on the host where they are large, and the same bits either way."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from trainers.loop import Best
from trainers.loop.weights import copies
from trainers.loop.weights.copies import LARGE, Average, copies_of, is_large

BYTES = 4 * 10


def ten(device: str) -> Tensor:
    return torch.zeros(10, device=device)


def _always(_tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:  # noqa: ARG001
    return True


def test_copies_are_large_by_all_their_bytes_together() -> None:
    assert not is_large([ten("meta"), ten("meta")], large=2 * BYTES)
    assert is_large([ten("meta"), ten("meta")], large=2 * BYTES - 1)
    assert is_large([torch.empty(LARGE // 4 + 1, device="meta")])
    assert not is_large([torch.empty(LARGE // 4, device="meta")])


def test_weights_on_the_host_are_copied_where_they_are_however_large() -> None:
    assert not is_large([ten("cpu")], large=0)
    assert is_large([ten("cpu"), ten("meta")], large=0)


def test_small_copies_stay_on_the_device_and_large_ones_leave_it() -> None:
    assert [copy.device.type for copy in copies_of([ten("meta")], large=BYTES)] == ["meta"]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):  # nothing else can be done there
        copies_of([ten("meta")], large=BYTES - 1)


def test_a_copy_has_neither_graph_nor_memory_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.randn(4, 3).t())
    (beside,) = copies_of([weight])
    monkeypatch.setattr(copies, "is_large", _always)
    (aside,) = copies_of([weight])
    for copy in (beside, aside):
        assert torch.equal(copy, weight)
        assert copy.stride() == weight.stride()
        assert not copy.requires_grad
        assert copy.data_ptr() != weight.data_ptr()


def test_weights_that_were_kept_on_the_host_come_back_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "is_large", _always)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    expected = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    best = Best({"net": net})
    best.record(1.0)
    read = Best({"net": net})
    read.load(best.state(), best.tensors)
    for kept in (best, read):
        with torch.no_grad():
            for tensor in net.state_dict().values():
                tensor.fill_(7)
        kept.restore()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in net.state_dict().items())


def test_weights_that_gave_way_to_their_average_come_back_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "is_large", _always)
    weight = nn.Parameter(torch.tensor([0.1, 0.2]))
    average = Average([weight], 0.5)
    with torch.no_grad():
        weight.fill_(0.3)
    with average.applied():
        assert torch.equal(weight, torch.tensor([0.1, 0.2]))
    assert torch.equal(weight, torch.tensor([0.3, 0.3]))
