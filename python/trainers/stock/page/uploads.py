"""The bars that a person dropped on the page, in a temporary folder."""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, Final, final

from predictor.bars import BarReading, ReadingOptions, read_files
from predictor.bars.files import PACKED, TEXT_ENDINGS
from predictor.errors import BarsError, QuantraError, RequestTooLargeError

if TYPE_CHECKING:
    from trainers.stock.bars_report import BarsReport

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 128 << 20
"""Most bytes of all files together."""
MOST_SYMBOLS: Final = 3_000
_NAME: Final = re.compile(r"[\w^=&+][\w .,^=&+()-]{0,99}")
"""Names that are the same file name on every system."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingChoice:
    """How a person wants the bars to be read; empty fields are recognised."""

    options: ReadingOptions = field(default_factory=ReadingOptions)
    calendar: str = ""


@final
class UploadedBars:
    """The files of one drop, and how they are read. Deleted by `close`."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="quantra-page-")
        self._files: dict[str, Path] = {}
        self._size = 0
        self.choice = ReadingChoice()
        self.checked: BarsReport | None = None
        """What was read; None before, or if it cannot be read."""
        self.problem = ""
        """Why the files cannot be read."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(self._files)

    @property
    def reading(self) -> BarReading:
        """The bars, which are read if they are not yet.

        Raises:
            BarsError: They cannot be read.
        """
        if self.checked is None and not self.problem:
            self.read(self.choice)
        if self.checked is None:
            raise BarsError(self.problem)
        return self.checked.reading

    def create(self, name: str) -> BinaryIO:
        """Create a file for the content of an upload.

        Args:
            name: Name of the file on the person's machine, perhaps with folders, which are ignored.

        Raises:
            BarsError: The name is unusual, exists already, or is not that of a text file.
            RequestTooLargeError: There are too many files.
        """
        last = PureWindowsPath(PurePosixPath(name).name).name
        if not _NAME.fullmatch(last) or not last.lower().endswith(TEXT_ENDINGS):
            raise BarsError(
                f"{name[-80:]!r} is not read here; choose files that end in {', '.join(TEXT_ENDINGS)} and have plain "
                "names. `quantra check` reads Excel, Parquet and compressed files"
            )
        if last in self._files:
            raise BarsError(f"two files are named {last}; choose the files of one folder")
        if len(self._files) >= MOST_FILES:
            raise RequestTooLargeError(f"there are more than {MOST_FILES} files; join them, or use the command line")
        path = Path(self._folder.name) / last
        self._files[last] = path
        self.checked, self.problem = None, ""
        return path.open("wb")

    def check_room(self, announced: str) -> None:
        """Check the length of an upload that its header announces, if any; raises as `grow`."""
        if announced.isdecimal() and self._size + int(announced[:19]) > MOST_BYTES:
            raise _too_large()

    def grow(self, content: bytes) -> None:
        """Count the bytes of an upload.

        Raises:
            RequestTooLargeError: The files are too large together.
        """
        self._size += len(content)
        if self._size > MOST_BYTES:
            raise _too_large()

    def discard(self, name: str) -> None:
        """Delete a file that did not arrive."""
        path = self._files.pop(PureWindowsPath(PurePosixPath(name).name).name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def read(self, choice: ReadingChoice) -> None:
        """Read the files, or note why they cannot be read."""
        from trainers.stock.bar_requirements import recognise_calendar  # slow to import, and the start does not need it
        from trainers.stock.bars_report import check_bars

        self.choice, self.checked, self.problem = choice, None, ""
        try:
            if not self._files:
                raise BarsError("there are no bars yet; choose files on the first page")
            for path in self._files.values():
                _check_unpacked(path)
            reading = read_files([*self._files.values()], choice.options)
            _check_symbols(reading)
            self.checked = check_bars(reading, choice.calendar or recognise_calendar(reading.panel))
        except QuantraError as error:
            self.problem = error.message.replace(f"{self._folder.name}/", "")

    def copy(self, folder: Path) -> None:
        """Copy the files into a folder."""
        for path in self._files.values():
            shutil.copyfile(path, folder / path.name)

    def close(self) -> None:
        """Delete the files."""
        self._folder.cleanup()


def _too_large() -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the files have more than {MOST_BYTES >> 20} MiB together; use the command line for so many bars"
    )


def _check_symbols(reading: BarReading) -> None:
    have = len(reading.panel.symbols)
    if have > MOST_SYMBOLS:
        raise RequestTooLargeError(
            f"the bars have {have} symbols, at most {MOST_SYMBOLS}; use the command line for more"
        )


def _check_unpacked(path: Path) -> None:
    """Check that a file is not compressed, because its content could be of any size.

    Raises:
        BarsError: It is compressed.
    """
    with path.open("rb") as file:
        beginning = file.read(4)
    if any(beginning.startswith(mark) for mark in PACKED.values()):
        raise BarsError(f"{path.name} is compressed; unpack it first, or use `quantra check`")
