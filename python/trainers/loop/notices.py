"""What a run tells once, in words."""

from collections.abc import Sequence
from signal import Signals
from typing import Any

from trainers.loop.errors import listed
from trainers.loop.phase import Phase
from trainers.loop.reports import CheckpointReport, Notice, WindowReport


def shortage(report: WindowReport, coupled: Sequence[str]) -> Notice:
    """Memory ran out in a window.

    Args:
        report: Of the window.
        coupled: The layers that mix the samples of a batch.
    """
    if report.micro is None:
        return Notice(
            message=f"memory ran out in phase {report.phase!r}, epoch {report.epoch + 1}, window {report.window + 1}; "
            "no sample was skipped and no batch cut: windows are no longer brought to the device ahead"
        )
    gradient = f"but {listed(coupled)} see fewer samples at a time" if coupled else "with the same gradient"
    return Notice(
        message=f"memory ran out in phase {report.phase!r}, epoch {report.epoch + 1}, window {report.window + 1}; "
        f"no sample was skipped: batches are worked in pieces of at most {report.micro}, {gradient}"
    )


def validation_shortage(limit: int | None) -> Notice:
    """Memory ran out in a validation; pieces now cost `limit` at most."""
    return Notice(
        message="memory ran out in the validation; no sample was skipped: batches are scored in pieces of at most "
        f"{limit}"
    )


def farewell(stop: int, report: CheckpointReport | None) -> str:
    """The training ends for the signal of that number, with the checkpoint reported, if there is one."""
    name = Signals(stop).name
    if report is None:
        return f"stopped by {name} at the end of a window; there is no folder for checkpoints, so nothing was saved"
    if report.problem is not None:
        return f"stopped by {name} at the end of a window, and the checkpoint could not be written: {report.problem}"
    window = f"window {report.window} of epoch {report.epoch + 1}" if report.window else f"epoch {report.epoch}"
    return f"stopped by {name} after {window}; the checkpoint is {report.folder}"


def kept_graphs(phases: Sequence[Phase[Any]], accumulate: int) -> list[Notice]:
    """What forwards that are kept for a later phase will cost, one notice a phase that works before it.

    Args:
        phases: In their order.
        accumulate: Batches in a window.
    """
    names = [phase.name for phase in phases]
    return [
        Notice(
            message=f"phase {phase.name!r} works before {phase.uses!r} with its forward: the graphs of a whole "
            f"window are kept meanwhile, those of {accumulate} batch{'es' if accumulate > 1 else ''}"
        )
        for phase in phases
        if phase.uses is not None and names.index(phase.name) < names.index(phase.uses)
    ]
