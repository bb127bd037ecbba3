"""The same numbers from the same training, for the price of slower kernels."""

import os
from collections.abc import Generator
from contextlib import contextmanager

import torch

from trainers.loop.errors import SettingsError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
REPRODUCIBLE_WORKSPACES = (":4096:8", ":16:8")


@contextmanager
def deterministic(device: torch.device) -> Generator[None]:
    """Inside, torch uses algorithms whose results repeat, and raises a RuntimeError where it has none.

    The settings are torch's own and hold for the whole process; at the end they are as they were.

    Args:
        device: The device of the training.

    Raises:
        SettingsError: A CUDA device, and cuBLAS was not told at the process's start to work reproducibly.
    """
    if device.type == "cuda":
        _check_workspace()
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    kernels = torch.backends.cudnn
    chosen, searched = kernels.deterministic, kernels.benchmark
    try:
        torch.use_deterministic_algorithms(mode=True)
        kernels.deterministic, kernels.benchmark = True, False
        yield
    finally:
        kernels.deterministic, kernels.benchmark = chosen, searched
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def _check_workspace() -> None:
    found = os.environ.get(WORKSPACE)
    if found in REPRODUCIBLE_WORKSPACES:
        return
    state = "is not set" if found is None else f"is {found!r}"
    raise SettingsError(
        f"deterministic training on CUDA needs cuBLAS to work in a fixed workspace, but {WORKSPACE} {state}; set it to "
        f"{' or '.join(REPRODUCIBLE_WORKSPACES)} in the environment before the program starts, because cuBLAS reads it "
        "only once"
    )
