"""Loading of one model version: verification, assembly and the check of its golden instance.

The ONNX graph of a model is written once by a separate process, and kept in a cache.
"""

import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, final

import torch

from predictor import artifact, golden
from predictor.artifact import MANIFEST, MEMBERS, StoredArtifact, StoredEnsemble
from predictor.call_context import Deadline
from predictor.catalog import EngineName, ModelInfo
from predictor.errors import ArtifactError, ConfigurationError, MissingPackageError
from predictor.forecast import Attribution, Outcome, TargetPoint
from predictor.inference import GraphEngine, open_graph
from predictor.instance import ExplanationQuery, InstanceOrError
from predictor.model import (
    Ensemble,
    Model,
    ModelIdentity,
    Predictor,
    PreparedBatch,
    describe_ensemble,
    describe_model,
    identify_members,
    list_default_targets,
)
from predictor.registry.lock import VersionLock
from predictor.replacement import replace_file

GRAPH_PACKAGES: Final = ("quantra", "torch", "onnx", "onnxscript", "onnxruntime")
"""Packages whose versions a graph depends on."""
GRAPH_KEY_DIGITS: Final = 32
MAX_EXPORT_S: Final = 600.0
"""Seconds after which writing a graph is given up."""


def load_graph(folder: Path, stored_model: StoredArtifact) -> bytes:
    """Read the graph of an artifact from the cache, or write it there.

    The name of a file has the hash of the graph's sources, and that of its content; a damaged file is written
    again.

    Args:
        folder: Folder of the artifact.
        stored_model: The artifact as read from it.

    Raises:
        ArtifactError: The graph cannot be written.
    """
    # The folder of the graphs: `quantra/graphs` in XDG_CACHE_HOME or ~/.cache, or in LOCALAPPDATA on Windows.
    home = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    cache = Path(home or Path.home() / ".cache") / "quantra" / "graphs"
    parts = (stored_model.weights_hash, stored_model.manifest_hash, *map(version, GRAPH_PACKAGES))
    key = _compute_digest("|".join(parts).encode())
    try:
        for file in cache.glob(f"{key}.*.onnx"):
            graph = file.read_bytes()
            if file.name == f"{key}.{_compute_digest(graph)}.onnx":
                return graph
        graph = _write_graph(folder)
        cache.mkdir(parents=True, exist_ok=True)
        replace_file(cache / f"{key}.{_compute_digest(graph)}.onnx", graph)
    except OSError as error:
        raise _make_graph_error(f"{error.filename or cache}: {error.strerror}") from error
    return graph


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:GRAPH_KEY_DIGITS]


def _write_graph(folder: Path) -> bytes:
    """Write the graph in another process, because torch's exporter needs hundreds of MB that it does not release."""
    command = [sys.executable, "-m", "predictor.export", str(folder)]
    read_end, write_end = os.pipe()  # closes when this process ends, however it ends; then the other one ends too
    try:
        process = subprocess.run(command, stdin=read_end, capture_output=True, check=False, timeout=MAX_EXPORT_S)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise _make_graph_error(f"not finished after {MAX_EXPORT_S:g} seconds") from error
    finally:
        os.close(read_end)
        os.close(write_end)
    if process.returncode:
        raise _make_graph_error(" ".join(process.stderr.decode(errors="replace").split())[-300:])
    return process.stdout


def _make_graph_error(reason: str) -> ArtifactError:
    return ArtifactError(f"its ONNX graph cannot be written ({reason}); serve it with --engine eager")


_log = logging.getLogger(__name__)

StoredVersion = StoredArtifact | StoredEnsemble


@dataclass(frozen=True, slots=True)
class Runtime:
    """The device of the networks, their batch size, and the engine of forecasts.

    Raises:
        ConfigurationError: A number is below 1, or the engine does not run on the device.
        MissingPackageError: A package of the engine is not installed.
    """

    device: torch.device
    max_rows: int
    engine: EngineName = "eager"
    """`onnxruntime`: ONNX Runtime for the batch sizes at which it is faster, otherwise torch."""
    wrap: Callable[[Model | Ensemble], Predictor] = lambda model: model
    """Wraps each model of a registry."""

    def __post_init__(self) -> None:
        if self.engine == "onnxruntime":
            if self.device.type != "cpu":
                raise ConfigurationError(
                    f"engine onnxruntime runs on the CPU, but the device is {self.device}; use eager"
                )
            for package in ("onnx", "onnxscript", "onnxruntime"):
                if find_spec(package) is None:
                    raise MissingPackageError.of(package, "onnx", "the engine onnxruntime")
        if self.max_rows < 1:
            raise ConfigurationError(f"rows at once are {self.max_rows}, but must be at least 1")


def load_model(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Model | Ensemble:
    """Read an artifact or an ensemble of artifacts, verify it, build the model and run every golden instance.

    Raises:
        ArtifactError: the artifact is incomplete, or its results differ from the recorded ones.
    """
    return add_graphs(build(read_version(folder), identity, runtime), folder, runtime)


def load_single(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Model:
    """Load an artifact with one network; see `load_model`.

    Raises:
        ArtifactError: see `load_model`; or the artifact is an ensemble.
    """
    return build_single(artifact.load(folder), identity, runtime)


def read_version(folder: Path) -> StoredVersion:
    """Read and verify an artifact or an ensemble.

    Raises:
    ArtifactError: the artifact is incomplete or damaged.
    """
    try:
        return artifact.load_ensemble(folder) if artifact.is_ensemble(folder) else artifact.load(folder)
    except OSError as error:
        raise ArtifactError(f"the folder cannot be read: {error.strerror}") from error


def build(stored_model: StoredVersion, identity: tuple[str, int], runtime: Runtime) -> Model | Ensemble:
    """Build a model and check every golden instance.

    Raises:
    ArtifactError: the parts do not fit together, or the results differ from the recorded ones.
    """
    if isinstance(stored_model, StoredEnsemble):
        name, version = identity
        try:
            ensemble = Ensemble.assemble(
                ModelIdentity(name=name, version=version, weights_hash=stored_model.weights_hash),
                stored_model,
                device=runtime.device,
                max_rows=runtime.max_rows,
            )
        except ConfigurationError as error:
            raise ArtifactError.of(artifact.MANIFEST, error.message) from error
        golden.check_ensemble(ensemble, stored_model)
        return ensemble
    return build_single(stored_model, identity, runtime)


def build_single(stored_model: StoredArtifact, identity: tuple[str, int], runtime: Runtime) -> Model:
    """Build the model of an artifact with one network; see `build`."""
    name, version = identity
    try:
        model = Model.assemble(
            ModelIdentity(name=name, version=version, weights_hash=stored_model.weights_hash),
            stored_model.artifact,
            device=runtime.device,
            max_rows=runtime.max_rows,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(artifact.MANIFEST, error.message) from error
    golden.check(model, stored_model.golden)
    return model


def add_graphs(model: Model | Ensemble, folder: Path, runtime: Runtime) -> Model | Ensemble:
    """The model with ONNX graphs, if the runtime asks for them, for networks whose rows are independent.

    Raises:
        ArtifactError: A graph cannot be written, or its results differ from the recorded ones.
    """
    if runtime.engine == "eager":
        return model
    if isinstance(model, Ensemble):
        members = {name: _add_graph(served, folder / MEMBERS / name) for name, served in model.members.items()}
        return Ensemble(model.identity, model.manifest, members)
    return _add_graph(model, folder)


def _add_graph(model: Model, folder: Path) -> Model:
    if model.manifest.kind.is_panel_model or not model.manifest.kind.is_trainable:
        return model
    stored_model = artifact.load(folder)
    session = open_graph(load_graph(folder, stored_model))
    graph_only = GraphEngine(model.engine, session, max_rows=model.engine.max_rows)
    golden.check(model.with_engine(graph_only), stored_model.golden)  # also where torch is faster with so many rows
    engine = GraphEngine.timed(model.engine, session, golden.prepare_golden_inputs(model))
    _log.info("%s@%d: ONNX Runtime up to %d rows", model.identity.name, model.identity.version, engine.max_rows)
    return model.with_engine(engine)


@final
class LazyModel:
    """A verified model version that is built on first use. Thread-safe.

    The first call that needs the network builds it and checks every golden instance; concurrent calls wait. A failed
    build stays failed until the version is read again.
    """

    def __init__(self, folder: Path, stored_model: StoredVersion, identity: tuple[str, int], runtime: Runtime) -> None:
        """Store the folder and the parts of the version, without its weights and golden instance."""
        name, version = identity
        self.identity = ModelIdentity(name=name, version=version, weights_hash=stored_model.weights_hash)
        self.manifest_hash = stored_model.manifest_hash
        self._folder = folder
        self._runtime = runtime
        self._info = _make_model_info(self.identity, stored_model)
        manifest = stored_model.manifest if isinstance(stored_model, StoredEnsemble) else stored_model.artifact.manifest
        self._targets = list_default_targets(manifest.target, manifest.quantiles)
        self._building = threading.Lock()
        self._model: Predictor | None = None
        self._failure: ArtifactError | None = None

    @classmethod
    def read(cls, folder: Path, identity: tuple[str, int], runtime: Runtime, lock: VersionLock | None) -> Self:
        """Read and verify a version, without building it.

        Raises:
        ArtifactError: the version is incomplete, or the lock does not allow it; the message names the version.
        """
        name, version = identity
        try:
            stored_model = _read(folder)
            if lock is not None:
                lock.check(name, version, stored_model.manifest_hash)
        except ArtifactError as error:
            raise describe_version_problem(name, version, error) from error
        return cls(folder, stored_model, identity, runtime)

    def is_same_artifact(self, other: "LazyModel") -> bool:
        """Whether a later read found the same artifact, so that no new build is needed."""
        return self.manifest_hash == other.manifest_hash and self._failure is None

    def build(self) -> Predictor:
        """Return the model; builds it at the first call.

        Raises:
        ArtifactError: the results differ from the recorded ones, or the files changed after verification. The message
            names the version and is the same at every call.
        """
        if self._model is not None:
            return self._model
        with self._building:
            if self._failure is not None:
                raise ArtifactError(self._failure.message, metadata=self._failure.metadata)
            if self._model is None:
                self._model = self._build_model()
            return self._model

    def prepare_batch(
        self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline
    ) -> PreparedBatch[Any]:
        """See `Predictor.prepare_batch`; also raises the errors of `build`."""
        return self.build().prepare_batch(instances, now, deadline)

    def predict(self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline) -> tuple[Outcome, ...]:
        """See `Predictor.predict`; also raises the errors of `build`."""
        return self.build().predict(instances, now, deadline)

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """See `Predictor.explain`; also raises the errors of `build`."""
        return self.build().explain(query, now, deadline)

    def explain_cost(self, query: ExplanationQuery) -> int:
        """See `Predictor.explain_cost`; also raises the errors of `build`."""
        return self.build().explain_cost(query)

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """See `Predictor.default_targets`; does not build the model."""
        return self._targets

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """Describe the model, without building it."""
        return replace(self._info, aliases=aliases, is_default=is_default)

    def _build_model(self) -> Predictor:
        """Build the model from the folder if its files are unchanged since verification."""
        name, version = self.identity.name, self.identity.version
        try:
            stored_model = _read(self._folder)
            if stored_model.manifest_hash != self.manifest_hash:
                raise ArtifactError.of(MANIFEST, "was changed after it was verified; reload the version")
            model = add_graphs(build(stored_model, (name, version), self._runtime), self._folder, self._runtime)
            return self._runtime.wrap(model)
        except ArtifactError as error:
            self._failure = describe_version_problem(name, version, error)
            raise self._failure from error


def describe_version_problem(name: str, version: int, error: ArtifactError) -> ArtifactError:
    """Add the model's name and version to the error and its `metadata`."""
    return ArtifactError(
        f"{name}/{version}: {error.message}", metadata={**error.metadata, "model": name, "version": str(version)}
    )


def _read(folder: Path) -> StoredVersion:
    """Read a version; if the folder is missing, the message does not reveal its path."""
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where a folder may not be looked into
        raise ArtifactError("its folder is gone; put it back, or unload the version")
    return read_version(folder)


def _make_model_info(identity: ModelIdentity, stored_model: StoredVersion) -> ModelInfo:
    """Describe a version that is not built, without aliases."""
    if not isinstance(stored_model, StoredEnsemble):
        return describe_model(
            identity, stored_model.artifact.manifest, stored_model.artifact.pipeline, (), is_default=False
        )
    parts = [
        (member, stored_model.members[name].artifact)
        for name, member in identify_members(identity, stored_model).items()
    ]
    members = [describe_model(member, part.manifest, part.pipeline, (), is_default=False) for member, part in parts]
    return describe_ensemble(identity, stored_model.manifest, members, (), is_default=False)
