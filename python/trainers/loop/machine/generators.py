"""The state of every generator that a training may draw from."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def device_generator(device: torch.device) -> torch.Generator | None:
    """The default generator of an accelerator; None on the CPU, whose own is `torch.default_generator`."""
    match device.type:
        case "cpu":
            return None
        case "mps":
            return torch.mps._get_default_mps_generator()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  torch gives it no public name
        case kind:
            generators: tuple[torch.Generator, ...] = getattr(torch, kind).default_generators
            return generators[device.index or 0]


def captured(device: torch.device) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's generators, as tensors and plain Python."""
    generator = device_generator(device)
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  the global one
    return {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "device": None if generator is None else generator.get_state(),
    }


def restore(state: Mapping[str, Any], device: torch.device) -> None:
    """Set every generator to a captured state."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002  the global one
    torch.set_rng_state(state["torch"])
    generator = device_generator(device)
    if generator is not None and state["device"] is not None:
        generator.set_state(state["device"])
