"""Phases: an optimizer and the modules that it trains; optimizers and schedules for them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Generic, TypeVar, final

import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

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
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise SettingsError(
                f"phase {self.name!r}: a ReduceLROnPlateau follows a value, not the steps; remove it from the phase "
                "and call its step() with the value after every EpochReport; Loop(state=…) saves it in checkpoints"
            )
        if self.scheduler is not None and self.scheduler.optimizer is not self.optimizer:
            raise SettingsError(
                f"phase {self.name!r}: the scheduler belongs to another optimizer; create it with the phase's optimizer"
            )

    def is_due(self, window: int) -> bool:
        """Return whether the phase runs in a window of the training, counted from 1."""
        since = window - self.after
        return since > 0 and since % self.every == 0


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


# Devices on which torch updates all parameters in place with one kernel.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """Return the factor of the learning rate: linear warm-up, then half-cosine decay.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), without the restarts.

    Args:
        step: Steps taken so far; 0 for the first step.
        warmup: Steps until the factor reaches 1; 0 starts with 1.
        total: Steps until the factor reaches the floor, where it stays.
        floor: The lowest factor of the decay, 0 to 1.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def cosine(optimizer: Optimizer, *, warmup_steps: int, total_steps: int, floor: float = 0.0) -> LambdaLR:
    """Return a scheduler with the factors of `warmup_cosine`, for the steps of one phase.

    Raises:
        SettingsError: A number is out of range.
    """
    if not 0 <= warmup_steps < total_steps:
        raise SettingsError(
            f"warmup_steps is {warmup_steps} and total_steps is {total_steps}; warmup_steps must be at least 0 and "
            "less than total_steps"
        )
    if not 0 <= floor <= 1:
        raise SettingsError(f"floor is {floor}; it must be between 0 and 1, a fraction of the full learning rate")
    return LambdaLR(optimizer, partial(warmup_cosine, warmup=warmup_steps, total=total_steps, floor=floor))


def adamw(
    parameters: Iterable[Parameter],
    *,
    lr: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    fused: bool | None = None,
    spared: Iterable[Parameter] = (),
) -> torch.optim.AdamW:
    """Return an AdamW optimizer, fused if torch supports it, which is faster and needs no temporary memory.

    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    Args:
        parameters: The parameters to train, of any shapes.
        lr: Learning rate, above 0.
        weight_decay: Decay per step, as a multiple of learning rate x weight.
        betas: Decay rates of the running means of the gradients and of their squares.
        fused: Whether to use the fused kernel; None uses it if torch supports it for the parameters.
        spared: Parameters without weight decay, such as biases.
    """
    trained, without_decay = list(parameters), {id(parameter) for parameter in spared}
    use_fused = can_fuse(trained) if fused is None else fused
    groups: list[Parameter] | list[dict[str, Any]] = trained
    if without_decay:
        groups = [
            {"params": [parameter for parameter in trained if id(parameter) not in without_decay]},
            {"params": [parameter for parameter in trained if id(parameter) in without_decay], "weight_decay": 0.0},
        ]
    return torch.optim.AdamW(
        groups,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        fused=use_fused,
        foreach=None if use_fused else True,
    )


def can_fuse(parameters: Iterable[Parameter]) -> bool:
    """Return whether torch has fused kernels for all parameters."""
    return all(parameter.device.type in FUSED_DEVICES and parameter.is_floating_point() for parameter in parameters)
