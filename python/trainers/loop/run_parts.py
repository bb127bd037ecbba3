"""The checked settings of a training run, and the parts of a run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, final

import torch
from torch import nn
from torch.nn import Parameter

from trainers.loop.checkpoint.snapshot import Stateful
from trainers.loop.data.batch_splitter import BatchCutter, BatchSplitter
from trainers.loop.data.transfer import create_feeder
from trainers.loop.device import Precision
from trainers.loop.errors import UncoveredParameterError, join_names
from trainers.loop.group.processes import Group
from trainers.loop.group.totals import StepRequests
from trainers.loop.phase import FrozenParameters, Phase
from trainers.loop.reports import TrainingState
from trainers.loop.step.accumulation import Accumulator, Targets, count_targets, sum_counts
from trainers.loop.step.guards import GradientGuard, Nonfinite, Position, find_coupled_layers
from trainers.loop.step.shared_forward import Rewind, SharedForward
from trainers.loop.step.update import GradientUpdate, StepOutcome, skips_on_device
from trainers.loop.validation import ScoreGuard, Scorer
from trainers.loop.weights import AveragedWeights, BestWeights

Batch = TypeVar("Batch")

OomChoice = Literal["split", "fail"]
CoupledChoice = Literal["refuse", "accept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(Generic[Batch]):
    """The checked settings of a training run; `Loop` documents those that are not listed here.

    Attributes:
        groups: Number of parameter groups of each phase's optimizer when the loop was created.
        trained: The trained modules by name.
        frozen: The frozen modules by name; checkpoints do not hold them, but they must be the same on resume.
        device: The device of the training.
        precision: The precision of validations, and the default of phases.
        precisions: The precision of each phase.
        decays: The decays of the averages by module; the key None means all modules.
    """

    phases: Sequence[Phase[Batch]]
    groups: Mapping[str, int]
    trained: Mapping[str, nn.Module]
    frozen: Mapping[str, nn.Module]
    device: torch.device
    precision: Precision
    precisions: Mapping[str, Precision]
    accumulate: int
    oom: OomChoice
    splitter: BatchSplitter[Batch]
    batch_coupled: CoupledChoice
    nonfinite: Nonfinite
    skip_limit: int
    audit_steps: int | None
    decays: Mapping[str | None, float]
    state: Mapping[str, Stateful]

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules by name."""
        return {**self.trained, **self.frozen}


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

    def step(self, window: tuple[Batch, ...], position: Position, requests: Callable[[], StepRequests]) -> StepOutcome:
        """Train on one window; `requests` is called when the gradients are complete."""
        with position:  # adds the position to errors
            self._check_groups()
            targets: Targets[Batch] | None = None
            count = self.phase.counts
            if count is not None:  # a loss of several terms, whose targets are counted over all processes first
                batches = [count_targets(count, batch) for batch in window]
                targets = Targets(count, batches, self.group.add_counts(sum_counts(batches), self.parameters))
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

    def _check_groups(self) -> None:
        """Check that the number of parameter groups has not changed since the loop was created."""
        if len(self.phase.optimizer.param_groups) == self.groups:
            return
        trained = set(self.parameters)
        unknown = [
            self.names.get(parameter, f"an unnamed {list(parameter.shape)}")
            for group in self.phase.optimizer.param_groups
            for parameter in group["params"]
            if parameter not in trained
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
            "parts": list(self.group.list_mean_names(self.parameters)),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.steps = state["step"]
        self.update.load(state["update"])
        self.guard.load(state["guard"])
        self.group.restore_mean_names(self.parameters, state["parts"])


@final
class RunParts(Generic[Batch]):
    """The parts of a run.

    Args:
        settings: The settings of the loop.
        group: The processes that train together.
        names: Every trained parameter with its name.

    Attributes:
        feeder: Moves batches to the device.
        shared: The forwards that phases own and others may use, by owner.
        phases: The phases, in the order in which they run.
        coupled: The layers that mix the samples of a batch.
        scorer: Scores batches.
        score_guard: Checks the means of validations.
        best: The best value so far with its weights.
        training: The progress of the training.
    """

    def __init__(self, settings: LoopSettings[Batch], group: Group, names: Mapping[Parameter, str]) -> None:
        self.settings = settings
        self.group = group
        self._names = names
        self.feeder = create_feeder(settings.device, phases=len(settings.phases))
        owners = [phase for phase in settings.phases if phase.forward is not None]
        self.shared = {phase.name: self._build_shared_forward(phase) for phase in owners}
        self._cutters = {name: self._build_cutter(evaluated=settings.frozen.values()) for name in self.shared}
        self.phases = [self._build_phase_run(phase) for phase in settings.phases]
        self.coupled = find_coupled_layers(settings.modules, settings.frozen.values())
        scored_by = self._build_cutter(evaluated=settings.modules.values())
        self.scorer = Scorer(settings.device, settings.precision, scored_by)
        self.score_guard = ScoreGuard(settings.nonfinite, settings.skip_limit)
        self.best = BestWeights(settings.trained, settings.nonfinite)
        order_seed = group.gather(torch.initial_seed())[0]
        self.training = TrainingState([phase.name for phase in settings.phases], order_seed=order_seed)

    def _build_phase_run(self, phase: Phase[Batch]) -> PhaseRun[Batch]:
        settings, precision = self.settings, self.settings.precisions[phase.name]
        scaler = None if precision.scaler is None else precision.scaler()
        owner = phase.uses or phase.name
        # Phases that share a forward use the same micro-batches.
        cutter = self._cutters.get(owner) or self._build_cutter(evaluated=settings.frozen.values())
        guard = GradientGuard(
            {parameter: self._names[parameter] for parameter in phase.parameters},
            audit_steps=settings.audit_steps,
            nonfinite=settings.nonfinite,
            skip_limit=settings.skip_limit,
            allow_zero=phase.allow_zero_gradients,
        )
        accumulator = Accumulator(
            phase,
            self._list_foreign(phase),
            settings.device,
            precision,
            scaler=scaler,
            cutter=cutter,
            rewind=Rewind(settings.trained.values(), settings.device),
            shared=self.shared.get(owner),
            move=self.feeder.move,
        )
        return PhaseRun(
            phase=phase,
            parameters=tuple(phase.parameters),
            accumulator=accumulator,
            cutter=cutter,
            group=self.group,
            update=GradientUpdate(phase, scaler, guard, on_device=skips_on_device(phase.optimizer, settings.device)),
            guard=guard,
            averages=self._build_averages(phase),
            groups=settings.groups[phase.name],
            names=self._names,
        )

    def _build_shared_forward(self, phase: Phase[Batch]) -> SharedForward[Batch]:
        settings = self.settings
        parameters, foreign = set(phase.parameters), set(self._list_foreign(phase))
        return SharedForward(
            phase,
            users=[other.name for other in settings.phases if other.uses == phase.name],
            frozen=FrozenParameters(self._list_foreign(phase)),
            modules=[
                part for module in settings.trained.values() for part in find_phase_modules(module, parameters, foreign)
            ],
            device=settings.device,
            precision=settings.precisions[phase.name],
        )

    def _list_foreign(self, phase: Phase[Batch]) -> list[Parameter]:
        """Return the parameters of all other phases."""
        return [parameter for other in self.settings.phases if other is not phase for parameter in other.parameters]

    def _build_averages(self, phase: Phase[Batch]) -> list[AveragedWeights]:
        """Return the averages of a phase's parameters: one for all of them, or one per module with a decay."""
        averages: list[AveragedWeights] = []
        for module, decay in self.settings.decays.items():
            module_parameters = None if module is None else set(self.settings.trained[module].parameters())
            parameters = [
                parameter
                for parameter in phase.parameters
                if module_parameters is None or parameter in module_parameters
            ]
            if parameters:
                averages.append(AveragedWeights(parameters, decay, module=module))
        return averages

    def _build_cutter(self, *, evaluated: Iterable[nn.Module]) -> BatchCutter[Batch]:
        coupled = find_coupled_layers(self.settings.modules, evaluated)
        refusal: str | None = None
        if self.settings.oom == "fail":
            refusal = 'oom="fail" is set; "split" would continue with smaller micro-batches and the same gradient'
        elif coupled and self.settings.batch_coupled == "refuse":
            refusal = (
                f"the batch is not cut, because {join_names(coupled)} mix its samples and the gradient would differ; "
                'use GroupNorm or LayerNorm, or accept it: Loop(batch_coupled="accept")'
            )
        return BatchCutter(self.settings.splitter, refusal=refusal, free_memory=self.feeder.release_copies)


def find_phase_modules(
    module: nn.Module, phase_parameters: AbstractSet[Parameter], foreign: AbstractSet[Parameter]
) -> Iterator[nn.Module]:
    """Yield the parts of a module that belong to one phase: they hold its parameters and no others.

    Args:
        module: The module to search.
        phase_parameters: The phase's parameters, of any shapes [...].
        foreign: The parameters of the other phases.
    """
    parameters = set(module.parameters())
    if parameters.isdisjoint(foreign):
        if not parameters.isdisjoint(phase_parameters):
            yield from module.modules()
        return
    for child in module.children():
        yield from find_phase_modules(child, phase_parameters, foreign)
