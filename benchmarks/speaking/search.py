"""Time of the alignment search against the same recursion in torch."""

import time
from typing import Final

import torch
from torch import Tensor

from benchmarks.report import Row, at_most, interleaved_medians, shown
from trainers.vits.objective import find_monotonic_path

UTTERANCES, FRAMES, TOKENS = 16, 600, 200
REACH: Final = 0.15


def rows(*, quick: bool) -> list[Row]:
    """Rows for differing cells, the ratio, and the milliseconds behind it."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(UTTERANCES, FRAMES, TOKENS, generator=draw)
    tokens = torch.randint(TOKENS // 2, TOKENS + 1, (UTTERANCES,), generator=draw)
    frames = torch.randint(FRAMES // 2, FRAMES + 1, (UTTERANCES,), generator=draw)
    seconds = interleaved_medians(
        {
            "ours": lambda: find_monotonic_path(scores, tokens, frames),
            "torch": lambda: in_torch(scores, tokens, frames),
        },
        rounds=3 if quick else 15,
        calls=1,
        clock=time.thread_time,
    )
    differing = int((find_monotonic_path(scores, tokens, frames) != in_torch(scores, tokens, frames)).sum())
    size = f"{UTTERANCES} x {FRAMES} x {TOKENS}"
    return [
        at_most("alignment: cells that differ from torch operations", differing, 0, detail=size),
        at_most(
            "alignment: time / the same recursion in torch operations",
            seconds["ours"] / seconds["torch"],
            REACH,
            detail=f"{size}, one thread, processor time",
            judged=not quick,
        ),
        shown("alignment, ms", 1e3 * seconds["ours"], detail=size),
        shown("alignment in torch operations, ms", 1e3 * seconds["torch"], detail=size),
    ]


def in_torch(scores: Tensor, tokens: Tensor, frames: Tensor) -> Tensor:
    """The path, with one torch operation per NumPy operation of ours: float32 [N, frames, tokens]."""
    count, length, width = scores.shape
    best = torch.full((count, width), -1e30)
    best[:, 0] = scores[:, 0, 0]
    before, impossible = torch.empty_like(best), torch.full((count, 1), -1e30)
    advances = torch.zeros(length, count, width, dtype=torch.bool)
    for frame in range(1, length):
        before = torch.cat([impossible, best[:, :-1]], dim=1)
        advances[frame] = before > best
        best = torch.maximum(before, best) + scores[:, frame]
    path, row, token = torch.zeros_like(scores), torch.arange(count), tokens - 1
    for frame in range(length - 1, -1, -1):
        within = frame < frames
        path[row, frame, token] = within.float()
        token = token - (within & advances[frame, row, token]).long()
    return path
