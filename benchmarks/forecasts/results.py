"""What everybody came to on one task: scores of each system over its seeds, with errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.resampling import Interval, Resampler
from benchmarks.forecasts.scores import BAND, Scored, scored
from benchmarks.forecasts.systems import OUR_SELECTED, Outcome, System, by_system
from benchmarks.forecasts.task import Task
from trainers.stock.evaluation.baselines import FitScope

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The scores of one system, a training a seed; a baseline counts as one seed.

    Attributes:
        name: As in tables.
        seeds: Scores of each training.
        system: None for a baseline.
        variants: The same trainings after our calibrations, by their names; none for others.
    """

    name: str
    seeds: Sequence[Scored]
    system: System | None = None
    variants: Mapping[str, Sequence[Scored]] = field(default_factory=dict[str, Sequence[Scored]])

    @property
    def pinball(self) -> Array:
        """Pinball loss [seeds, N]."""
        return np.stack([one.pinball for one in self.seeds])

    @property
    def mean(self) -> float:
        """Pinball loss over windows and seeds."""
        return float(self.pinball.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; NaN for one."""
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
        self.baselines = [Entry(name=name, seeds=[scored(q, outcomes)]) for name, q in baselines.items()]
        self.trained = {
            system: Entry(
                name=system.name,
                seeds=[scored(one.plain, outcomes) for one in runs],
                system=system,
                variants={name: [scored(one.variants[name], outcomes) for one in runs] for name in runs[0].variants},
            )
            for system, runs in by_system(outcome.trained).items()
        }

    @property
    def entries(self) -> Sequence[Entry]:
        """Everybody, the best first."""
        return sorted([*self.baselines, *self.trained.values(), *self.shipped], key=lambda entry: entry.mean)

    @property
    def shipped(self) -> Sequence[Entry]:
        """Our networks as artifacts have them: the epoch selected, and the quantiles moved, on the validation part."""
        selected = [self.trained[system] for system in OUR_SELECTED if system in self.trained]
        return [
            Entry(name=f"{one.name}, {FitScope.CALIBRATED}", seeds=one.variants["calibrated"], system=one.system)
            for one in selected
        ]

    @property
    def best_baseline(self) -> Entry:
        """That with the least loss on the test windows themselves, which favours it and not us."""
        return min(self.baselines, key=lambda entry: entry.mean)

    def difference(self, ours: Entry, theirs: Entry) -> Interval:
        """Pinball loss of ours less theirs over the same windows."""
        return self.resampler.difference(ours.pinball, theirs.pinball)

    def coverage_errors(self, seeds: Sequence[Scored]) -> Array:
        """[H] how many bootstrap errors each step's coverage lies from what it shall be."""
        covered = np.stack([one.covered for one in seeds])
        steps = [self.resampler.mean(covered[..., h]) for h in range(self.task.horizon)]
        smallest = 1 / covered.shape[1]
        return np.array([(step.mean - BAND) / max(step.error, smallest) for step in steps])

    def winkler_change(self, entry: Entry, variant: str) -> Interval:
        """Winkler score of a variant less that of the plain quantiles, over the same windows and seeds."""
        pairs = zip(entry.variants[variant], entry.seeds, strict=True)
        return self.resampler.mean(np.stack([after.winkler - before.winkler for after, before in pairs]))
