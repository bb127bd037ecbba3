"""Random mixtures of file formats are read with the numbers of the plain file."""

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import exports
import numpy as np
import pytest

from predictor.bars import BarPanel, read_file
from predictor.errors import BarsError

DATES: Final = ("%Y-%m-%d", "%Y%m%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%b-%Y", "%b %d, %Y")
MOMENTS: Final = ("%Y-%m-%d 00:00:00", "%Y-%m-%dT00:00:00Z", "%Y-%m-%d 00:00:00-05:00")
ENCODINGS: Final = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")
ORDERS: Final[tuple[Callable[[list[exports.Bar], random.Random], object], ...]] = (
    lambda _rows, _draw: None,
    lambda rows, _draw: rows.reverse(),
    lambda rows, draw: draw.shuffle(rows),
)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How one file is written."""

    delimiter: str
    date: str
    decimal: str
    between_thousands: str
    quoted: bool
    line_end: str
    encoding: str
    packed: bool
    title: str
    case: Callable[[str], str]

    @classmethod
    def drawn(cls, draw: random.Random) -> "FileFormat":
        delimiter, decimal = draw.choice(",;\t|"), draw.choice(".,")
        return cls(
            delimiter=delimiter,
            date=draw.choice(DATES + MOMENTS),
            decimal=decimal,
            between_thousands=draw.choice(("", "." if decimal == "," else ",")),
            quoted=draw.random() < 0.5,
            line_end=draw.choice(("\n", "\r\n")),
            encoding=draw.choice(ENCODINGS),
            packed=draw.random() < 0.3,
            title=draw.choice(("", "", "Downloaded on a Friday, by me", f"sep={delimiter}")),
            case=draw.choice((str.lower, str.upper, str.title)),
        )

    def number(self, text: str) -> str:
        whole, _, part = text.partition(".")
        grouped = f"{int(whole):,}".replace(",", self.between_thousands)
        return grouped + (self.decimal + part if part else "")

    def row(self, cells: list[str]) -> str:
        needed = any(self.delimiter in cell for cell in cells)
        return self.delimiter.join(f'"{cell}"' if self.quoted or needed else cell for cell in cells)

    def content(self, bars: list[exports.Bar]) -> bytes:
        header = [self.case(name) for name in ("symbol", "date", *exports.FIELDS)]
        rows = [
            [bar.symbol, f"{bar.day:{self.date}}", *map(self.number, (*bar.prices, str(bar.volume)))] for bar in bars
        ]
        lines = [*([self.title] if self.title else []), *map(self.row, [header, *rows])]
        text = self.line_end.join([*lines, ""]).encode(self.encoding)
        return gzip.compress(text, compresslevel=1, mtime=0) if self.packed else text


def misread_files(seeds: range, folder: Path) -> tuple[list[str], int]:
    """Mixtures that are read with wrong numbers, and the number of refused ones."""
    plain = BarPanel.read(exports.CASES / "exports" / "plain.csv")
    wrong, refused = list[str](), 0
    for seed in seeds:
        draw = random.Random(seed)
        form, bars = FileFormat.drawn(draw), list(exports.BARS)
        draw.choice(ORDERS)(bars, draw)
        path = folder / f"{seed}.csv{'.gz' if form.packed else ''}"
        path.write_bytes(form.content(bars))
        try:
            panel = read_file(path).panel.select(plain.symbols)
        except BarsError as error:
            refused += 1
            wrong.append(f"{seed}: {form}: {error}")
            continue
        same = np.array_equal(panel.sessions, plain.sessions) and all(
            np.array_equal(getattr(panel, name), getattr(plain, name)) for name in exports.FIELDS
        )
        if not same:
            wrong.append(f"{seed}: {form}")
    return wrong, refused


def test_mixtures_of_forms_are_read_with_the_numbers_of_the_plain_file(tmp_path: Path) -> None:
    assert misread_files(range(80), tmp_path) == ([], 0)


@pytest.mark.minutes
def test_a_thousand_mixtures_of_forms_are_read_with_the_numbers_of_the_plain_file(tmp_path: Path) -> None:
    assert misread_files(range(1000, 2000), tmp_path) == ([], 0)
