"""Distances between texts and between spectrograms."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Costs: TypeAlias = NDArray[np.floating[Any]]
"""Cost of aligning each pair of frames: [n, m]."""


def dtw_distance(synthesised: Tensor, real: Tensor) -> float:
    """Mean difference of two spectrograms along the best alignment (dynamic time warping).

    Sakoe and Chiba, "Dynamic programming algorithm optimization for spoken word recognition" (1978), with unweighted
    steps of one frame in either or both. Time and memory grow with A · B: about 30 bytes per pair of frames.

    Args:
        synthesised: Log mels, float32 [bands, A].
        real: Log mels, float32 [bands, B].

    Returns:
        Mean over the path of the mean absolute difference over the bands; NaN if an input is NaN.

    Raises:
        ValueError: An input has no frames, or the numbers of bands differ.
    """
    if synthesised.shape[0] != real.shape[0] or not synthesised.shape[1] or not real.shape[1]:
        raise ValueError(
            f"log mels of shapes {list(synthesised.shape)} and {list(real.shape)} cannot be compared; expected [bands, "
            "A] and [bands, B], with at least one frame"
        )
    between = torch.cdist(synthesised.mT.contiguous(), real.mT.contiguous(), p=1.0) / synthesised.shape[0]
    return best_path_mean(between.double().numpy())


def best_path_mean(costs: Costs) -> float:
    """Mean cost along the cheapest path between opposite corners, with steps right, down or diagonal.

    Of paths with the least sum the shortest counts. The computation is vectorised over antidiagonals.

    Args:
        costs: [n, m], both 1 or more.
    """
    costs = costs if costs.shape[0] <= costs.shape[1] else costs.T
    rows, columns = costs.shape
    diagonals = np.full((rows + columns - 1, rows), np.inf)  # padded with infinity
    down, right = np.indices((rows, columns), sparse=True)
    diagonals[down + right, down] = costs
    older, last = _PathSums.nowhere(rows), _PathSums.first(rows, costs[0, 0])
    for diagonal in diagonals[1:]:
        older, last = last, last.next(older, diagonal)
    return float(last.sums[rows] / last.steps[rows])


@dataclass(frozen=True, slots=True)
class _PathSums:
    """Cheapest paths to the cells of an antidiagonal, by row: sums and steps [n + 1]; entry 0 is before all rows."""

    sums: Costs
    steps: Costs

    @classmethod
    def nowhere(cls, rows: int) -> Self:
        """An antidiagonal that no path reaches."""
        return cls(np.full(rows + 1, np.inf), np.full(rows + 1, np.inf))

    @classmethod
    def first(cls, rows: int, cost: float) -> Self:
        """The antidiagonal of the first corner."""
        start = cls.nowhere(rows)
        start.sums[1], start.steps[1] = cost, 1
        return start

    def next(self, older: Self, costs: Costs) -> Self:
        """The next antidiagonal, from this one, the one before it and the costs [n] of its cells."""
        both, down, right = older.sums[:-1], self.sums[:-1], self.sums[1:]
        lowest_sums = np.minimum(np.minimum(both, down), right)
        following = type(self)(np.empty_like(self.sums), np.empty_like(self.steps))
        following.sums[0] = following.steps[0] = np.inf
        np.add(lowest_sums, costs, out=following.sums[1:])
        shortest = np.where(both == lowest_sums, older.steps[:-1], np.inf)
        shortest = np.where(down == lowest_sums, np.minimum(shortest, self.steps[:-1]), shortest)
        shortest = np.where(right == lowest_sums, np.minimum(shortest, self.steps[1:]), shortest)
        np.add(shortest, 1, out=following.steps[1:])
        return following


def edit_distance(transcript: str, text: str) -> int:
    """Number of character insertions, deletions and replacements between two texts.

    Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals" (1966).
    """
    return _compute_suffix_distances(transcript, text)[0][0]


Kind: TypeAlias = Literal["right", "wrong", "missing"]
"""Correct; inserted or replaced; missing from the transcript."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Consecutive letters of one kind.

    Attributes:
        kind: Kind of the letters.
        text: Letters of the transcript, or letters missing from it.
    """

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Difference between a transcript and the reference text.

    Attributes:
        pieces: Spans of the transcript and of missing text, in order.
        errors: Edit distance of the two texts.
    """

    pieces: tuple[TextSpan, ...]
    errors: int


def find_difference(transcript: str, reference: str) -> TextDifference:
    """Mark the insertions, deletions and replacements of a shortest edit path.

    Args:
        transcript: Transcript of the recogniser.
        reference: Reference text in the recogniser's spelling.
    """
    letters = list(_align_letters(transcript, reference))
    grouped = groupby(letters, key=itemgetter(0))
    return TextDifference(
        pieces=tuple(TextSpan(kind, "".join(letter for _, letter in group)) for kind, group in grouped),
        errors=sum(kind != "right" for kind, _ in letters),
    )


def _align_letters(transcript: str, reference: str) -> Iterator[tuple[Kind, str]]:
    """Letters with their kinds along a shortest edit path; a replaced letter is wrong."""
    remaining = _compute_suffix_distances(transcript, reference)
    i = j = 0
    while i < len(transcript) or j < len(reference):
        both = i < len(transcript) and j < len(reference)
        if both and remaining[i][j] == remaining[i + 1][j + 1] + (transcript[i] != reference[j]):
            yield "right" if transcript[i] == reference[j] else "wrong", transcript[i]
            i, j = i + 1, j + 1
        elif i < len(transcript) and remaining[i][j] == remaining[i + 1][j] + 1:
            yield "wrong", transcript[i]
            i += 1
        else:
            yield "missing", reference[j]
            j += 1


def _compute_suffix_distances(transcript: str, reference: str) -> list[list[int]]:
    """Edit distances of all pairs of suffixes: [transcript + 1][reference + 1]."""
    rows, columns = len(transcript), len(reference)
    remaining = [[rows - i + columns - j for j in range(columns + 1)] for i in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            replaced = remaining[i + 1][j + 1] + (transcript[i] != reference[j])
            remaining[i][j] = min(replaced, remaining[i + 1][j] + 1, remaining[i][j + 1] + 1)
    return remaining
