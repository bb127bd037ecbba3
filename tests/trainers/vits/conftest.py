"""Skips the tests of this folder without the extra `tts`."""

from pathlib import Path

import pytest
from left_out import without

from trainers.vits.errors import SPEECH


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return without(SPEECH, module_path, parent)
