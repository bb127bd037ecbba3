"""Reading one version from its folder: verify, assemble, prove by the golden instance."""

from dataclasses import dataclass
from pathlib import Path

import torch

from predictor import artifact, golden
from predictor.artifact import StoredArtifact, StoredEnsemble
from predictor.errors import ArtifactError, ConfigurationError
from predictor.model import Ensemble, Model, ModelIdentity, Predictor

Stored = StoredArtifact | StoredEnsemble


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where networks run, and how many rows at once."""

    device: torch.device
    max_rows: int

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ConfigurationError(f"rows at once are {self.max_rows}, but must be at least 1")


def load_model(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Predictor:
    """Read an artifact or an ensemble of artifacts, verify it, build the model and run every golden instance.

    Raises:
        ArtifactError: the artifact is not whole, or computes something other than was recorded.
    """
    return built(read_version(folder), identity, runtime)


def load_single(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Model:
    """As `load_model`, of an artifact that holds one network.

    Raises:
        ArtifactError: as `load_model`, or the artifact is an ensemble.
    """
    return built_single(artifact.load(folder), identity, runtime)


def read_version(folder: Path) -> Stored:
    """An artifact or an ensemble of artifacts as it lies in its folder, verified.

    Raises:
        ArtifactError: it is not whole.
    """
    try:
        return artifact.load_ensemble(folder) if artifact.is_ensemble(folder) else artifact.load(folder)
    except OSError as error:
        raise ArtifactError(f"the folder cannot be read: {error.strerror}") from error


def built(stored: Stored, identity: tuple[str, int], runtime: Runtime) -> Predictor:
    """The model of what was read, after every golden instance.

    Raises:
        ArtifactError: its parts do not fit together, or compute something other than was recorded.
    """
    if isinstance(stored, StoredEnsemble):
        return _built_ensemble(stored, identity, runtime)
    return built_single(stored, identity, runtime)


def built_single(stored: StoredArtifact, identity: tuple[str, int], runtime: Runtime) -> Model:
    """As `built`, of an artifact that holds one network."""
    name, version = identity
    try:
        model = Model.assemble(
            ModelIdentity(name=name, version=version, weights_hash=stored.weights_hash),
            stored.artifact,
            device=runtime.device,
            max_rows=runtime.max_rows,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(artifact.MANIFEST, error.message) from error
    golden.check(model, stored.golden)
    return model


def _built_ensemble(stored: StoredEnsemble, identity: tuple[str, int], runtime: Runtime) -> Ensemble:
    name, version = identity
    try:
        ensemble = Ensemble.assemble(
            ModelIdentity(name=name, version=version, weights_hash=stored.weights_hash),
            stored,
            device=runtime.device,
            max_rows=runtime.max_rows,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(artifact.MANIFEST, error.message) from error
    golden.check_ensemble(ensemble, stored)
    return ensemble
