"""Whether a graph is being taken of what runs."""

import torch


def is_traced() -> bool:
    """Whether a compiler or an exporter follows the operations: it must see one plain path, and no blocks of rows."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # pyright: ignore[reportPrivateImportUsage]
