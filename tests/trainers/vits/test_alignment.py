"""Monotonic alignment search against all possible paths."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from trainers.vits.objective import find_monotonic_path


def best_by_trying(scores: Tensor, tokens: int, frames: int) -> float:
    """The largest sum over all ways to split the frames into runs."""
    sums = scores[:frames, :tokens].double().cumsum(0)
    before = torch.cat([torch.zeros(1, tokens, dtype=torch.float64), sums])
    totals = []
    for cuts in combinations(range(1, frames), tokens - 1):
        edges = (0, *cuts, frames)
        totals.append(sum(float(before[edges[k + 1], k] - before[edges[k], k]) for k in range(tokens)))
    return max(totals)


def test_no_path_of_a_thousand_random_cases_is_better() -> None:
    draw = torch.Generator().manual_seed(1)
    for _ in range(250):
        tokens = torch.randint(1, 6, (4,), generator=draw)
        frames = tokens + torch.randint(0, 6, (4,), generator=draw)
        scores = torch.randn(4, int(frames.max()), int(tokens.max()), generator=draw)
        path = find_monotonic_path(scores, tokens, frames)
        for row in range(4):
            best = best_by_trying(scores[row], int(tokens[row]), int(frames[row]))
            assert float((scores[row].double() * path[row]).sum()) == pytest.approx(best, abs=1e-5)


def test_every_frame_has_one_token_and_every_token_a_frame_in_order() -> None:
    draw = torch.Generator().manual_seed(2)
    tokens, frames = torch.tensor([3, 5, 1]), torch.tensor([9, 5, 4])
    path = find_monotonic_path(torch.randn(3, 9, 5, generator=draw), tokens, frames)
    for row in range(3):
        own = path[row, : frames[row], : tokens[row]]
        assert own.sum(1).tolist() == [1.0] * int(frames[row])
        assert bool((own.sum(0) >= 1).all())
        assert own.argmax(1).diff().min() >= 0 if frames[row] > 1 else True
        assert path[row].sum() == frames[row]


def test_padding_has_no_effect() -> None:
    draw = torch.Generator().manual_seed(3)
    scores = torch.randn(1, 7, 4, generator=draw)
    wide = torch.full((1, 12, 9), 1e6)
    wide[:, :7, :4] = scores
    alone = find_monotonic_path(scores, torch.tensor([4]), torch.tensor([7]))
    padded = find_monotonic_path(wide, torch.tensor([4]), torch.tensor([7]))
    assert torch.equal(padded[:, :7, :4], alone)
    assert padded.sum() == 7


def test_a_path_by_hand() -> None:
    scores = torch.tensor([[[0.0, -9.0], [-5.0, -1.0], [-9.0, 0.0]]])
    path = find_monotonic_path(scores, torch.tensor([2]), torch.tensor([3]))
    assert path[0].tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]


def test_fewer_frames_than_tokens_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="utterance 1 of the batch has 2 frames for 3 tokens"):
        find_monotonic_path(torch.zeros(2, 4, 3), torch.tensor([3, 3]), torch.tensor([4, 2]))
