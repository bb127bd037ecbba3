"""The versions of a voice in one folder: which is current, and what each has learnt from; none is ever overwritten.

VOICE/voice.json      the current version, and the corrections that versions have learnt from
VOICE/1/              a folder that `VitsModel.from_pretrained` reads, with `training.json`
VOICE/2/              …
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

from safetensors import SafetensorError

from trainers.media.run_directory import appearing, next_draft
from trainers.vits.errors import VoiceError
from trainers.vits.vocabulary import shortened
from trainers.vits.voice import Voice

INDEX: Final = "voice.json"
TRAINING: Final = "training.json"


@dataclass(frozen=True, slots=True)
class VersionIndex:
    """What `voice.json` says.

    Attributes:
        current: the version that is spoken with.
        versions: how many there are; they are counted from 1.
        consumed: corrections and ratings by the digest of their content, with the version that learnt from them.
    """

    current: int = 0
    versions: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def read(cls, path: Path) -> Self:
        """The index of a file.

        Raises:
            VoiceError: it is damaged, or of another layout.
        """
        try:
            told = json.loads(path.read_text("utf-8"))
            index = cls(**told)
            numbers = (index.current, index.versions, *index.consumed.values())
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise VoiceError(f"{path} is damaged ({error}); restore it, or name a version's folder") from error
        if not all(type(number) is int for number in numbers) or not 1 <= index.current <= index.versions:
            raise VoiceError(f"{path} is damaged: its numbers are no versions; restore it, or name a version's folder")
        return index


@final
class VoiceVersions:
    """The versions of one voice.

    Args:
        folder: theirs; it need not exist.

    Attributes:
        folder: as given.
        index: what it holds.

    Raises:
        VoiceError: its index is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / INDEX
        self.index = VersionIndex.read(path) if path.is_file() else VersionIndex()

    @property
    def current(self) -> Path:
        """The folder of the version that is spoken with.

        Raises:
            VoiceError: there is no version.
        """
        if not self.index.current:
            raise VoiceError(
                f"{self.folder} holds no voice; train one: quantra train vits train CORPUS --out {self.folder}"
            )
        return self.folder / str(self.index.current)

    @property
    def following(self) -> Path:
        """The folder that the next version is to have."""
        return self.folder / str(self.index.versions + 1)

    def add(
        self,
        voice: Voice,
        training: Mapping[str, Any],
        consumed: frozenset[str] = frozenset(),
        beside: Callable[[Path], None] = lambda _folder: None,
    ) -> Path:
        """Keep a voice as the next version, which is then the current one.

        The folder appears whole or not at all, and the index changes last. Where the folder of this very training is
        there already, because a kill came between the two, the index alone changes.

        Args:
            voice: what it speaks with.
            training: how it came to be, as JSON.
            consumed: digests of the corrections and ratings that it has learnt from.
            beside: writes into the folder, which it is given, what else belongs to the version.

        Returns:
            The version's folder.

        Raises:
            VoiceError: the folder of that version exists, which no index speaks of; or it cannot be written.
        """
        place = self.following
        if not place.exists():
            self._appear(place, voice, training, beside)
        elif _told(place) != _json(training):
            raise VoiceError(f"{place} exists and {self.folder / INDEX} does not know it; move it away")
        number = self.index.versions + 1
        known = dict(self.index.consumed) | dict.fromkeys(consumed, number)
        self._write(replace(self.index, current=number, versions=number, consumed=known))
        return place

    def check_unchanged(self) -> None:
        """That nobody has given the voice another version since this was read.

        Raises:
            VoiceError: somebody has.
        """
        if VoiceVersions(self.folder).index != self.index:
            raise VoiceError(
                f"{self.folder} has got another version, or another current one, in the meantime; start the command "
                "again, which then begins from it"
            )

    def choose(self, version: int) -> None:
        """Make another version the current one, such as the one before a correction.

        Raises:
            VoiceError: there is none of that number.
        """
        if not 1 <= version <= self.index.versions:
            raise VoiceError(f"{self.folder} has versions 1 to {self.index.versions}, not {version}")
        self._write(replace(self.index, current=version))

    def _appear(self, place: Path, voice: Voice, training: Mapping[str, Any], beside: Callable[[Path], None]) -> None:
        """Write a version's folder under another name, and give it its own when it can be read again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with appearing(place, next_draft(place)) as draft:
                voice.save(draft)
                (draft / TRAINING).write_text(_json(training), "utf-8")
                beside(draft)
                Voice.load(draft)
        except (OSError, SafetensorError) as error:
            raise VoiceError(
                f"{place} cannot be written ({shortened(str(error), 200)}); make room there, and go on with the same "
                "command and --resume"
            ) from error

    def _write(self, index: VersionIndex) -> None:
        draft = self.folder / f".{INDEX}.draft"
        with draft.open("w", encoding="utf-8") as file:
            file.write(_json(asdict(index)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / INDEX)
        self.index = index


def _told(version: Path) -> str | None:
    """How a version came to be, as its folder says; None where it does not."""
    path = version / TRAINING
    return path.read_text("utf-8") if path.is_file() else None


def voice_folder(path: Path) -> Path:
    """The folder to load: the current version of a voice, or the folder itself if a `VitsModel` is in it."""
    return path if (path / "config.json").is_file() else VoiceVersions(path).current


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
