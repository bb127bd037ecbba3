"""Reader for files with a table: delimited text in common encodings, compressed or not, Excel and Parquet.

Cells of text files stay strings, so that errors can show them as written; `tables` parses them.
"""

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from predictor.bars.columns import find_duplicates, normalise_columns, normalise_name
from predictor.bars.layouts import Layout, WideHeader, identify_headerless_layout
from predictor.errors import BarsError, MissingPackageError, format_names

if TYPE_CHECKING:
    import polars as pl

TEXT_ENDINGS: Final = (".csv", ".txt", ".tsv")
EXCEL_ENDINGS: Final = (".xlsx", ".xlsm")
PARQUET: Final = ".parquet"
PACKED: Final = {".gz": b"\x1f\x8b", ".zip": b"PK"}
OLD_EXCEL: Final = bytes.fromhex("d0cf11e0")
WORKBOOK: Final = "xl/workbook.xml"
"""The member that distinguishes an Excel file from another archive."""
DELIMITERS: Final = (",", ";", "\t", "|")
HEAD_BYTES: Final = 1 << 20
"""Enough for the three header lines of a wide table with thousands of stocks."""
MAX_TITLES: Final = 20
MIN_COLUMNS: Final = 3
"""A line with fewer cells is a title, even if its text contains a comma."""
UTF_8: Final = "utf-8"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableCells:
    """A file's table before its cells are parsed.

    Attributes:
        frame: Columns with normalised names; for text files all strings.
        delimiter: The delimiter of a text file; empty for other files.
        layout: The layout if it does not depend on the columns' names; else None.
    """

    frame: "pl.DataFrame"
    delimiter: str = ""
    layout: Layout | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A text file in UTF-8 without a byte order mark, as content or path, and its first lines."""

    content: bytes | Path
    head: Sequence[str]


def read_cells(path: Path) -> TableCells:
    """Read the table of a file.

    Raises:
        BarsError: The file does not exist or has no readable table.
        MissingPackageError: The extra `data` is not installed, or for Excel files the extra `excel`.
    """
    require_package("polars", "data", path)
    if not path.is_file():
        raise BarsError(f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}")
    kind = _find_kind(path)
    if kind == PARQUET:
        return TableCells(frame=normalise_columns(_read_parquet(path), path.name))
    if kind in EXCEL_ENDINGS:
        return TableCells(frame=normalise_columns(_read_excel(path), path.name))
    return _read_text_cells(path, _read_text(path))


def require_package(package: str, extra: str, path: Path) -> None:
    """Raise MissingPackageError if a package is not installed."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingPackageError.of(package, extra, f"reading {path.name}")


def get_file_stem(path: Path) -> str:
    """The file's name without its suffixes, such as `.csv.gz`."""
    inner = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return inner.stem if inner.suffix.lower() in (*TEXT_ENDINGS, *EXCEL_ENDINGS, PARQUET) else inner.name


def has_known_ending(path: Path) -> bool:
    """Whether the file's name ends as a file of bars may."""
    return path.suffix.lower() in (*PACKED, *TEXT_ENDINGS, *EXCEL_ENDINGS, PARQUET)


def _find_kind(path: Path) -> str:
    ending = path.suffix.lower()
    inner = path.with_suffix("").suffix.lower() if ending in PACKED else ending
    if ending == ".xls" or _has_signature(path, OLD_EXCEL):
        raise BarsError(f"{path.name} is in an old Excel format; open it in Excel and save it as .xlsx or CSV UTF-8")
    if ending in PACKED and inner in (*EXCEL_ENDINGS, PARQUET):
        raise BarsError(f"{path.name} is a packed {inner} file; unpack it first: only text files may be packed")
    if ending in (*EXCEL_ENDINGS, PARQUET):
        return ending
    if ending in (*PACKED, *TEXT_ENDINGS):
        return TEXT_ENDINGS[0]
    raise BarsError(
        f"{path.name} must end in {format_names([*TEXT_ENDINGS, *EXCEL_ENDINGS, PARQUET])}, or in one of "
        f"{format_names([TEXT_ENDINGS[0] + packed for packed in PACKED])}"
    )


def _has_signature(path: Path, with_bytes: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(with_bytes)) == with_bytes


def _read_parquet(path: Path) -> "pl.DataFrame":
    import polars as pl

    try:
        return pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise BarsError(f"{path.name} cannot be read: {describe_problem(error)}") from error


def describe_problem(error: Exception) -> str:
    """A message of polars, without its advice."""
    problem = str(error)
    for advice in ("Consider", "You might want", "Ensure"):  # polars' advice is for its callers, not for users
        problem = problem.partition(advice)[0]
    return problem.strip().removesuffix(".")


def _read_excel(path: Path) -> "pl.DataFrame":
    """Read the only sheet of a workbook."""
    require_package("fastexcel", "excel", path)
    import fastexcel

    try:
        book = fastexcel.read_excel(path)
        names = book.sheet_names
        if len(names) != 1:
            raise BarsError(
                f"{path.name} has the sheets {format_names(names)}; save the sheet with the bars as a separate file"
            )
        return book.load_sheet(0).to_polars()
    except fastexcel.FastExcelError as error:
        raise BarsError(
            f"{path.name} cannot be read: {str(error).splitlines()[0]}; open it in Excel and save it again"
        ) from error


def _read_text(path: Path) -> _Text:
    """Decompress a text file and convert it to UTF-8; the path of a plain UTF-8 file is kept instead."""
    packed = next((ending for ending, mark in PACKED.items() if _has_signature(path, mark)), "")
    if packed:
        return _convert_to_utf8(_unpack(path, packed), path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if _guess_encoding(head) != UTF_8:
        return _convert_to_utf8(path.read_bytes(), path)
    return _Text(content=path, head=_split_lines(head, path))


def _unpack(path: Path, ending: str) -> bytes:
    try:
        if ending == ".gz":
            return gzip.decompress(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if WORKBOOK in names:
                raise BarsError(f"{path.name} is an Excel workbook; rename it to end in .xlsx")
            if len(names) != 1:
                raise BarsError(f"{path.name} holds {len(names)} files; unpack it, and pass the file with the bars")
            return archive.read(names[0])
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise BarsError(f"{path.name} is damaged or truncated ({error}); download it again") from error


def _guess_encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    evens, odds = head[0:200:2], head[1:200:2]
    if odds and not any(odds):
        return "utf-16-le"
    return "utf-16-be" if evens and not any(evens) else UTF_8


def _convert_to_utf8(content: bytes, path: Path) -> _Text:
    encoding = _guess_encoding(content)
    if encoding != UTF_8:
        try:
            content = content.decode(encoding).encode()
        except UnicodeDecodeError as error:
            raise _make_encoding_error(path, error) from error
    return _Text(content=content, head=_split_lines(content[:HEAD_BYTES], path))


def _split_lines(head: bytes, path: Path) -> Sequence[str]:
    """The complete lines in the first bytes of a file."""
    complete = head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1]
    try:
        return complete.decode().splitlines()
    except UnicodeDecodeError as error:
        raise _make_encoding_error(path, error) from error


def _make_encoding_error(path: Path, error: UnicodeDecodeError) -> BarsError:
    return BarsError(
        f"{path.name} is not UTF-8 (byte {error.object[error.start]:#04x} at {error.start}); save it as CSV UTF-8, or "
        f"convert it: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8.csv"
    )


def _read_text_cells(path: Path, text: _Text) -> TableCells:
    if text.head and text.head[0].lstrip().lower().startswith(("<!doctype", "<html", "{", "[{")):
        raise BarsError(
            f"{path.name} has no table but {text.head[0].strip()[:20]!r}; check whether its download failed"
        )
    first = _find_header(text.head)
    if not text.head or not text.head[first].strip():
        raise BarsError(f"{path.name} has no rows")
    delimiter = _find_delimiter(text.head[first])
    rows = [_split_cells(line, delimiter) for line in text.head[first : first + 3]]
    wide = WideHeader.of(rows)
    if wide is not None:
        body = _read_csv(path, text, delimiter, first + wide.lines, tuple(str(at) for at in range(len(rows[0]))))
        return TableCells(frame=wide.stacked(body, path.name), delimiter=delimiter, layout=wide.layout)
    headerless = identify_headerless_layout(rows[0])
    if headerless is not None:
        frame = _read_csv(path, text, delimiter, first, headerless.header)
        return TableCells(frame=frame, delimiter=delimiter, layout=headerless)
    _check_header(path, rows[0])
    frame = normalise_columns(_read_csv(path, text, delimiter, first, ()), path.name)
    return TableCells(frame=frame, delimiter=delimiter)


def _check_header(path: Path, header: Sequence[str]) -> None:
    names = [normalise_name(name) for name in header]
    twice = find_duplicates([name for name in names if name])
    if twice:
        raise BarsError(f"{path.name} has more than one column {', '.join(twice)}; remove all but one")
    if not any(name[:1].isalpha() for name in names):
        raise BarsError(
            f"{path.name} has no header: its first line begins with {header[0]!r}; add the column names, such as "
            "date,open,high,low,close,volume"
        )


def _find_header(head: Sequence[str]) -> int:
    """The index of the header line: the first that is not empty, not Excel's `sep=;` and not a title."""
    for at, line in enumerate(head[:MAX_TITLES]):
        if line.strip() and not line.lower().startswith("sep=") and not _is_title(line, head[at + 1 : at + 4]):
            return at
    return 0


def _is_title(line: str, following: Sequence[str]) -> bool:
    """Whether a line has too few cells for a table while one of the following has enough."""
    counts = [len(_split_cells(row, _find_delimiter(row))) for row in (line, *following)]
    return counts[0] < MIN_COLUMNS <= max(counts)


def _find_delimiter(line: str) -> str:
    """The most frequent delimiter of a line; the comma if no line has one."""
    return max(DELIMITERS, key=lambda sign: len(_split_cells(line, sign)))


def _split_cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


def _read_csv(path: Path, text: _Text, delimiter: str, skipped: int, names: Sequence[str]) -> "pl.DataFrame":
    """Read a text file as strings; with `names` the file has no header after the skipped rows."""
    import polars as pl

    source = text.content if isinstance(text.content, Path) else io.BytesIO(text.content)
    try:
        frame = pl.read_csv(
            source,
            infer_schema=False,
            separator=delimiter,
            skip_rows=skipped,
            has_header=not names,
            new_columns=list(names) or None,
        )
    except pl.exceptions.NoDataError:
        raise BarsError(f"{path.name} has no rows") from None
    except pl.exceptions.PolarsError as error:
        sign_name = {"\t": "a tab"}.get(delimiter, f"'{delimiter}'")
        raise BarsError(
            f"{path.name} cannot be read: {describe_problem(error)}; its columns must be separated by one sign, here "
            f"{sign_name}, and its encoding must be UTF-8"
        ) from error
    # Excel writes empty rows for cells that were only visited
    if frame.is_empty() or any(cell is not None for cell in frame.row(-1)):
        return frame
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)
