"""Errors of the loop, all derived from `LoopError`.

Every message says what is wrong, likely causes, and what to do; `place` says where the loop was.
"""

from collections import Counter
from collections.abc import Sequence

SHOWN_NAMES = 8


class LoopError(Exception):
    """The base class of all errors of the loop.

    Attributes:
        message: What is wrong and what to do.
        place: Phase, epoch, window and batch shapes, where they are known.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.place: str | None = None

    def __str__(self) -> str:
        """The message, followed by the place."""
        return self.message if self.place is None else f"{self.message} (in {self.place})"


class SettingsError(LoopError):
    """Settings that contradict themselves or lie outside their range."""


class DeviceUnavailableError(LoopError):
    """The requested device is not available."""


class PrecisionError(LoopError):
    """A precision that the device does not support."""


class UncoveredParameterError(LoopError):
    """Trainable parameters in no optimizer, or optimizer parameters that are frozen or belong to no module."""


class ContractError(LoopError):
    """A loss function or a source that broke its contract."""


class EmptyTargetError(LoopError):
    """A window, an epoch or a validation without a single target."""


class DetachedLossError(LoopError):
    """A loss without a graph, so that backward cannot run."""


class NoGradientError(LoopError):
    """A loss whose backward reached none of the phase's parameters."""


class UnusedParameterError(LoopError):
    """Parameters that an optimizer holds and that no loss ever reached."""


class ZeroGradientError(LoopError):
    """Gradients that are all exactly zero before the phase has ever had another one."""


class NonFiniteError(LoopError):
    """A loss, a gradient or a score that is infinite or not a number."""


class BatchCoupledError(LoopError):
    """Layers such as BatchNorm, whose output depends on the whole batch, in a training that would cut batches."""


class OutOfMemoryError(LoopError):
    """Memory that ran out, where cutting the batch into smaller pieces is not possible or did not help."""


class SelfTestError(LoopError):
    """A device whose results differ from the CPU's by more than rounding."""


class ParallelismError(LoopError):
    """Modules, optimizers or sources that a group of processes cannot train together."""


class PeerLostError(LoopError):
    """Another process of the group that ended, or does not answer in time."""


class CheckpointError(LoopError):
    """A checkpoint that cannot be written or read."""


class ResumeMismatchError(CheckpointError):
    """A checkpoint that was made by another training than the one that is to resume."""


class WeightsMismatchError(LoopError):
    """Weights that do not fit the modules which are to start from them; the message names every one."""


class StoppedError(LoopError):
    """A signal that ended the training at the end of a window.

    Attributes:
        signal: The number of the signal.
    """

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class NoBestWeightsError(LoopError):
    """The best weights were asked for before any value was recorded."""


def listed(names: Sequence[str]) -> str:
    """The names with commas between them, for messages; of many, the first few."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def parameters_listed(names: Sequence[str]) -> str:
    """The names of parameters with commas between them; of many, how many each part of a module has."""
    if len(names) <= SHOWN_NAMES:
        return listed(names)
    parts = Counter(".".join(name.split(".")[:2]) for name in names)
    return listed([f"{count} parameters of {part}" for part, count in parts.items()])
