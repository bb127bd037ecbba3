"""Random state: seeds and states of all generators, and deterministic kernels."""

import os
import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch

from trainers.loop.errors import SettingsError

CPU = torch.device("cpu")

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
REPRODUCIBLE_WORKSPACES = (":4096:8", ":16:8")


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch on all devices. Call it before the network is created.

    Args:
        seed: 0 to 2**32 - 1.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  libraries may draw from the global generator
    torch.manual_seed(seed)


def seed_host(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators on the host, but not those of accelerators.

    Args:
        seed: 0 to 2**64 - 1.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the global one
    torch.default_generator.manual_seed(seed)


def derive_seed(*numbers: int) -> int:
    """Derive a seed, 0 to 2**64 - 1, from several numbers that are 0 or more."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def find_device_generator(device: torch.device) -> torch.Generator | None:
    """Return the default generator of an accelerator; None on the CPU, which has `torch.default_generator`."""
    match device.type:
        case "cpu":
            return None
        case "mps":
            return torch.mps._get_default_mps_generator()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no public name
        case kind:
            generators: tuple[torch.Generator, ...] = getattr(torch, kind).default_generators
            return generators[device.index or 0]


def capture_generators(device: torch.device) -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's generators as tensors and plain Python values."""
    generator = find_device_generator(device)
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  the global one
    return {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "device": None if generator is None else generator.get_state(),
    }


def restore_generators(state: Mapping[str, Any], device: torch.device) -> None:
    """Set all generators to a captured state."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002  the global one
    torch.set_rng_state(state["torch"])
    generator = find_device_generator(device)
    if generator is not None and state["device"] is not None:
        generator.set_state(state["device"])


@final
class TorchGenerator:
    """A context with torch's host generator in a separate state, which starts at a seed and continues when re-entered.

    Args:
        seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._state = torch.Generator().manual_seed(seed).get_state()

    def __enter__(self) -> None:
        """Install the separate state."""
        self._swap()

    def __exit__(self, *_: object) -> None:
        """Restore the previous state."""
        self._swap()

    def _swap(self) -> None:
        other = torch.default_generator.get_state()
        torch.default_generator.set_state(self._state)
        self._state = other


@final
class HostGenerators:
    """A context with Python's, NumPy's and torch's generators of the host in separate states, which start at a seed.

    Entering and leaving takes 0.2 ms, most of it for NumPy.

    Args:
        seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._state: Mapping[str, Any] | None = None

    def __enter__(self) -> None:
        """Install the separate states."""
        self._swap()

    def __exit__(self, *_: object) -> None:
        """Restore the previous states."""
        self._swap()

    def _swap(self) -> None:
        other = capture_generators(CPU)
        if self._state is None:
            seed_host(self._seed)
        else:
            restore_generators(self._state, CPU)
        self._state = other


@final
class PythonGenerators:
    """A context with Python's and NumPy's generators in separate states; it is fast enough to use in every window.

    NumPy's generator is replaced, because copying its state is slow. Entering and leaving discards the value that a
    normal distribution has drawn in advance.

    Args:
        seed: 0 or more.
    """

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()  # noqa: S311  not for secrets
        self._numpy: np.random.BitGenerator = np.random.MT19937(seed)

    def __enter__(self) -> None:
        """Install the separate states."""
        self._swap()

    def __exit__(self, *_: object) -> None:
        """Restore the previous states."""
        self._swap()

    def _swap(self) -> None:
        numpy: Any = np.random  # the stubs lack the two functions
        other = random.getstate(), numpy.get_bit_generator()
        random.setstate(self._python)
        numpy.set_bit_generator(self._numpy)
        self._python, self._numpy = other


@contextmanager
def deterministic(device: torch.device) -> Generator[None]:
    """Make torch use deterministic algorithms inside the context, or raise a RuntimeError if it has none.

    The settings of torch apply to the process and are restored at the end.

    Args:
        device: The device of the training.

    Raises:
        SettingsError: On a CUDA device, the environment does not configure cuBLAS to be reproducible.
    """
    if device.type == "cuda":
        _check_workspace()
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    kernels = torch.backends.cudnn
    deterministic_before, benchmark_before = kernels.deterministic, kernels.benchmark
    try:
        torch.use_deterministic_algorithms(mode=True)
        kernels.deterministic, kernels.benchmark = True, False
        yield
    finally:
        kernels.deterministic, kernels.benchmark = deterministic_before, benchmark_before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def _check_workspace() -> None:
    workspace = os.environ.get(WORKSPACE)
    if workspace in REPRODUCIBLE_WORKSPACES:
        return
    state = "is not set" if workspace is None else f"is {workspace!r}"
    raise SettingsError(
        f"deterministic training on CUDA needs a fixed workspace for cuBLAS, but {WORKSPACE} {state}; set it to "
        f"{' or '.join(REPRODUCIBLE_WORKSPACES)} in the environment before the program starts, because cuBLAS reads it "
        "only once"
    )
