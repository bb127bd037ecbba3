"""The digest of a module's weights."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def digest(module: nn.Module) -> str:
    """SHA-256 over the names, shapes and bits of all parameters and buffers; the same on every device."""
    return digest_of((*module.named_parameters(), *module.named_buffers()))


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The same over tensors by name, in their order."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        found.update(content.view(torch.uint8).numpy().data)
    return found.hexdigest()
