"""How the parts of a run are put together from what its loop was told."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, final

import torch
from torch import nn
from torch.nn import Parameter

from trainers.loop.checkpoint.caller_state import Stateful
from trainers.loop.checkpoint.compatibility import Rates
from trainers.loop.checkpoint.recorder import Parts, Recorder
from trainers.loop.checkpoint.stop import StopSignals
from trainers.loop.checkpoint.store import Checkpoints
from trainers.loop.data.cutting import Cutter, Cutting
from trainers.loop.data.feeding import feeder_for
from trainers.loop.device.precision import Precision
from trainers.loop.errors import listed
from trainers.loop.group.ddp_checks import check_phases
from trainers.loop.group.group import Group
from trainers.loop.notices import kept_graphs
from trainers.loop.phase import Phase
from trainers.loop.run import Run, Setup
from trainers.loop.standing import Standing
from trainers.loop.validation import ScoreGuard, Scorer
from trainers.loop.weights.copies import Average, Best
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.guards import GradientGuard, Nonfinite, coupled_layers
from trainers.loop.window.phase_run import PhaseRun
from trainers.loop.window.rewind import Rewind
from trainers.loop.window.sharing import SharedForward, Withheld
from trainers.loop.window.update import Update, drops_on_device

Batch = TypeVar("Batch")

Shortage = Literal["split", "fail"]
Coupled = Literal["refuse", "accept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Batch]):
    """A training as its loop was told, checked.

    Attributes:
        phases: Worked in this order.
        groups: How many parameter groups each phase's optimizer had when the loop was made.
        trained: The trained modules by name.
        frozen: The others.
        device: Where everything is.
        precision: What validations compute in, and phases that name no other.
        precisions: What each phase computes in.
        accumulate: Batches of a process in a window.
        oom: What to do when memory runs out.
        cutting: How a batch is cut.
        batch_coupled: What to do where layers mix the samples of a batch that would be cut.
        nonfinite: What to do with what is not finite.
        skip_limit: So many skipped steps, or validations, in a row raise.
        audit_windows: So many windows show whether a parameter is used.
        decays: Of the averages of the weights, by module; under None that of all modules.
        state: What the caller keeps.
    """

    phases: Sequence[Phase[Batch]]
    groups: Mapping[str, int]
    trained: Mapping[str, nn.Module]
    frozen: Mapping[str, nn.Module]
    device: torch.device
    precision: Precision
    precisions: Mapping[str, Precision]
    accumulate: int
    oom: Shortage
    cutting: Cutting[Batch]
    batch_coupled: Coupled
    nonfinite: Nonfinite
    skip_limit: int
    audit_windows: int | None
    decays: Mapping[str | None, float]
    state: Mapping[str, Stateful]

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All of them by name."""
        return {**self.trained, **self.frozen}


@final
class Assembly(Generic[Batch]):
    """Makes the parts of one run.

    Args:
        plan: The training.
        group: The processes that train together.
        names: Every trained parameter with its name.
    """

    def __init__(self, plan: Plan[Batch], group: Group, names: Mapping[Parameter, str]) -> None:
        self._plan = plan
        self._group = group
        self._names = names
        self._feeder = feeder_for(plan.device, phases=len(plan.phases))
        self._shared = {phase.name: self._shared_forward(phase) for phase in plan.phases if phase.forward is not None}
        self._cutters = {name: self._cutter(evaluated=plan.frozen.values()) for name in self._shared}

    def run(self, signals: StopSignals, checkpoints: Checkpoints | None, rates: Rates) -> Run[Batch]:
        """The run, resumed if there is a checkpoint.

        Raises:
            ParallelismError: The phases are not the same in all processes.
            CheckpointError: All checkpoints are damaged, or the state holds more than tensors and plain values.
            ResumeMismatchError: The checkpoint belongs to another training.
        """
        plan, group = self._plan, self._group
        phases = [self._phase_run(phase) for phase in plan.phases]
        check_phases(group, plan.trained, phases)
        best, score_guard = Best(plan.trained, plan.nonfinite), ScoreGuard(plan.nonfinite, plan.skip_limit)
        seeds = group.gather(torch.initial_seed())
        standing = Standing([phase.name for phase in plan.phases], order_seed=seeds[0])
        scorer = Scorer(plan.device, plan.precision, self._cutter(evaluated=plan.modules.values()))
        recorder = None
        if checkpoints is not None:
            parts = Parts(
                trained=plan.trained,
                frozen=plan.frozen,
                phases=phases,
                scorer=scorer,
                score_guard=score_guard,
                best=best,
                standing=standing,
                kept=plan.state,
                rates=rates,
            )
            recorder = Recorder(checkpoints, parts, group=group, device=plan.device, accumulate=plan.accumulate)
        setup = Setup(
            phases=phases,
            trained=plan.trained,
            frozen=tuple(plan.frozen.values()),
            device=plan.device,
            accumulate=plan.accumulate,
            group=group,
            scorer=scorer,
            score_guard=score_guard,
            feeder=self._feeder,
            best=best,
            standing=standing,
            signals=signals,
            coupled=coupled_layers(plan.modules, plan.frozen.values()),
            recorder=recorder,
            shared=tuple(self._shared.values()),
        )
        resumed = [] if recorder is None else recorder.resume()
        return Run(setup, [*resumed, *kept_graphs(plan.phases, plan.accumulate)])

    def _phase_run(self, phase: Phase[Batch]) -> PhaseRun[Batch]:
        plan, precision = self._plan, self._plan.precisions[phase.name]
        scaler = None if precision.scaler is None else precision.scaler()
        owner = phase.uses or phase.name
        # Phases that share a forward work the same pieces.
        cutter = self._cutters.get(owner) or self._cutter(evaluated=plan.frozen.values())
        guard = GradientGuard(
            {parameter: self._names[parameter] for parameter in phase.parameters},
            audit_windows=plan.audit_windows,
            nonfinite=plan.nonfinite,
            skip_limit=plan.skip_limit,
            allow_zero=phase.allow_zero_gradients,
        )
        accumulator = Accumulator(
            phase,
            self._foreign(phase),
            plan.device,
            precision,
            scaler=scaler,
            cutter=cutter,
            rewind=Rewind(plan.trained.values(), plan.device),
            shared=self._shared.get(owner),
            move=self._feeder.move,
        )
        return PhaseRun(
            phase=phase,
            parameters=tuple(phase.parameters),
            accumulator=accumulator,
            cutter=cutter,
            group=self._group,
            update=Update(phase, scaler, guard, on_device=drops_on_device(phase.optimizer, plan.device)),
            guard=guard,
            averages=self._averages(phase),
            groups=plan.groups[phase.name],
            names=self._names,
        )

    def _shared_forward(self, phase: Phase[Batch]) -> SharedForward[Batch]:
        plan = self._plan
        own, foreign = set(phase.parameters), set(self._foreign(phase))
        return SharedForward(
            phase,
            users=[other.name for other in plan.phases if other.uses == phase.name],
            withheld=Withheld(self._foreign(phase)),
            modules=[part for module in plan.trained.values() for part in parts_of(module, own, foreign)],
            device=plan.device,
            precision=plan.precisions[phase.name],
        )

    def _foreign(self, phase: Phase[Batch]) -> list[Parameter]:
        """The parameters of the other phases."""
        return [parameter for other in self._plan.phases if other is not phase for parameter in other.parameters]

    def _averages(self, phase: Phase[Batch]) -> list[Average]:
        """The averages of a phase's parameters: one of all of them, or one a module that has a decay."""
        found: list[Average] = []
        for module, decay in self._plan.decays.items():
            held = None if module is None else set(self._plan.trained[module].parameters())
            parameters = [parameter for parameter in phase.parameters if held is None or parameter in held]
            if parameters:
                found.append(Average(parameters, decay, module=module))
        return found

    def _cutter(self, *, evaluated: Iterable[nn.Module]) -> Cutter[Batch]:
        """What cuts batches, while some modules are in evaluation mode."""
        return Cutter(self._plan.cutting, refusal=self._why_whole(evaluated), spare=self._feeder.give_up)

    def _why_whole(self, evaluated: Iterable[nn.Module]) -> str | None:
        """Why batches are not cut when memory runs out; None if they are."""
        coupled = coupled_layers(self._plan.modules, evaluated)
        if self._plan.oom == "fail":
            return 'oom="fail" was asked for; "split" would go on with smaller pieces and the same gradient'
        if coupled and self._plan.batch_coupled == "refuse":
            return (
                f"the batch is not cut, because {listed(coupled)} mix its samples and the gradient would differ; "
                'use GroupNorm or LayerNorm, or accept it: Loop(batch_coupled="accept")'
            )
        return None


def parts_of(module: nn.Module, own: AbstractSet[Parameter], foreign: AbstractSet[Parameter]) -> Iterator[nn.Module]:
    """The parts of a module that are one phase's: those under the outermost parts that hold its parameters alone.

    Args:
        module: Where to look.
        own: The phase's parameters.
        foreign: Those of the others.
    """
    held = set(module.parameters())
    if held.isdisjoint(foreign):
        if not held.isdisjoint(own):
            yield from module.modules()
        return
    for child in module.children():
        yield from parts_of(child, own, foreign)
