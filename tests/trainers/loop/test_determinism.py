"""Deterministic mode: its settings, requirements, and restoration afterwards."""

import pytest
import torch

from trainers.loop.device.random_state import deterministic
from trainers.loop.errors import SettingsError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def flags() -> tuple[bool, bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )


def test_inside_all_algorithms_are_deterministic_and_none_is_searched() -> None:
    with deterministic(CPU):
        assert flags() == (True, False, True, False)


def test_an_operation_that_cannot_be_deterministic_raises() -> None:
    values = torch.zeros(3)
    with deterministic(CPU), pytest.raises(RuntimeError, match="deterministic"):
        values.put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("searched", [False, True])
def test_the_settings_are_restored_even_after_an_error(*, enabled: bool, searched: bool) -> None:
    before = flags()
    try:
        torch.use_deterministic_algorithms(enabled, warn_only=enabled)
        torch.backends.cudnn.benchmark = searched
        expected = flags()
        with pytest.raises(KeyError), deterministic(CPU):
            raise KeyError
        assert flags() == expected == (enabled, enabled, before[2], searched)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[3]


@pytest.mark.parametrize("workspace", [None, ":0:0"])
def test_cuda_without_a_fixed_workspace_is_refused_with_what_to_set(
    workspace: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    if workspace is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    before = flags()
    with (
        pytest.raises(SettingsError, match=r"CUBLAS_WORKSPACE_CONFIG is .*; set it to :4096:8 or :16:8.* starts"),
        deterministic(CUDA),
    ):
        pass
    assert flags() == before


@pytest.mark.parametrize("workspace", [":4096:8", ":16:8"])
def test_cuda_with_a_fixed_workspace_is_accepted(workspace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    with deterministic(CUDA):
        assert flags() == (True, False, True, False)
