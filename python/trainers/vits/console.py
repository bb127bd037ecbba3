"""What the commands share: arguments, what they say, and how they end."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from predictor.errors import ConfigurationError
from predictor.flags import Flag
from trainers.loop import LoopError, StoppedError
from trainers.vits.errors import SpeechError, require_packages

CorpusArgument = Annotated[
    Path, typer.Argument(metavar="CORPUS", help="Folder that `prepare` made.", show_default=False)
]
VoiceArgument = Annotated[
    Path, typer.Argument(metavar="VOICE", help="Folder of a voice, or of one of its versions.", show_default=False)
]
AsJson = Annotated[bool, Flag("Write the result as JSON to standard output.", spelling="--json")]


@contextmanager
def failing() -> Generator[None]:
    """What goes wrong inside ends the command with one line."""
    try:
        require_packages()
        _quieten()
        yield
    except StoppedError as error:
        say(f"{error.message}; go on with the same command and --resume")
        raise typer.Exit(128 + error.signal) from error
    except (SpeechError, LoopError) as error:
        raise ConfigurationError(str(error)) from error


def _quieten() -> None:
    """No progress bars of transformers', which reads and writes a voice in a moment."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def counter(done: str, *, silent: bool) -> Callable[[int, int], None]:
    """Shows how many clips are done, on one line of a terminal."""
    shown = sys.stderr.isatty() and not silent

    def tell(count: int, total: int) -> None:
        if shown:
            sys.stderr.write(f"\r{done} {count} of {total} clips" + ("\n" if count == total else ""))
            sys.stderr.flush()

    return tell


def say(line: str) -> None:
    """A line for a person."""
    sys.stderr.write(f"{line}\n")


def write(value: dict[str, Any]) -> None:
    """A line for programs."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
