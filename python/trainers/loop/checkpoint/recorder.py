"""Saving a training run to checkpoints, and resuming it.

Schedules and callers change learning rates and weight decay during a run, so their current values do not show the
settings in the code. Therefore a checkpoint also holds the initial values, and only these are compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from time import perf_counter
from typing import Any, Literal, TypeAlias, cast, final

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from trainers.loop.checkpoint.snapshot import (
    Snapshot,
    collect_states,
    load_states,
)
from trainers.loop.checkpoint.store import BATCHES_PER_STEP, Checkpoints
from trainers.loop.checkpoint.tensors import check_state
from trainers.loop.device import (
    capture_generators,
    compact_parameters,
    derive_seed,
    restore_generators,
    seed_everything,
)
from trainers.loop.errors import CheckpointError, ResumeMismatchError, join_names
from trainers.loop.phase import Phase
from trainers.loop.reports import CheckpointReport, TrainingNotice
from trainers.loop.run_parts import PhaseRun, RunParts
from trainers.loop.weights import hash_tensors, list_named_tensors, name_parameters

ResumeRates = Literal["refuse", "saved", "new"]
GroupSettings: TypeAlias = Mapping[str, Any]
InitialSettings: TypeAlias = Mapping[str, Sequence[GroupSettings]]
"""The initial settings of every parameter group, by phase."""

NOT_COMPARED = ("params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
"""Keys of a group that are not compared directly: parameters, learning rate, and device-dependent options."""


def describe_layout(trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> dict[str, Any]:
    """Describe phases, optimizers and weights as plain values that must be the same on resume.

    Learning rates and similar settings are not included, because they change during a training run and are restored
    from the checkpoint. `OptimizerSettings` compares their initial values.
    """
    parts: dict[str, Any] = {"phases": [phase.phase.name for phase in phases]}
    names = name_parameters(trained.items())
    for run in phases:
        phase, title = run.phase, f"phase {run.phase.name!r}"
        parts[f"optimizer of {title}"] = type(phase.optimizer).__name__
        parts[f"scheduler of {title}"] = None if phase.scheduler is None else type(phase.scheduler).__name__
        parts[f"clip of {title}"] = phase.clip
        parts[f"every of {title}"] = phase.every
        parts[f"after of {title}"] = phase.after
        if phase.uses is not None:
            parts[f"forward of {title}"] = f"that of {phase.uses!r}"
        parts[f"average's decay of {title}"] = _read_decays(run)
        for group, content in enumerate(phase.optimizer.param_groups):
            for number, parameter in enumerate(content["params"]):
                parts[f"parameter {number} in group {group} of {title}"] = names[parameter]
    for name, tensor in list_named_tensors(trained).items():
        parts[name] = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return parts


def _read_decays(run: PhaseRun[Any]) -> float | dict[str, float] | None:
    """Return the decay of the average of all parameters, or the decay of every averaged module."""
    if not run.averages:
        return None
    decays = {average.module: average.decay for average in run.averages}
    return decays[None] if None in decays else {str(module): decay for module, decay in decays.items()}


def check_layout(saved: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Check that a checkpoint has the expected layout.

    Raises:
        ResumeMismatchError: It belongs to another training; the message names the differences.
    """
    different = [
        f"{name} is {saved.get(name)} in the checkpoint and {expected.get(name)} here"
        for name in dict.fromkeys((*expected, *saved))
        if saved.get(name) != expected.get(name)
    ]
    if different:
        raise ResumeMismatchError(
            f"the checkpoint belongs to another training: {join_names(different)}; use the settings that it was "
            "started with, or start again in another folder"
        )


def read_initial_settings(phases: Sequence[Phase[Any]]) -> InitialSettings:
    """Return the settings of all optimizers as plain values; call it before the first step.

    The learning rate of a group is its rate before any schedule.
    """
    return {
        phase.name: [
            {
                "lr": _list_plain_settings(group.get("initial_lr", group["lr"])),
                **{name: _list_plain_settings(value) for name, value in group.items() if name not in NOT_COMPARED},
            }
            for group in phase.optimizer.param_groups
        ]
        for phase in phases
    }


@final
class OptimizerSettings:
    """Compares the optimizers' initial settings with those of a checkpoint, and applies the caller's choice.

    Args:
        phases: The phases with their optimizers and schedules.
        started: The initial settings of this run.
        choice: What to do if those of a checkpoint differ.
    """

    def __init__(self, phases: Sequence[Phase[Any]], started: InitialSettings, choice: ResumeRates) -> None:
        self._phases = phases
        self._here = started
        self._choice: ResumeRates = choice
        self._started: InitialSettings = started

    def state(self) -> InitialSettings:
        """Return the initial settings of the training for a checkpoint."""
        return self._started

    def check(self, saved: InitialSettings) -> None:
        """Check that the training may continue with the current settings.

        Raises:
            ResumeMismatchError: The initial settings differ, and the choice is `refuse`.
        """
        different = self._describe_differences(saved)
        if different and self._choice == "refuse":
            raise ResumeMismatchError(
                f"the optimizers' settings differ from those at the start of the training: {join_names(different)}; "
                'restore them, or choose Loop(resume_rates="saved") to continue with the old ones or '
                'Loop(resume_rates="new") to continue with the new ones'
            )

    def load(self, saved: InitialSettings) -> list[str]:
        """Apply the choice after optimizers and schedules were restored, and return messages for the user."""
        different = self._describe_differences(saved)
        new = self._choice == "new"
        if not new:
            self._started = saved
        if not different:
            return []
        if new:
            self._take(saved)
        return [f"the optimizers continue with the {'new' if new else 'saved'} settings: {join_names(different)}"]

    def _describe_differences(self, saved: InitialSettings) -> list[str]:
        """Describe every setting that differs, with both values."""
        return [
            f"{name} of group {number} of phase {phase.name!r} was {before.get(name)} and is now {now.get(name)}"
            for phase, number, before, now in self._pair_groups(saved)
            for name in _find_changes(before, now)
        ]

    def _take(self, saved: InitialSettings) -> None:
        """Apply the current settings to optimizers and schedules; a learning rate keeps its factor."""
        for phase, number, before, now in self._pair_groups(saved):
            group = phase.optimizer.param_groups[number]
            for name in _find_changes(before, now):
                if name != "lr":
                    group[name] = now[name]
                    continue
                rate, old, new = float(group["lr"]), before["lr"], now["lr"]
                _put(group, "lr", new if rate == old or not old else rate * (new / old))
                if "initial_lr" in group:
                    _put(group, "initial_lr", new)
        for phase in self._phases:
            for schedule in _flatten_schedule(phase.scheduler):
                schedule.base_lrs = [group["initial_lr"] for group in phase.optimizer.param_groups]

    def _pair_groups(self, saved: InitialSettings) -> Iterator[tuple[Phase[Any], int, GroupSettings, GroupSettings]]:
        """Yield phase, number, saved initial settings and current initial settings of every group."""
        for phase in self._phases:
            pairs = zip(saved.get(phase.name, ()), self._here[phase.name], strict=False)
            for number, (before, now) in enumerate(pairs):
                yield phase, number, before, now


def _list_plain_settings(value: Any) -> Any:
    """Convert tensors to numbers, and copy lists and tuples."""
    if isinstance(value, Tensor):
        return value.tolist()
    if type(value) in (list, tuple):
        return type(value)([_list_plain_settings(item) for item in value])
    return value


def _find_changes(before: GroupSettings, now: GroupSettings) -> list[str]:
    return [name for name in now if name not in before or before[name] != now[name]]


def _put(group: dict[str, Any], name: str, rate: float) -> None:
    """Set a rate, in place if it is a tensor."""
    if isinstance(group[name], Tensor):
        group[name].fill_(rate)
    else:
        group[name] = rate


def _flatten_schedule(schedule: LRScheduler | None) -> Iterator[LRScheduler]:
    """Yield the schedule, or the schedules that it is composed of."""
    if isinstance(schedule, SequentialLR | ChainedScheduler):
        for part in cast("Sequence[LRScheduler]", schedule._schedulers):  # noqa: SLF001  no public name
            yield from _flatten_schedule(part)
    elif schedule is not None:
        yield schedule


MAX_TIME_SHARE = 0.05
"""Maximum share of the training time that the checkpoints at the ends of epochs may take."""


@final
class Recorder:
    """Saves a training run and restores it bit by bit.

    Args:
        checkpoints: The checkpoints, opened by rank 0.
        parts: The parts of the run. Every process contributes its generators, micro-batch sizes and caller's state, and
            rank 0 writes the checkpoint.
        optimizer_settings: The initial settings of the optimizers.
    """

    def __init__(self, checkpoints: Checkpoints, parts: RunParts[Any], optimizer_settings: OptimizerSettings) -> None:
        self._checkpoints = checkpoints
        self._parts = parts
        self._optimizer_settings = optimizer_settings
        self._settings = parts.settings
        self._group = parts.group
        self._layout = {
            BATCHES_PER_STEP: parts.group.size * parts.settings.accumulate,
            **{f"frozen {name}": hash_tensors(module) for name, module in parts.settings.frozen.items()},
            **describe_layout(parts.settings.trained, parts.phases),
        }
        self._saved = perf_counter()
        self._took = 0.0

    def is_due(self, windows: int, *, epoch_end: bool = False) -> bool:
        """Return whether this process requests a checkpoint after that many windows.

        At the end of an epoch one is also due if writing it takes a small share of the time since the last.
        """
        if self._group.rank:
            return False
        cheap = epoch_end and self._took <= MAX_TIME_SHARE * (perf_counter() - self._saved)
        return cheap or self._checkpoints.is_due(windows)

    def save(self, *, epoch_end: bool) -> CheckpointReport:
        """Write a checkpoint; a failure goes into the report, and the training can continue."""
        started = perf_counter()
        training = self._parts.training
        snapshot = self._take_snapshot(best=epoch_end and self._parts.best.stale == 0)  # all processes take part
        folder, size, problem = self._group.gather(self._write(snapshot))[0]
        self._saved = perf_counter()
        self._took = self._saved - started
        return CheckpointReport(
            epoch=training.epoch,
            window=training.epoch_totals.windows,
            folder=folder,
            bytes=size,
            seconds=self._took,
            problem=problem,
        )

    def resume(self) -> list[TrainingNotice]:
        """Restore the newest valid checkpoint, and return notices for the user.

        Raises:
            CheckpointError: All checkpoints are damaged, or a checkpoint cannot hold the caller's state.
            ResumeMismatchError: The checkpoints belong to another training.
        """
        check_state(collect_states(self._settings.state))  # fail at the start rather than at every checkpoint
        restored = self._checkpoints.load()
        self._group.check_same("the newest checkpoint", "none" if restored is None else restored.folder.name)
        if restored is None:
            return []
        notices = [TrainingNotice(message=f"skipped a damaged checkpoint: {damage}") for damage in restored.damaged]
        check_layout(restored.state["layout"], self._layout)
        self._optimizer_settings.check(restored.state["started"])
        processes = restored.state["processes"]
        if self._settings.state and len(processes) != self._group.size:
            raise ResumeMismatchError(
                f"the state of the caller ({join_names([*self._settings.state])}) was saved by {len(processes)} "
                f"processes, and {self._group.size} are here; resume with as many"
            )
        caller_state = processes[self._group.rank]["kept"] if self._group.rank < len(processes) else {}
        load_states(caller_state, self._settings.state)  # before anything else is changed, because it may still fail
        self._restore(restored.tensors, restored.state)
        notices += [
            TrainingNotice(message=message) for message in self._optimizer_settings.load(restored.state["started"])
        ]
        window = f"window {restored.window} of epoch {restored.epoch + 1}"
        position = window if restored.window else f"epoch {restored.epoch}"
        return [*notices, TrainingNotice(message=f"resuming after {position}, from {restored.folder}")]

    def _write(self, snapshot: Snapshot) -> tuple[str, int, str | None]:
        """Write the checkpoint on rank 0 and return its folder, size and problem."""
        folder = str(self._checkpoints.folder)
        if self._group.rank:
            return folder, 0, None
        try:
            path, size = self._checkpoints.save(snapshot)
        except CheckpointError as error:
            return folder, 0, error.message
        return str(path), size, None

    def _take_snapshot(self, *, best: bool) -> Snapshot:
        parts, training = self._parts, self._parts.training
        averages = {
            f"{phase.phase.name}.{number}": tensor
            for phase in parts.phases
            for number, tensor in enumerate(tensor for average in phase.averages for tensor in average.tensors)
        }
        process_state = {  # the state that differs between processes
            "generators": capture_generators(self._settings.device),
            "limits": {phase.phase.name: phase.cutter.limit for phase in parts.phases},
            "validation's limit": parts.scorer.cutter.limit,
            "kept": collect_states(self._settings.state),
        }
        return Snapshot(
            tensors={
                "modules": list_named_tensors(self._settings.trained),
                "average": averages,
                "best": parts.best.tensors,
            },
            state={
                "layout": self._layout,
                "standing": training.state(),
                "phases": {phase.phase.name: phase.state() for phase in parts.phases},
                "best": parts.best.state(),
                "validation": parts.score_guard.state(),
                "started": self._optimizer_settings.state(),
                "processes": self._group.gather(process_state),
            },
            epoch=training.epoch,
            window=training.epoch_totals.windows,
            windows=training.windows,
            best=best,
        )

    def _restore(self, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        parts = self._parts
        with torch.no_grad():
            for name, tensor in list_named_tensors(self._settings.trained).items():
                tensor.copy_(tensors["modules"][name])
        for module in self._settings.trained.values():
            compact_parameters(module)
        for phase in parts.phases:
            phase.load(state["phases"][phase.phase.name])
            numbers = count()
            for average in phase.averages:
                average.load([tensors["average"][f"{phase.phase.name}.{next(numbers)}"] for _ in average.tensors])
        parts.best.load(state["best"], tensors.get("best", {}))
        parts.score_guard.load(state["validation"])
        parts.training.load(state["standing"])
        if self._group.rank >= len(state["processes"]):  # of a process more than before, which draws from a new seed
            seed_everything(derive_seed(torch.initial_seed(), parts.training.windows) % 2**32)
            return
        process_state = state["processes"][self._group.rank]
        for phase in parts.phases:
            phase.cutter.limit = process_state["limits"][phase.phase.name]
        parts.scorer.cutter.limit = process_state["validation's limit"]
        restore_generators(process_state["generators"], self._settings.device)
