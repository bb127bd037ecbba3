"""How much of a score is the luck of one training: the recipe from several seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.stock.evaluation.comparison import Comparison, compare
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import inside, overall, pinball, winkler

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A number over several trainings: mean and standard deviation (n - 1)."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The recipe trained from several seeds; everything as in `ModelScores`."""

    seeds: tuple[int, ...]
    """The artifact's own first."""
    mean: Spread
    pinball: tuple[Spread, ...]
    """[H]"""
    band: tuple[Spread, ...]
    """[H]"""
    winkler: tuple[Spread, ...]
    """[H]"""
    comparison: Comparison
    """Each window's loss averaged over the seeds, beside the best baseline's."""


def over_seeds(
    judged: Judged, runs: Iterable[tuple[int, FloatArray]], baseline: FloatArray, baseline_name: str
) -> Seeds:
    """What several trainings score; only one's forecasts are held at a time.

    Args:
        judged: the windows.
        runs: each seed with its forecasts [N, H, Q], at least two.
        baseline: [N, H] pinball losses of the best baseline.
        baseline_name: what it is called.
    """
    seeds: list[int] = []
    rows: list[_Run] = []
    total = np.zeros_like(judged.outcomes)
    for seed, forecasts in runs:
        losses = pinball(judged, forecasts)
        seeds.append(seed)
        rows.append(_run(judged, forecasts, losses))
        total += losses
    return Seeds(
        seeds=tuple(seeds),
        mean=_spread([row.mean for row in rows]),
        pinball=_spreads([row.pinball for row in rows]),
        band=_spreads([row.band for row in rows]),
        winkler=_spreads([row.winkler for row in rows]),
        comparison=compare(judged, total / len(seeds), baseline, baseline_name),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """The scores of one training; arrays are [H]."""

    mean: float
    pinball: FloatArray
    band: FloatArray
    winkler: FloatArray


def _run(judged: Judged, forecasts: FloatArray, losses: FloatArray) -> _Run:
    return _Run(
        mean=float(np.nanmean(overall(judged, losses))),
        pinball=np.nanmean(losses, axis=0),
        band=np.nanmean(inside(judged, forecasts), axis=0),
        winkler=np.nanmean(winkler(judged, forecasts), axis=0),
    )


def _spreads(rows: Sequence[FloatArray]) -> tuple[Spread, ...]:
    return tuple(_spread(column) for column in np.array(rows).T)


def _spread(values: Sequence[float] | FloatArray) -> Spread:
    return Spread(mean=float(np.mean(values)), sd=float(np.std(values, ddof=1)))
