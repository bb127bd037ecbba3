"""Ctrl+C while a program still loads its libraries: one line and no traceback.

Imports nothing that takes long, so that it can come first.
"""

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
def loading() -> Generator[None]:
    """Import inside; there Ctrl+C ends the process at once.

    Python's own KeyboardInterrupt would come out of the middle of a library, which may swallow it or make another error
    of it; nothing is open yet that would have to be closed. A process in which Ctrl+C does something else already,
    nothing for example, keeps that.
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
