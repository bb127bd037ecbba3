"""Progress of a training run, and the totals of its current epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

from trainers.loop.loss import WeightedMean
from trainers.loop.reports import EpochReport, PhaseTotals, ValidationReport, WindowReport

PhaseResult = tuple[WindowReport, WeightedMean]
"""A phase's report of a window, and the loss that the report's numbers come from."""


@dataclass(slots=True)
class _PhaseTally:
    """Totals of one phase, as in `PhaseTotals`."""

    mean: WeightedMean = field(default_factory=WeightedMean)
    skipped: int = 0
    zero_gradients: int = 0
    shortages: int = 0


@final
class EpochTotals:
    """Totals over the windows of an epoch.

    Args:
        names: The phases.

    Attributes:
        windows: Windows of the epoch so far.
        seconds: Duration of the windows, summed over all runs that trained in the epoch.
        data_seconds: Time spent waiting for their batches.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._tallies = {name: _PhaseTally() for name in names}
        self.windows = 0
        self.seconds = 0.0
        self.data_seconds = 0.0

    def add(self, results: Sequence[PhaseResult], *, seconds: float, data_seconds: float) -> None:
        """Add a window; skipped steps and zero gradients are only counted."""
        self.windows += 1
        self.seconds += seconds
        self.data_seconds += data_seconds
        for report, loss in results:
            tally = self._tallies[report.phase]
            tally.shortages += report.shortages
            if report.zero_gradient:
                tally.zero_gradients += 1
            elif not report.stepped:
                tally.skipped += 1
            elif loss.has_terms:
                tally.mean.merge(loss)
            else:
                tally.mean.add(report.loss, report.count, report.parts)

    def totals(self, steps: Mapping[str, int]) -> dict[str, PhaseTotals]:
        """Return the totals of every phase, given its number of steps."""
        return {
            name: PhaseTotals(
                loss=tally.mean.mean(),
                parts=tally.mean.parts(),
                count=tally.mean.count,
                step=steps[name],
                skipped=tally.skipped,
                zero_gradients=tally.zero_gradients,
                shortages=tally.shortages,
            )
            for name, tally in self._tallies.items()
        }

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        tallies = {
            name: [tally.mean.state(), tally.skipped, tally.zero_gradients, tally.shortages]
            for name, tally in self._tallies.items()
        }
        return {
            "windows": self.windows,
            "seconds": self.seconds,
            "data_seconds": self.data_seconds,
            "tallies": tallies,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the sums."""
        self.windows = state["windows"]
        self.seconds = state["seconds"]
        self.data_seconds = state["data_seconds"]
        for name, (mean, *counts) in state["tallies"].items():
            self._tallies[name] = _PhaseTally(WeightedMean(), *counts)
            self._tallies[name].mean.load(mean)


@final
class TrainingState:
    """Progress of a training run.

    Args:
        phases: The names of the phases.
        order_seed: Seed of the order of sources that draw from torch's generator.

    Attributes:
        epoch: Number of complete epochs.
        windows: Windows done since the start of the training.
        epoch_totals: The totals of the current epoch.
        history: The reports of the complete epochs.
        order_seed: As above.
        order: Fingerprint of the order at the start of the epoch; empty if unknown.
    """

    def __init__(self, phases: Sequence[str], *, order_seed: int) -> None:
        self._phases = phases
        self.epoch = 0
        self.windows = 0
        self.epoch_totals = EpochTotals(phases)
        self.history: list[EpochReport] = []
        self.order_seed = order_seed
        self.order = ""

    def complete_epoch(self, report: EpochReport) -> None:
        """Record the report of a complete epoch."""
        self.history.append(report)
        self.epoch += 1
        self.epoch_totals = EpochTotals(self._phases)

    def state(self) -> dict[str, Any]:
        """Return the progress as plain values, for a checkpoint."""
        return {
            "epoch": self.epoch,
            "windows": self.windows,
            "epoch_totals": self.epoch_totals.state(),
            "history": [asdict(report) for report in self.history],
            "order_seed": self.order_seed,
            "order": self.order,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the progress."""
        self.epoch = state["epoch"]
        self.windows = state["windows"]
        self.epoch_totals.load(state["epoch_totals"])
        self.history = [_report(values) for values in state["history"]]
        self.order_seed = state["order_seed"]
        self.order = state["order"]


def _report(values: Mapping[str, Any]) -> EpochReport:
    """Rebuild a report from its `asdict` values."""
    rebuilt: dict[str, Any] = {
        **values,
        "phases": {name: PhaseTotals(**totals) for name, totals in values["phases"].items()},
        "validation": None if values["validation"] is None else ValidationReport(**values["validation"]),
    }
    return EpochReport(**rebuilt)
