"""Runs of commands in this process, by their exit codes."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
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


def interrupted_at(report: int, module: str, number: signal.Signals = signal.SIGINT) -> AbstractContextManager[object]:
    """Send this process a signal at this report of the trainings that a command's module starts."""
    consumer = import_module(module).consumer

    def interrupted(reports: Iterable[Any]) -> Iterator[Any]:
        for place, one in enumerate(reports):
            if place == report:
                os.kill(os.getpid(), number)
            yield one

    def make_consumer(*given: Any, **named: Any) -> Callable[[Iterable[Any]], Iterable[Any]]:
        shown = consumer(*given, **named)
        return lambda reports: shown(interrupted(reports))

    return mock.patch(f"{module}.consumer", make_consumer)
