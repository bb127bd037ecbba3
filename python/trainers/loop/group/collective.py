"""Telling a process that is gone from an error of this one."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

from trainers.loop.errors import PeerLostError


@contextmanager
def answered(operation: str) -> Generator[None]:
    """Wrap one collective operation, and nothing else, named for the message.

    Raises:
        PeerLostError: Another process did not take part in it to the end.
    """
    try:
        yield
    except torch.OutOfMemoryError:  # a RuntimeError too, but this process's own
        raise
    except RuntimeError as error:  # all that torch's collectives have in common
        raise PeerLostError(
            f"while {operation}, another process of the group did not answer: it ended, was killed (out of memory?) or "
            "hangs. Look at the output of the other ranks, where the first error is the cause, and start the group "
            f"again: it resumes from the last checkpoint. torch says: {_first_line(error)}"
        ) from error


def _first_line(error: RuntimeError) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
