"""Ctrl+C during slow imports: one line and no traceback. This module itself imports quickly, so it can come first."""

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl+C, as in shells."""
STOPPED: Final = "stopped by Ctrl+C"


@contextmanager
def exit_on_interrupt() -> Generator[None]:
    """End the process at once on Ctrl+C inside this context, which is for imports.

    A KeyboardInterrupt raised in the middle of a library's import may be swallowed or turned into another error. No
    resources are open yet, so ending the process is safe. A process with another handler of Ctrl+C keeps it.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.stderr.write(f"{STOPPED}\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
