"""How a program of commands runs: errors become one line on stderr and an exit code."""

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import typer

from predictor.cli.machine import error_json, write_json
from predictor.cli.messages import say
from predictor.errors import InvalidInputError, QuantraError
from predictor.interruption import INTERRUPTED, STOPPED

BAD_USAGE: Final = 2


def run(app: typer.Typer, arguments: Sequence[str] | None = None, *, name: str = "quantra") -> NoReturn:
    """Run an app's command and exit: 0 done, 1 failed (one red line on stderr), 2 bad usage, 130 stopped by Ctrl+C.

    With `--json` among the arguments a failure and bad usage are also a JSON object on standard output.

    Args:
        app: the commands.
        arguments: the command line without the program's name; the process's own if None.
        name: the program's, as its help shows it.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in given
    try:
        app(args=given, prog_name=name)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            say(STOPPED)
        if ended.code == BAD_USAGE and as_json:
            write_json(error_json(_misused(ended.__context__)))
        raise
    except QuantraError as error:
        _fail(error, as_json=as_json)
    except OSError as error:  # a file that cannot be read or written is the user's to repair, not a bug
        _fail(InvalidInputError(_named(error)), as_json=as_json)
    sys.exit(1)


def _misused(problem: BaseException | None) -> QuantraError:
    """What is wrong with the arguments, which typer has printed already: our own error, where it stands behind it."""
    if problem is not None and isinstance(problem.__cause__, QuantraError):
        return problem.__cause__
    return InvalidInputError(problem.format_message() if isinstance(problem, typer.BadParameter) else str(problem))


def _named(error: OSError) -> str:
    """The file and what is wrong with it, in words."""
    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"


def _fail(error: QuantraError, *, as_json: bool) -> None:
    if as_json:
        write_json(error_json(error))
    say(error.message)
