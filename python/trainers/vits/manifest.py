"""`feedback.jsonl`: corrected recordings and ratings, one JSON object a line.

    {"audio": "corrected/0007.wav", "text": "ez diçim malê", "rating": 5, "source": "Dilan"}
    {"clip": "ku0031", "rating": 1}

A correction is a recording of how a text should sound; its rating says how much it weighs. A rating without
audio weighs a clip of the base corpus, and 1 drops it. `source` is for people alone.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from trainers.media.metadata import normal_text
from trainers.vits.errors import FeedbackError
from trainers.vits.vocabulary import shortened

SHARES: Final[Mapping[int, float]] = {1: 0.0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1.0}
"""How much an item of each rating weighs."""

SHOWN: Final = 20
"""Faults that a message names."""


@dataclass(frozen=True, slots=True)
class ClipCorrection:
    """A recording of how a text should sound.

    Attributes:
        line: of the manifest, counted from 1.
        audio: the file.
        text: what it says.
        rating: 1 to 5.
    """

    line: int
    audio: Path
    text: str
    rating: int

    @property
    def digest(self) -> str:
        """Of what it says, sounds like and weighs; the file's name does not matter."""
        return _digest("correction", self.content, self.rating)

    @property
    def content(self) -> str:
        """Of what it says, in its normal form, and sounds like; where that cannot be read, of the file's name."""
        text = normal_text(self.text)
        try:
            return _digest("content", text, sha256(self.audio.read_bytes()).hexdigest())
        except OSError:  # whoever prepares the recording says so, with its line
            return _digest("unreadable", text, str(self.audio))


@dataclass(frozen=True, slots=True)
class ClipRating:
    """What a clip of the base corpus is worth.

    Attributes:
        line: of the manifest, counted from 1.
        clip: its name.
        rating: 1 to 5.
    """

    line: int
    clip: str
    rating: int

    def digest(self, content: str) -> str:
        """Of the clip's content and its rating."""
        return _digest("rating", content, self.rating)


@dataclass(frozen=True, slots=True)
class FeedbackManifest:
    """Everything that a manifest says.

    Attributes:
        corrections: in its order.
        ratings: in its order; the last of a clip counts.
    """

    corrections: tuple[ClipCorrection, ...]
    ratings: tuple[ClipRating, ...]


def read_manifest(path: Path, *, complete: bool = True) -> FeedbackManifest:
    """Read a manifest; the paths in it are relative to its folder.

    Args:
        path: the file.
        complete: whether every recording must be there.

    Raises:
        FeedbackError: naming every line that is wrong, and why; or that there is no line.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # other ends of lines may stand in a text
    except FileNotFoundError as error:
        raise FeedbackError(f"there is no manifest {path}") from error
    except UnicodeDecodeError as error:
        raise FeedbackError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    items, faults = list[ClipCorrection | ClipRating](), list[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items.append(_item(number, _object(line), path.parent, complete=complete))
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    faults.extend(_doubled(items))
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise FeedbackError(f"{path} cannot be used. {'; '.join(faults[:SHOWN])}{more}")
    if not items:
        raise FeedbackError(f'{path} has no line; a correction is {{"audio": …, "text": …, "rating": 1 to 5}}')
    return FeedbackManifest(
        tuple(item for item in items if isinstance(item, ClipCorrection)),
        tuple(item for item in items if isinstance(item, ClipRating)),
    )


def _object(line: str) -> Mapping[str, Any]:
    """What a line holds.

    Raises:
        ValueError: it is no object, or has what no text can hold.
    """
    try:
        told: object = json.loads(line)
    except RecursionError as error:
        raise ValueError("its lists lie too deep in one another; expected an object") from error
    if not isinstance(told, dict):
        raise ValueError(f"expected an object, got {type(told).__name__}")  # noqa: TRY004 - a fault of the file
    json.dumps(told, ensure_ascii=False).encode()  # half a character has no UTF-8
    return {str(key): value for key, value in told.items()}


def _item(line: int, told: Mapping[str, Any], folder: Path, *, complete: bool) -> ClipCorrection | ClipRating:
    strangers = sorted(set(told) - {"audio", "text", "rating", "source", "clip"})
    if strangers:
        raise ValueError(
            f"{shortened(', '.join(strangers))} is not known; an item has audio, text, rating, source, or clip, rating"
        )
    rating = told.get("rating", 5 if "audio" in told else None)
    if type(rating) is not int or rating not in SHARES:
        raise ValueError(f"rating is {shortened(repr(rating))}; it must be 1, 2, 3, 4 or 5")
    if ("audio" in told) == ("clip" in told):
        raise ValueError("an item has either audio, which is a correction, or clip, which rates a recording")
    if "clip" in told:
        return ClipRating(line, _text(told, "clip"), rating)
    audio = folder / _text(told, "audio")
    if not _is_file(audio) and complete:
        raise ValueError(f"there is no file {shortened(str(audio), 400)}")
    return ClipCorrection(line, audio, _text(told, "text"), rating)


def _is_file(path: Path) -> bool:
    """Whether there is such a file, which there is not where no file can have the name.

    Raises:
        ValueError: it cannot be looked for.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise ValueError(f"{shortened(str(path))} cannot be looked for ({error.strerror})") from error


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} is {shortened(repr(value))}; it must be a text that is not empty")
    return value


def _doubled(items: list[ClipCorrection | ClipRating]) -> Iterator[str]:
    """Faults of clips that are rated twice with different ratings."""
    rated: dict[str, ClipRating] = {}
    for item in items:
        if isinstance(item, ClipRating):
            before = rated.setdefault(item.clip, item)
            if before.rating != item.rating:
                yield f"line {item.line}: {item.clip} is rated {item.rating}, and {before.rating} on line {before.line}"


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
