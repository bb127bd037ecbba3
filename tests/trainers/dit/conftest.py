"""These tests need the extra `dit`; without it each module is skipped, and the reason told."""

from importlib.util import find_spec
from pathlib import Path

import pytest

NEEDED = "diffusers"


class WithoutExtra(pytest.Module):
    """A module that cannot be imported."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(f"images need {NEEDED}: pip install 'quantra[dit]'")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if find_spec(NEEDED) is not None:
        return None
    return WithoutExtra.from_parent(parent, path=module_path)
