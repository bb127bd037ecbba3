"""Copies of weights that are kept beside them: where they lie, and that they hold the same bits."""

from collections.abc import Sequence

import torch
from torch import Tensor

LARGE = 256 * 2**20
"""Bytes of all copies together, those of 64 million float32 parameters. Larger ones lie on the host: a training holds
four times its weights anyway (weights, gradients and two moments), and each further copy is memory that batches cannot
have. They are made or put back a few times an epoch at most, and 256 MiB pass a GPU's link in some hundredths of a
second (reckoned at 8 GB/s or more); smaller ones are not worth the wait."""

HOST = torch.device("cpu")


def copies_of(tensors: Sequence[Tensor], *, large: int = LARGE) -> list[Tensor]:
    """A copy of every tensor, without its graph: beside it, or all of them on the host where they are large.

    Beside a CUDA device they lie in pinned memory, which it reads and writes without a detour.
    """
    aside = is_large(tensors, large=large)
    return [to_host(tensor) if aside else tensor.detach().clone() for tensor in tensors]


def is_large(tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:
    """Whether copies of these tensors, of which some are on an accelerator, are kept on the host."""
    elsewhere = any(tensor.device != HOST for tensor in tensors)
    return elsewhere and sum(tensor.numel() * tensor.element_size() for tensor in tensors) > large


def to_host(tensor: Tensor) -> Tensor:
    """A copy on the host."""
    return torch.empty_like(tensor, device=HOST, requires_grad=False, pin_memory=tensor.is_cuda).copy_(tensor.detach())
