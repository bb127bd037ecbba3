"""Reading one version from its folder: verify, assemble, prove by the golden instance."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Self, final

import torch

from predictor import artifact, golden
from predictor.artifact import MANIFEST, StoredArtifact, StoredEnsemble
from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError
from predictor.forecast import Attribution, Outcome, TargetPoint
from predictor.instance import Cancellation, Query, ReadInstance
from predictor.model import (
    Ensemble,
    Model,
    ModelIdentity,
    Predictor,
    PreparedBatch,
    default_targets,
    ensemble_info,
    member_identities,
    model_info,
)
from predictor.registry.lock import VersionLock

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


@final
class LazyModel:
    """One version of a model as its folder holds it, whole and verified. Thread-safe.

    Its network is built, and every golden instance run, at the first call that needs it, on the thread of that call and
    once; who asks meanwhile waits. A version that cannot be built stays so until it is read again.
    """

    def __init__(self, folder: Path, stored: Stored, identity: tuple[str, int], runtime: Runtime) -> None:
        """Receive where the version lies and what was read there; of that, weights and golden instance are not kept."""
        name, version = identity
        self.identity = ModelIdentity(name=name, version=version, weights_hash=stored.weights_hash)
        self.manifest_hash = stored.manifest_hash
        self._folder = folder
        self._runtime = runtime
        self._info = _info(self.identity, stored)
        self._targets = _targets(stored)
        self._building = threading.Lock()
        self._model: Predictor | None = None
        self._failure: ArtifactError | None = None

    @classmethod
    def read(cls, folder: Path, identity: tuple[str, int], runtime: Runtime, lock: VersionLock | None) -> Self:
        """Read and verify a version; nothing is built.

        Raises:
            ArtifactError: it is not whole, or the lock does not allow it; the message names the version.
        """
        name, version = identity
        try:
            stored = _read(folder)
            if lock is not None:
                lock.check(name, version, stored.manifest_hash)
        except ArtifactError as error:
            raise of_version(name, version, error) from error
        return cls(folder, stored, identity, runtime)

    def stands_for(self, read: "LazyModel") -> bool:
        """Whether what was read later is the same artifact, and there is no need to try again."""
        return self.manifest_hash == read.manifest_hash and self._failure is None

    def build(self) -> Predictor:
        """The model, built now unless it was before.

        Raises:
            ArtifactError: the version computes something other than was recorded, or was changed or damaged since it
                was verified; the message names the version, and is the same at every call.
        """
        if self._model is not None:
            return self._model
        with self._building:
            if self._failure is not None:
                raise ArtifactError(self._failure.message, metadata=self._failure.metadata)
            if self._model is None:
                self._model = self._built()
            return self._model

    def prepare_batch(self, instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation) -> PreparedBatch:
        """As `Predictor.prepare_batch`; raises as `build` too."""
        return self.build().prepare_batch(instances, now, deadline)

    def predict(self, instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation) -> tuple[Outcome, ...]:
        """As `Predictor.predict`; raises as `build` too."""
        return self.build().predict(instances, now, deadline)

    def explain(self, query: Query, now: datetime, deadline: Cancellation) -> tuple[Attribution, ...]:
        """As `Predictor.explain`; raises as `build` too."""
        return self.build().explain(query, now, deadline)

    def explain_cost(self, query: Query) -> int:
        """As `Predictor.explain_cost`; raises as `build` too."""
        return self.build().explain_cost(query)

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """As `Predictor.default_targets`; builds nothing."""
        return self._targets

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the model is, for people and programs; builds nothing."""
        return replace(self._info, aliases=aliases, is_default=is_default)

    def _built(self) -> Predictor:
        """The model from the folder, if what lies there is still what was verified."""
        name, version = self.identity.name, self.identity.version
        try:
            stored = _read(self._folder)
            if stored.manifest_hash != self.manifest_hash:
                raise ArtifactError.of(MANIFEST, "was changed after it was verified; reload the version")
            return built(stored, (name, version), self._runtime)
        except ArtifactError as error:
            self._failure = of_version(name, version, error)
            raise self._failure from error


def of_version(name: str, version: int, error: ArtifactError) -> ArtifactError:
    """The same error, of this version of a model; `metadata` names both."""
    return ArtifactError(
        f"{name}/{version}: {error.message}", metadata={**error.metadata, "model": name, "version": str(version)}
    )


def _read(folder: Path) -> Stored:
    """As `read_version`; where there is no folder, the message names no path of this machine."""
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where a folder may not be looked into
        raise ArtifactError("its folder is gone; put it back, or unload the version")
    return read_version(folder)


def _info(identity: ModelIdentity, stored: Stored) -> ModelInfo:
    """What is known of a version before it is built; without aliases."""
    if not isinstance(stored, StoredEnsemble):
        return model_info(identity, stored.artifact.manifest, stored.artifact.pipeline, (), is_default=False)
    parts = [(own, stored.members[name].artifact) for name, own in member_identities(identity, stored).items()]
    members = [model_info(own, part.manifest, part.pipeline, (), is_default=False) for own, part in parts]
    return ensemble_info(identity, stored.manifest, members, (), is_default=False)


def _targets(stored: Stored) -> tuple[TargetPoint, ...]:
    manifest = stored.manifest if isinstance(stored, StoredEnsemble) else stored.artifact.manifest
    return default_targets(manifest.target, manifest.quantiles)
