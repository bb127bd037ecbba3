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
