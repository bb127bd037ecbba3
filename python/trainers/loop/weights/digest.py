"""The digest of a module's weights."""

import hashlib

import torch
from torch import nn


def digest(module: nn.Module) -> str:
    """SHA-256 over the names, shapes and bits of all parameters and buffers; the same on every device."""
    found = hashlib.sha256()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        found.update(content.view(torch.uint8).numpy().data)
    return found.hexdigest()
