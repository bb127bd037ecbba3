"""A training loop for any module: it counts rightly, notices what is wrong, and reports what it does.

The accumulation window, which is all batches of one optimizer step, is the unit of work. The loop is an iterator of
reports; logging, stopping early and choosing the best weights are the caller's own lines.
"""

from trainers.loop.data.sources import IterableSource, ResidentSource, Source, permutation
from trainers.loop.errors import (
    ContractError,
    DetachedLossError,
    DeviceUnavailableError,
    EmptyTargetError,
    LoopError,
    NoBestWeightsError,
    NoGradientError,
    NonFiniteError,
    PrecisionError,
    SettingsError,
    UncoveredParameterError,
    UnusedParameterError,
    ZeroGradientError,
)
from trainers.loop.loop import Loop
from trainers.loop.loss import Loss
from trainers.loop.machine.hardware import DeviceChoice, Hardware, choose_device
from trainers.loop.machine.precision import LossScaler, Precision, choose_precision
from trainers.loop.machine.seeding import seed_everything
from trainers.loop.phase import Frozen, Phase
from trainers.loop.reports import EpochReport, PhaseTotals, Report, ValidationReport, WindowReport
from trainers.loop.run import Run, Validation
from trainers.loop.weights.best import Best

__all__ = [
    "Best",
    "ContractError",
    "DetachedLossError",
    "DeviceChoice",
    "DeviceUnavailableError",
    "EmptyTargetError",
    "EpochReport",
    "Frozen",
    "Hardware",
    "IterableSource",
    "Loop",
    "LoopError",
    "Loss",
    "LossScaler",
    "NoBestWeightsError",
    "NoGradientError",
    "NonFiniteError",
    "Phase",
    "PhaseTotals",
    "Precision",
    "PrecisionError",
    "Report",
    "ResidentSource",
    "Run",
    "SettingsError",
    "Source",
    "UncoveredParameterError",
    "UnusedParameterError",
    "Validation",
    "ValidationReport",
    "WindowReport",
    "ZeroGradientError",
    "choose_device",
    "choose_precision",
    "permutation",
    "seed_everything",
]
