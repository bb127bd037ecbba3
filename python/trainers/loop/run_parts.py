"""The checked settings and the parts of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

from trainers.loop.checkpoint.caller_state import Stateful
from trainers.loop.checkpoint.compatibility import LearningRates
from trainers.loop.checkpoint.store import StopSignals
from trainers.loop.data.splitting import BatchSplitter
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
    """The settings of a training, checked; those that are not explained here are as `Loop` takes them.

    Attributes:
        groups: How many parameter groups each phase's optimizer had when the loop was made.
        trained: The trained modules by name.
        frozen: The others by name, which no checkpoint holds but which must be the same on resume.
        device: Where everything is.
        precision: What validations compute in, and phases that name no other.
        precisions: What each phase computes in.
        decays: Of the averages of the weights, by module; under None that of all modules.
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
        """All of them by name."""
        return {**self.trained, **self.frozen}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts(Generic[Batch]):
    """The parts of a run.

    Attributes:
        settings: The training's.
        phases: With their optimizers, guards and averages; run in this order.
        group: The processes that train together.
        shared: The forwards that phases own and others may use.
        coupled: The layers that mix the samples of a batch.
        feeder: Brings batches to the device.
        scorer: Scores sources.
        score_guard: Watches the validations' means.
        best: The best value so far and its weights.
        training: How far the training has come.
        signals: Whether it is asked to stop.
        rates: What the optimizers were set up with at the start.
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
