"""`feedback.jsonl`: corrected recordings and ratings, one JSON object per line.

    {"audio": "corrected/0007.wav", "text": "ez diçim malê", "rating": 5, "source": "Dilan"}
    {"clip": "ku0031", "rating": 1}

A correction is a recording of how a text should sound, weighted by its rating. A rating without audio weights a clip of
the base corpus, and 1 drops it. `source` is a free note.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from trainers.media.metadata import normal_text
from trainers.vits.errors import FeedbackError
from trainers.vits.vocabulary import shorten

SHARES: Final[Mapping[int, float]] = {1: 0.0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1.0}
"""Weight of an item by rating."""

MAX_LISTED: Final = 20
"""Maximum number of faults in a message."""


@dataclass(frozen=True, slots=True)
class ClipCorrection:
    """A recording of how a text should sound.

    Attributes:
        line: Line number in the manifest, from 1.
        audio: Sound file.
        text: Spoken text.
        rating: 1 to 5.
    """

    line: int
    audio: Path
    text: str
    rating: int

    @property
    def digest(self) -> str:
        """Digest of text, sound and rating; independent of the file name."""
        return hash_parts("correction", self.content, self.rating)

    @property
    def content(self) -> str:
        """Digest of the normalised text and the sound, or of the file name if the file cannot be read."""
        text = normal_text(self.text)
        try:
            return hash_parts("content", text, sha256(self.audio.read_bytes()).hexdigest())
        except OSError:  # reported with its line when the recording is prepared
            return hash_parts("unreadable", text, str(self.audio))


@dataclass(frozen=True, slots=True)
class ClipRating:
    """Rating of a clip of the base corpus.

    Attributes:
        line: Line number in the manifest, from 1.
        clip: Name of the clip.
        rating: 1 to 5.
    """

    line: int
    clip: str
    rating: int

    def digest(self, content: str) -> str:
        """Digest of the clip's content and its rating."""
        return hash_parts("rating", content, self.rating)


@dataclass(frozen=True, slots=True)
class FeedbackManifest:
    """Contents of a manifest.

    Attributes:
        corrections: Corrections in order.
        ratings: Ratings in order; the last of a clip counts.
    """

    corrections: tuple[ClipCorrection, ...]
    ratings: tuple[ClipRating, ...]


def read_manifest(path: Path, *, complete: bool = True) -> FeedbackManifest:
    """Read a manifest; its paths are relative to its folder.

    Args:
        path: Manifest file.
        complete: Whether every recording must exist.

    Raises:
        FeedbackError: The file is missing or empty, or lines are invalid; the message lists them.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # texts may contain other line separators
    except FileNotFoundError as error:
        raise FeedbackError(f"manifest {path} does not exist") from error
    except UnicodeDecodeError as error:
        raise FeedbackError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    items, faults = list[ClipCorrection | ClipRating](), list[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items.append(_parse_item(number, _parse_object(line), path.parent, complete=complete))
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    rated: dict[str, ClipRating] = {}
    for item in items:
        if isinstance(item, ClipRating) and (before := rated.setdefault(item.clip, item)).rating != item.rating:
            faults.append(
                f"line {item.line}: {item.clip} is rated {item.rating}, and {before.rating} on line {before.line}"
            )
    if faults:
        rest = f"; and {len(faults) - MAX_LISTED} more" if len(faults) > MAX_LISTED else ""
        raise FeedbackError(f"{path} cannot be used. {'; '.join(faults[:MAX_LISTED])}{rest}")
    if not items:
        raise FeedbackError(f'{path} is empty; a correction is {{"audio": …, "text": …, "rating": 1 to 5}}')
    return FeedbackManifest(
        tuple(item for item in items if isinstance(item, ClipCorrection)),
        tuple(item for item in items if isinstance(item, ClipRating)),
    )


def _parse_object(line: str) -> Mapping[str, Any]:
    """Parse a line.

    Raises:
        ValueError: The line is not a JSON object, or contains invalid characters.
    """
    try:
        value: object = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply; expected an object") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")  # noqa: TRY004 - a fault of the file
    json.dumps(value, ensure_ascii=False).encode()  # fails on lone surrogates
    return {str(key): item for key, item in value.items()}


def _parse_item(line: int, fields: Mapping[str, Any], folder: Path, *, complete: bool) -> ClipCorrection | ClipRating:
    unknown = sorted(set(fields) - {"audio", "text", "rating", "source", "clip"})
    if unknown:
        raise ValueError(
            f"{shorten(', '.join(unknown))} is not known; an item has audio, text, rating, source, or clip, rating"
        )
    rating = fields.get("rating", 5 if "audio" in fields else None)
    if type(rating) is not int or rating not in SHARES:
        raise ValueError(f"rating is {shorten(repr(rating))}; it must be 1, 2, 3, 4 or 5")
    if ("audio" in fields) == ("clip" in fields):
        raise ValueError("an item has either audio (a correction) or clip (a rating of a recording)")
    if "clip" in fields:
        return ClipRating(line, _parse_text(fields, "clip"), rating)
    audio = folder / _parse_text(fields, "audio")
    try:
        exists = audio.is_file()
    except OSError as error:
        raise ValueError(f"{shorten(str(audio))} cannot be accessed ({error.strerror})") from error
    if not exists and complete:
        raise ValueError(f"file {shorten(str(audio), 400)} does not exist")
    return ClipCorrection(line, audio, _parse_text(fields, "text"), rating)


def _parse_text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} is {shorten(repr(value))}; it must be a non-empty text")
    return value


def hash_parts(*parts: object) -> str:
    """sha256 of values as JSON, in hexadecimal."""
    return sha256(json.dumps(parts).encode()).hexdigest()
