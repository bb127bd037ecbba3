"""The norm of a gradient and its scaling, each in one pass over all tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_ adds the same to the norm


def norms_of(gradients: list[Tensor]) -> list[Tensor]:
    """Scalars whose Euclidean norm is that over all elements of all gradients.

    On a CPU, where reading a number costs nothing, it is one a tensor; on a device one in all.
    """
    # What torch's own clipping is made of; its public form takes three times as long.
    norms = torch._foreach_norm(gradients)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
    return list(norms) if gradients[0].device.type == "cpu" else [total_of(norms)]


def total_of(norms: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of norms, on their device."""
    return torch.linalg.vector_norm(torch.stack(list(norms)))


def rescale(gradients: list[Tensor], factor: float | Tensor) -> None:
    """Multiply all gradients in place; a factor of 1.0 costs nothing."""
    if isinstance(factor, Tensor) or factor != 1.0:
        torch._foreach_mul_(gradients, factor)  # pyright: ignore[reportPrivateImportUsage]  as above


def clip_factor(norm: float, limit: float | None) -> float:
    """What brings a gradient of this norm down to the limit; 1 if it is within."""
    return 1.0 if limit is None or norm <= limit else limit / (norm + CLIP_EPSILON)


def clip_factor_on_device(norm: Tensor, correction: float | Tensor, limit: float | None) -> float | Tensor:
    """The same times the gradient's correction, without waiting for the norm; `norm` is that before the correction."""
    if limit is None:
        return correction
    return correction * (limit / (norm * correction + CLIP_EPSILON)).clamp(max=1.0)
