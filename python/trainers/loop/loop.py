"""The training loop and its settings."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Generic, TypeVar, final

import torch
from torch import nn
from torch.nn import Parameter

from trainers.loop.checkpoint.recorder import (
    InitialSettings,
    OptimizerSettings,
    Recorder,
    ResumeRates,
    describe_layout,
    read_initial_settings,
)
from trainers.loop.checkpoint.snapshot import Stateful
from trainers.loop.checkpoint.store import Checkpoints, StopSignals
from trainers.loop.data.batch_splitter import BatchSplitter, SampleSplitter
from trainers.loop.device import (
    Hardware,
    Precision,
    check_device,
    choose_device,
    choose_precision,
    compact_parameters,
    compile_modules,
    derive_seed,
    deterministic,
    keep_freed_memory,
    seed_everything,
    use_device,
)
from trainers.loop.errors import SettingsError, join_names
from trainers.loop.group.processes import Group, join_group, local_rank
from trainers.loop.phase import FrozenModule, Phase
from trainers.loop.reports import make_kept_graphs_notices
from trainers.loop.run_parts import CoupledChoice, LoopSettings, OomChoice, RunParts
from trainers.loop.step.guards import Nonfinite, check_modules, check_uncoupled
from trainers.loop.training_run import TrainingRun
from trainers.loop.weights import check_coverage, list_named_tensors, name_parameters

Batch = TypeVar("Batch")


CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "oom": ("split", "fail"),
    "batch_coupled": ("refuse", "accept"),
    "nonfinite": ("skip", "raise"),
    "resume_rates": ("refuse", "saved", "new"),
}
ECHO_SECONDS = 2.0
"""The same signal may arrive twice within this time: from the terminal and from torchrun."""


@final
class Loop(Generic[Batch]):
    """Trains modules by phases, on one device per process.

    Args:
        phases: The phases, in the order in which they run in every window.
        modules: All modules that the loss functions use, by name. Wrap those that are not trained in `FrozenModule`.
        device: `auto`, `cpu`, `cuda[:N]`, `xpu[:N]` or `mps`.
        precision: `auto`, `fp32`, `bf16` or `fp16`; or a custom `Precision`.
        accumulate: Batches per process in an accumulation window, which is one optimizer step.
        oom: What to do when memory runs out: `split` processes the batch in smaller micro-batches, with the same
            gradient; `fail` raises.
        splitter: How a batch is cut into micro-batches; `IndivisibleBatch()` for batches that must not be cut.
        batch_coupled: What to do if layers such as BatchNorm mix the samples of a batch, so that cutting the batch
            changes the result: `refuse` raises, `accept` cuts anyway.
        nonfinite: What to do with a loss or gradient that is not finite: `skip` skips the step, `raise` raises. A
            gradient that overflows in float16 always skips the step and lowers the scale. A non-finite validation is
            reported and does not count as an improvement, or raises.
        skip_limit: Raise after this many skipped steps in a row, or this many non-finite validations in a row.
        audit_steps: A parameter without a gradient in this many windows counts as unused; None for 16, or the
            first epoch if that is shorter.
        ema: The decay of a moving average of the weights, such as 0.999; or a decay per module, by name; None for no
            average. Validation and the best weights use the average.
        compile: Compile the parts of the modules that contain no recurrent layer.
        deterministic: Allow only operations whose results are reproducible bit by bit.
        state: Further state of the caller, by name, such as a `ReduceLROnPlateau` or a replay buffer. Checkpoints
            save it and resume restores it. In a group, every process has separate state.
        resume_rates: What to do on resume if learning rates, weight decay or other optimizer settings differ from
            those at the start of the training: refuse, continue with the `saved` ones, or continue with the `new`
            ones. A new learning rate keeps the factor that the schedule has reached.

    Attributes:
        device: The device, and the reason for the choice.
        precision: The precision, and the reason for the choice.

    Raises:
        SettingsError: A setting is out of range.
        DeviceUnavailableError: The device is not available.
        PrecisionError: The device does not support the precision.
        UncoveredParameterError: Phases, optimizers and modules do not have the same parameters.
    """

    def __init__(  # noqa: PLR0913  every choice of a training run, by name
        self,
        phases: Sequence[Phase[Batch]],
        *,
        modules: Mapping[str, nn.Module | FrozenModule],
        device: str = "auto",
        precision: str | Precision = "auto",
        accumulate: int = 1,
        oom: OomChoice = "split",
        splitter: BatchSplitter[Batch] | None = None,
        batch_coupled: CoupledChoice = "refuse",
        nonfinite: Nonfinite = "skip",
        skip_limit: int = 20,
        audit_steps: int | None = None,
        ema: float | Mapping[str, float] | None = None,
        compile: bool = False,  # noqa: A002  torch's word for it
        deterministic: bool = False,
        state: Mapping[str, Stateful] | None = None,
        resume_rates: ResumeRates = "refuse",
    ) -> None:
        _check_phases(phases)
        _check_names(modules, state or {})
        for name, count in (("accumulate", accumulate), ("skip_limit", skip_limit), ("audit_steps", audit_steps)):
            if count is not None and count < 1:
                raise SettingsError(f"{name} is {count}; it must be 1 or more")
        values: Sequence[str] = (oom, batch_coupled, nonfinite, resume_rates)
        for choice, (name, choices) in zip(values, CHOICES.items(), strict=True):
            if choice not in choices:
                raise SettingsError(f"{name} is {choice!r}; it must be {' or '.join(map(repr, choices))}")
        trained = {name: module for name, module in modules.items() if isinstance(module, nn.Module)}
        hardware = Hardware.detect()
        self.device = choose_device(device, hardware, local_rank())
        self.precision = self._resolve_precision(precision, hardware)
        self._settings = LoopSettings(
            phases=tuple(phases),
            groups={phase.name: len(phase.optimizer.param_groups) for phase in phases},
            trained=trained,
            frozen={name: module.module for name, module in modules.items() if isinstance(module, FrozenModule)},
            device=self.device.device,
            precision=self.precision,
            precisions={phase.name: self._resolve_precision(phase.precision, hardware) for phase in phases},
            accumulate=accumulate,
            oom=oom,
            splitter=SampleSplitter() if splitter is None else splitter,
            batch_coupled=batch_coupled,
            nonfinite=nonfinite,
            skip_limit=skip_limit,
            audit_steps=audit_steps,
            decays=_read_decays(ema, trained),
            state=dict(state or {}),
        )
        self._compile, self._deterministic = compile, deterministic
        self._resume_rates: ResumeRates = resume_rates
        self._started: InitialSettings | None = None
        parameters = {phase.name: (tuple(phase.parameters), phase.optimizer) for phase in phases}
        check_coverage(parameters, self._settings.modules)

    @contextmanager
    def running(self, checkpoints: Checkpoints | None = None) -> Generator[TrainingRun[Batch]]:
        """Move the modules to the device and yield the training run; drop the gradients at the end.

        Inside the context, a GPU is torch's current device.

        Processes that `torchrun` starts train together. All of them start from the weights of rank 0, and each draws
        separate random numbers. Buffers that a forward changes, such as BatchNorm's statistics, differ between
        processes until the next validation or checkpoint, when rank 0's are copied to all.

        Args:
            checkpoints: Where the training is saved. If a checkpoint exists, the training resumes from it. With
                checkpoints, SIGTERM and SIGINT write one and end the training after the current window.

        Raises:
            SelfTestError: The device computes incorrectly.
            BatchCoupledError: Layers mix the samples of a batch, and batches would be cut.
            ParallelismError: The processes of the group do not match.
            CheckpointError: The folder is in use, all its checkpoints are damaged, or the state holds more than tensors
                and plain values.
            ResumeMismatchError: The checkpoint belongs to another training.
        """
        device = self.device.device
        with ExitStack() as stack:
            stack.enter_context(use_device(device))
            check_device(device)
            keep_freed_memory()
            group = stack.enter_context(join_group(device.type))
            settings, modules = self._settings, self._settings.modules
            check_modules(modules, size=group.size, can_repeat=settings.oom == "split")
            if settings.batch_coupled == "refuse" and (settings.accumulate > 1 or group.size > 1):
                check_uncoupled(modules, settings.frozen.values())
            if self._deterministic:
                stack.enter_context(deterministic(device))
            for module in modules.values():
                compact_parameters(module.to(device))
            self._synchronize(group, checkpoints)
            names = name_parameters(self._settings.trained.items())
            stack.callback(_drop_gradients, names)
            if self._compile:
                stack.enter_context(compile_modules(modules))
            signals = StopSignals(echo_seconds=ECHO_SECONDS if group.size > 1 else 0.0)
            if checkpoints is not None:
                if group.rank == 0:
                    stack.enter_context(checkpoints.open())
                stack.enter_context(signals)
            # Training changes the optimizers' settings, so they are read only before the first run.
            self._started = self._started or read_initial_settings(self._settings.phases)
            optimizer_settings = OptimizerSettings(self._settings.phases, self._started, self._resume_rates)
            parts = RunParts(self._settings, group, names)
            _check_same_phases(parts)
            recorder = None if checkpoints is None else Recorder(checkpoints, parts, optimizer_settings)
            resumed = [] if recorder is None else recorder.resume()
            notices = [*resumed, *make_kept_graphs_notices(self._settings.phases, self._settings.accumulate)]
            yield TrainingRun(parts, recorder, signals, notices)

    def _resolve_precision(self, requested: str | Precision | None, hardware: Hardware) -> Precision:
        """Return the requested precision; None means the loop's."""
        if requested is None:
            return self.precision
        if isinstance(requested, Precision):
            return requested
        return choose_precision(requested, self.device.device, hardware)

    def _synchronize(self, group: Group, checkpoints: Checkpoints | None) -> None:
        """Check that the processes match, copy rank 0's weights to all and seed each process differently."""
        if group.size == 1:
            return
        settings, modules = self._settings, self._settings.modules
        tensors = list_named_tensors(modules)
        precisions = [self.precision.name, *(precision.name for precision in settings.precisions.values())]
        group.check_same("the networks", str({name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}))
        group.check_same("the precision", str(precisions))
        group.check_same("the accumulation window", f"{settings.accumulate} batches")
        group.check_same("the checkpoints", "none" if checkpoints is None else "some")
        group.check_same("the names of the state", str(list(settings.state)))
        group.broadcast(t for module in modules.values() for t in (*module.parameters(), *module.buffers()))
        if group.rank:
            seed_everything(derive_seed(torch.initial_seed(), group.rank) % 2**32)


def _check_phases(phases: Sequence[Phase[Batch]]) -> None:
    names = [phase.name for phase in phases]
    if not names or len(set(names)) < len(names):
        raise SettingsError(f"the phases are {names}; give at least one phase, and a different name to each")
    owners = [phase.name for phase in phases if phase.forward is not None]
    for phase in phases:
        if phase.uses is not None and phase.uses not in owners:
            raise SettingsError(
                f"phase {phase.name!r} uses the forward of {phase.uses!r}, but the phases with a forward are {owners}"
            )


def _check_names(modules: Iterable[str], state: Mapping[str, object]) -> None:
    dotted = [name for name in modules if "." in name]
    if dotted:
        raise SettingsError(
            f"the module names {dotted} contain a dot, which separates modules from parameters; rename them"
        )
    for name, value in state.items():
        if not isinstance(value, Stateful):
            raise SettingsError(
                f"state {name!r} is a {type(value).__name__}, which has no state_dict() and load_state_dict(); wrap it "
                "in a small class that has both"
            )


def _read_decays(ema: float | Mapping[str, float] | None, trained: Mapping[str, nn.Module]) -> dict[str | None, float]:
    """Return the decay of every averaged module; the key None means all modules."""
    if ema is None:
        return {}
    if not isinstance(ema, Mapping):
        return {None: ema}
    unknown = [name for name in ema if name not in trained]
    if unknown:
        raise SettingsError(f"ema names {join_names(unknown)}, but the trained modules are {join_names([*trained])}")
    return {name: decay for name, decay in ema.items()}  # noqa: C416  a dict of wider keys


def _check_same_phases(parts: RunParts[Any]) -> None:
    """Check that all processes have the same phases; otherwise weights diverge or processes hang."""
    group = parts.group
    if group.size == 1:
        return
    group.check_same("the phases", str(describe_layout(parts.settings.trained, parts.phases)))
    for phase in parts.settings.phases:
        settings = [
            {name: value for name, value in content.items() if name != "params"}
            for content in phase.optimizer.param_groups
        ]
        group.check_same(f"the optimizer's settings in phase {phase.name!r}", str(settings))


def _drop_gradients(parameters: Iterable[Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
