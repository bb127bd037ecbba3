"""Interrupted and resumed training runs, compared with an uninterrupted one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.loop import CheckpointReport, EpochReport, Report, Stateful, StepReport, TrainingNotice, TrainingRun

MEASURED = ("seconds", "data_seconds", "peak_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """The complete final state of a training run.

    Attributes:
        weights: Of every trained module, as they are.
        averages: Of every phase, in the order of its parameters.
        best: The best value, how many were recorded since, and its weights.
        optimizers: The states of all optimizers.
        schedulers: The states of all schedulers.
        generator: The state of torch's generator.
        history: The reports of the complete epochs, without times.
        kept: What the caller keeps.
    """

    weights: Mapping[str, bytes]
    averages: Sequence[bytes]
    best: tuple[float | None, int, Mapping[str, bytes]]
    optimizers: Sequence[Any]
    schedulers: Sequence[Any]
    generator: bytes
    history: Sequence[Mapping[str, Any]]
    kept: Mapping[str, Any]


def result_of(run: TrainingRun[Any], kept: Mapping[str, Stateful] | None = None) -> TrainingResult:
    """The result if the run ended now, with the caller's state."""
    setup = run._parts
    tensors = {
        f"{name}.{path}": content(tensor)
        for name, module in setup.settings.trained.items()
        for path, tensor in module.state_dict().items()
    }
    phases = [phase.phase for phase in setup.phases]
    return TrainingResult(
        weights=tensors,
        averages=[
            content(tensor) for phase in setup.phases for average in phase.averages for tensor in average.tensors
        ],
        best=(run.best.value, run.best.stale, {name: content(tensor) for name, tensor in run.best.tensors.items()}),
        optimizers=[comparable(phase.optimizer.state_dict()) for phase in phases],
        schedulers=[None if phase.scheduler is None else comparable(phase.scheduler.state_dict()) for phase in phases],
        generator=content(torch.get_rng_state()),
        history=[timeless(report) for report in run.history],
        kept={name: comparable(thing.state_dict()) for name, thing in (kept or {}).items()},
    )


def timeless(report: Report) -> dict[str, Any]:
    """A report without times and memory figures."""
    return {"kind": type(report).__name__, **_without(asdict(report))}


def reported(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Reports of windows and epochs without times."""
    return [timeless(report) for report in reports if isinstance(report, StepReport | EpochReport)]


def messages(reports: Sequence[Report]) -> list[str]:
    """Messages of the notices among the reports."""
    return [report.message for report in reports if isinstance(report, TrainingNotice)]


def checkpoint_reports(reports: Sequence[Report]) -> list[CheckpointReport]:
    """Checkpoint reports."""
    return [report for report in reports if isinstance(report, CheckpointReport)]


def until(reports: Iterator[Report], windows: int) -> list[Report]:
    """Reports up to a window, at which the training is abandoned, or to the end."""
    found: list[Report] = []
    for report in reports:
        found.append(report)
        if sum(isinstance(each, StepReport) for each in found) == windows:
            break
    return found


def content(tensor: Tensor) -> bytes:
    """Bytes of a tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def comparable(state: Any) -> Any:
    """The tree with bytes instead of tensors, comparable by ==."""
    if isinstance(state, Tensor):
        return content(state)
    if isinstance(state, dict):
        return {key: comparable(value) for key, value in state.items() if not callable(value)}
    if isinstance(state, list | tuple):
        return [comparable(value) for value in state]
    return state


def _without(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without(value) if isinstance(value, dict) else repr(value)  # so that not-a-number equals itself
        for name, value in values.items()
        if name not in MEASURED
    }
