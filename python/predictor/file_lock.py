"""Locks on files, which the system releases when their process ends for any reason."""

import errno
import os
import socket
import sys
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final

_PATIENCE_SECONDS: Final = 10
_PAUSE_SECONDS: Final = 0.01
_claimed_files: Final = weakref.WeakSet[FileIO]()


def _close_claimed_files() -> None:
    """Let no forked child keep a claim, since it may outlive this process."""
    for file in _claimed_files:
        file.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_claimed_files)

if sys.platform == "win32":
    import msvcrt

    _LOCK_OFFSET = 1 << 30  # other processes cannot read the locked byte, but must read the holder's name

    def try_lock(handle: int) -> bool:
        """Lock an open file; False if another process, or another handle of this one, holds the lock."""
        os.lseek(handle, _LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
else:
    import fcntl

    def try_lock(handle: int) -> bool:
        """Lock an open file; False if another process, or another handle of this one, holds the lock."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def lock_file(path: Path, *, patience: float | None = None) -> Generator[None]:
    """Hold the lock on this file, which is created if need be; waits for another holder.

    Raises:
        OSError: the file cannot be written, its file system has no locks, or it stays locked for `patience` seconds,
            by default 10.
    """
    patience = _PATIENCE_SECONDS if patience is None else patience
    end = time.monotonic() + patience
    with path.open("ab", buffering=0) as file:
        while not try_lock(file.fileno()):
            if time.monotonic() > end:
                problem = f"another process has held the lock for {patience:g} seconds"
                raise TimeoutError(errno.ETIMEDOUT, problem, str(path))
            time.sleep(_PAUSE_SECONDS)
        yield


@contextmanager
def claim_file(path: Path) -> Generator[str]:
    """Hold the lock on a file, which is created if need be; yields an empty string, or the process that holds it.

    Raises:
        OSError: The file cannot be written, or its file system has no locks.
    """
    with path.open("a+b", buffering=0) as file:
        if not try_lock(file.fileno()):
            file.seek(0)
            yield file.read().decode(errors="replace") or "another process"
            return
        _claimed_files.add(file)
        file.truncate(0)
        claimed_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {claimed_at}".encode())
        try:
            yield ""
        finally:
            file.truncate(0)
