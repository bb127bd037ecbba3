"""Distances of spectrograms (DTW) and of texts (edit distance)."""

import math

import numpy as np
import pytest
import torch

from trainers.vits.distances import best_path_mean, dtw_distance, edit_distance


def by_double_loop(costs: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    best = {(-1, -1): (0.0, 0)}
    for i, row in enumerate(costs.tolist()):
        for j, cost in enumerate(row):
            before = [best[at] for at in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if at in best]
            total, steps = min(before)
            best[i, j] = (total + cost, steps + 1)
    total, steps = best[len(costs) - 1, costs.shape[1] - 1]
    return total / steps


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2), (5, 9), (9, 5), (23, 23), (40, 31)])
def test_the_best_path_is_that_of_the_double_loop(shape: tuple[int, int]) -> None:
    costs = np.random.default_rng(sum(shape)).random(shape)
    assert best_path_mean(costs) == pytest.approx(by_double_loop(costs), rel=1e-12)


def test_the_shortest_of_equally_cheap_paths_counts() -> None:
    costs = np.random.default_rng(0).integers(0, 2, (12, 17)).astype(np.float64)
    assert best_path_mean(costs) == by_double_loop(costs)


def test_a_path_by_hand() -> None:
    assert best_path_mean(np.array([[1.0, 5.0, 9.0], [5.0, 2.0, 4.0]])) == (1 + 2 + 4) / 3


def test_a_slower_copy_has_no_distance() -> None:
    mel = torch.randn(80, 20, generator=torch.Generator().manual_seed(0))
    assert dtw_distance(mel.repeat_interleave(2, 1), mel) == 0.0


def test_a_constant_difference_is_the_distance() -> None:
    assert dtw_distance(torch.zeros(4, 6), torch.full((4, 9), -0.5)) == 0.5


def test_what_is_not_a_number_is_not_hidden() -> None:
    mel = torch.zeros(4, 6)
    mel[1, 3] = math.nan
    assert math.isnan(dtw_distance(mel, torch.zeros(4, 6)))


@pytest.mark.parametrize("said", [torch.zeros(4, 0), torch.zeros(3, 5)])
def test_shapes_that_cannot_be_compared_are_refused(said: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        dtw_distance(said, torch.zeros(4, 5))


@pytest.mark.parametrize(
    ("said", "text", "errors"),
    [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("şev", "sev", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_edits_by_hand(said: str, text: str, errors: int) -> None:
    assert edit_distance(said, text) == edit_distance(text, said) == errors
