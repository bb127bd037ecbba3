"""The checked settings and the parts of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

from trainers.loop.checkpoint.caller_state import Stateful
from trainers.loop.checkpoint.compatibility import LearningRates
from trainers.loop.checkpoint.store import StopSignals
from trainers.loop.data.batch_splitter import BatchSplitter
from trainers.loop.data.transfer import Feeder
from trainers.loop.device import Precision
from trainers.loop.group.group import Group
from trainers.loop.phase import Phase
from trainers.loop.training_state import TrainingState
from trainers.loop.validation import ScoreGuard, Scorer
from trainers.loop.weights.weight_copies import BestWeights
from trainers.loop.window.guards import Nonfinite
from trainers.loop.window.phase_run import PhaseRun
from trainers.loop.window.shared_forward import SharedForward

Batch = TypeVar("Batch")

OomChoice = Literal["split", "fail"]
CoupledChoice = Literal["refuse", "accept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(Generic[Batch]):
    """The checked settings of a training; `Loop` documents those that are not listed here.

    Attributes:
        groups: Number of parameter groups of each phase's optimizer when the loop was created.
        trained: The trained modules by name.
        frozen: The frozen modules by name; checkpoints do not hold them, but they must be the same on resume.
        device: The device of the training.
        precision: The precision of validations, and the default of phases.
        precisions: The precision of each phase.
        decays: The decays of the averages by module; the key None means all modules.
    """

    phases: Sequence[Phase[Batch]]
    groups: Mapping[str, int]
    trained: Mapping[str, nn.Module]
    frozen: Mapping[str, nn.Module]
    device: torch.device
    precision: Precision
    precisions: Mapping[str, Precision]
    accumulate: int
    oom: OomChoice
    cutting: BatchSplitter[Batch]
    batch_coupled: CoupledChoice
    nonfinite: Nonfinite
    skip_limit: int
    audit_windows: int | None
    decays: Mapping[str | None, float]
    state: Mapping[str, Stateful]

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules by name."""
        return {**self.trained, **self.frozen}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts(Generic[Batch]):
    """The parts of a run.

    Attributes:
        settings: The settings of the loop.
        phases: The phases, in the order in which they run.
        group: The processes that train together.
        shared: The forwards that phases own and others may use.
        coupled: The layers that mix the samples of a batch.
        feeder: Moves batches to the device.
        scorer: Scores batches.
        score_guard: Checks the means of validations.
        best: The best value so far with its weights.
        training: The progress of the training.
        signals: The signals that stop the training.
        rates: The initial settings of the optimizers.
    """

    settings: LoopSettings[Batch]
    phases: Sequence[PhaseRun[Batch]]
    group: Group
    shared: Sequence[SharedForward[Batch]]
    coupled: Sequence[str]
    feeder: Feeder
    scorer: Scorer
    score_guard: ScoreGuard
    best: BestWeights
    training: TrainingState
    signals: StopSignals
    rates: LearningRates
