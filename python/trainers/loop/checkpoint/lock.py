"""One process at a time writes into a folder."""

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trainers.loop.errors import CheckpointError

if sys.platform == "win32":
    import msvcrt

    _FAR_AWAY = 1 << 30  # the locked byte cannot be read by others, the name of the holder must be

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, _FAR_AWAY, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file; the system lets it go when this process ends, however it ends.

    Raises:
        CheckpointError: Another process or another training of this one holds it.
        OSError: The file cannot be written or the file system has no locks.
    """
    with path.open("a+b", buffering=0) as file:
        if not _try_lock(file.fileno()):
            raise CheckpointError(
                f"{path.parent} is in use by {_holder(path)}: two trainings cannot write into the same folder; wait "
                "for the other to end, or choose another folder"
            )
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=file.close)  # a data worker that outlives this process must not hold it
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            file.truncate(0)


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") or "another process"
