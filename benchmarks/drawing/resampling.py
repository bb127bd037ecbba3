"""Paired bootstrap interval of a mean difference (Efron & Tibshirani 1993)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

DRAWS: Final = 10_000
SHARE: Final = 0.95
AT_ONCE: Final = 1_000_000
"""Pairs drawn per batch."""


@final
@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A mean difference with its 95 % percentile interval.

    Attributes:
        mean: mean over all pairs.
        low: lower bound.
        high: upper bound.
    """

    mean: float
    low: float
    high: float


def paired_difference(
    before: Sequence[float], after: Sequence[float], *, draws: int = DRAWS, seed: int = 0
) -> PairedDifference:
    """Mean of `after` less `before`, over pairs.

    Args:
        before: [N], N at least 2.
        after: [N], paired with `before` by position.
        draws: number of resamples of N pairs, with replacement.
        seed: seed of the draws.

    Raises:
        ValueError: the lengths differ, or are below 2.
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError(f"{len(before)} and {len(after)} values; need equally many, and at least 2")
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    draw, count = np.random.default_rng(seed), len(differences)
    rows = max(1, AT_ONCE // count)
    sizes = [min(rows, draws - first) for first in range(0, draws, rows)]
    means = np.concatenate([differences[draw.integers(count, size=(size, count))].mean(axis=1) for size in sizes])
    low, high = np.quantile(means, ((1 - SHARE) / 2, (1 + SHARE) / 2))
    return PairedDifference(float(differences.mean()), float(low), float(high))
