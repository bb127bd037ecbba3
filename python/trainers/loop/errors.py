"""Everything that can go wrong in the loop, as one tree.

    LoopError
    ├── SettingsError               settings that contradict themselves
    ├── DeviceUnavailableError      a device that this machine does not have
    ├── PrecisionError              a precision that the device cannot compute in
    ├── UncoveredParameterError     parameters and optimizers that do not match
    ├── ContractError               a loss function or a source that breaks its promise
    ├── EmptyTargetError            nothing to learn from
    ├── DetachedLossError           a loss without a graph
    ├── NoGradientError             a loss whose graph misses the phase's parameters
    ├── UnusedParameterError        a parameter that no loss ever reached
    ├── ZeroGradientError           gradients that are all exactly zero
    ├── NonFiniteError              a loss, gradient or score that is infinite or not a number
    └── NoBestWeightsError          nothing was recorded that could be restored

Every message says what is wrong, likely causes, and what to do; `place` says where the loop was.
"""

from collections.abc import Sequence

SHOWN_NAMES = 8


class LoopError(Exception):
    """The root of the tree.

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
    """A device that was asked for and that this machine does not have."""


class PrecisionError(LoopError):
    """A precision that the device cannot compute in."""


class UncoveredParameterError(LoopError):
    """Trainable parameters in no optimizer, or optimizer parameters that are frozen or belong to no module."""


class ContractError(LoopError):
    """A loss function or a source that returned something else than it promised."""


class EmptyTargetError(LoopError):
    """A window, an epoch or a validation without a single target."""


class DetachedLossError(LoopError):
    """A loss that is connected to no graph, so that backward has nowhere to go."""


class NoGradientError(LoopError):
    """A loss whose backward reached none of the phase's parameters."""


class UnusedParameterError(LoopError):
    """Parameters that an optimizer holds and that no loss ever reached."""


class ZeroGradientError(LoopError):
    """Gradients that are all exactly zero before the phase has ever had another one."""


class NonFiniteError(LoopError):
    """A loss, a gradient or a score that is infinite or not a number."""


class NoBestWeightsError(LoopError):
    """The best weights were asked for before any value was recorded."""


def listed(names: Sequence[str]) -> str:
    """The names with commas between them, for messages; of many, the first few."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
