"""A fitted artifact that is held in memory."""

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
from predictor.registry import Runtime, built_single, claim_first_champion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedArtifact:
    """An artifact that is not saved yet."""

    files: Mapping[str, bytes]
    stored: StoredArtifact
    """The same files, parsed."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Self:
        """Parse the files of a new artifact."""
        return cls(files=files, stored=artifact.unpack_artifact(files))

    @property
    def card(self) -> Card:
        """Its training record and scores."""
        return Card.from_json(canonical.to_bytes(dict(self.stored.artifact.manifest.card)).decode())

    @property
    def sentence(self) -> str:
        """Its skill against the best baseline, as text."""
        skill = self.card.skill
        return "the model has no scores" if skill is None else skill.sentence

    def model(self, device: str, *, max_rows: int) -> Model:
        """The model, verified with its golden instance as after loading; it is named after its kind.

        Raises:
            ConfigurationError: the device is not available.
        """
        name = self.stored.artifact.manifest.kind.name
        return built_single(self.stored, (name, 1), Runtime(choose_device(device), max_rows))

    def save(self, folder: Path) -> None:
        """Write the artifact's folder atomically.

        Raises:
            ConfigurationError: the folder exists or cannot be written.
        """
        artifact.check_new_folder(folder)
        try:
            artifact.write_folder(folder, self.files)
        except OSError as error:
            raise ConfigurationError(f"{folder} cannot be saved: {error.strerror}; choose another place") from error
        claim_first_champion(folder)
