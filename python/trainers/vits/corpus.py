"""A prepared corpus: checked clips with texts and spectrograms, assigned to splits.

Files of the folder, which `trainers.vits.preparation` writes atomically:

- `corpus.json`: framing, clips, and rejected clips;
- `vocab.json`: the characters of the texts and their ids;
- `clips/DIGEST.safetensors`: the wave of a clip in 16 bits and its spectrogram in half precision, whose relative
  error is at most 2⁻¹¹ between 6e-5 and 65,504; magnitudes range from 1e-3 to half the samples of a frame.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Final, Literal, Self, TypeVar, final, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainers.media.metadata import RejectedFile
from trainers.vits.errors import CorpusError, VoiceError
from trainers.vits.spectrum import FrameSettings, spectrogram
from trainers.vits.vocabulary import VOCABULARY, list_characters, lower_letters, read_vocabulary, write_vocabulary

Split = Literal["train", "selection", "held_out"]
"""Training; selection of the speaking rate and of the stopping point; evaluation."""

FILE: Final = "corpus.json"
VERSION: Final = 1
_MAX_VALUE_CHARACTERS: Final = 100

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class RecordedClip:
    """One recording with its text.

    Attributes:
        name: Its id in metadata.csv.
        text: Normalised text (NFC, single spaces).
        split: The split that it belongs to.
        frames: Whole frames; the wave has frames · hop samples.
        digest: sha256 of text and samples, in hexadecimal.
    """

    name: str
    text: str
    split: Split
    frames: int
    digest: str


def make_damaged_error(folder: Path, problem: str) -> CorpusError:
    """Error for a damaged prepared folder."""
    return CorpusError(f"prepared corpus {folder} is damaged: {problem}; prepare it again")


def _read_json(folder: Path) -> object:
    try:
        return json.loads((folder / FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        message, source = f"{folder} is not a prepared corpus: {FILE} is missing", "RECORDINGS"
        out = "corpus" if folder.exists() else quote(str(folder))
        if (folder / "metadata.csv").is_file():
            message, source = f"{folder} holds recordings that are not prepared", quote(str(folder))
        raise CorpusError(f"{message}; run: quantra train vits prepare {source} --out {out}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise make_damaged_error(folder, f"{FILE} cannot be read ({error})") from error


def _parse_entry(folder: Path, kind: type[Entry], value: object, expected: str) -> Entry:
    """Build a dataclass of texts and positive numbers from an object with exactly its fields."""
    match value:
        case dict() if value.keys() == {field.name for field in fields(kind)}:  # pyright: ignore[reportArgumentType]
            entry = kind(**value)
        case _:
            raise _make_wrong_value_error(folder, value, expected)
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        content, choices = getattr(entry, field.name), get_args(field.type)
        fits = content in choices if choices else type(content) is field.type
        if not fits or (isinstance(content, int) and content < 1):
            raise _make_wrong_value_error(folder, value, expected)
    return entry


def _make_wrong_value_error(folder: Path, value: object, expected: str) -> CorpusError:
    return make_damaged_error(folder, f"{FILE} has {str(value)[:_MAX_VALUE_CHARACTERS]}, expected {expected}")


CLIPS: Final = "clips"
FULL_SCALE: Final = 32_768
"""Magnitude of the loudest 16-bit sample."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechCorpus:
    """An open prepared corpus.

    Attributes:
        folder: Prepared folder.
        framing: Framing of waves and spectrograms.
        clips: Clips in the order of metadata.csv.
        vocabulary: Token ids by character; "<pad>" is 0 if the vocabulary was built from the texts.
        refused: Rejected clips with reasons.
        unknown: Counts of characters that are missing from the vocabulary.
        unlisted: Recordings of the source folder that metadata.csv does not list.
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
        """Read a prepared folder; clips are loaded on access.

        Raises:
            CorpusError: The folder is not prepared, is damaged, or was prepared by another version.
        """
        match _read_json(folder):
            case {"version": int(version)} if version != VERSION:
                raise CorpusError(f"{folder} has format version {version}, expected {VERSION}; prepare it again")
            case {
                "version": int(),
                "framing": framing,
                "clips": [_, *_] as entries,
                "refused": list(refused),
                "unknown": dict(unknown),
                "unlisted": list(unlisted),
                **rest,
            } if not rest:
                pass
            case _:
                raise make_damaged_error(folder, f"{FILE} has missing or unknown fields")
        clips = tuple(_parse_entry(folder, RecordedClip, entry, "a clip") for entry in entries)
        if min(len({clip.name for clip in clips}), len({clip.digest for clip in clips})) < len(clips):
            raise make_damaged_error(folder, f"{FILE} names a clip twice")
        for content, kind, expected in ((unknown.values(), int, "counts of characters"), (unlisted, str, "texts")):
            if not all(type(value) is kind for value in content):
                raise _make_wrong_value_error(folder, content, expected)
        stored_digests = {path.stem for path in (folder / CLIPS).glob("*.safetensors")}
        missing = [clip.name for clip in clips if clip.digest not in stored_digests]
        if missing:
            raise make_damaged_error(folder, f"files of {len(missing)} clips are missing, first: {missing[0]}")
        try:
            vocabulary = read_vocabulary(folder / VOCABULARY)
        except VoiceError as error:
            raise make_damaged_error(folder, error.message) from error
        return cls(
            folder=folder,
            framing=_parse_entry(folder, FrameSettings, framing, "the framing"),
            clips=clips,
            vocabulary=vocabulary,
            refused=tuple(_parse_entry(folder, RejectedFile, entry, "a clip that was left out") for entry in refused),
            unknown=unknown,
            unlisted=tuple(unlisted),
        )

    def write(self) -> None:
        """Write corpus.json and the vocabulary; the same contents give the same bytes.

        Raises:
            OSError: A file cannot be written.
        """
        contents = {
            "version": VERSION,
            "framing": asdict(self.framing),
            "clips": [asdict(clip) for clip in self.clips],
            "refused": [asdict(rejected) for rejected in self.refused],
            "unknown": dict(sorted(self.unknown.items())),
            "unlisted": self.unlisted,
        }
        (self.folder / FILE).write_bytes(json.dumps(contents, ensure_ascii=False, indent=1).encode() + b"\n")
        write_vocabulary(self.folder, self.vocabulary)

    def list_clips(self, split: Split) -> tuple[RecordedClip, ...]:
        """The clips of one split."""
        return tuple(clip for clip in self.clips if clip.split == split)

    def wave(self, clip: RecordedClip) -> Tensor:
        """A clip's samples.

        Returns:
            float32 [frames · hop], in -1 to 1.

        Raises:
            CorpusError: The file is missing or damaged, or text and samples do not match the digest.
        """
        wave = self._read_tensor(clip, "wave", (clip.frames * self.framing.hop,), torch.int16)
        if hash_content(clip.text, wave) != clip.digest:
            raise make_damaged_error(self.folder, f"text or samples of clip {clip.name} do not match its digest")
        return convert_to_floats(wave)

    def spectrogram(self, clip: RecordedClip) -> Tensor:
        """A clip's linear magnitudes.

        Returns:
            float32 [bins, frames].

        Raises:
            CorpusError: The clip's file is missing or damaged.
        """
        return self._read_tensor(clip, "spectrogram", (self.framing.bins, clip.frames), torch.float16).float()

    @property
    def digest(self) -> str:
        """Digest of the framing and of every clip's content and split; independent of order and names."""
        lines = sorted(f"{clip.digest} {clip.split}" for clip in self.clips)
        return hashlib.sha256("\n".join((repr(self.framing), *lines)).encode()).hexdigest()

    @property
    def untrained_characters(self) -> Mapping[str, int]:
        """Counts of known characters in the other splits that no training clip has."""
        trained = list_characters(clip.text for clip in self.list_clips("train"))
        others = "".join(lower_letters(clip.text) for clip in self.clips if clip.split != "train")
        return Counter(char for char in others if char in self.vocabulary and char not in trained)

    def _read_tensor(self, clip: RecordedClip, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        path = clip_path(self.folder, clip.digest)
        try:
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise make_damaged_error(
                self.folder, f"{path.name} of clip {clip.name} cannot be read ({error})"
            ) from error
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            wrong = f"{tensor.dtype} {list(tensor.shape)} instead of {dtype} {list(shape)}"
            raise make_damaged_error(self.folder, f"{name} of clip {clip.name} is {wrong}")
        return tensor


def hash_content(text: str, samples: Tensor) -> str:
    """Digest of a clip: sha256 of its text and its samples, int16 [T]."""
    return hashlib.sha256(text.encode() + b"\0" + samples.numpy().astype("<i2").tobytes()).hexdigest()


def convert_to_floats(samples: Tensor) -> Tensor:
    """Convert samples, int16 [T], to float32 [T] in -1 to 1."""
    return samples.float() / FULL_SCALE


def clip_path(folder: Path, digest: str) -> Path:
    """Path of a clip in a prepared folder."""
    return folder / CLIPS / f"{digest}.safetensors"


def write_clip(folder: Path, digest: str, samples: Tensor, framing: FrameSettings) -> None:
    """Write a clip's samples, int16 [frames · hop], and their spectrogram.

    Raises:
        OSError: The file cannot be written.
    """
    magnitudes = spectrogram(convert_to_floats(samples)[None], framing)[0].half().contiguous()
    path = clip_path(folder, digest)
    try:
        save_file({"wave": samples, "spectrogram": magnitudes}, path)
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from error


MAX_LISTED: Final = 20
"""Maximum number of clips, characters or files in one notice."""


def describe_corpus_problems(corpus: SpeechCorpus) -> tuple[str, ...]:
    """Warnings about rejected clips, unknown or untrained characters, and unlisted recordings."""
    problems = [*_describe_shared_problems(corpus)]
    if corpus.untrained_characters:
        problems.append(f"characters in no training clip are not learnt: {_format_counts(corpus.untrained_characters)}")
    if corpus.unlisted:
        problems.append(
            f"{len(corpus.unlisted)} recordings have no line in metadata.csv: {_join_names(corpus.unlisted)}"
        )
    return tuple(problems)


def describe_correction_problems(corpus: SpeechCorpus, idle: Sequence[str]) -> tuple[str, ...]:
    """Warnings about rejected corrections, unknown characters, and ratings without effect.

    Args:
        corpus: Corpus of corrections.
        idle: Names of selection or held-out clips that are rated above 1.
    """
    problems = [*_describe_shared_problems(corpus)]
    if idle:
        problems.append(
            f"ratings above 1 have no effect on {len(idle)} selection or held-out clips: {_join_names(idle)}"
        )
    return tuple(problems)


def _describe_shared_problems(corpus: SpeechCorpus) -> Iterator[str]:
    """Warnings that apply to recordings and corrections."""
    if corpus.refused:
        total = len(corpus.refused) + len(corpus.clips)
        reasons = "".join(f"\n  {clip.name}: {clip.reason}" for clip in corpus.refused[:MAX_LISTED])
        rest = _format_rest(len(corpus.refused), "\n")
        yield f"{len(corpus.refused)} of {total} clips were left out:{reasons}{rest}"
    if corpus.unknown:
        yield f"characters missing from the vocabulary are not spoken: {_format_counts(corpus.unknown)}"


def _format_counts(counts: Mapping[str, int]) -> str:
    """List characters with their counts, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return _join_names(f"{char!r} ({count} times)" for char, count in ordered)


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:MAX_LISTED]) + _format_rest(len(listed), " ")


def _format_rest(count: int, space: str) -> str:
    return f"{space}and {count - MAX_LISTED} more" if count > MAX_LISTED else ""
