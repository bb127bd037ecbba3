"""Command-line programs: commands load on use, and errors become one line and an exit code."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version as installed
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from predictor.errors import InvalidInputError, QuantraError
from predictor.interruption import INTERRUPTED, STOPPED, exit_on_interrupt

BAD_USAGE: Final = 2
SYNONYMS: Final = {"list": "models", "ls": "models", "show": "inspect"}
"""Commands by names that other programs use."""
FOLDER_FLAGS: Final = {"models": "--models"}
"""Flags for a folder that other programs take as an argument."""
_OWN: Final = ("--help", "--version")


class CommandOfFiles(TyperCommand):
    """A command whose option `--bars` takes several files: `--bars AAPL.csv MSFT.csv`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `--bars` before each file."""
        return super().parse_args(ctx, list(_repeat_bars_flag(args)))


def _repeat_bars_flag(args: Sequence[str]) -> Iterator[str]:
    """Repeat `--bars` before each further file, because an option of click takes one value.

    Other words, such as the folder of an artifact, remain arguments of the command.
    """
    in_files = False
    for before, word in pairwise(["", *args]):
        if in_files and _is_bar_file(word):
            yield "--bars"
        else:
            in_files = before == "--bars" or word.startswith("--bars=")
        yield word


def _is_bar_file(word: str) -> bool:
    from predictor.bars.files import has_known_ending  # imports NumPy, which --help does not need

    return not word.startswith("-") and has_known_ending(Path(word))


@dataclass(frozen=True, slots=True)
class Command:
    """A command, whose module is imported on use.

    Attributes:
        name: name on the command line.
        function: its function, as `module:function`.
        help: the first sentence of the function's docstring.
        epilog: the last line of its help, a working example.
    """

    name: str
    function: str
    help: str
    epilog: str

    def load(self) -> Any:
        """Import the function, and return typer's command."""
        module, _, name = self.function.partition(":")
        with exit_on_interrupt():
            function = getattr(import_module(module), name)
        app = typer.Typer(add_completion=False)
        app.command(self.name, cls=CommandOfFiles, epilog=self.epilog)(function)
        return typer.main.get_command(app)


class _MissingCommandError(typer.BadParameter):
    """Flags are given without a command, or the command has another name."""

    def __init__(self, command: str, ctx: Any) -> None:
        super().__init__(f"you want: {command}", ctx=ctx)
        self.command = command


def make_program(commands: Sequence[Command], *, text: str, instead: str = "") -> typer.Typer:
    """An app of these commands.

    Args:
        commands: in the order of the help.
        text: the first line of the help.
        instead: the command and its required flags to suggest if only flags are given, such as
            `stock --out models/mine/1`; empty for none.
    """

    class Commands(TyperGroup):
        """Lists the commands, and loads the chosen one."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if instead and args and args[0].startswith("--") and args[0] not in _OWN:
                raise _MissingCommandError(_suggest_command(ctx.command_path, args, instead), ctx)
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            meant = SYNONYMS.get(args[0], "")
            if meant in listed:
                has_folder = meant in FOLDER_FLAGS and len(args) > 1 and not args[1].startswith("-")
                flag = [FOLDER_FLAGS[meant]] if has_folder else []
                raise _MissingCommandError(shlex.join([ctx.command_path, meant, *flag, *args[1:]]), ctx)
            name, known, rest = super().resolve_command(ctx, args)
            return name, listed[name].load() if name in listed else known, rest

    listed: dict[str | None, Command] = {command.name: command for command in commands}
    app = typer.Typer(
        cls=Commands, help=text, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
    )
    for command in commands:
        app.command(command.name, help=command.help)(_do_nothing)
    return app


def add_version_flag(app: typer.Typer) -> typer.Typer:
    """Add the flag `--version` to an app."""

    @app.callback()
    def program_itself(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
        ] = False,
    ) -> None: ...

    return app


def _print_version(is_given: bool) -> None:  # noqa: FBT001 - as typer calls it
    if is_given:
        typer.echo(f"quantra {installed('quantra')}")
        raise typer.Exit


def _suggest_command(path: str, args: Sequence[str], instead: str) -> str:
    """The suggested command, with its missing required flags."""
    name, *required = instead.split()
    flags_given = {arg.partition("=")[0] for arg in args}
    missing = [
        part
        for flag, value in zip(required[::2], required[1::2], strict=True)
        if flag not in flags_given
        for part in (flag, value)
    ]
    return f"{path} {name} {shlex.join([*args, *missing])}"


def _do_nothing() -> None:
    """Placeholder for a command that is not loaded."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None, *, name: str = "quantra") -> NoReturn:
    """Run an app's command and exit: 0 done, 1 failed (one red line on stderr), 2 bad usage, 130 stopped by Ctrl+C.

    With `--json`, errors are also written to standard output as a JSON object.

    Args:
        app: the commands.
        arguments: the command line without the program's name; None takes that of the process.
        name: the program's name in its help.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    try:
        app(args=words, prog_name=name)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            say(STOPPED)
        if isinstance(ended.__context__, _MissingCommandError):
            say(ended.__context__.command)  # again on a separate line, to be copied
        if ended.code == BAD_USAGE and as_json:
            _write(_convert_usage_error(ended.__context__))
        raise
    except QuantraError as error:
        _fail(error, as_json=as_json)
    except OSError as error:  # the user can repair a file that cannot be read or written
        problem = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        _fail(InvalidInputError(problem), as_json=as_json)
    sys.exit(1)


def say(message: str, style: str = "red") -> None:
    """Print one coloured line to stderr; markup and escape codes in it have no effect."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(message.split()))
    Console(stderr=True, highlight=False).print(Text(line, style=style), soft_wrap=True)


def _convert_usage_error(problem: BaseException | None) -> QuantraError:
    """Bad usage, which typer has printed, as a QuantraError."""
    if problem is not None and isinstance(problem.__cause__, QuantraError):
        return problem.__cause__
    return InvalidInputError(problem.format_message() if isinstance(problem, typer.BadParameter) else str(problem))


def _fail(error: QuantraError, *, as_json: bool) -> None:
    if as_json:
        _write(error)
    say(error.message)


def _write(error: QuantraError) -> None:
    from predictor.cli.output import encode_error_json, write_json  # imports NumPy, which --help does not need

    write_json(encode_error_json(error))
