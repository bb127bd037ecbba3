"""Precision of the forward pass, and the gradient scaler for float16."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainers.loop.device.hardware import Hardware
from trainers.loop.errors import PrecisionError

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = ("auto", "fp32", "bf16", "fp16")


class LossScaler(Protocol):
    """What the loop asks of a gradient scaler; `torch.amp.GradScaler` is one."""

    def scale(self, outputs: Tensor, /) -> Tensor:
        """`outputs`, of any shape [...], times the current scale."""
        ...

    def unscale_(self, optimizer: Optimizer, /) -> None:
        """Divide the optimizer's gradients by the scale and note whether any is not finite."""
        ...

    def step(self, optimizer: Optimizer, /) -> float | None:
        """Step the optimizer unless a gradient was not finite."""
        ...

    def update(self) -> None:
        """Lower the scale after a gradient that was not finite, raise it after many good steps."""
        ...

    def get_scale(self) -> float:
        """The current scale."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Scale and growth, for a checkpoint; empty if the scaler is disabled."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Take over such a state, which must not be empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How the forward computes; weights and optimizer states stay in the precision they were made in.

    Attributes:
        name: `fp32`, `bf16` or `fp16`.
        dtype: What autocast computes in; None leaves autocast off.
        scaler: Makes a phase's scaler; None where gradients do not underflow, which is everywhere but in float16.
        reason: Why it is this one.
    """

    name: str
    dtype: torch.dtype | None
    scaler: Callable[[], LossScaler] | None
    reason: str


def choose_precision(requested: str, device: torch.device, hardware: Hardware) -> Precision:
    """Turn `auto`, `fp32`, `bf16` or `fp16` into a precision for `device`.

    Automatic is bfloat16 on GPUs that multiply it natively, float16 with a scaler on older CUDA devices, and float32
    elsewhere: Apple GPUs gain little from less, and CPUs only where the processor has instructions for it.

    Raises:
        PrecisionError: Not a precision, or one that the device cannot compute in.
    """
    if requested not in PRECISIONS:
        raise PrecisionError(f"{requested!r} is not a precision; use one of {', '.join(PRECISIONS)}")
    if requested == "fp16" and device.type == "cpu":
        raise PrecisionError(
            "fp16 was asked for on a CPU, where recurrent layers have no float16 kernel (torch: 'could not create a "
            "primitive descriptor for the LSTM forward propagation primitive'); use fp32 or bf16"
        )
    name, reason = (
        _automatic(device, hardware) if requested == "auto" else (requested, _asked(requested, device, hardware))
    )
    match name:
        case "bf16":
            return Precision(name=name, dtype=torch.bfloat16, scaler=None, reason=reason)
        case "fp16":
            scaler = partial(torch.amp.GradScaler, device.type)
            return Precision(name=name, dtype=torch.float16, scaler=scaler, reason=reason)
        case _:
            return Precision(name=name, dtype=None, scaler=None, reason=reason)


def _automatic(device: torch.device, hardware: Hardware) -> tuple[str, str]:
    match device.type:
        case "cuda" if hardware.cuda_bf16:
            return "bf16", "automatic: this GPU multiplies bfloat16 natively"
        case "cuda":
            return "fp16", "automatic: this GPU has no native bfloat16, so float16 with a loss scaler"
        case "xpu":
            return "bf16", "automatic: Intel GPUs multiply bfloat16 natively"
        case "mps":
            return "fp32", "automatic: Apple GPUs gain little from a lower precision"
        case _:
            return "fp32", "automatic: the safe choice on a CPU; bf16 may be faster where the processor supports it"


def _asked(requested: str, device: torch.device, hardware: Hardware) -> str:
    if requested == "bf16" and device.type == "cuda" and not hardware.cuda_bf16:
        return "'bf16' was asked for; this GPU emulates it, which is slow: fp16 would be faster"
    return f"{requested!r} was asked for"


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which nothing is computed in 16 bits, for what needs all 32: spectra, divergences, logarithms.

    What comes from outside is 16 bits still; call `.float()` on it.

    Args:
        device: Where it is computed.
    """
    return torch.autocast(device.type, enabled=False)
