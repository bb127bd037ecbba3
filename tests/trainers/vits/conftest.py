"""Without the packages of the extra `tts` the tests of this folder are left out, each file with the reason."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainers.vits.errors import SPEECH

MISSING = [name for name in SPEECH.packages if find_spec(name) is None]


class LeftOut(pytest.Module):
    """A file of tests that cannot be imported."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(f"needs {', '.join(MISSING)}: pip install 'quantra[tts]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """In the place of every file, one that says what is missing; None where nothing is."""
    return LeftOut.from_parent(parent, path=module_path) if MISSING else None
