"""How a program of commands runs: errors become one line on stderr and an exit code."""

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import typer

from predictor.cli.commands import app as predictor_app
from predictor.cli.machine import error_json, write_json
from predictor.cli.messages import say
from predictor.errors import QuantraError

INTERRUPTED: Final = 130
"""The exit code after Ctrl+C, as shells have it."""


def main() -> None:
    """Run the predictor's commands."""
    run(predictor_app)


def run(app: typer.Typer, arguments: Sequence[str] | None = None, *, name: str = "quantra") -> NoReturn:
    """Run an app's command and exit: 0 done, 1 failed (one red line on stderr), 2 bad usage, 130 stopped by Ctrl+C.

    With `--json` among the arguments a failure is also a JSON object on standard output.

    Args:
        app: the commands.
        arguments: the command line without the program's name; the process's own if None.
        name: the program's, as its help shows it.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(args=given, prog_name=name)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            say("stopped by Ctrl+C")
        raise
    except QuantraError as error:
        if "--json" in given:
            write_json(error_json(error))
        say(error.message)
    except OSError as error:  # a file that cannot be read or written is the user's to repair, not a bug
        say(str(error))
    sys.exit(1)
