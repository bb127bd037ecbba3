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
    """One optimizer and what it trains.

    While a phase runs, the parameters of the other phases are frozen: its loss leaves no gradient in them.

    Attributes:
        name: Names the phase in reports and errors.
        loss: Computes the loss of a batch that is on the device; with `forward` or `uses`, of the batch and of what the
            forward made of it.
        parameters: What the optimizer trains; the same parameters as in its groups.
        optimizer: Its own, not shared with another phase.
        scheduler: Stepped after every step that was taken, never after a skipped one.
        clip: Largest norm of the gradient; None does not clip.
        every: The phase runs in every second, third … window, as this number says; 1 for all.
        after: Windows of the training before it begins.
        counts: Of a loss of several terms (`Loss.of`): the targets of every term in a batch as the source gives it, by
            name, without a forward. It is called for every batch of a window before the first forward.
        forward: Makes a tree of tensors of a batch, once per piece, for this phase's loss and those of the phases that
            use it. While it runs, only this phase's parameters train, in this phase's precision.
        uses: The phase whose forward this one's loss takes the result of, detached. If that phase runs later in the
            window, the graphs of all batches of the window are kept until then.
        precision: What this phase computes in; None for the loop's.
        allow_zero_gradients: Whether a window may have gradients that are all exactly zero, as where no reward differs
            from another. It then moves nothing: no step, decay, schedule or average.

    Raises:
        SettingsError: A number is out of its range, the scheduler cannot follow the optimizer's steps, or the phase
            would both own and use a forward.
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
        """Keep the parameters, which may come from a generator, and check the settings."""
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
                f"phase {self.name!r} has a forward and uses that of {self.uses!r}; a phase owns one or uses one, for "
                "chains of forwards are not supported"
            )
        closure = signature(type(self.optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise SettingsError(
                f"phase {self.name!r}: {type(self.optimizer).__name__} computes the loss by itself (its step() needs a "
                "closure); use an optimizer that steps with the gradients of a window"
            )
        self._check_scheduler()

    def is_due(self, window: int) -> bool:
        """Whether the phase is due in a window of the training, counted from 1."""
        since = window - self.after
        return since > 0 and since % self.every == 0

    def _check_scheduler(self) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise SettingsError(
                f"phase {self.name!r}: a ReduceLROnPlateau follows a value, not the steps; leave it out of the phase "
                "and call its step() with the value after every EpochReport; Loop(state=…) keeps it in checkpoints"
            )
        if self.scheduler is not None and self.scheduler.optimizer is not self.optimizer:
            raise SettingsError(
                f"phase {self.name!r}: the scheduler moves the learning rate of another optimizer than the phase's; "
                "make it with the phase's own"
            )


@final
class FrozenModule:
    """A module that is used but not trained, such as a pretrained encoder.

    Its parameters are frozen and it is put in evaluation mode at once; the loop moves it to the device and keeps it in
    evaluation mode. Run it under `torch.no_grad()`, not `inference_mode()`, whose tensors no backward accepts.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module.requires_grad_(False).eval()


@final
class FrozenParameters:
    """A context in which some parameters require no gradient."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._frozen: Sequence[Parameter] = ()

    def __enter__(self) -> None:
        """Freeze them."""
        self._frozen = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    def __exit__(self, *_: object) -> None:
        """Unfreeze them."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = ()

    def pause(self) -> None:
        """Unfreeze them until `resume`."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)

    def resume(self) -> None:
        """Freeze them again."""
        for parameter in self._frozen:
            parameter.requires_grad_(False)
