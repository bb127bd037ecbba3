"""A prepared corpus: clips with their texts, checked once, cut into parts, with their spectrograms beside them.

A folder of

- `corpus.json`: what was prepared, of which clips, and what was left out;
- `vocab.json`: the characters of the texts and their numbers;
- `clips/DIGEST.safetensors`: per clip its wave in 16 bits and its spectrogram in half precision, whose relative
  error is at most 2⁻¹¹ between 6e-5 and 65,504: magnitudes lie between 1e-3 and half the samples of a frame.

It is written once, whole, by `trainers.vits.preparation`, and only read afterwards.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainers.media.metadata import RejectedFile
from trainers.vits.contents import Part, RecordedClip, damaged, read_contents
from trainers.vits.errors import VoiceError
from trainers.vits.spectrum import FrameSettings, spectrogram
from trainers.vits.vocabulary import VOCABULARY, characters, read_vocabulary, small_letters

__all__ = [
    "CLIPS",
    "Part",
    "RecordedClip",
    "RejectedFile",
    "SpeechCorpus",
    "clip_path",
    "content_digest",
    "floats",
    "write_clip",
]

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
