"""What of a training must be the same for a checkpoint to fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from trainers.loop.errors import ResumeMismatchError, listed
from trainers.loop.weights.named import named_tensors, parameter_names
from trainers.loop.window.phase_run import PhaseRun


def layout(trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> dict[str, Any]:
    """Phases, optimizers and weights by what they are, as plain values.

    Learning rates and the like are not in it: they change while a training runs, and a checkpoint brings its own. What
    they were at the start is compared by `rates`.
    """
    found: dict[str, Any] = {"phases": [phase.phase.name for phase in phases]}
    names = parameter_names(trained.items())
    for run in phases:
        phase, title = run.phase, f"phase {run.phase.name!r}"
        found[f"optimizer of {title}"] = type(phase.optimizer).__name__
        found[f"scheduler of {title}"] = None if phase.scheduler is None else type(phase.scheduler).__name__
        found[f"clip of {title}"] = phase.clip
        found[f"every of {title}"] = phase.every
        if phase.after:  # what older checkpoints do not know is there only where it is used
            found[f"after of {title}"] = phase.after
        if phase.uses is not None:
            found[f"forward of {title}"] = f"that of {phase.uses!r}"
        found[f"average's decay of {title}"] = _decays(run)
        for group, content in enumerate(phase.optimizer.param_groups):
            for number, parameter in enumerate(content["params"]):
                found[f"parameter {number} in group {group} of {title}"] = names[parameter]
    for name, tensor in named_tensors(trained).items():
        found[name] = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return found


def _decays(run: PhaseRun[Any]) -> float | dict[str, float] | None:
    """The decay of the average, where there is one for all parameters; else that of every module that has one."""
    if not run.averages:
        return None
    decays = {average.module: average.decay for average in run.averages}
    return decays[None] if None in decays else {str(module): decay for module, decay in decays.items()}


def check_layout(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Check that a checkpoint fits.

    Raises:
        ResumeMismatchError: It was made by another training; the message names what differs.
    """
    different = [
        f"{name} is {found.get(name)} in the checkpoint and {expected.get(name)} here"
        for name in dict.fromkeys((*expected, *found))
        if found.get(name) != expected.get(name)
    ]
    if different:
        raise ResumeMismatchError(
            f"the checkpoint belongs to another training: {listed(different)}; go on with the settings that it was "
            "started with, or start anew in another folder"
        )
