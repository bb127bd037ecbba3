"""The lock that lets only one `quantra daily` use a ledger."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from predictor.file_lock import try_lock


@contextmanager
def claim_run(ledger: str) -> Generator[str]:
    """Hold the lock within the block; yields an empty string, or the process that already holds it.

    Raises:
        OSError: the folder is not writable, or its file system has no locks.
    """
    with Path(f"{ledger}.daily.lock").open("a+b", buffering=0) as file:
        if not try_lock(file.fileno()):
            file.seek(0)
            yield file.read().decode(errors="replace") or "another process"
            return
        file.truncate(0)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}".encode())
        yield ""
