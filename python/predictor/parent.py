"""Detection of the parent process's end: the parent holds the other end of standard input, which then closes."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from predictor.errors import ConfigurationError

STDIN: Final = 0


def watch_parent(on_end: Callable[[], None], descriptor: int = STDIN) -> None:
    """Call `on_end` on a thread when standard input closes, which happens however the parent ends.

    Data from standard input is discarded.

    Raises:
        ConfigurationError: standard input is closed.
    """
    if sys.stdin is None:  # closed when Python started; another file may have its descriptor by now
        raise ConfigurationError(
            "--parent-watch needs standard input, which is closed; start the program with a pipe as standard input"
        )
    threading.Thread(target=_read_to_the_end, args=(descriptor, on_end), name="parent", daemon=True).start()


def exit_with_parent() -> None:
    """Stop this process as on SIGTERM when its parent ends.

    Raises:
        ConfigurationError: standard input is closed.
    """
    watch_parent(_stop)


def _stop() -> None:
    """Send SIGTERM to this process; on Windows `os.kill` would end it without running its handlers."""
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)  # wakes the main thread, wherever it waits
    else:
        signal.raise_signal(signal.SIGTERM)


def _read_to_the_end(descriptor: int, on_end: Callable[[], None]) -> None:
    """Use `os.read`: the lock of `sys.stdin` would block the interpreter's exit."""
    with contextlib.suppress(OSError):  # broken or closed: the parent is gone as well
        while os.read(descriptor, 1 << 16):
            pass
    on_end()
