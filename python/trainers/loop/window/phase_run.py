"""A phase at work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.nn import Parameter

from trainers.loop.data.cutting import Cutter
from trainers.loop.group.group import Group
from trainers.loop.phase import Phase
from trainers.loop.weights.average import Average
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.guards import GradientGuard
from trainers.loop.window.position import Position
from trainers.loop.window.totals import Wishes
from trainers.loop.window.update import Outcome, Update

Batch = TypeVar("Batch")


@dataclass(slots=True, kw_only=True)
class PhaseRun(Generic[Batch]):
    """A phase at work: its parts, and how many steps it has taken.

    Attributes:
        phase: What is trained.
        parameters: The phase's.
        accumulator: Forward and backward of a window.
        cutter: Cuts its batches.
        group: Adds the windows of all processes up.
        update: The step at the window's end.
        guard: Watches the gradients.
        average: The moving average of the weights; None without one.
        step: Steps taken so far.
    """

    phase: Phase[Batch]
    parameters: Sequence[Parameter]
    accumulator: Accumulator[Batch]
    cutter: Cutter[Batch]
    group: Group
    update: Update
    guard: GradientGuard
    average: Average | None
    step: int = 0

    def work(self, window: tuple[Batch, ...], position: Position, wishes: Callable[[], Wishes]) -> Outcome:
        """Train on one window; a skipped step moves nothing on. `wishes` is asked when the gradients are there."""
        with position:
            local = self.accumulator.run(window, position, wishes)
            totals = self.group.combine(local, self.parameters)
            outcome = self.update.apply(totals, window)
        if outcome.stepped:
            self.step += 1
            if self.average is not None:
                self.average.update(self.step)
        else:
            self.accumulator.put_buffers_back()
        return outcome

    def state(self) -> dict[str, Any]:
        """What the next window depends on, besides the weights, for a checkpoint."""
        return {
            "step": self.step,
            "update": self.update.state(),
            "guard": self.guard.state(),
            "parts": list(self.group.parts(self.parameters)),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.step = state["step"]
        self.update.load(state["update"])
        self.guard.load(state["guard"])
        self.group.expect(self.parameters, state["parts"])
