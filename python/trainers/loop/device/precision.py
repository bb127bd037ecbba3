"""Precision of the forward pass, and the gradient scaler for float16."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.amp.grad_scaler import GradScaler

from trainers.loop.device.hardware import Hardware
from trainers.loop.errors import PrecisionError

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = ("auto", "fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The precision of the forward; weights and optimizer states keep their dtypes.

    Attributes:
        name: `fp32`, `bf16` or `fp16`.
        dtype: The dtype of autocast; None disables autocast.
        scaler: Creates the scaler of a phase; None if gradients do not underflow, as in all precisions but float16.
        reason: The reason for the choice.
    """

    name: str
    dtype: torch.dtype | None
    scaler: Callable[[], GradScaler] | None
    reason: str


def choose_precision(requested: str, device: torch.device, hardware: Hardware) -> Precision:
    """Return the precision for `auto`, `fp32`, `bf16` or `fp16` on `device`.

    `auto` selects bfloat16 on GPUs that support it natively, float16 with a scaler on older CUDA devices, and float32
    elsewhere: Apple GPUs gain little from fewer bits, and CPUs only if the processor has instructions for them.

    Raises:
        PrecisionError: The name is unknown, or the device does not support the precision.
    """
    if requested not in PRECISIONS:
        raise PrecisionError(f"{requested!r} is not a precision; use one of {', '.join(PRECISIONS)}")
    if requested == "fp16" and device.type == "cpu":
        raise PrecisionError(
            "fp16 was requested on a CPU, where recurrent layers have no float16 kernel (torch: 'could not create a "
            "primitive descriptor for the LSTM forward propagation primitive'); use fp32 or bf16"
        )
    name, reason = requested, f"{requested!r} was requested"
    if requested == "auto":
        name, reason = _choose_automatically(device, hardware)
    elif requested == "bf16" and device.type == "cuda" and not hardware.cuda_bf16:
        reason = "'bf16' was requested; this GPU emulates it, which is slow: fp16 would be faster"
    match name:
        case "bf16":
            return Precision(name=name, dtype=torch.bfloat16, scaler=None, reason=reason)
        case "fp16":
            scaler = partial(GradScaler, device.type)
            return Precision(name=name, dtype=torch.float16, scaler=scaler, reason=reason)
        case _:
            return Precision(name=name, dtype=None, scaler=None, reason=reason)


def _choose_automatically(device: torch.device, hardware: Hardware) -> tuple[str, str]:
    match device.type:
        case "cuda" if hardware.cuda_bf16:
            return "bf16", "automatic: this GPU supports bfloat16 natively"
        case "cuda":
            return "fp16", "automatic: this GPU has no native bfloat16, so float16 with a loss scaler"
        case "xpu":
            return "bf16", "automatic: Intel GPUs support bfloat16 natively"
        case "mps":
            return "fp32", "automatic: Apple GPUs gain little from a lower precision"
        case _:
            return "fp32", "automatic: the safe choice on a CPU; bf16 may be faster where the processor supports it"


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast, for operations that need float32, such as spectra, divergences and logarithms.

    Tensors from outside the context may still have 16 bits; convert them with `.float()`.

    Args:
        device: The device of the computation.
    """
    return torch.autocast(device.type, enabled=False)
