"""Skips the tests of this folder without the extra `dit`."""

from pathlib import Path

import pytest
from left_out import without

from trainers.dit.errors import IMAGES


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return without(IMAGES, module_path, parent)
