"""metadata.csv of recordings, `id|text` per line, and the assignment of texts to splits.

Three columns follow LJSpeech, `id|text|normalised text`: the third is used unless empty. A speaker column (named
`speaker` in the heading, or consisting of a few repeated single words) may name only one speaker.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from trainers.media.metadata import (
    FILE,
    MetadataRow,
    RejectedFile,
    has_control,
    join_line_numbers,
    leads_outside,
    normal_text,
    parse_rows,
    partition_rows,
)
from trainers.vits.corpus import Split
from trainers.vits.errors import CorpusError
from trainers.vits.vocabulary import shorten

SPEAKERS: Final = ("speaker", "speaker_id", "speaker_name", "sid")

HEADINGS: Final = frozenset(("id", "file", "name", "text", "normalized_text", "raw_text", *SPEAKERS))


_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")

_NULS: Final = 8
"""More than one zero byte in this many means UTF-16 without a byte order mark."""

_PLAIN: Final = 2
"""Number of columns of `id|text`."""

_MAX_LISTED: Final = 5

_REPEATS: Final = 4
"""Average repetitions of each value in a column of labels."""


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A parsed line.

    Attributes:
        name: Id of the clip.
        text: Normalised text.
        number: Line number in the file, from 1.
    """

    name: str
    text: str
    number: int


@dataclass(frozen=True, slots=True)
class _TextColumns:
    """Layout of the columns; `instead` is used if the text column is empty."""

    count: int
    text: int
    instead: int
    speaker: int | None


def read_metadata(source: Path) -> tuple[tuple[TranscriptLine, ...], tuple[RejectedFile, ...]]:
    """Read the usable and the rejected lines of `source/metadata.csv`.

    Raises:
        CorpusError: The file is missing, empty, not UTF-8, without columns, or has several speakers.
    """
    path = source / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise CorpusError(_describe_missing_file(source)) from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror})") from error
    if content.startswith(_UTF_16) or content.count(b"\0") > len(content) // _NULS:
        raise CorpusError(f"{path} is in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 {FILE} > new.csv")
    rows: Sequence[MetadataRow] = parse_rows(path, content, CorpusError)
    if not rows:
        raise CorpusError(f"{path} is empty; write a line per clip: id|text")
    heading = tuple(cell.lower() for cell in rows[0].cells)
    if len(heading) > 1 and HEADINGS.issuperset(heading) and "text" in heading:
        rows = rows[1:]
    else:
        heading = ()
    if not rows:
        raise CorpusError(f"{path} has only a heading; write a line per clip: id|text")
    columns = _find_columns(path, heading, rows)
    _reject_several_speakers(path, columns, rows)
    return partition_rows(
        rows,
        _read_name,
        partial(_find_problem, columns),
        lambda row: TranscriptLine(_read_name(row), _read_text(columns, row), row.number),
    )


def find_text_problem(text: str) -> str:
    """Problem of a normalised text, worded to follow its location; empty if none."""
    if not text:
        return "has no text; write the spoken words, or remove the line"
    if has_control(text):
        return f"has a control character in the text {shorten(text)!r}; remove it"
    return ""


def _describe_missing_file(source: Path) -> str:
    """Message for a folder without metadata.csv."""
    if not source.is_dir():
        return f"folder {source} does not exist; give the one with {FILE} and the recordings"
    speakers = sorted(path.parent.name for path in source.glob(f"*/{FILE}"))
    if speakers:
        return (
            f"{source} has folders of {len(speakers)} speakers ({_join_names(speakers)}), but a voice has one; "
            "prepare one "
            f"of them, such as {source / speakers[0]}"
        )
    return f"{source} has no {FILE}; write one with a line per clip: id|text"


def _find_columns(path: Path, heading: Sequence[str], rows: Sequence[MetadataRow]) -> _TextColumns:
    """Layout of the columns, from the heading or from the majority of lines."""
    count = len(heading) or Counter(len(row.cells) for row in rows).most_common(1)[0][0]
    if count not in (_PLAIN, _PLAIN + 1):
        raise CorpusError(f"{path} has {count} columns between |; write a line per clip: id|text")
    if count == _PLAIN:
        return _TextColumns(count, text=1, instead=1, speaker=None)
    speaker = _find_speaker_column(heading, [row for row in rows if len(row.cells) == count])
    if speaker is None:
        return _TextColumns(count, text=2, instead=1, speaker=None)
    return _TextColumns(count, text=3 - speaker, instead=3 - speaker, speaker=speaker)


def _find_speaker_column(heading: Sequence[str], rows: Sequence[MetadataRow]) -> int | None:
    """Index of the speaker column of three, if any."""

    def is_speaker(column: int) -> bool:
        if heading:
            return heading[column] in SPEAKERS
        cells = [row.cells[column] for row in rows]  # a few repeated single words
        single = all(cell and not any(char.isspace() for char in cell) for cell in cells)
        return single and len(set(cells)) * _REPEATS <= len(cells)

    return next((column for column in (1, 2) if is_speaker(column)), None)


def _reject_several_speakers(path: Path, columns: _TextColumns, rows: Sequence[MetadataRow]) -> None:
    """Reject several speakers, named in a column or by folders."""
    complete_rows = [row for row in rows if len(row.cells) == columns.count]
    if columns.speaker is not None:
        speakers = sorted({row.cells[columns.speaker] for row in complete_rows})
        if len(speakers) > 1:
            raise CorpusError(f"{path} names {len(speakers)} speakers ({_join_names(speakers)}); keep the lines of one")
    folders = sorted({row.cells[0].rpartition("/")[0] for row in complete_rows if "/" in row.cells[0]})
    usable = [folder for folder in folders if not leads_outside(folder)]
    if len(usable) > 1:
        raise CorpusError(
            f"{path} names recordings in {len(usable)} folders, which suggests several speakers "
            f"({_join_names(usable)}); "
            "keep the lines of one, or move the recordings of one speaker into one folder"
        )


def _read_name(row: MetadataRow) -> str:
    return unicodedata.normalize("NFC", row.cells[0])


def _find_problem(columns: _TextColumns, row: MetadataRow, numbers: Sequence[int]) -> str:
    """Problem of a line; empty if none."""
    name = _read_name(row)
    if len(numbers) > 1 and name:
        return f"the id is on lines {join_line_numbers(numbers)} of {FILE}; keep one"
    if len(row.cells) != columns.count:
        return f"line {row.number} of {FILE} has {len(row.cells)} columns between |, most have {columns.count}; fix it"
    problem = find_text_problem(_read_text(columns, row))
    if not name:
        problem = "has no id; write id|text"
    elif leads_outside(name):
        problem = f"has the id {name!r}, which leads out of the folder; use a recording in wavs"
    elif has_control(name):
        problem = f"has a control character in the id {name!r}; remove it"
    return problem and f"line {row.number} of {FILE} {problem}"


def _read_text(columns: _TextColumns, row: MetadataRow) -> str:
    return normal_text(row.cells[columns.text]) or normal_text(row.cells[columns.instead])


def _join_names(names: Iterable[str]) -> str:
    all_names = list(names)
    rest = len(all_names) - _MAX_LISTED
    return ", ".join(all_names[:_MAX_LISTED]) + (f" and {rest} others" if rest > 0 else "")


def assign_splits(texts: Iterable[str], *, selection: float, held_out: float) -> Mapping[str, Split]:
    """Assign every text to a split.

    The split depends on a hash of the words, without case and punctuation. With shares, a text keeps its part when
    texts are added or reordered.

    Args:
        texts: Texts of the clips; may repeat.
        selection: A share of the texts if below 1, else their number.
        held_out: Likewise.

    Raises:
        CorpusError: There are too few different texts for three splits.
    """
    texts = list(texts)
    positions = {  # from 0 to 1
        words: int.from_bytes(hashlib.sha256(words.encode()).digest()[:6]) / 2**48
        for words in map(normalise_words, texts)
    }
    ordered = sorted(positions, key=lambda words: (positions[words], words))
    held_out_count = _count(positions.values(), 0.0, held_out)
    selection_count = _count(positions.values(), held_out if held_out < 1 else 0.0, selection)
    if held_out_count + selection_count >= len(ordered):
        raise CorpusError(
            f"{held_out_count} held-out and {selection_count} selection texts leave none of {len(ordered)} different "
            "ones for training; record more sentences, or hold out fewer"
        )
    splits: dict[str, Split] = dict.fromkeys(ordered, "train")
    splits |= dict.fromkeys(ordered[:held_out_count], "held_out")
    selected = ordered[held_out_count : held_out_count + selection_count]
    splits |= dict.fromkeys(selected, "selection")
    return {text: splits[normalise_words(text)] for text in texts}


def _count(positions: Iterable[float], start: float, size: float) -> int:
    """Size of a split: the wanted number, or the texts whose hash falls into the share; at least 1."""
    if size >= 1:
        return int(size)
    return max(1, sum(start <= position < start + size for position in positions))


def normalise_words(text: str) -> str:
    """Lower-case words of a text without punctuation."""
    spoken = "".join(" " if unicodedata.category(char)[0] == "P" else char for char in text.lower())
    return " ".join(spoken.split())
