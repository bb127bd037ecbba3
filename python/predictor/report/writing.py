"""Whether a report can be written: asked before the work that it tells of, which may take hours."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from predictor.errors import MissingPackageError
from predictor.replacement import check_file

_NEEDED: Final = ("plotly", "jinja2")


def check_report(path: Path) -> None:
    """Refuse now what could not be written later.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        ConfigurationError: the path is a folder, or in a folder that is not there or cannot be written.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingPackageError.of(package, "report", "a report")
    check_file(path)
