"""A phase in a run: its step on a window, and its report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.nn import Parameter

from trainers.loop.data.splitting import BatchCutter
from trainers.loop.errors import UncoveredParameterError, listed
from trainers.loop.group.group import Group, WindowRequests
from trainers.loop.phase import Phase
from trainers.loop.reports import WindowReport
from trainers.loop.weights.weight_copies import AveragedWeights
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.guards import GradientGuard
from trainers.loop.window.position import Position
from trainers.loop.window.targets import Targets, added, counted
from trainers.loop.window.update import GradientUpdate, StepOutcome

Batch = TypeVar("Batch")


@dataclass(slots=True, kw_only=True)
class PhaseRun(Generic[Batch]):
    """A phase in a run: its parts, and how many steps it has taken.

    Attributes:
        phase: What is trained.
        parameters: The phase's.
        accumulator: Forward and backward of a window.
        cutter: Cuts its batches.
        group: Adds the windows of all processes up.
        update: The step at the window's end.
        guard: Watches the gradients.
        averages: The moving averages of the weights, one per decay; none without.
        groups: How many parameter groups the optimizer had when the loop was made.
        names: Every parameter of the loop's modules with its name.
        steps: Steps taken so far.
    """

    phase: Phase[Batch]
    parameters: Sequence[Parameter]
    accumulator: Accumulator[Batch]
    cutter: BatchCutter[Batch]
    group: Group
    update: GradientUpdate
    guard: GradientGuard
    averages: Sequence[AveragedWeights]
    groups: int
    names: Mapping[Parameter, str]
    steps: int = 0

    def step(
        self, window: tuple[Batch, ...], position: Position, requests: Callable[[], WindowRequests]
    ) -> StepOutcome:
        """Train on one window; a skipped step moves nothing on. `requests` is asked when the gradients are there."""
        with position:  # an error says where it happened
            self._check_groups()
            targets = self._targets(window)  # of a loss of several terms, over all processes
            local = self.accumulator.run(window, position, requests, targets)  # every forward and backward
            totals = self.group.combine(local, self.parameters)  # the one exchange with other processes
            outcome = self.update.apply(totals, window)  # correct, unscale, measure, clip, step or skip
        if outcome.stepped:
            self.steps += 1
            for average in self.averages:
                average.update(self.steps)
        else:
            self.accumulator.put_buffers_back()  # as if the window had not been
        return outcome

    def report(
        self,
        outcome: StepOutcome,
        position: Position,
        *,
        epochs: int,
        windows: int | None,
        shortages: int,
        seconds: float,
        data_seconds: float,
    ) -> WindowReport:
        """What a step came to, for the caller; `WindowReport` says what the numbers are."""
        return WindowReport(
            phase=position.phase,
            epoch=position.epoch,
            epochs=epochs,
            window=position.window,
            windows=windows,
            step=self.steps,
            loss=outcome.loss.mean(),
            parts=outcome.loss.parts(),
            count=outcome.loss.count,
            grad_norm=outcome.norm,
            learning_rate=outcome.learning_rate,
            stepped=outcome.stepped,
            loss_scale=outcome.loss_scale,
            micro=self.cutter.limit,
            shortages=shortages,
            seconds=seconds,
            data_seconds=data_seconds,
            zero_gradient=outcome.zero_gradient,
        )

    def _targets(self, window: Sequence[Batch]) -> Targets[Batch] | None:
        """The targets of a loss of several terms, over the windows of all processes; None for a loss of one."""
        count = self.phase.counts
        if count is None:
            return None
        batches = [counted(count, batch) for batch in window]
        return Targets(count, batches, self.group.add_counts(added(batches), self.parameters))

    def _check_groups(self) -> None:
        """Check that no parameter group has come or gone since the loop was made."""
        if len(self.phase.optimizer.param_groups) == self.groups:
            return
        known = set(self.parameters)
        strange = [
            self.names.get(parameter, f"an unnamed {list(parameter.shape)}")
            for group in self.phase.optimizer.param_groups
            for parameter in group["params"]
            if parameter not in known
        ]
        raise UncoveredParameterError(
            f"the optimizer had {self.groups} parameter groups when the loop was made and has "
            f"{len(self.phase.optimizer.param_groups)} now (add_param_group?), with {listed(strange) or 'nothing new'}"
            ": gradients, checks and checkpoints would not know them. Give the phase all of its parameters from the "
            "start, and let those that come later wait with requires_grad_(False) inside of `running()`"
        )

    def state(self) -> dict[str, Any]:
        """What the next window depends on, besides the weights, for a checkpoint."""
        return {
            "step": self.steps,
            "update": self.update.state(),
            "guard": self.guard.state(),
            "parts": list(self.group.parts(self.parameters)),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.steps = state["step"]
        self.update.load(state["update"])
        self.guard.load(state["guard"])
        self.group.expect(self.parameters, state["parts"])
