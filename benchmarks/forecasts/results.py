"""Scores of all systems on one task over their seeds, with errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.resampling import Interval, Resampler
from benchmarks.forecasts.systems import OUR_BEST, OUR_SELECTED, Outcome, System, by_system
from benchmarks.forecasts.task import LEVELS, FloatArray, Task
from trainers.stock.evaluation.baselines import FitScope

Array = NDArray[np.float64]

BAND: Final = LEVELS[-1] - LEVELS[0]
"""Nominal coverage of the outer quantiles."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScores:
    """Scores [N] of every window, unless noted, in standardised units.

    The interval score of the outer quantiles is Winkler's (1972; Gneiting and Raftery 2007, equation 43).
    """

    pinball: Array
    absolute_error: Array
    """Absolute error of the median."""
    covered: Array
    """[N, H] 1 if the outcome lies within the outer quantiles, else 0."""
    winkler: Array


def score_windows(quantiles: NDArray[np.floating], outcomes: FloatArray) -> WindowScores:
    """Scores of quantiles [N, H, Q] at outcomes [N, H]."""
    levels, error = np.array(LEVELS), outcomes[..., None].astype(np.float64) - quantiles
    low, high = quantiles[..., 0], quantiles[..., -1]
    missed = np.maximum(low - outcomes, 0) + np.maximum(outcomes - high, 0)
    return WindowScores(
        pinball=np.maximum(levels * error, (levels - 1) * error).mean(axis=(1, 2)),
        absolute_error=np.abs(error[..., len(LEVELS) // 2]).mean(axis=1),
        covered=((outcomes >= low) & (outcomes <= high)).astype(np.float64),
        winkler=(high - low + 2 / (1 - BAND) * missed).mean(axis=1),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Scores of one system, one training per seed; a baseline counts as one seed.

    Attributes:
        name: name in tables.
        seeds: scores of each training.
        system: the system; None for a baseline.
        variants: scores of the same trainings after our calibrations, by name; empty for others.
        hindsight: improvement of each training on its best member in hindsight, with its interval.
    """

    name: str
    seeds: Sequence[WindowScores]
    system: System | None = None
    variants: Mapping[str, Sequence[WindowScores]] = field(default_factory=dict[str, Sequence[WindowScores]])
    hindsight: Sequence[tuple[float, ...]] = ()

    @property
    def pinball(self) -> Array:
        """Pinball loss [seeds, N]."""
        return np.stack([one.pinball for one in self.seeds])

    @property
    def mean(self) -> float:
        """Mean pinball loss over windows and seeds."""
        return float(self.pinball.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; NaN for one seed."""
        return float(self.pinball.mean(axis=1).std(ddof=1)) if len(self.seeds) > 1 else float("nan")


@final
class Results:
    """All entries of a task, and the resampler of its test windows."""

    def __init__(self, task: Task, baselines: Mapping[str, NDArray[np.floating]], outcome: Outcome) -> None:
        windows = task.windows("test")
        self.task = task
        self.failed = outcome.failed
        self.resampler = Resampler(windows.decisions, horizon=task.horizon)
        outcomes = windows.future
        self.baselines = [Entry(name=name, seeds=[score_windows(q, outcomes)]) for name, q in baselines.items()]
        self.trained = {
            system: Entry(
                name=system.name,
                seeds=[score_windows(one.plain, outcomes) for one in runs],
                system=system,
                variants={
                    name: [score_windows(one.variants[name], outcomes) for one in runs] for name in runs[0].variants
                },
            )
            for system, runs in by_system(outcome.trained).items()
            if system != OUR_BEST
        }
        first = outcomes[:, :1]
        self.first_step = [
            *(Entry(name=name, seeds=[score_windows(q[:, :1], first)]) for name, q in baselines.items()),
            *(
                Entry(
                    name=system.name,
                    seeds=[score_windows(one.variants.get("calibrated", one.plain)[:, :1], first) for one in runs],
                    system=system,
                    hindsight=[one.hindsight for one in runs],
                )
                for system, runs in by_system(outcome.trained).items()
            ),
        ]
        """Scores of the first step, of our networks after calibration."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, best first."""
        return sorted([*self.baselines, *self.trained.values(), *self.shipped], key=lambda entry: entry.mean)

    @property
    def shipped(self) -> Sequence[Entry]:
        """Our networks as artifacts store them: epoch selected and quantiles calibrated on the validation part."""
        selected = [self.trained[system] for system in OUR_SELECTED if system in self.trained]
        return [
            Entry(name=f"{one.name}, {FitScope.CALIBRATED}", seeds=one.variants["calibrated"], system=one.system)
            for one in selected
        ]

    @property
    def best(self) -> Entry | None:
        """The ensemble of `--model best` at the first step; None without one."""
        return next((entry for entry in self.first_step if entry.system == OUR_BEST), None)

    @property
    def best_baseline(self) -> Entry:
        """The baseline with the least loss on the test windows; this choice favours the baseline."""
        return min(self.baselines, key=lambda entry: entry.mean)

    def difference(self, ours: Entry, theirs: Entry) -> Interval:
        """Pinball loss of ours less theirs over the same windows."""
        return self.resampler.difference(ours.pinball, theirs.pinball)

    def coverage_errors(self, seeds: Sequence[WindowScores]) -> Array:
        """[H] deviation of each step's coverage from the nominal one, in bootstrap errors."""
        covered = np.stack([one.covered for one in seeds])
        steps = [self.resampler.mean(covered[..., h]) for h in range(self.task.horizon)]
        smallest = 1 / covered.shape[1]
        return np.array([(step.mean - BAND) / max(step.error, smallest) for step in steps])

    def winkler_change(self, entry: Entry, variant: str) -> Interval:
        """Winkler score of a variant less that of the plain quantiles, over the same windows and seeds."""
        pairs = zip(entry.variants[variant], entry.seeds, strict=True)
        return self.resampler.mean(np.stack([after.winkler - before.winkler for after, before in pairs]))
