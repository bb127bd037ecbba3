"""The predictor's command line, which needs the extra `cli`.

`run(app)` runs a command, prints an error as one line, and exits: 0 done, 1 failed, 2 bad usage. Both names load on
first use, so that a program can handle Ctrl+C before.
"""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from predictor.interruption import exit_on_interrupt

if TYPE_CHECKING:
    from predictor.cli.commands import app
    from predictor.cli.program import run

__all__ = ["app", "main", "run"]

PACKAGES: Final = ("typer", "rich")


def main() -> None:
    """Run the predictor's commands."""
    with exit_on_interrupt():
        from predictor.cli import app, run
    run(app)


def __getattr__(name: str) -> object:
    if name not in {"app", "run"}:
        raise AttributeError(f"module 'predictor.cli' has no attribute {name!r}")
    missing = [package for package in PACKAGES if not _is_installed(package)]
    if missing:
        sys.exit(f"the command line needs {' and '.join(missing)}: pip install 'quantra[cli]'")
    from predictor.cli.commands import app
    from predictor.cli.program import run

    return app if name == "app" else run


def _is_installed(package: str) -> bool:
    return sys.modules.get(package) is not None or (package not in sys.modules and find_spec(package) is not None)
