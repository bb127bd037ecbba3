"""Compatibility of a checkpoint with a run: settings, layout, and the optimizers' initial settings.

Schedules and callers change learning rates and weight decay during a run, so their current values do not show what the
code has set. The checkpoint also holds the initial values, and only these are compared.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, final

from torch import Tensor, nn
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from trainers.loop.errors import ResumeMismatchError, SettingsError, listed
from trainers.loop.phase import Phase
from trainers.loop.weights.initial_weights import named_tensors, parameter_names
from trainers.loop.window.phase_run import PhaseRun

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SHOWN_VALUE = 60

ResumeRates = Literal["refuse", "saved", "new"]
GroupSettings: TypeAlias = Mapping[str, Any]
Started: TypeAlias = Mapping[str, Sequence[GroupSettings]]
"""The settings of every parameter group, by phase."""

ELSEWHERE = ("params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
"""What a group says of its parameters, of its learning rate, and of how it computes, which depends on the device."""


def plain(settings: Mapping[str, Json]) -> dict[str, Json]:
    """A copy as it will come back from a file: tuples as lists.

    Raises:
        SettingsError: They are no JSON, which has neither NaN nor infinity.
    """
    try:
        text = json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"the settings of checkpoints must be numbers, strings, lists and mappings with string keys: {error}"
        ) from error
    return json.loads(text)


def differences(saved: Mapping[str, Json], wanted: Mapping[str, Json]) -> list[str]:
    """Every setting that is not the same, with both values; nested ones by their path, such as `network.layers`."""
    before, now = dict(_flat(saved)), dict(_flat(wanted))
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {_shown(before, name)} and is now {_shown(now, name)}"
        for name in names
        if name not in before or name not in now or before[name] != now[name]
    ]


def _flat(settings: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(values: Mapping[str, Json], name: str) -> str:
    if name not in values:
        return "absent"
    text = json.dumps(values[name], ensure_ascii=False)
    return text if len(text) <= SHOWN_VALUE else f"{text[: SHOWN_VALUE - 1]}…"


def layout(trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> dict[str, Any]:
    """Phases, optimizers and weights by what they are, as plain values.

    Learning rates and the like are not in it: they change while a training runs, and a checkpoint brings its own. What
    they were at the start is compared by `rates`.
    """
    parts: dict[str, Any] = {"phases": [phase.phase.name for phase in phases]}
    names = parameter_names(trained.items())
    for run in phases:
        phase, title = run.phase, f"phase {run.phase.name!r}"
        parts[f"optimizer of {title}"] = type(phase.optimizer).__name__
        parts[f"scheduler of {title}"] = None if phase.scheduler is None else type(phase.scheduler).__name__
        parts[f"clip of {title}"] = phase.clip
        parts[f"every of {title}"] = phase.every
        if phase.after:  # what older checkpoints do not know is there only where it is used
            parts[f"after of {title}"] = phase.after
        if phase.uses is not None:
            parts[f"forward of {title}"] = f"that of {phase.uses!r}"
        parts[f"average's decay of {title}"] = _decays(run)
        for group, content in enumerate(phase.optimizer.param_groups):
            for number, parameter in enumerate(content["params"]):
                parts[f"parameter {number} in group {group} of {title}"] = names[parameter]
    for name, tensor in named_tensors(trained).items():
        parts[name] = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return parts


def _decays(run: PhaseRun[Any]) -> float | dict[str, float] | None:
    """The decay of the average, where there is one for all parameters; else that of every module that has one."""
    if not run.averages:
        return None
    decays = {average.module: average.decay for average in run.averages}
    return decays[None] if None in decays else {str(module): decay for module, decay in decays.items()}


def check_layout(saved: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Check that a checkpoint fits.

    Raises:
        ResumeMismatchError: It was made by another training; the message names what differs.
    """
    different = [
        f"{name} is {saved.get(name)} in the checkpoint and {expected.get(name)} here"
        for name in dict.fromkeys((*expected, *saved))
        if saved.get(name) != expected.get(name)
    ]
    if different:
        raise ResumeMismatchError(
            f"the checkpoint belongs to another training: {listed(different)}; use the settings that it was "
            "started with, or start again in another folder"
        )


def started_with(phases: Sequence[Phase[Any]]) -> Started:
    """What the code has set up, as plain values; to be asked before the first step."""
    return {phase.name: [_settings(group) for group in phase.optimizer.param_groups] for phase in phases}


@final
class LearningRates:
    """Compares what a training was started with with what is set up now, and does what was chosen.

    Args:
        phases: With their optimizers and schedules.
        started: What is set up now.
        choice: What to do where a checkpoint's is another.
    """

    def __init__(self, phases: Sequence[Phase[Any]], started: Started, choice: ResumeRates) -> None:
        self._phases = phases
        self._here = started
        self._choice: ResumeRates = choice
        self._started: Started | None = started

    def state(self) -> Started | None:
        """What the training was started with, for a checkpoint."""
        return self._started

    def check(self, saved: Started | None) -> None:
        """Check that the training may go on with what is set up now.

        Raises:
            ResumeMismatchError: Something was different at the start, and no choice was made.
        """
        different = self._differences(saved)
        if different and self._choice == "refuse":
            raise ResumeMismatchError(
                f"the optimizers are not set up as when the training was started: {listed(different)}; restore that, "
                'or choose: Loop(resume_rates="saved") goes on as before, Loop(resume_rates="new") with what is set up '
                "now"
            )

    def load(self, saved: Started | None) -> list[str]:
        """Do what was chosen, once optimizers and schedules have come back; what a person should know of it."""
        different = self._differences(saved)
        new = self._choice == "new"
        if saved is None or not new:
            self._started = saved
        if saved is None or not different:
            return []
        if new:
            self._take(saved)
        return [f"the optimizers go on with what is {'set up now' if new else 'saved'}: {listed(different)}"]

    def _differences(self, saved: Started | None) -> list[str]:
        """Every setting that differs, with both values; none for an old checkpoint, which does not hold them."""
        return [
            f"{name} of group {number} of phase {phase.name!r} was {before.get(name)} and is now {now.get(name)}"
            for phase, number, before, now in self._pairs(saved or {})
            for name in _changed(before, now)
        ]

    def _take(self, saved: Started) -> None:
        """Put what is set up now into optimizers and schedules; a learning rate keeps the factor that it has by now."""
        for phase, number, before, now in self._pairs(saved):
            group = phase.optimizer.param_groups[number]
            for name in _changed(before, now):
                if name == "lr":
                    _set_rate(group, before["lr"], now["lr"])
                else:
                    group[name] = now[name]
        for phase in self._phases:
            for schedule in _simple(phase.scheduler):
                schedule.base_lrs = [group["initial_lr"] for group in phase.optimizer.param_groups]

    def _pairs(self, saved: Started) -> Iterator[tuple[Phase[Any], int, GroupSettings, GroupSettings]]:
        """Every group: its phase and number, what it was set up with at the start, and now."""
        for phase in self._phases:
            pairs = zip(saved.get(phase.name, ()), self._here[phase.name], strict=False)
            for number, (before, now) in enumerate(pairs):
                yield phase, number, before, now


def _settings(group: GroupSettings) -> GroupSettings:
    """A group's settings, its learning rate before any schedule among them."""
    rate = group.get("initial_lr", group["lr"])
    return {"lr": _plain(rate), **{name: _plain(value) for name, value in group.items() if name not in ELSEWHERE}}


def _plain(value: Any) -> Any:
    """Tensors as numbers, lists and tuples as copies."""
    if isinstance(value, Tensor):
        return value.tolist()
    if type(value) in (list, tuple):
        return type(value)([_plain(item) for item in value])
    return value


def _changed(before: GroupSettings, now: GroupSettings) -> list[str]:
    return [name for name in now if name not in before or before[name] != now[name]]


def _set_rate(group: dict[str, Any], before: float, now: float) -> None:
    rate = float(group["lr"])
    _put(group, "lr", now if rate == before or not before else rate * (now / before))
    if "initial_lr" in group:
        _put(group, "initial_lr", now)


def _put(group: dict[str, Any], name: str, rate: float) -> None:
    """Into the tensor, where it is one."""
    if isinstance(group[name], Tensor):
        group[name].fill_(rate)
    else:
        group[name] = rate


def _simple(schedule: LRScheduler | None) -> Iterator[LRScheduler]:
    """The schedule, or those that it is made of."""
    if isinstance(schedule, SequentialLR | ChainedScheduler):
        for part in cast("Sequence[LRScheduler]", schedule._schedulers):  # noqa: SLF001  no public name
            yield from _simple(part)
    elif schedule is not None:
        yield schedule
