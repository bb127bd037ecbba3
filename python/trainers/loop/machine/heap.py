"""The C library's heap: what it gives back to the system, it must ask for again."""

from typing import Final

import torch

_BLOCK: Final = 2**24
"""Bytes. Larger arrays go back to the system when they are freed, as glibc has them."""


def keep_freed_memory() -> None:
    """Let the process keep up to 32 MiB of freed memory, so that a training step finds again what the last one freed.

    glibc returns the free end of its heap once that is twice as large as the largest block it has seen freed (see
    M_MMAP_THRESHOLD in mallopt(3)). Small networks free a little more at the end of every step, and the pages, which
    the system must clear and hand out anew, then cost as much as the step itself. A large block that is taken and
    freed, and never written to, moves that limit. Where the C library is another one, nothing changes.
    """
    torch.empty(_BLOCK, dtype=torch.uint8)
