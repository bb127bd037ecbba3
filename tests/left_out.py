"""Skips whole folders of tests whose extra is not installed."""

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainers.media.errors import OptionalExtra

ROOT = Path(__file__).parents[1]
HIDING = """
import sys
folder, *hidden = sys.argv[1:]
sys.modules.update(dict.fromkeys(hidden))
import pytest
sys.exit(pytest.main([folder, "-q", "-rs", "-p", "no:cacheprovider"]))
"""


class SkippedFile(pytest.Module):
    """A file of tests that cannot be imported."""

    reason = ""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(self.reason, allow_module_level=True)


def skipped_file(extra: OptionalExtra, path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """A collector that skips the file with the missing package; None if all are installed."""
    missing = [name for name in extra.packages if find_spec(name) is None]
    if not missing:
        return None
    left = SkippedFile.from_parent(parent, path=path)
    left.reason = f"{extra.task} {', '.join(missing)}: pip install 'quantra[{extra.name}]'"
    return left


def assert_left_out(folder: Path, hidden: Sequence[str], reason: str) -> None:
    """Run a folder's tests without the packages: every file is skipped with the reason."""
    done = subprocess.run(
        [sys.executable, "-c", HIDING, str(folder), *hidden], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    files = len(list(folder.glob("test_*.py")))
    assert re.search(rf"^{files} skipped", done.stdout, re.MULTILINE)
    assert reason in done.stdout
