"""The served models and their workers, and how to replace them without interrupting requests."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError
from predictor.model import Predictor
from predictor.registry import FolderState, FolderWatcher, ModelsFolder, Registry
from predictor.service.workers import ModelWorker

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServedSnapshot:
    """An immutable snapshot of the served models and their workers."""

    registry: Registry
    workers: Mapping[Predictor, ModelWorker]
    """Workers by model; models compare by identity."""
    folder_state: FolderState | None = None
    """State of the models folder at this snapshot; None if it is not watched."""

    def find_worker(self, reference: str) -> ModelWorker:
        """Return the worker of the referenced model; raises as `Registry.find`."""
        return self.workers[self.registry.find(reference)]


@final
class ServedModels:
    """The served models. A change is prepared in the background and then applied in one step.

    A replaced model answers the requests already queued for it and is freed after the last one.

    Args:
        registry: The initial models.
        create_worker: Creates a model's worker.
        folder: Source of models; None if they cannot change.
        watch: Watcher created before the folder was opened.
    """

    def __init__(
        self,
        registry: Registry,
        create_worker: Callable[[Predictor], ModelWorker],
        folder: ModelsFolder | None = None,
        watch: FolderWatcher | None = None,
    ) -> None:
        self._create_worker = create_worker
        self._folder = folder
        self._watch = watch
        self._changing = threading.Lock()
        self._current = self._take_snapshot(registry, {})
        if folder is not None:
            _log_changes(Registry(models={}, problems=()), registry)

    @property
    def current(self) -> ServedSnapshot:
        """The current snapshot."""
        return self._current

    @property
    def versions(self) -> frozenset[tuple[str, int]]:
        """Name and version of every model."""
        return frozenset((model.identity.name, model.identity.version) for model in self._current.workers)

    def infos(self) -> tuple[ModelInfo, ...]:
        """List every version of every model."""
        return self._current.registry.infos()

    def load(self, reference: str) -> None:
        """Serve the versions of a model that are not served yet; raises as `ModelsFolder.load`."""
        with self._changing:
            self._serve(self._source().load(self._current.registry, reference))

    def unload(self, reference: str) -> None:
        """Stop serving a model; raises as `ModelsFolder.unload`."""
        with self._changing:
            self._serve(self._source().unload(self._current.registry, reference))

    def reload(self, reference: str) -> None:
        """Load a model again; versions that fail do not change. Raises as `ModelsFolder.reload`."""
        with self._changing:
            self._serve(self._source().reload(self._current.registry, reference))

    def adopt_champion(self, reference: str) -> None:
        """Follow the champion of another process; raises as `ModelsFolder.adopt_champion`."""
        with self._changing:
            self._serve(self._source().adopt_champion(self._current.registry, reference))

    def restore(self, snapshot: ServedSnapshot) -> None:
        """Return to an earlier snapshot; the next refresh picks up later changes of the folder."""
        with self._changing:
            if self._watch is not None and snapshot.folder_state is not None:
                self._watch.rescan_since(snapshot.folder_state)
            self._serve(snapshot.registry)

    def refresh(self) -> tuple[ArtifactError, ...]:
        """Apply the changes of the folder since the last refresh.

        Returns:
            Artifacts that cannot be served since then.
        """
        with self._changing:
            if self._watch is None:
                raise _make_unchangeable_error()
            change = self._watch.poll(self._current.registry)
            self._serve(change.registry)
            return change.problems

    def _serve(self, registry: Registry) -> None:
        before = self._current
        self._current = self._take_snapshot(registry, before.workers)
        _log_changes(before.registry, registry)
        for model, worker in before.workers.items():
            if model not in self._current.workers:
                worker.close()

    def _take_snapshot(self, registry: Registry, workers: Mapping[Predictor, ModelWorker]) -> ServedSnapshot:
        models = [model for served in registry.models.values() for model in served.versions.values()]
        state = None if self._watch is None else self._watch.seen
        return ServedSnapshot(
            registry, {model: workers.get(model) or self._create_worker(model) for model in models}, state
        )

    def _source(self) -> ModelsFolder:
        if self._folder is None:
            raise _make_unchangeable_error()
        return self._folder


def _log_changes(before: Registry, after: Registry) -> None:
    for change in after.changes_since(before):
        _log.info("%s", change)


def _make_unchangeable_error() -> ConfigurationError:
    return ConfigurationError("the models were not opened from a models folder and cannot change; open them from one")
