"""Console output and error handling of the speech and image commands."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Any, Final
from unicodedata import category

import typer

from predictor.errors import ConfigurationError
from predictor.flags import Flag
from trainers.loop import LoopError, StoppedError
from trainers.media.errors import MediaError, OptionalExtra, require_packages

MARK: Final = "\N{REPLACEMENT CHARACTER}"

AsJson = Annotated[bool, Flag("Write the result as JSON to standard output.", spelling="--json")]


@contextmanager
def command_errors(extra: OptionalExtra) -> Generator[None]:
    """Turn media and training errors, missing packages included, into one-line command errors."""
    try:
        require_packages(extra)
        from transformers.utils import logging

        logging.disable_progress_bar()
        if "diffusers" in extra.packages:
            from diffusers.utils import logging as diffusers_logging

            diffusers_logging.disable_progress_bar()
            diffusers_logging.set_verbosity_error()
        yield
    except StoppedError as error:
        echo(f"{error.message}; to continue, run the same command with --resume")
        raise typer.Exit(128 + error.signal) from error
    except (MediaError, LoopError) as error:
        raise ConfigurationError(str(error)) from error


def make_progress_counter(action: str, noun: str, *, silent: bool) -> Callable[[int, int], None]:
    """Make a callback that shows a count, such as "prepared 3 of 10 clips", on one line of a terminal."""
    is_visible = sys.stderr.isatty() and not silent

    def show(count: int, total: int) -> None:
        if is_visible:
            sys.stderr.write(f"\r{action} {count} of {total} {noun}" + ("\n" if count == total else ""))
            sys.stderr.flush()

    return show


def echo(line: str) -> None:
    """Write a line to standard error; control characters, such as escapes in a file name, are replaced."""
    sys.stderr.write("".join(MARK if category(char) == "Cc" and char != "\n" else char for char in line) + "\n")


def print_json(value: dict[str, Any]) -> None:
    """Write a JSON line to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
