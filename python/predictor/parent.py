"""When whoever started this process is gone: standard input, of which that process holds the other end, has ended."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from predictor.errors import ConfigurationError

STDIN: Final = 0


def watch_parent(gone: Callable[[], None], descriptor: int = STDIN) -> None:
    """Tell, on a thread, of the end of standard input, which comes however the process at its other end ends.

    What comes through it is not read as anything.

    Raises:
        ConfigurationError: there is no standard input.
    """
    if sys.stdin is None:  # so it is where there was none when Python began; another file may have its number by now
        raise ConfigurationError(
            "--parent-watch waits for the end of standard input, which is closed; start the program with a pipe there"
        )
    threading.Thread(target=_read_to_the_end, args=(descriptor, gone), name="parent", daemon=True).start()


def stop_with_parent() -> None:
    """Have this process stop as at SIGTERM once whoever started it is gone.

    Raises:
        ConfigurationError: there is no standard input.
    """
    watch_parent(_stop)


def _stop() -> None:
    """Send SIGTERM to this process; Windows knows it only within one, where a kill would not be noticed first."""
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)  # wakes the main thread, wherever it waits
    else:
        signal.raise_signal(signal.SIGTERM)


def _read_to_the_end(descriptor: int, then: Callable[[], None]) -> None:
    """Read as the system does and not as Python does, whose lock would hold up the end of the process."""
    with contextlib.suppress(OSError):  # broken, or closed here: nobody is at the other end either
        while os.read(descriptor, 1 << 16):
            pass
    then()
