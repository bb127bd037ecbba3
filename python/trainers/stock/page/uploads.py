"""The bars that a person dropped on the page, in a temporary folder."""

import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, Final, final

from predictor.bars import BarReading, ReadingOptions, read_files
from predictor.bars.files import EXCEL_ENDINGS, PACKED, PARQUET, TEXT_ENDINGS
from predictor.errors import BarsError, QuantraError, RequestTooLargeError

if TYPE_CHECKING:
    from trainers.stock.bars_report import BarsReport

MAX_FILES: Final = 2_000
MAX_BYTES: Final = 128 << 20
"""Most bytes of all files together."""
MAX_SYMBOLS: Final = 3_000
MAX_UNPACKED_BYTES: Final = 512 << 20
"""Most bytes in an Excel file, which is compressed."""
MAX_CELLS: Final = 64_000_000
"""Most cells of a Parquet file, which may repeat a value without bytes."""
ENDINGS: Final = (*TEXT_ENDINGS, *EXCEL_ENDINGS, PARQUET)
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

        Folders in the name are ignored.

        Raises:
            BarsError: The name is unusual, exists already, or has another ending.
            RequestTooLargeError: There are too many files.
        """
        last = PureWindowsPath(PurePosixPath(name).name).name
        if not _NAME.fullmatch(last) or not last.lower().endswith(ENDINGS):
            raise BarsError(
                f"{name[-80:]!r} is not read here; choose files that end in {', '.join(ENDINGS)} and have plain names. "
                "`quantra check` reads compressed files"
            )
        if last in self._files:
            raise BarsError(f"two files are named {last}; choose the files of one folder")
        if len(self._files) >= MAX_FILES:
            raise RequestTooLargeError(f"there are more than {MAX_FILES} files; join them, or use the command line")
        path = Path(self._folder.name) / last
        self._files[last] = path
        self.checked, self.problem = None, ""
        return path.open("wb")

    def check_room(self, announced: str) -> None:
        """Check the length of an upload that its header announces, if any; raises as `grow`."""
        if announced.isdecimal() and self._size + int(announced[:19]) > MAX_BYTES:
            raise _make_too_large_error()

    def grow(self, content: bytes) -> None:
        """Count the bytes of an upload.

        Raises:
            RequestTooLargeError: The files are too large together.
        """
        self._size += len(content)
        if self._size > MAX_BYTES:
            raise _make_too_large_error()

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
                _check_content(path)
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


def _make_too_large_error() -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the files have more than {MAX_BYTES >> 20} MiB together; use the command line for so many bars"
    )


def _check_symbols(reading: BarReading) -> None:
    have = len(reading.panel.symbols)
    if have > MAX_SYMBOLS:
        raise RequestTooLargeError(
            f"the bars have {have} symbols, at most {MAX_SYMBOLS}; use the command line for more"
        )


def _check_content(path: Path) -> None:
    """Check that a small file does not expand to a large table.

    Raises:
        BarsError: It is a compressed or damaged file, or a table of another kind than its name says.
        RequestTooLargeError: Its table is too large.
        MissingPackageError: A package that reads it is not installed.
    """
    ending = path.suffix.lower()
    if ending == PARQUET:
        _check_cells(path)
    elif ending in EXCEL_ENDINGS:
        _check_archive(path)
    else:
        with path.open("rb") as file:
            beginning = file.read(4)
        if any(beginning.startswith(mark) for mark in PACKED.values()):
            raise BarsError(f"{path.name} is compressed; unpack it first, or use `quantra check`")


def _check_cells(path: Path) -> None:
    import polars as pl

    try:
        table = pl.scan_parquet(path)
        rows, columns = table.select(pl.len()).collect().item(), len(table.collect_schema())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BarsError(
            f"{path.name} is not a Parquet file, or damaged: {str(error)[:_MAX_SHOWN_CHARACTERS]}"
        ) from None
    if rows * columns > MAX_CELLS:
        raise RequestTooLargeError(
            f"{path.name} has {rows} rows of {columns} columns, at most {MAX_CELLS} cells; use the command line"
        )


def _check_archive(path: Path) -> None:
    """Unpack an Excel file without keeping it: its directory may announce a smaller content than it has."""
    size = 0
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for member in archive.infolist():
                for part in _iterate_sizes(file, member):
                    size += part
                    if size > MAX_UNPACKED_BYTES:
                        raise RequestTooLargeError(
                            f"{path.name} has more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked; save it as CSV or "
                            "Parquet"
                        )
    except (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError) as error:
        raise BarsError(f"{path.name} is not an Excel file, or damaged: {error}; open it and save it again") from None


def _iterate_sizes(file: BinaryIO, member: zipfile.ZipInfo) -> Iterator[int]:
    """Sizes of the parts of a member's content."""
    if member.compress_type == zipfile.ZIP_STORED:
        yield member.compress_size
        return
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise zipfile.BadZipFile(f"{member.filename[:_MAX_SHOWN_CHARACTERS]} is compressed in an unusual way")
    file.seek(member.header_offset + _LENGTHS_AT)
    name, extra = struct.unpack("<HH", file.read(4))
    file.seek(name + extra, 1)
    inflating, left = zlib.decompressobj(-zlib.MAX_WBITS), member.compress_size
    while left > 0 and not inflating.eof:
        packed = file.read(min(left, _PART))
        if not packed:
            raise zipfile.BadZipFile("it ends too early")
        left -= len(packed)
        while packed and not inflating.eof:
            yield len(inflating.decompress(packed, _PART))
            packed = inflating.unconsumed_tail


_LENGTHS_AT: Final = 26
"""Place of the lengths of name and extra field in the header of a member, which ends after them."""
_PART: Final = 1 << 20
_MAX_SHOWN_CHARACTERS: Final = 200
