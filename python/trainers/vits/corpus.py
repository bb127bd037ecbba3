"""A prepared corpus: clips with their texts, checked once, cut into parts, with their spectrograms beside them.

A folder of

- `corpus.json`: what was prepared, of which clips, and what was left out;
- `vocab.json`: the characters of the texts and their numbers;
- `clips/DIGEST.safetensors`: per clip its wave in 16 bits and its spectrogram in half precision, whose relative
  error is at most 2⁻¹¹ between 6e-5 and 65,504: magnitudes lie between 1e-3 and half the frame's samples.

It is written once, whole, by `trainers.vits.preparation`, and only read afterwards.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, Self, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainers.vits.errors import CorpusError, VoiceError
from trainers.vits.spectrum import Framing, spectrogram
from trainers.vits.vocabulary import VOCABULARY, read_vocabulary

Part = Literal["train", "selection", "held_out"]
"""What a clip is for: to learn from, to choose by (the speaking rate, when to stop), to judge by."""

VERSION: Final = 1
MANIFEST: Final = "corpus.json"
CLIPS: Final = "clips"
FULL_SCALE: Final = 32_768
"""The step between two samples of 16 bits is its inverse."""


@dataclass(frozen=True, slots=True)
class Clip:
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


@dataclass(frozen=True, slots=True)
class Refused:
    """A line or a recording that was left out.

    Attributes:
        name: its id in metadata.csv, or the line where it has none.
        reason: the file, what is wrong with it, and what to do.
    """

    name: str
    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A prepared folder, opened.

    Attributes:
        folder: where it is.
        framing: of waves and spectrograms.
        clips: in the order of metadata.csv.
        vocabulary: characters and their numbers; the blank "<pad>" is 0.
        refused: what was left out, and why.
        unknown: characters of the texts that the vocabulary does not hold, and how often they occur.
        unlisted: recordings in the source's folder that no line of metadata.csv names.
    """

    folder: Path
    framing: Framing
    clips: tuple[Clip, ...]
    vocabulary: Mapping[str, int]
    refused: tuple[Refused, ...]
    unknown: Mapping[str, int]
    unlisted: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a prepared folder; the clips themselves are read when they are asked for.

        Raises:
            CorpusError: The folder is not prepared, is damaged, or was prepared by another version.
        """
        found = _manifest(folder)
        try:
            vocabulary = read_vocabulary(folder / VOCABULARY)
        except VoiceError as error:
            raise _damaged(folder, error.message) from error
        corpus = cls(
            folder=folder,
            framing=_framing(folder, found["framing"]),
            clips=tuple(_clip(folder, clip) for clip in _list(folder, found["clips"])),
            vocabulary=vocabulary,
            refused=tuple(_refused(folder, one) for one in _list(folder, found["refused"])),
            unknown=_counts(folder, found["unknown"]),
            unlisted=tuple(_text(folder, name) for name in _list(folder, found["unlisted"])),
        )
        _check_clips(corpus)
        return corpus

    def part(self, part: Part) -> tuple[Clip, ...]:
        """The clips of one part."""
        return tuple(clip for clip in self.clips if clip.part == part)

    def wave(self, clip: Clip) -> Tensor:
        """A clip's samples.

        Returns:
            float32 [frames · hop], in -1 to 1.

        Raises:
            CorpusError: The clip's file is missing or damaged: text and samples must give its digest.
        """
        wave = self._tensor(clip, "wave", (clip.frames * self.framing.hop,), torch.int16)
        if content_digest(clip.text, wave) != clip.digest:
            raise _damaged(self.folder, f"text or samples of clip {clip.name} are not those that were prepared")
        return floats(wave)

    def spectrogram(self, clip: Clip) -> Tensor:
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

    def _tensor(self, clip: Clip, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """One tensor of a clip's file."""
        path = clip_path(self.folder, clip.digest)
        try:
            with safe_open(path, framework="pt") as file:
                found: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise _damaged(self.folder, f"{path.name} of clip {clip.name} cannot be read: {error}") from error
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise _damaged(
                self.folder,
                f"{name} of clip {clip.name} is {found.dtype} {list(found.shape)} instead of {dtype} {list(shape)}",
            )
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


def write_clip(folder: Path, digest: str, samples: Tensor, framing: Framing) -> None:
    """Keep a clip's samples, int16 [frames · hop], and their spectrogram.

    Raises:
        OSError: The file cannot be written.
    """
    magnitudes = spectrogram(floats(samples)[None], framing)[0].half().contiguous()
    try:
        save_file({"wave": samples, "spectrogram": magnitudes}, clip_path(folder, digest))
    except SafetensorError as error:
        raise OSError(None, str(error), str(clip_path(folder, digest))) from error


def write_manifest(corpus: Corpus) -> None:
    """Write everything of a corpus but its clips into its folder; the same corpus gives the same bytes.

    Raises:
        OSError: A file cannot be written.
    """
    said = {
        "version": VERSION,
        "framing": asdict(corpus.framing),
        "clips": [asdict(clip) for clip in corpus.clips],
        "refused": [asdict(one) for one in corpus.refused],
        "unknown": dict(sorted(corpus.unknown.items())),
        "unlisted": list(corpus.unlisted),
    }
    _write_json(corpus.folder / VOCABULARY, dict(corpus.vocabulary))
    _write_json(corpus.folder / MANIFEST, said)


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_bytes(json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")


def _manifest(folder: Path) -> Mapping[str, object]:
    """What corpus.json says, of this version, with exactly the keys that it must have."""
    try:
        found: object = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise CorpusError(
            f"{folder} is no prepared corpus: it has no {MANIFEST}; make one by: quantra train vits prepare"
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{MANIFEST} cannot be read: {error}") from error
    match found:
        case {"version": int(version)} if version != VERSION:
            raise CorpusError(f"{folder} was prepared in version {version}, here {VERSION} is read; prepare it again")
        case {
            "version": int(),
            "framing": framing,
            "clips": clips,
            "refused": refused,
            "unknown": unknown,
            "unlisted": unlisted,
            **rest,
        } if not rest:
            return Refused(name, reason)
        case _:
            raise _damaged(folder, f"{MANIFEST} has {str(value)[:120]} as a clip left out")


def _counts(folder: Path, value: object) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise _damaged(folder, f"{MANIFEST} has {str(value)[:40]} where counts must stand")
    counts: dict[str, int] = {}
    for sign, count in value.items():
        if not isinstance(count, int):
            raise _damaged(folder, f"{MANIFEST} has {count!r} as the count of {sign!r}")
        counts[str(sign)] = count
    return counts


def _check_clips(corpus: Corpus) -> None:
    """That there are clips, and a file for each."""
    if not corpus.clips:
        raise _damaged(corpus.folder, "it has no clips")
    kept = {path.stem for path in (corpus.folder / CLIPS).glob("*.safetensors")}
    missing = [clip.name for clip in corpus.clips if clip.digest not in kept]
    if missing:
        raise _damaged(corpus.folder, f"{len(missing)} clips have no file, {missing[0]} the first")
