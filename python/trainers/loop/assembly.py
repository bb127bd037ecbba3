"""Assembly of a training run from the settings of its loop."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar, final

import torch
from torch import nn
from torch.nn import Parameter

from trainers.loop.checkpoint.compatibility import LearningRates
from trainers.loop.checkpoint.recorder import Recorder
from trainers.loop.checkpoint.store import Checkpoints, StopSignals
from trainers.loop.data.splitting import BatchCutter
from trainers.loop.data.transfer import create_feeder
from trainers.loop.errors import listed
from trainers.loop.group.group import Group
from trainers.loop.group.processes import check_phases
from trainers.loop.phase import FrozenParameters, Phase
from trainers.loop.reports import kept_graph_notices
from trainers.loop.run_parts import LoopSettings, RunParts
from trainers.loop.training_run import TrainingRun
from trainers.loop.training_state import TrainingState
from trainers.loop.validation import ScoreGuard, Scorer
from trainers.loop.weights.weight_copies import AveragedWeights, BestWeights
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.forward_state import Rewind
from trainers.loop.window.guards import GradientGuard, coupled_layers
from trainers.loop.window.phase_run import PhaseRun
from trainers.loop.window.shared_forward import SharedForward
from trainers.loop.window.update import GradientUpdate, skips_on_device

Batch = TypeVar("Batch")


@final
class Assembly(Generic[Batch]):
    """Builds the parts of one run.

    Args:
        settings: The settings of the loop.
        group: The processes that train together.
        names: Every trained parameter with its name.
    """

    def __init__(self, settings: LoopSettings[Batch], group: Group, names: Mapping[Parameter, str]) -> None:
        self._settings = settings
        self._group = group
        self._names = names
        self._feeder = create_feeder(settings.device, phases=len(settings.phases))
        owners = [phase for phase in settings.phases if phase.forward is not None]
        self._shared = {phase.name: self._shared_forward(phase) for phase in owners}
        self._cutters = {name: self._cutter(evaluated=settings.frozen.values()) for name in self._shared}

    def run(self, signals: StopSignals, checkpoints: Checkpoints | None, rates: LearningRates) -> TrainingRun[Batch]:
        """Build the run, and resume it if there is a checkpoint.

        Raises:
            ParallelismError: The phases differ between the processes.
            CheckpointError: All checkpoints are damaged, or the state holds more than tensors and plain values.
            ResumeMismatchError: The checkpoint belongs to another training.
        """
        settings, group = self._settings, self._group
        phases = [self._phase_run(phase) for phase in settings.phases]
        check_phases(group, settings.trained, phases)
        order_seed = group.gather(torch.initial_seed())[0]
        parts = RunParts(
            settings=settings,
            phases=phases,
            group=group,
            shared=tuple(self._shared.values()),
            coupled=coupled_layers(settings.modules, settings.frozen.values()),
            feeder=self._feeder,
            scorer=Scorer(settings.device, settings.precision, self._cutter(evaluated=settings.modules.values())),
            score_guard=ScoreGuard(settings.nonfinite, settings.skip_limit),
            best=BestWeights(settings.trained, settings.nonfinite),
            training=TrainingState([phase.name for phase in settings.phases], order_seed=order_seed),
            signals=signals,
            rates=rates,
        )
        recorder = None if checkpoints is None else Recorder(checkpoints, parts)
        resumed = [] if recorder is None else recorder.resume()
        return TrainingRun(parts, recorder, [*resumed, *kept_graph_notices(settings.phases, settings.accumulate)])

    def _phase_run(self, phase: Phase[Batch]) -> PhaseRun[Batch]:
        settings, precision = self._settings, self._settings.precisions[phase.name]
        scaler = None if precision.scaler is None else precision.scaler()
        owner = phase.uses or phase.name
        # Phases that share a forward use the same pieces.
        cutter = self._cutters.get(owner) or self._cutter(evaluated=settings.frozen.values())
        guard = GradientGuard(
            {parameter: self._names[parameter] for parameter in phase.parameters},
            audit_windows=settings.audit_windows,
            nonfinite=settings.nonfinite,
            skip_limit=settings.skip_limit,
            allow_zero=phase.allow_zero_gradients,
        )
        accumulator = Accumulator(
            phase,
            self._foreign(phase),
            settings.device,
            precision,
            scaler=scaler,
            cutter=cutter,
            rewind=Rewind(settings.trained.values(), settings.device),
            shared=self._shared.get(owner),
            move=self._feeder.move,
        )
        return PhaseRun(
            phase=phase,
            parameters=tuple(phase.parameters),
            accumulator=accumulator,
            cutter=cutter,
            group=self._group,
            update=GradientUpdate(phase, scaler, guard, on_device=skips_on_device(phase.optimizer, settings.device)),
            guard=guard,
            averages=self._averages(phase),
            groups=settings.groups[phase.name],
            names=self._names,
        )

    def _shared_forward(self, phase: Phase[Batch]) -> SharedForward[Batch]:
        settings = self._settings
        own, foreign = set(phase.parameters), set(self._foreign(phase))
        return SharedForward(
            phase,
            users=[other.name for other in settings.phases if other.uses == phase.name],
            frozen=FrozenParameters(self._foreign(phase)),
            modules=[part for module in settings.trained.values() for part in parts_of(module, own, foreign)],
            device=settings.device,
            precision=settings.precisions[phase.name],
        )

    def _foreign(self, phase: Phase[Batch]) -> list[Parameter]:
        """Return the parameters of all other phases."""
        return [parameter for other in self._settings.phases if other is not phase for parameter in other.parameters]

    def _averages(self, phase: Phase[Batch]) -> list[AveragedWeights]:
        """Return the averages of a phase's parameters: one for all of them, or one per module with a decay."""
        averages: list[AveragedWeights] = []
        for module, decay in self._settings.decays.items():
            held = None if module is None else set(self._settings.trained[module].parameters())
            parameters = [parameter for parameter in phase.parameters if held is None or parameter in held]
            if parameters:
                averages.append(AveragedWeights(parameters, decay, module=module))
        return averages

    def _cutter(self, *, evaluated: Iterable[nn.Module]) -> BatchCutter[Batch]:
        coupled = coupled_layers(self._settings.modules, evaluated)
        refusal: str | None = None
        if self._settings.oom == "fail":
            refusal = 'oom="fail" is set; "split" would continue with smaller pieces and the same gradient'
        elif coupled and self._settings.batch_coupled == "refuse":
            refusal = (
                f"the batch is not cut, because {listed(coupled)} mix its samples and the gradient would differ; "
                'use GroupNorm or LayerNorm, or accept it: Loop(batch_coupled="accept")'
            )
        return BatchCutter(self._settings.cutting, refusal=refusal, free_memory=self._feeder.release_copies)


def parts_of(module: nn.Module, own: AbstractSet[Parameter], foreign: AbstractSet[Parameter]) -> Iterator[nn.Module]:
    """Yield the parts of a module that belong to one phase, which hold its parameters and none of other phases.

    Args:
        module: The module to search.
        own: The phase's parameters, of any shapes [...].
        foreign: The parameters of the other phases.
    """
    held = set(module.parameters())
    if held.isdisjoint(foreign):
        if not held.isdisjoint(own):
            yield from module.modules()
        return
    for child in module.children():
        yield from parts_of(child, own, foreign)
