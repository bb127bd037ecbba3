"""Skips the tests of this folder without the extra `tts`."""

from pathlib import Path

import pytest
from left_out import skipped_file

from trainers.vits.errors import SPEECH


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return skipped_file(SPEECH, module_path, parent)
