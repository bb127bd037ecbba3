"""One seed for every generator that training may draw from."""

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, on every device. Call it before the network is built.

    Args:
        seed: 0 to 2**32 - 1.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  libraries that a task uses may draw from the global generator
    torch.manual_seed(seed)


def seed_host(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators on the host, and leave those of accelerators alone.

    Args:
        seed: 0 to 2**64 - 1.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the global one
    torch.default_generator.manual_seed(seed)


def mixed(*numbers: int) -> int:
    """One seed, 0 to 2**64 - 1, made of several numbers that are 0 or more; another for other numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
