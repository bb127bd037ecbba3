"""Phases: an optimizer and the modules that it trains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Generic, TypeVar, final

from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainers.loop.device import Precision
from trainers.loop.errors import SettingsError
from trainers.loop.loss import Loss

Batch = TypeVar("Batch")


@dataclass(frozen=True)  # no slots: with them, Phase[Batch](…) fails in Python 3.11
class Phase(Generic[Batch]):
    """An optimizer and the parameters that it trains.

    While a phase runs, the parameters of the other phases are frozen and get no gradient from its loss.

    Attributes:
        name: The name in reports and errors.
        loss: Computes the loss of a batch on the device. With `forward` or `uses`, its second argument is the result
            of the forward.
        parameters: The same parameters as in the optimizer's groups.
        optimizer: The optimizer; every phase needs a separate one.
        scheduler: Stepped after every step of the optimizer, but not after a skipped one.
        clip: Maximum norm of the gradient; None does not clip.
        every: Run the phase in every n-th window; 1 for all.
        after: Windows of the training before the phase begins.
        counts: For a loss of several terms (`Loss.of`): returns the number of targets of every term by name, computed
            from a batch on the host without a forward. It is called for every batch of a window before the first
            forward.
        forward: Computes a tree of tensors from a batch, once per micro-batch, for the losses of this phase and of the
            phases that use it. It runs in this phase's precision, and only this phase's parameters get gradients.
        uses: The phase whose detached forward result is passed to this phase's loss. If that phase runs later in the
            window, the graphs of all batches of the window are kept until then.
        precision: The precision of this phase; None for the loop's.
        allow_zero_gradients: Whether all gradients of a window may be exactly zero, as when all rewards are equal. Such
            a window changes nothing: no step, decay, schedule or average.

    Raises:
        SettingsError: A number is out of range, the scheduler cannot follow the optimizer's steps, or the phase both
            owns and uses a forward.
    """

    name: str
    loss: Callable[[Batch], Loss] | Callable[[Batch, Any], Loss]
    parameters: Iterable[Parameter]
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    clip: float | None = 1.0
    every: int = 1
    after: int = 0
    counts: Callable[[Batch], Mapping[str, int]] | None = None
    forward: Callable[[Batch], Any] | None = None
    uses: str | None = None
    precision: str | Precision | None = None
    allow_zero_gradients: bool = False

    def __post_init__(self) -> None:
        """Store the parameters as a tuple and check the settings."""
        object.__setattr__(self, "parameters", tuple(self.parameters))
        if self.clip is not None and not self.clip > 0:
            raise SettingsError(
                f"phase {self.name!r}: clip is {self.clip}; it must be above 0, or None for no clipping"
            )
        if self.every < 1:
            raise SettingsError(f"phase {self.name!r}: every is {self.every}; it must be 1 or more")
        if self.after < 0:
            raise SettingsError(f"phase {self.name!r}: after is {self.after}; it must be 0 or more windows")
        if self.forward is not None and self.uses is not None:
            raise SettingsError(
                f"phase {self.name!r} has a forward and uses that of {self.uses!r}; remove one of them: chains of "
                "forwards are not supported"
            )
        closure = signature(type(self.optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise SettingsError(
                f"phase {self.name!r}: {type(self.optimizer).__name__} computes the loss itself (its step() needs a "
                "closure); use an optimizer whose step() needs only gradients"
            )
        self._check_scheduler()

    def is_due(self, window: int) -> bool:
        """Return whether the phase runs in a window of the training, counted from 1."""
        since = window - self.after
        return since > 0 and since % self.every == 0

    def _check_scheduler(self) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise SettingsError(
                f"phase {self.name!r}: a ReduceLROnPlateau follows a value, not the steps; remove it from the phase "
                "and call its step() with the value after every EpochReport; Loop(state=…) saves it in checkpoints"
            )
        if self.scheduler is not None and self.scheduler.optimizer is not self.optimizer:
            raise SettingsError(
                f"phase {self.name!r}: the scheduler belongs to another optimizer; create it with the phase's optimizer"
            )


@final
class FrozenModule:
    """A module that is used but not trained, such as a pretrained encoder.

    Its parameters are frozen and it is put in evaluation mode at once. The loop moves it to the device and keeps it in
    evaluation mode. Run it under `torch.no_grad()`, not `inference_mode()`: backward rejects inference tensors.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module.requires_grad_(False).eval()


@final
class FrozenParameters:
    """A context in which some parameters do not require gradients."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._frozen: Sequence[Parameter] = ()

    def __enter__(self) -> None:
        """Freeze the parameters."""
        self._frozen = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    def __exit__(self, *_: object) -> None:
        """Unfreeze the parameters."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = ()

    def pause(self) -> None:
        """Unfreeze the parameters until `resume`."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)

    def resume(self) -> None:
        """Freeze the parameters again."""
        for parameter in self._frozen:
            parameter.requires_grad_(False)
