"""A file that is hashed while it is written."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, final

READABLE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a file must be.

    Attributes:
        bytes: Its size.
        sha256: Its digest, 64 hexadecimal digits.
    """

    bytes: int
    sha256: str


@final
class Sink:
    """Takes the content of one file and hashes it on the way.

    Attributes:
        failure: The first write that failed; torch reports it as an error of its own.
    """

    __slots__ = ("_bytes", "_digest", "_file", "failure")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()
        self._bytes = 0
        self.failure: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Append `data` and return its length in bytes."""
        try:
            written = self._file.write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise
        self._digest.update(data)
        self._bytes += written
        return written

    def flush(self) -> None:
        """Hand over what is buffered to the system."""
        self._file.flush()

    def mark(self) -> Mark:
        """Size and digest of what was written so far."""
        return Mark(bytes=self._bytes, sha256=self._digest.hexdigest())


@contextmanager
def new_file(path: Path) -> Generator[Sink]:
    """A sink for a file that does not exist yet; at the end the file is on the disk and readable for everybody.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("xb") as file:
        yield Sink(file)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(READABLE)
