"""Without the packages of the extra `dit` the tests of this folder are left out, each file with the reason."""

from pathlib import Path

import pytest
from left_out import without

from trainers.dit.errors import IMAGES


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return without(IMAGES, module_path, parent)
