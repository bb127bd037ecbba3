"""Throughput of window batches: resident tensors against torch's `DataLoader`, on 200,000 windows of 30 x 8."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from benchmarks.report import Row, at_least, shown
from trainers.loop import ResidentSource

WINDOWS, LENGTH, FEATURES, BATCH = 200_000, 30, 8, 256
REACH = 3.5

Form = Callable[[int], Iterator[object]]


class Windows(NamedTuple):
    """Windows and their targets."""

    x: Tensor
    y: Tensor


@final
class Stored(Dataset[Windows]):
    """Windows that a `DataLoader` reads by lists of indices."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._windows.x)

    def __getitem__(self, index: Sequence[int]) -> Windows:
        """Gather a batch."""
        places = torch.as_tensor(index)
        return Windows(self._windows.x[places], self._windows.y[places])

    def __getitems__(self, index: Sequence[int]) -> Windows:
        """Gather a batch; torch's fetcher calls this."""
        return self[index]


def rows(*, quick: bool) -> list[Row]:
    """Rows for the batches of each source, without the start of an epoch."""
    rounds, batches = (3, 30) if quick else (21, 100)
    series, y = torch.randn(WINDOWS + LENGTH - 1, FEATURES), torch.randn(WINDOWS, 1)
    stored = Windows(series.unfold(0, LENGTH, 1).transpose(1, 2).contiguous(), y)
    seconds = _seconds(_forms(series, stored), rounds=rounds, batches=batches)
    fastest = [min(lists, items) for lists, items in zip(seconds["lists"], seconds["items"], strict=True)]
    detail = f"batches of {BATCH} x {LENGTH} x {FEATURES} out of {WINDOWS}; per-round medians of {rounds} rounds"
    return [
        at_least(
            "resident windows/s / fastest DataLoader form",
            _ratio(fastest, seconds["resident"]),
            REACH,
            detail=detail,
            judged=not quick,
        ),
        shown("resident windows, ms per batch", 1e3 * statistics.median(seconds["resident"]), detail="index_select"),
        shown(
            "DataLoader, BatchSampler of index lists, ms per batch",
            1e3 * statistics.median(seconds["lists"]),
            detail="",
        ),
        shown("DataLoader, __getitems__, ms per batch", 1e3 * statistics.median(seconds["items"]), detail=""),
        shown(
            "windows cut from the series on demand / fastest DataLoader form",
            _ratio(fastest, seconds["cut"]),
            detail=f"{stored.x.nbytes / series.nbytes:.0f} times less memory than stored windows; without targets",
        ),
    ]


def _forms(series: Tensor, stored: Windows) -> dict[str, Form]:
    dataset = Stored(stored)
    batches = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
    lists = DataLoader(dataset, sampler=batches, batch_size=None)
    items = DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=_as_it_is)  # pyright: ignore[reportArgumentType]  __getitems__ returns a batch
    resident = ResidentSource[Windows].of(stored, batch_size=BATCH)
    cut = ResidentSource[Tensor].of_windows(series, length=LENGTH, batch_size=BATCH)
    return {
        "lists": lambda _: iter(lists),
        "items": lambda _: iter(items),
        "resident": resident.batches,
        "cut": cut.batches,
    }


def _as_it_is(batch: Windows) -> Windows:
    return batch


def _seconds(forms: dict[str, Form], *, rounds: int, batches: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for epoch in range(rounds):
        for name, form in forms.items():
            iterator = form(epoch)
            next(iterator)
            started = time.process_time()
            for _ in range(batches):
                next(iterator)
            seconds[name].append((time.process_time() - started) / batches)
    return seconds


def _ratio(of: Sequence[float], to: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(of, to, strict=True))
