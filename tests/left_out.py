"""Folders of tests that need an extra: without it each file is skipped, with the reason."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainers.media.errors import Extra


class LeftOut(pytest.Module):
    """A file of tests that cannot be imported."""

    reason = ""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(self.reason, allow_module_level=True)


def without(extra: Extra, path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """In the place of a file, one that says what is missing; None where nothing is."""
    missing = [name for name in extra.packages if find_spec(name) is None]
    if not missing:
        return None
    left = LeftOut.from_parent(parent, path=path)
    left.reason = f"{extra.task} {', '.join(missing)}: pip install 'quantra[{extra.name}]'"
    return left
