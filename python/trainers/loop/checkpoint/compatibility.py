"""Compatibility of a checkpoint with a run: settings, layout, and the optimizers' initial settings.

Schedules and callers change learning rates and weight decay during a run, so their current values do not show the
settings in the code. Therefore a checkpoint also holds the initial values, and only these are compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, final

from torch import Tensor, nn
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from trainers.loop.errors import ResumeMismatchError, join_names
from trainers.loop.phase import Phase
from trainers.loop.run_parts import PhaseRun
from trainers.loop.weights.initial_weights import list_named_tensors, name_parameters

BATCHES_PER_STEP = "batches per step (accumulate x processes)"
"""The part of a checkpoint's layout with the size of an accumulation window."""

ResumeRates = Literal["refuse", "saved", "new"]
GroupSettings: TypeAlias = Mapping[str, Any]
InitialSettings: TypeAlias = Mapping[str, Sequence[GroupSettings]]
"""The initial settings of every parameter group, by phase."""

NOT_COMPARED = ("params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
"""Keys of a group that are not compared directly: parameters, learning rate, and device-dependent options."""


def describe_layout(trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> dict[str, Any]:
    """Describe phases, optimizers and weights as plain values that must be the same on resume.

    Learning rates and similar settings are not included, because they change during a training run and are restored
    from the checkpoint. `LearningRates` compares their initial values.
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
class LearningRates:
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
                if name == "lr":
                    _set_rate(group, before["lr"], now["lr"])
                else:
                    group[name] = now[name]
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


def _set_rate(group: dict[str, Any], before: float, now: float) -> None:
    rate = float(group["lr"])
    _put(group, "lr", now if rate == before or not before else rate * (now / before))
    if "initial_lr" in group:
        _put(group, "initial_lr", now)


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
