"""What the commands of speech and of images share: what they say, and how they end."""

import json
import sys
from collections.abc import Callable, Collection, Generator
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
def failing(extra: OptionalExtra) -> Generator[None]:
    """What goes wrong inside, or with the packages that it needs, ends the command with one line."""
    try:
        require_packages(extra)
        _quieten(extra.packages)
        yield
    except StoppedError as error:
        say(f"{error.message}; go on with the same command and --resume")
        raise typer.Exit(128 + error.signal) from error
    except (MediaError, LoopError) as error:
        raise ConfigurationError(str(error)) from error


def _quieten(packages: Collection[str]) -> None:
    """No progress bars and no advice of the libraries', which read and write a model in a moment."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if "diffusers" in packages:
        from diffusers.utils import logging as diffusers_logging

        diffusers_logging.disable_progress_bar()
        diffusers_logging.set_verbosity_error()


def counter(done: str, noun: str, *, silent: bool) -> Callable[[int, int], None]:
    """Shows how many of the things that the noun names are done, on one line of a terminal."""
    shown = sys.stderr.isatty() and not silent

    def tell(count: int, total: int) -> None:
        if shown:
            sys.stderr.write(f"\r{done} {count} of {total} {noun}" + ("\n" if count == total else ""))
            sys.stderr.flush()

    return tell


def say(line: str) -> None:
    """A line for a person; what would steer the terminal, such as the escapes in a file's name, is shown as a mark."""
    sys.stderr.write("".join(MARK if category(sign) == "Cc" and sign != "\n" else sign for sign in line) + "\n")


def write(value: dict[str, Any]) -> None:
    """A line for programs."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
