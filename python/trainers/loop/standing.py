"""Where a training stands."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, final

from trainers.loop.ledger import Ledger
from trainers.loop.reports import EpochReport, PhaseTotals, ValidationReport


@final
class Standing:
    """How far a training has come.

    Args:
        phases: Their names.
        order_seed: The order of sources that draw from torch's generator comes from it.

    Attributes:
        epoch: Epochs that are complete.
        windows: Windows that were worked in all.
        ledger: The totals of the epoch that is not complete.
        history: The reports of the complete ones.
        order_seed: As above.
        order: Stands for the order that the epoch was begun with; empty where it is not known.
    """

    def __init__(self, phases: Sequence[str], *, order_seed: int) -> None:
        self._phases = phases
        self.epoch = 0
        self.windows = 0
        self.ledger = Ledger(phases)
        self.history: list[EpochReport] = []
        self.order_seed = order_seed
        self.order = ""

    def complete(self, report: EpochReport) -> None:
        """The epoch is complete."""
        self.history.append(report)
        self.epoch += 1
        self.ledger = Ledger(self._phases)

    def state(self) -> dict[str, Any]:
        """All of it as plain values, for a checkpoint."""
        return {
            "epoch": self.epoch,
            "windows": self.windows,
            "ledger": self.ledger.state(),
            "history": [asdict(report) for report in self.history],
            "order_seed": self.order_seed,
            "order": self.order,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epoch = state["epoch"]
        self.windows = state["windows"]
        self.ledger.load(state["ledger"])
        self.history = [_report(values) for values in state["history"]]
        self.order_seed = state["order_seed"]
        self.order = state.get("order", "")  # older checkpoints do not know it


def _report(values: Mapping[str, Any]) -> EpochReport:
    """The report that `asdict` took apart."""
    rebuilt: dict[str, Any] = {
        **values,
        "phases": {name: PhaseTotals(**totals) for name, totals in values["phases"].items()},
        "validation": None if values["validation"] is None else ValidationReport(**values["validation"]),
    }
    return EpochReport(**rebuilt)
