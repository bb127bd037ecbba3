"""Saving a training run to checkpoints, and resuming it."""

from collections.abc import Mapping
from itertools import count
from time import perf_counter
from typing import Any, final

import torch
from torch import Tensor

from trainers.loop.checkpoint.compatibility import BATCHES_PER_STEP, LearningRates, check_layout, describe_layout
from trainers.loop.checkpoint.snapshot import (
    Snapshot,
    check_states_writable,
    collect_states,
    load_states,
)
from trainers.loop.checkpoint.store import Checkpoints
from trainers.loop.device import (
    capture_generators,
    compact_parameters,
    derive_seed,
    restore_generators,
    seed_everything,
)
from trainers.loop.errors import CheckpointError, ResumeMismatchError, join_names
from trainers.loop.reports import CheckpointReport, TrainingNotice
from trainers.loop.run_parts import RunParts
from trainers.loop.weights.initial_weights import hash_tensors, list_named_tensors

MAX_TIME_SHARE = 0.05
"""Maximum share of the training time that the checkpoints at the ends of epochs may take."""


@final
class Recorder:
    """Saves a training run and restores it bit by bit.

    Args:
        checkpoints: The checkpoints, opened by rank 0.
        parts: The parts of the run. Every process contributes its generators, micro-batch sizes and caller's state, and
            rank 0 writes the checkpoint.
        rates: The initial settings of the optimizers.
    """

    def __init__(self, checkpoints: Checkpoints, parts: RunParts[Any], rates: LearningRates) -> None:
        self._checkpoints = checkpoints
        self._parts = parts
        self._rates = rates
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
        check_states_writable(self._settings.state)  # fail at the start rather than at every checkpoint
        restored = self._checkpoints.load()
        self._group.check_same("the newest checkpoint", "none" if restored is None else restored.folder.name)
        if restored is None:
            return []
        notices = [TrainingNotice(message=f"skipped a damaged checkpoint: {damage}") for damage in restored.damaged]
        check_layout(restored.state["layout"], self._layout)
        self._rates.check(restored.state["started"])
        processes = restored.state["processes"]
        if self._settings.state and len(processes) != self._group.size:
            raise ResumeMismatchError(
                f"the state of the caller ({join_names([*self._settings.state])}) was saved by {len(processes)} "
                f"processes, and {self._group.size} are here; resume with as many"
            )
        kept = processes[self._group.rank]["kept"] if self._group.rank < len(processes) else {}
        load_states(kept, self._settings.state)  # before anything else is changed, because it may still fail
        self._restore(restored.tensors, restored.state)
        notices += [TrainingNotice(message=message) for message in self._rates.load(restored.state["started"])]
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
                "started": self._rates.state(),
                "processes": self._group.gather(self._own()),
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
        own = state["processes"][self._group.rank]
        for phase in parts.phases:
            phase.cutter.limit = own["limits"][phase.phase.name]
        parts.scorer.cutter.limit = own["validation's limit"]
        restore_generators(own["generators"], self._settings.device)

    def _own(self) -> dict[str, Any]:
        """Return the state that differs between processes."""
        return {
            "generators": capture_generators(self._settings.device),
            "limits": {phase.phase.name: phase.cutter.limit for phase in self._parts.phases},
            "validation's limit": self._parts.scorer.cutter.limit,
            "kept": collect_states(self._settings.state),
        }
