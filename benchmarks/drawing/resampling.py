"""Paired bootstrap: how sure a mean difference of two measurements of the same things is (Efron & Tibshirani 1993)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

DRAWS: Final = 10_000
SHARE: Final = 0.95
AT_ONCE: Final = 1_000_000
"""Pairs that are drawn together."""


@final
@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A mean difference with its percentile interval of 95 %.

    Attributes:
        mean: over all pairs.
        low: lower bound.
        high: upper bound.
    """

    mean: float
    low: float
    high: float


def paired_difference(
    before: Sequence[float], after: Sequence[float], *, draws: int = DRAWS, seed: int = 0
) -> PairedDifference:
    """How much larger the second are than the first, pair by pair.

    Args:
        before: [N], N at least 2.
        after: [N], of the same things in the same order.
        draws: how often N pairs are drawn anew, with replacement.
        seed: of the draws.

    Raises:
        ValueError: they are not as many as each other, or fewer than 2.
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError(f"{len(before)} and {len(after)} values are no pairs, or too few; 2 are needed")
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    draw, count = np.random.default_rng(seed), len(differences)
    rows = max(1, AT_ONCE // count)
    sizes = [min(rows, draws - first) for first in range(0, draws, rows)]
    means = np.concatenate([differences[draw.integers(count, size=(size, count))].mean(axis=1) for size in sizes])
    low, high = np.quantile(means, ((1 - SHARE) / 2, (1 + SHARE) / 2))
    return PairedDifference(float(differences.mean()), float(low), float(high))
