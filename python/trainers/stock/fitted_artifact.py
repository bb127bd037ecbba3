"""What a fit in memory leaves: the files of an artifact, and the model that they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from predictor import artifact, canonical
from predictor.artifact import StoredArtifact
from predictor.card import Card
from predictor.errors import ConfigurationError
from predictor.inference import choose_device
from predictor.model import Model
from predictor.registry import Runtime, built_single


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedArtifact:
    """An artifact that lies in no folder yet."""

    files: Mapping[str, bytes]
    stored: StoredArtifact
    """The same, read."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Self:
        """Read the files of an artifact that was just made."""
        return cls(files=files, stored=artifact.unpacked(files))

    @property
    def card(self) -> Card:
        """How it was made and how well it does."""
        return Card.from_json(canonical.to_bytes(dict(self.stored.artifact.manifest.card)).decode())

    @property
    def sentence(self) -> str:
        """How well it does beside the best baseline, in words."""
        skill = self.card.skill
        return "there are no scores of it" if skill is None else skill.sentence

    def model(self, device: str, *, max_rows: int) -> Model:
        """The model as it is after loading, proven by its golden instance; its name is that of its kind.

        Raises:
            ConfigurationError: there is no such device.
        """
        name = self.stored.artifact.manifest.kind.name
        return built_single(self.stored, (name, 1), Runtime(choose_device(device), max_rows))

    def save(self, folder: Path) -> None:
        """Write the artifact's folder, whole or not at all.

        Raises:
            ConfigurationError: the folder exists already, or cannot be written.
        """
        artifact.check_place(folder)
        try:
            artifact.write_folder(folder, self.files)
        except OSError as error:
            raise ConfigurationError(f"{folder} cannot be saved: {error.strerror}; choose another place") from error
