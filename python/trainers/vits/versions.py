"""Versions of a voice in one folder, which are never overwritten.

VOICE/voice.json      the current version, and the corrections used by versions
VOICE/1/              a folder that `VitsModel.from_pretrained` reads, with `training.json`
VOICE/2/              …
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

from safetensors import SafetensorError

from predictor.draft_folder import publish_folder, remove_drafts
from predictor.replacement import replace_file
from trainers.vits.errors import VoiceError
from trainers.vits.vocabulary import shorten
from trainers.vits.voice import Voice

INDEX: Final = "voice.json"
TRAINING: Final = "training.json"


@dataclass(frozen=True, slots=True)
class VersionIndex:
    """Contents of `voice.json`.

    Attributes:
        current: Number of the current version.
        versions: Number of versions, counted from 1.
        consumed: Version that used each correction or rating, by content digest.
    """

    current: int = 0
    versions: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an index.

        Raises:
            VoiceError: The file is damaged.
        """
        try:
            index = cls(**json.loads(path.read_text("utf-8")))
            numbers = (index.current, index.versions, *index.consumed.values())
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise VoiceError(f"{path} is damaged ({error}); restore it, or give the folder of a version") from error
        if not all(type(number) is int for number in numbers) or not 1 <= index.current <= index.versions:
            raise VoiceError(f"{path} is damaged: invalid version numbers; restore it, or give the folder of a version")
        return index


@final
class VoiceVersions:
    """The versions of one voice.

    Args:
        folder: Folder of the voice; need not exist.

    Attributes:
        folder: As given.
        index: Contents of its index.

    Raises:
        VoiceError: The index is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / INDEX
        self.index = VersionIndex.read(path) if path.is_file() else VersionIndex()

    @property
    def current(self) -> Path:
        """Folder of the current version.

        Raises:
            VoiceError: The voice has no versions.
        """
        if not self.index.current:
            raise VoiceError(
                f"{self.folder} holds no voice; train one: quantra train vits train CORPUS --out {self.folder}"
            )
        return self.folder / str(self.index.current)

    @property
    def following(self) -> Path:
        """Folder of the next version."""
        return self.folder / str(self.index.versions + 1)

    def add(
        self,
        voice: Voice,
        training: Mapping[str, Any],
        consumed: frozenset[str] = frozenset(),
        write_extra: Callable[[Path], None] = lambda _folder: None,
    ) -> Path:
        """Save a voice as the next version and make it current.

        The folder is written atomically, and the index changes last. If a process was killed in between, the existing
        folder of the same run is reused.

        Args:
            voice: Voice to save.
            training: Record of its training, as JSON.
            consumed: Digests of the corrections and ratings that it used.
            write_extra: Writes additional files into the version's folder.

        Returns:
            Folder of the version.

        Raises:
            VoiceError: The folder exists but is not in the index, or cannot be written.
        """
        path = self.following
        if not path.exists():
            self._write_version(path, voice, training, write_extra)
        elif not (path / TRAINING).is_file() or (path / TRAINING).read_text("utf-8") != _to_json(training):
            raise VoiceError(f"{path} exists but is not in {self.folder / INDEX}; move it away")
        number = self.index.versions + 1
        all_consumed = dict(self.index.consumed) | dict.fromkeys(consumed, number)
        self._write(replace(self.index, current=number, versions=number, consumed=all_consumed))
        return path

    def check_unchanged(self) -> None:
        """Check that the index has not changed since it was read.

        Raises:
            VoiceError: Another process changed it.
        """
        if VoiceVersions(self.folder).index != self.index:
            raise VoiceError(
                f"{self.folder} was changed by another command in the meantime; run this command again to start from "
                "the new version"
            )

    def choose(self, version: int) -> None:
        """Make another version current, such as the previous one.

        Raises:
            VoiceError: The version does not exist.
        """
        if not 1 <= version <= self.index.versions:
            raise VoiceError(f"{self.folder} has versions 1 to {self.index.versions}, not {version}")
        self._write(replace(self.index, current=version))

    def _write_version(
        self, path: Path, voice: Voice, training: Mapping[str, Any], write_extra: Callable[[Path], None]
    ) -> None:
        """Write a draft of a version, check that it can be loaded, and rename it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_drafts(self.folder, path.name)
            with publish_folder(path) as draft:
                voice.save(draft)
                (draft / TRAINING).write_text(_to_json(training), "utf-8")
                write_extra(draft)
                Voice.load(draft)
        except (OSError, SafetensorError) as error:
            raise VoiceError(
                f"{path} cannot be written ({shorten(str(error), 200)}); free space and run the same command with "
                "--resume"
            ) from error

    def _write(self, index: VersionIndex) -> None:
        replace_file(self.folder / INDEX, _to_json(asdict(index)).encode())
        self.index = index


def find_voice_folder(path: Path) -> Path:
    """Folder to load: the current version of a voice, or the folder itself if it holds a `VitsModel`."""
    return path if (path / "config.json").is_file() else VoiceVersions(path).current


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
