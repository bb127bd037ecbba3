"""corpus.json: what was prepared, of which clips, and what was left out. Written one way, read strictly."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from trainers.media.metadata import RejectedFile
from trainers.vits.errors import CorpusError
from trainers.vits.spectrum import FrameSettings

Part = Literal["train", "selection", "held_out"]
"""What a clip is for: to learn from, to choose by (the speaking rate, when to stop), to judge by."""

FILE: Final = "corpus.json"
VERSION: Final = 1

_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class RecordedClip:
    """One recording with its text.

    Attributes:
        name: its id in metadata.csv.
        text: as written there, in composed characters, with one blank for any white space.
        part: what it is for.
        frames: whole frames; the wave is cut to frames · hop samples.
        digest: sha256 of text and samples, in hexadecimal: it follows the content, not the name.
    """

    name: str
    text: str
    part: Part
    frames: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusContents:
    """Everything that corpus.json says.

    Attributes:
        framing: of waves and spectrograms.
        clips: in the order of metadata.csv.
        refused: what was left out, and why.
        unknown: characters of the texts that the vocabulary does not hold, and how often they occur.
        unlisted: recordings in the source's folder that no line of metadata.csv names.
    """

    framing: FrameSettings
    clips: tuple[RecordedClip, ...]
    refused: tuple[RejectedFile, ...]
    unknown: Mapping[str, int]
    unlisted: tuple[str, ...]


def write_contents(folder: Path, contents: CorpusContents) -> None:
    """Write corpus.json; the same contents give the same bytes.

    Raises:
        OSError: The file cannot be written.
    """
    value = {"version": VERSION, **asdict(contents), "unknown": dict(sorted(contents.unknown.items()))}
    (folder / FILE).write_bytes(json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")


def read_contents(folder: Path) -> CorpusContents:
    """Read corpus.json.

    Raises:
        CorpusError: There is none, it is damaged, or another version wrote it.
    """
    match _json(folder):
        case {"version": int(version)} if version != VERSION:
            raise CorpusError(f"{folder} was prepared in version {version}, here {VERSION} is read; prepare it again")
        case {
            "version": int(),
            "framing": framing,
            "clips": [_, *_] as clips,
            "refused": list(refused),
            "unknown": unknown,
            "unlisted": list(unlisted),
            **rest,
        } if not rest:
            return CorpusContents(
                framing=_framing(folder, framing),
                clips=_clips(folder, clips),
                refused=tuple(_refused(folder, one) for one in refused),
                unknown=_counts(folder, unknown),
                unlisted=tuple(_text(folder, name) for name in unlisted),
            )
        case _:
            raise damaged(folder, f"{FILE} lacks something, or has more than it should")


def damaged(folder: Path, problem: str) -> CorpusError:
    """What is said of a prepared folder that is not as it was written."""
    return CorpusError(f"prepared corpus {folder} is damaged: {problem}; prepare it again")


def _json(folder: Path) -> object:
    try:
        return json.loads((folder / FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorpusError(_unprepared(folder)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(folder, f"{FILE} cannot be read ({error})") from error


def _unprepared(folder: Path) -> str:
    """What is wrong where there is no corpus.json."""
    if (folder / "metadata.csv").is_file():
        command = f"quantra train vits prepare {quote(str(folder))} --out corpus"
        return f"{folder} holds recordings that are not prepared; make a corpus of them by: {command}"
    out = "corpus" if folder.exists() else quote(str(folder))
    return (
        f"{folder} is no prepared corpus: it has no {FILE}; make one by: "
        f"quantra train vits prepare RECORDINGS --out {out}"
    )


def _wrong(folder: Path, value: object, expected: str) -> CorpusError:
    return damaged(folder, f"{FILE} has {str(value)[:_SHOWN]} where {expected} must stand")


def _framing(folder: Path, value: object) -> FrameSettings:
    match value:
        case {"rate": int(rate), "hop": int(hop), "fft": int(fft), **rest} if not rest and min(rate, hop, fft) > 0:
            return FrameSettings(rate, hop, fft)
        case _:
            raise _wrong(folder, value, "the framing")


def _clips(folder: Path, values: Sequence[object]) -> tuple[RecordedClip, ...]:
    """Clips, each of a name and a content of its own."""
    clips = tuple(_clip(folder, value) for value in values)
    for one in ({clip.name for clip in clips}, {clip.digest for clip in clips}):
        if len(one) < len(clips):
            raise damaged(folder, f"{FILE} names a clip twice")
    return clips


def _clip(folder: Path, value: object) -> RecordedClip:
    match value:
        case {
            "name": str(name),
            "text": str(text),
            "part": ("train" | "selection" | "held_out") as part,
            "frames": int(frames),
            "digest": str(digest),
            **rest,
        } if not rest and frames > 0:
            return RecordedClip(name, text, part, frames, digest)
        case _:
            raise _wrong(folder, value, "a clip")


def _refused(folder: Path, value: object) -> RejectedFile:
    match value:
        case {"name": str(name), "reason": str(reason), **rest} if not rest:
            return RejectedFile(name, reason)
        case _:
            raise _wrong(folder, value, "a clip that was left out")


def _counts(folder: Path, value: object) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise _wrong(folder, value, "counts of characters")
    counts: dict[str, int] = {}
    for sign, count in value.items():
        if not isinstance(count, int):
            raise _wrong(folder, count, f"the count of {sign!r}")
        counts[str(sign)] = count
    return counts


def _text(folder: Path, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(folder, value, "a text")
    return value
