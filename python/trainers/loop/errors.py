"""The errors of the loop. Every message says what is wrong, likely causes and what to do."""

from collections import Counter
from collections.abc import Sequence

MAX_SHOWN_NAMES = 8


class LoopError(Exception):
    """The base class of all errors of the loop.

    Attributes:
        message: What is wrong and what to do.
        position: Phase, epoch, window and batch shapes, if known.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.position: str | None = None

    def __str__(self) -> str:
        """The message, followed by the position."""
        return self.message if self.position is None else f"{self.message} (in {self.position})"


class SettingsError(LoopError):
    """Settings that contradict each other or are out of range."""


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
    """A loss whose backward reached no parameter of the phase."""


class UnusedParameterError(LoopError):
    """Parameters of an optimizer that no loss ever reached."""


class ZeroGradientError(LoopError):
    """Gradients that have all been exactly zero since the start of the phase."""


class NonFiniteError(LoopError):
    """A loss, a gradient or a score that is infinite or not a number."""


class BatchCoupledError(LoopError):
    """Layers whose output depends on the other samples, such as BatchNorm, in a training run that would cut batches."""


class OutOfMemoryError(LoopError):
    """Memory ran out, and cutting the batch into smaller micro-batches is not possible or did not help."""


class SelfTestError(LoopError):
    """A device whose results differ from the CPU's by more than rounding."""


class ParallelismError(LoopError):
    """Modules, optimizers or sources that a group of processes cannot train together."""


class PeerLostError(LoopError):
    """Another process of the group that has ended or does not respond in time."""


class CheckpointError(LoopError):
    """A checkpoint that cannot be written or read."""


class ResumeMismatchError(CheckpointError):
    """A checkpoint that belongs to another training than the one to resume."""


class WeightsMismatchError(LoopError):
    """Initial weights that do not fit the modules; the message names all of them."""


class StoppedError(LoopError):
    """A signal that ended the training at the end of a window.

    Attributes:
        signal: The number of the signal.
    """

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class NoBestWeightsError(LoopError):
    """A request for the best weights before any value was recorded."""


def join_names(names: Sequence[str]) -> str:
    """Join names with commas for messages; of many, only the first few."""
    rest = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + rest


def describe_parameters(names: Sequence[str]) -> str:
    """Join names of parameters with commas; of many, only the number in each part of a module."""
    if len(names) <= MAX_SHOWN_NAMES:
        return join_names(names)
    parts = Counter(".".join(name.split(".")[:2]) for name in names)
    return join_names([f"{count} parameters of {part}" for part, count in parts.items()])
