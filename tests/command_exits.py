"""Runs of commands in this process, by their exit codes."""

from collections.abc import Callable

import pytest
import typer

from predictor.cli import run


def exit_code(command: Callable[..., None], *arguments: object) -> int:
    """Run a command and return its exit code."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return program_exit_code(app, *arguments)


def program_exit_code(app: typer.Typer, *arguments: object) -> int:
    """Run a program of several commands and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code
