"""Learning rates, weight decay and the like: what a training was started with, and what if that is another on resume.

They change while a training runs, by schedules or by the caller, so that their present values say nothing of what the
code has set up. What it had set up at the start is in the checkpoint beside them, and that alone is compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, final

from torch import Tensor
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from trainers.loop.errors import ResumeMismatchError, listed
from trainers.loop.phase import Phase

ResumeRates = Literal["refuse", "saved", "new"]
Settings: TypeAlias = Mapping[str, Any]
Started: TypeAlias = Mapping[str, Sequence[Settings]]
"""The settings of every parameter group, by phase."""

ELSEWHERE = ("params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
"""What a group says of its parameters, of its learning rate, and of how it computes, which depends on the device."""


def started_with(phases: Sequence[Phase[Any]]) -> Started:
    """What the code has set up, as plain values; to be asked before the first step."""
    return {phase.name: [_settings(group) for group in phase.optimizer.param_groups] for phase in phases}


@final
class Rates:
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
            ResumeMismatchError: Something was another at the start, and nobody chose between the two.
        """
        found = self._differences(saved)
        if found and self._choice == "refuse":
            raise ResumeMismatchError(
                f"the optimizers are not set up as when the training was started: {listed(found)}; set that back, or "
                'choose: Loop(resume_rates="saved") goes on as before, Loop(resume_rates="new") with what is set up now'
            )

    def load(self, saved: Started | None) -> list[str]:
        """Do what was chosen, once optimizers and schedules have come back; what a person should know of it."""
        found = self._differences(saved)
        new = self._choice == "new"
        if saved is None or not new:
            self._started = saved
        if saved is None or not found:
            return []
        if new:
            self._take(saved)
        return [f"the optimizers go on with what is {'set up now' if new else 'saved'}: {listed(found)}"]

    def _differences(self, saved: Started | None) -> list[str]:
        """Every setting that is another, with both values; none for a checkpoint of old, which does not say."""
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

    def _pairs(self, saved: Started) -> Iterator[tuple[Phase[Any], int, Settings, Settings]]:
        """Every group: its phase and number, what it was set up with at the start, and now."""
        for phase in self._phases:
            pairs = zip(saved.get(phase.name, ()), self._here[phase.name], strict=False)
            for number, (before, now) in enumerate(pairs):
                yield phase, number, before, now


def _settings(group: Settings) -> Settings:
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


def _changed(before: Settings, now: Settings) -> list[str]:
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
