"""The check that the processes of a group train in the same way."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from trainers.loop.checkpoint.layout import layout
from trainers.loop.group.group import Group
from trainers.loop.window.phase_run import PhaseRun


def check_phases(group: Group, trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> None:
    """Check that the phases are the same everywhere; otherwise the weights would part, or the processes wait in vain.

    Raises:
        ParallelismError: A phase, its optimizer or a setting of that is not.
        PeerLostError: Another process ended or hangs.
    """
    if group.size == 1:
        return
    group.check_same("the phases", str(layout(trained, phases)))
    for phase in phases:
        settings = [_settings(content) for content in phase.phase.optimizer.param_groups]
        group.check_same(f"the optimizer's settings in phase {phase.phase.name!r}", str(settings))


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a parameter group says beside its parameters."""
    return {name: value for name, value in group.items() if name != "params"}
