"""The alignment search: the same paths as exhaustive search, and its time beside the same recursion in torch."""

import time
from itertools import combinations, pairwise
from typing import Final

import torch
from torch import Tensor

from benchmarks.report import Row, at_most, interleaved_medians, shown
from trainers.vits.alignment import monotonic_path

CASES: Final = 1000
UTTERANCES, FRAMES, TOKENS = 16, 600, 200
REACH: Final = 0.15


def rows(*, quick: bool) -> list[Row]:
    """What differs, and the ratio with the milliseconds behind it."""
    draw = torch.Generator().manual_seed(0)
    cases = CASES // 10 if quick else CASES
    wrong = sum(_differs(draw) for _ in range(cases))
    scores = torch.randn(UTTERANCES, FRAMES, TOKENS, generator=draw)
    tokens = torch.randint(TOKENS // 2, TOKENS + 1, (UTTERANCES,), generator=draw)
    frames = torch.randint(FRAMES // 2, FRAMES + 1, (UTTERANCES,), generator=draw)
    seconds = interleaved_medians(
        {
            "ours": lambda: monotonic_path(scores, tokens, frames),
            "torch": lambda: in_torch(scores, tokens, frames),
        },
        rounds=3 if quick else 15,
        calls=1,
        clock=time.thread_time,
    )
    differing = int((monotonic_path(scores, tokens, frames) != in_torch(scores, tokens, frames)).sum())
    size = f"{UTTERANCES} x {FRAMES} x {TOKENS}"
    return [
        at_most("alignment: paths that exhaustive search does not find", wrong, 0, detail=f"{cases} random cases"),
        at_most("alignment: cells unlike those of torch operations", differing, 0, detail=size),
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
    """The path, by one torch operation for every NumPy operation of ours: float32 [N, frames, tokens]."""
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


def _differs(draw: torch.Generator) -> bool:
    """Whether the sum of scores along our path is not the largest of all paths, in one random case."""
    tokens = int(torch.randint(1, 6, (), generator=draw))
    frames = int(torch.randint(tokens, 10, (), generator=draw))
    scores = torch.randn(1, frames, tokens, generator=draw)
    found = float((monotonic_path(scores, torch.tensor([tokens]), torch.tensor([frames])) * scores).sum())
    return abs(found - _exhaustive(scores[0])) > 1e-4


def _exhaustive(scores: Tensor) -> float:
    """The largest sum over all ways of cutting the frames into as many runs as there are tokens."""
    frames, tokens = scores.shape
    cuts = ((0, *some, frames) for some in combinations(range(1, frames), tokens - 1))
    return max(
        sum(float(scores[start:stop, token].sum()) for token, (start, stop) in enumerate(pairwise(cut))) for cut in cuts
    )
