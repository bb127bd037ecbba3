"""A prepared corpus: clips with their texts, checked once, cut into parts, with their spectrograms beside them.

A folder of

- `corpus.json`: what was prepared, of which clips, and what was left out;
- `vocab.json`: the characters of the texts and their numbers;
- `clips/DIGEST.safetensors`: per clip its wave in 16 bits and its spectrogram in half precision, whose relative
  error is at most 2⁻¹¹ between 6e-5 and 65,504: magnitudes lie between 1e-3 and half the samples of a frame.

It is written once, whole, by `trainers.vits.preparation`, and only read afterwards.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Literal, Self, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainers.media.metadata import RejectedFile
from trainers.vits.errors import CorpusError, VoiceError
from trainers.vits.spectrum import FrameSettings, spectrogram
from trainers.vits.vocabulary import VOCABULARY, characters, read_vocabulary, small_letters

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


CLIPS: Final = "clips"


FULL_SCALE: Final = 32_768
"""Steps from 0 to the loudest sample of 16 bits."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechCorpus:
    """A prepared folder, opened.

    Attributes:
        folder: where it is.
        framing: of waves and spectrograms.
        clips: in the order of metadata.csv.
        vocabulary: characters and their numbers; the blank "<pad>" is 0 where the texts gave them.
        refused: what was left out, and why.
        unknown: characters of the texts that the vocabulary does not hold, and how often they occur.
        unlisted: recordings in the source's folder that no line of metadata.csv names.
    """

    folder: Path
    framing: FrameSettings
    clips: tuple[RecordedClip, ...]
    vocabulary: Mapping[str, int]
    refused: tuple[RejectedFile, ...]
    unknown: Mapping[str, int]
    unlisted: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a prepared folder; the clips themselves are read when they are asked for.

        Raises:
            CorpusError: The folder is not prepared, is damaged, or was prepared by another version.
        """
        contents = read_contents(folder)
        kept = {path.stem for path in (folder / CLIPS).glob("*.safetensors")}
        missing = [clip.name for clip in contents.clips if clip.digest not in kept]
        if missing:
            raise damaged(folder, f"{len(missing)} clips have no file, {missing[0]} the first")
        return cls(
            folder=folder,
            framing=contents.framing,
            clips=contents.clips,
            vocabulary=_vocabulary(folder),
            refused=contents.refused,
            unknown=contents.unknown,
            unlisted=contents.unlisted,
        )

    def part(self, part: Part) -> tuple[RecordedClip, ...]:
        """The clips of one part."""
        return tuple(clip for clip in self.clips if clip.part == part)

    def wave(self, clip: RecordedClip) -> Tensor:
        """A clip's samples.

        Returns:
            float32 [frames · hop], in -1 to 1.

        Raises:
            CorpusError: The clip's file is missing or damaged: text and samples must give its digest.
        """
        wave = self._tensor(clip, "wave", (clip.frames * self.framing.hop,), torch.int16)
        if content_digest(clip.text, wave) != clip.digest:
            raise damaged(self.folder, f"text or samples of clip {clip.name} are not those that were prepared")
        return floats(wave)

    def spectrogram(self, clip: RecordedClip) -> Tensor:
        """A clip's linear magnitudes, as they were kept.

        Returns:
            float32 [bins, frames].

        Raises:
            CorpusError: The clip's file is missing or damaged.
        """
        return self._tensor(clip, "spectrogram", (self.framing.bins, clip.frames), torch.float16).float()

    @property
    def digest(self) -> str:
        """Of framing, and content and part of every clip, whatever their order and names."""
        lines = sorted(f"{clip.digest} {clip.part}" for clip in self.clips)
        return hashlib.sha256("\n".join((repr(self.framing), *lines)).encode()).hexdigest()

    @property
    def untaught(self) -> Mapping[str, int]:
        """Characters of the texts that no clip to learn from has, and how often the others have them."""
        taught = characters(clip.text for clip in self.part("train"))
        others = "".join(small_letters(clip.text) for clip in self.clips if clip.part != "train")
        return Counter(sign for sign in others if sign in self.vocabulary and sign not in taught)

    def _tensor(self, clip: RecordedClip, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """One tensor of a clip's file."""
        path = clip_path(self.folder, clip.digest)
        try:
            with safe_open(path, framework="pt") as file:
                found: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise damaged(self.folder, f"{path.name} of clip {clip.name} cannot be read ({error})") from error
        if tuple(found.shape) != shape or found.dtype != dtype:
            wrong = f"{found.dtype} {list(found.shape)} instead of {dtype} {list(shape)}"
            raise damaged(self.folder, f"{name} of clip {clip.name} is {wrong}")
        return found


def content_digest(text: str, samples: Tensor) -> str:
    """What names a clip by its content: sha256 of its text and its samples, int16 [T]."""
    return hashlib.sha256(text.encode() + b"\0" + samples.numpy().astype("<i2").tobytes()).hexdigest()


def floats(samples: Tensor) -> Tensor:
    """Samples of 16 bits, int16 [T], as float32 [T] in -1 to 1."""
    return samples.float() / FULL_SCALE


def clip_path(folder: Path, digest: str) -> Path:
    """Where a prepared folder keeps a clip."""
    return folder / CLIPS / f"{digest}.safetensors"


def write_clip(folder: Path, digest: str, samples: Tensor, framing: FrameSettings) -> None:
    """Keep a clip's samples, int16 [frames · hop], and their spectrogram.

    Raises:
        OSError: The file cannot be written.
    """
    magnitudes = spectrogram(floats(samples)[None], framing)[0].half().contiguous()
    path = clip_path(folder, digest)
    try:
        save_file({"wave": samples, "spectrogram": magnitudes}, path)
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from error


def _vocabulary(folder: Path) -> Mapping[str, int]:
    try:
        return read_vocabulary(folder / VOCABULARY)
    except VoiceError as error:
        raise damaged(folder, error.message) from error


SHOWN: Final = 20
"""How many clips, characters or files one notice lists."""


def notices(corpus: SpeechCorpus) -> tuple[str, ...]:
    """Clips that were left out, characters that are not spoken or not learnt, recordings without a line; or nothing."""
    return tuple(_notices(corpus))


def notices_of_corrections(corpus: SpeechCorpus, idle: Sequence[str]) -> tuple[str, ...]:
    """Corrections that were left out, characters that are not spoken, ratings that change nothing; or nothing.

    Args:
        corpus: of corrections.
        idle: names of clips that choose or judge, and are rated above 1.
    """
    return tuple(_notices_of_corrections(corpus, idle))


def _notices_of_corrections(corpus: SpeechCorpus, idle: Sequence[str]) -> Iterator[str]:
    yield from _doubts(corpus)
    if idle:
        yield f"{len(idle)} clips that choose or judge are rated above 1, which changes nothing: {_listed(idle)}"


def _notices(corpus: SpeechCorpus) -> Iterator[str]:
    yield from _doubts(corpus)
    if corpus.untaught:
        yield f"no clip of the train part has, and nothing teaches: {_counted(corpus.untaught)}"
    if corpus.unlisted:
        yield f"{len(corpus.unlisted)} recordings have no line in metadata.csv: {_listed(corpus.unlisted)}"


def _doubts(corpus: SpeechCorpus) -> Iterator[str]:
    """What is as true of corrections as of any corpus."""
    if corpus.refused:
        total = len(corpus.refused) + len(corpus.clips)
        reasons = "".join(f"\n  {one.name}: {one.reason}" for one in corpus.refused[:SHOWN])
        yield f"{len(corpus.refused)} of {total} clips were left out:{reasons}{_rest(len(corpus.refused), chr(10))}"
    if corpus.unknown:
        yield f"the vocabulary does not hold, and nothing speaks: {_counted(corpus.unknown)}"


def _counted(counts: Mapping[str, int]) -> str:
    """Characters and how often they occur, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return _listed(f"{sign!r} ({count} times)" for sign, count in ordered)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:SHOWN]) + _rest(len(listed), " ")


def _rest(count: int, space: str) -> str:
    return f"{space}and {count - SHOWN} more" if count > SHOWN else ""
