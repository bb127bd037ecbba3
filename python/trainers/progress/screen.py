"""What a person at the screen sees."""

from typing import IO

from trainers.progress.bar import RichProgress
from trainers.progress.consumer import Consumer
from trainers.progress.plain import PlainProgress


def progress_for(stream: IO[str]) -> Consumer:
    """A live bar if the stream is a terminal, plain lines if not."""
    if not stream.isatty():
        return PlainProgress(stream)
    from rich.console import Console

    return RichProgress(Console(file=stream))
