"""Runs of commands in this process, by their exit codes."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

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


def interrupted_at(report: int, module: str) -> AbstractContextManager[object]:
    """Press Ctrl+C at this report of the trainings that a command's module starts."""

    def consume(reports: Iterable[Any]) -> Iterator[Any]:
        for number, one in enumerate(reports):
            if number == report:
                os.kill(os.getpid(), signal.SIGINT)
            yield one

    def make_consumer(*_: object, **_named: object) -> Callable[[Iterable[Any]], Iterator[Any]]:
        return consume

    return mock.patch(f"{module}.consumer", make_consumer)
