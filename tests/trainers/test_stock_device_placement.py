"""Device placement: window sources on the network's device, if there is room."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from covariate_files import SPLITS, bars, pipeline_with, source
from one_device import META, OneDevice
from torch import Tensor

from trainers.loop.data.tree import iterate_tensors, move
from trainers.stock.data import MAX_MEMORY_FRACTION, DeviceHistory, History, PanelGatherer, count_bytes, place_history
from trainers.stock.objectives import StaticDropout

CPU = torch.device("cpu")


@cache
def history() -> History:
    """A history with known inputs and static values of every kind."""
    with TemporaryDirectory() as folder:
        covariates = source(Path(folder))
        return History(bars(), pipeline_with(covariates), covariates)


def tensors(batch: object) -> list[Tensor]:
    return [tensor for _, tensor in iterate_tensors(batch)]


def assert_same(found: object, expected: object) -> None:
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.nan_to_num(-7), other.nan_to_num(-7))


def test_windows_have_the_same_bits_wherever_they_are_gathered() -> None:
    windows = history().windows(SPLITS.train).subsample(50)
    found, expected = DeviceHistory(history(), CPU), history()
    assert_same(found.gather(windows), expected.gather(windows))
    assert_same(StaticDropout(found, seed=3).gather(windows), StaticDropout(expected, seed=3).gather(windows))
    days = np.unique(windows.positions)[:4]
    there = expected.forecastable
    assert_same(
        PanelGatherer(found.gather, forecastable=there).gather(days),
        PanelGatherer(expected.gather, forecastable=there).gather(days),
    )


def test_windows_are_gathered_on_the_device_with_small_copies_from_the_host_and_no_wait() -> None:
    windows = history().windows(SPLITS.train).subsample(50)
    there, days = history().forecastable, np.unique(windows.positions)[:4]
    with OneDevice() as device:
        taught = StaticDropout(DeviceHistory(history(), META), seed=3)
        taught.gather(windows)  # moves the hidden data to the device, once
        device.uploads.clear()
        batch = taught.gather(windows)
        sent = sum(map(_numbers, device.uploads))
        panels = PanelGatherer(taught.gather, forecastable=there).gather(days)
    assert {tensor.device for tensor in (*tensors(batch), *tensors(panels))} == {META}
    assert device.reads == []
    horizons, statics = batch.target.shape[1], batch.inputs.static.shape[1]
    assert sent == len(windows) * (2 + 3 * horizons + statics)  # positions, levels, targets, and hidden data


def _numbers(shape: list[int]) -> int:
    return int(np.prod(shape))


def test_rows_that_symbols_share_stay_shared_and_count_once() -> None:
    stored = history().stored
    shared = stored._replace(known=stored.known[:1].expand(stored.known.shape))
    own = stored._replace(known=stored.known[:1].repeat(len(stored.known), 1, 1))
    assert count_bytes(own) - count_bytes(shared) == (len(stored.known) - 1) * stored.known[0].numel() * 4
    moved = DeviceHistory(_with(shared), META)._inputs.known
    assert moved.untyped_storage().nbytes() == shared.known[0].numel() * 4
    assert torch.equal(DeviceHistory(_with(shared), CPU)._inputs.known, shared.known)


def _with(stored: Any) -> History:
    twin = History.__new__(History)
    vars(twin).update(vars(history()))
    twin.stored = stored
    return twin


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_windows_that_a_gpu_gathers_have_the_bits_of_the_host_s() -> None:
    windows = history().windows(SPLITS.train).subsample(50)
    found = place_history(history(), torch.device("cuda", 0))
    assert isinstance(found, DeviceHistory)
    batch = StaticDropout(found, seed=3).gather(windows)
    assert {tensor.device.type for tensor in tensors(batch)} == {"cuda"}
    assert_same(move(batch, CPU), StaticDropout(history(), seed=3).gather(windows))


@pytest.mark.parametrize(("spare", "goes"), [(0, True), (-1, False)])
def test_a_history_goes_to_a_device_that_has_room_for_it(
    monkeypatch: pytest.MonkeyPatch, spare: int, *, goes: bool
) -> None:
    def free(_device: torch.device) -> int:
        return round(count_bytes(history().stored) / MAX_MEMORY_FRACTION) + spare

    monkeypatch.setattr("trainers.stock.data.measure_free_bytes", free)
    assert isinstance(place_history(history(), CPU), DeviceHistory) is goes


def test_on_a_cpu_a_history_stays_what_it_is() -> None:
    assert place_history(history(), CPU) is history()
