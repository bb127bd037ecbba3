"""The model confidence set: the models that are not distinguishable from the best (Hansen, Lunde & Nason 2011)."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from trainers.stock.evaluation.evaluation_set import RESAMPLES, EvaluationSet

SIZE: Final = 0.1
"""A model is left out if its p value is at most this."""

MISSING_PACKAGE: Final = (
    "the model confidence set is left out: the package arch is not installed; install it with "
    "pip install 'quantra[baselines]'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSet:
    """The models that are not distinguishable from the best."""

    size: float
    """Share of samples in which the best model may be left out."""
    p_values: Mapping[str, float]
    """By model, largest first; a model is in the set if its p value is above `size`."""

    @property
    def members(self) -> tuple[str, ...]:
        """The models in the set."""
        return tuple(name for name, p in self.p_values.items() if p > self.size)

    @property
    def sentence(self) -> str:
        """The set as one line, such as `2 of 18 models are not distinguishable from the best at 10 %`."""
        equal = f"{len(self.members)} of {len(self.p_values)} models"
        return f"{equal} are not distinguishable from the best at {100 * self.size:g} %"


def note_missing_package() -> tuple[str, ...]:
    """A note if the package arch is not installed."""
    return () if find_spec("arch") is not None else (MISSING_PACKAGE,)


def find_confidence_set(test: EvaluationSet, daily: Mapping[str, FloatArray]) -> ConfidenceSet | None:
    """The confidence set of models; None without the package arch, or with too few days to tell skill from luck.

    Blocks of days are resampled as for intervals, and resamples are widened as those are.

    Args:
        test: The windows.
        daily: [D] losses of each day, see `comparison.average_days`, by model.
    """
    if test.days_short or find_spec("arch") is None:
        return None
    from arch.bootstrap import MCS

    losses = np.stack(list(daily.values()), axis=1)
    losses = losses[np.isfinite(losses).all(axis=1)]
    means = losses.mean(axis=0)
    # Equal models have no variance of their difference, so they are tested once.
    distinct, places = np.unique(means + test.widening_factor * (losses - means), axis=1, return_inverse=True)
    p_values = np.ones(1)
    if distinct.shape[1] > 1:
        tested = MCS(distinct, SIZE, RESAMPLES, test.block, bootstrap="circular", seed=0)
        tested.compute()
        p_values = tested.pvalues["Pvalue"].sort_index().to_numpy(np.float64)
    ranked = sorted(zip(daily, p_values[places.ravel()], means, strict=True), key=lambda row: (-row[1], row[2]))
    return ConfidenceSet(size=SIZE, p_values={name: float(p) for name, p, _ in ranked})
