"""The command line: `serve`, `predict`, `explain`, `inspect`, `export`, `alias`, `doctor`. Needs the extra `cli`.

`app` holds the commands and may be given more; `run(app)` is how a program runs it, with errors as one line and an
exit code: 0 done, 1 failed, 2 bad usage. Both load when they are first used: a program can see to Ctrl+C before.
"""

from typing import TYPE_CHECKING

from predictor.interruption import loading

if TYPE_CHECKING:
    from predictor.cli.commands import app
    from predictor.cli.program import run

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run the predictor's commands."""
    with loading():
        from predictor.cli import app, run
    run(app)


def __getattr__(name: str) -> object:
    if name not in {"app", "run"}:
        raise AttributeError(f"module 'predictor.cli' has no attribute {name!r}")
    from predictor.cli.packages import require_packages

    require_packages()  # not before it is known that typer and rich are there
    from predictor.cli.commands import app
    from predictor.cli.program import run

    return app if name == "app" else run
