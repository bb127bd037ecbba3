"""Skips the tests of this folder without the extra `dit`."""

from pathlib import Path

import pytest
from left_out import skipped_file

from trainers.dit.errors import IMAGES


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return skipped_file(IMAGES, module_path, parent)
