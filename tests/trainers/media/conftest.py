"""Skips the tests of this folder without the packages shared by speech and images."""

from pathlib import Path
from typing import Final

import pytest
from left_out import skipped_file

from trainers.media.errors import OptionalExtra

PAGES: Final = OptionalExtra("dit", "pages need", ("PIL", "jinja2"))


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return skipped_file(PAGES, module_path, parent)
