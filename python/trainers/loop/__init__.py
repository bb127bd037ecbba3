"""A training loop for any module, with exact weighting by count, checks and reports.

The unit of work is the accumulation window: all batches of one optimizer step. The loop is an iterator of reports; the
caller logs, stops early and selects the best weights.
"""

from trainers.loop.checkpoint.snapshot import Stateful
from trainers.loop.checkpoint.store import Checkpoints
from trainers.loop.data.batch_splitter import BatchSplitter, IndivisibleBatch, SampleSplitter
from trainers.loop.data.sources import IterableSource, LiveSource, ResidentSource, Source, shuffle_indices
from trainers.loop.device import (
    DeviceChoice,
    Hardware,
    Precision,
    PrecisionName,
    choose_device,
    choose_precision,
    full_precision,
    measure_free_bytes,
    seed_everything,
)
from trainers.loop.errors import (
    BatchCoupledError,
    CheckpointError,
    ContractError,
    DetachedLossError,
    DeviceUnavailableError,
    EmptyTargetError,
    LoopError,
    NoBestWeightsError,
    NoGradientError,
    NonFiniteError,
    OutOfMemoryError,
    ParallelismError,
    PeerLostError,
    PrecisionError,
    ResumeMismatchError,
    SelfTestError,
    SettingsError,
    StoppedError,
    UncoveredParameterError,
    UnusedParameterError,
    WeightsMismatchError,
    ZeroGradientError,
)
from trainers.loop.group.processes import launched_rank, launched_size, local_rank
from trainers.loop.loop import Loop
from trainers.loop.loss import Loss, Term
from trainers.loop.phase import FrozenModule, Phase, adamw, cosine, warmup_cosine
from trainers.loop.reports import (
    CheckpointReport,
    EpochReport,
    PhaseTotals,
    Report,
    StepReport,
    TrainingNotice,
    ValidationReport,
    profile_training,
)
from trainers.loop.training_run import TrainingRun
from trainers.loop.validation import Validation
from trainers.loop.weights import BestWeights, InitialWeights, take_weights

__all__ = [
    "BatchCoupledError",
    "BatchSplitter",
    "BestWeights",
    "CheckpointError",
    "CheckpointReport",
    "Checkpoints",
    "ContractError",
    "DetachedLossError",
    "DeviceChoice",
    "DeviceUnavailableError",
    "EmptyTargetError",
    "EpochReport",
    "FrozenModule",
    "Hardware",
    "IndivisibleBatch",
    "InitialWeights",
    "IterableSource",
    "LiveSource",
    "Loop",
    "LoopError",
    "Loss",
    "NoBestWeightsError",
    "NoGradientError",
    "NonFiniteError",
    "OutOfMemoryError",
    "ParallelismError",
    "PeerLostError",
    "Phase",
    "PhaseTotals",
    "Precision",
    "PrecisionError",
    "PrecisionName",
    "Report",
    "ResidentSource",
    "ResumeMismatchError",
    "SampleSplitter",
    "SelfTestError",
    "SettingsError",
    "Source",
    "Stateful",
    "StepReport",
    "StoppedError",
    "Term",
    "TrainingNotice",
    "TrainingRun",
    "UncoveredParameterError",
    "UnusedParameterError",
    "Validation",
    "ValidationReport",
    "WeightsMismatchError",
    "ZeroGradientError",
    "adamw",
    "choose_device",
    "choose_precision",
    "cosine",
    "full_precision",
    "launched_rank",
    "launched_size",
    "local_rank",
    "measure_free_bytes",
    "profile_training",
    "seed_everything",
    "shuffle_indices",
    "take_weights",
    "warmup_cosine",
]
