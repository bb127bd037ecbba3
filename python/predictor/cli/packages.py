"""Whether the packages of the command line are there."""

import sys
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("typer", "rich")


def require_packages() -> None:
    """End the program with one line that says what to install, unless all packages are there."""
    missing = [package for package in PACKAGES if not _is_there(package)]
    if missing:
        sys.exit(f"the command line needs {' and '.join(missing)}: pip install 'quantra[cli]'")


def _is_there(package: str) -> bool:
    return sys.modules.get(package) is not None or (package not in sys.modules and find_spec(package) is not None)
