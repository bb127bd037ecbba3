"""A phase of a run: its step on a window, and its report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.nn import Parameter

from trainers.loop.data.batch_splitter import BatchCutter
from trainers.loop.errors import UncoveredParameterError, join_names
from trainers.loop.group.group import Group
from trainers.loop.group.totals import WindowRequests
from trainers.loop.phase import Phase
from trainers.loop.weights.weight_copies import AveragedWeights
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.guards import GradientGuard
from trainers.loop.window.position import Position
from trainers.loop.window.targets import Targets, count_targets, sum_counts
from trainers.loop.window.update import GradientUpdate, StepOutcome

Batch = TypeVar("Batch")


@dataclass(slots=True, kw_only=True)
class PhaseRun(Generic[Batch]):
    """A phase of a run with its parts and its number of steps.

    Attributes:
        phase: The settings of the phase.
        parameters: The phase's parameters.
        accumulator: Runs forward and backward of a window.
        cutter: Cuts the batches.
        group: Sums the windows of all processes.
        update: Takes the step at the end of a window.
        guard: Checks the gradients.
        averages: The moving averages of the weights, one per decay.
        groups: Number of parameter groups of the optimizer when the loop was created.
        names: Every parameter of the loop's modules with its name.
        steps: Number of steps taken so far.
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
        """Train on one window; `requests` is called when the gradients are complete."""
        with position:  # adds the position to errors
            self._check_groups()
            targets = self._count_window_targets(window)  # only for a loss of several terms
            local = self.accumulator.run(window, position, requests, targets)  # all forwards and backwards
            totals = self.group.combine(local, self.parameters)  # the one exchange with other processes
            outcome = self.update.apply(totals, window)  # correct, unscale, measure, clip, step or skip
        if outcome.stepped:
            self.steps += 1
            for average in self.averages:
                average.update(self.steps)
        else:
            self.accumulator.restore_buffers()  # a skipped window must leave no trace
        return outcome

    def _count_window_targets(self, window: Sequence[Batch]) -> Targets[Batch] | None:
        """Count the targets of a loss of several terms over all processes; None for a loss of one term."""
        count = self.phase.counts
        if count is None:
            return None
        batches = [count_targets(count, batch) for batch in window]
        return Targets(count, batches, self.group.add_counts(sum_counts(batches), self.parameters))

    def _check_groups(self) -> None:
        """Check that the number of parameter groups has not changed since the loop was created."""
        if len(self.phase.optimizer.param_groups) == self.groups:
            return
        known = set(self.parameters)
        unknown = [
            self.names.get(parameter, f"an unnamed {list(parameter.shape)}")
            for group in self.phase.optimizer.param_groups
            for parameter in group["params"]
            if parameter not in known
        ]
        raise UncoveredParameterError(
            f"the optimizer had {self.groups} parameter groups when the loop was created and has "
            f"{len(self.phase.optimizer.param_groups)} now (add_param_group?), with "
            f"{join_names(unknown) or 'nothing new'}"
            ": gradients, checks and checkpoints would miss them. Give the phase all parameters from the start, and "
            "freeze those to train later with requires_grad_(False) inside `running()`"
        )

    def state(self) -> dict[str, Any]:
        """Return everything but the weights that the next window depends on, for a checkpoint."""
        return {
            "step": self.steps,
            "update": self.update.state(),
            "guard": self.guard.state(),
            "parts": list(self.group.parts(self.parameters)),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.steps = state["step"]
        self.update.load(state["update"])
        self.guard.load(state["guard"])
        self.group.expect(self.parameters, state["parts"])
