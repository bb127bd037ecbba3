"""Which models are served now, each with its lane, and how others take their place while calls are answered."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError
from predictor.model import Predictor
from predictor.registry import FolderState, FolderWatcher, ModelsFolder, Registry
from predictor.service.workers import ModelWorker


@final
@dataclass(frozen=True, slots=True, eq=False)
class ModelWorkers:
    """The models of one moment, and the lane of each: replaced as a whole, never changed."""

    registry: Registry
    lanes: Mapping[Predictor, ModelWorker]
    """By the model itself; models are equal only to themselves."""
    seen: FolderState | None = None
    """What their folder looked like to whoever follows it; None if nobody does."""

    def lane(self, reference: str) -> ModelWorker:
        """The lane of the model that this reference means; raises as `Registry.find`."""
        return self.lanes[self.registry.find(reference)]


@final
class ServedModels:
    """The models that are served. A change is prepared beside what is served, and then takes its place in one step.

    A model that is replaced answers the calls that wait for it already, and is freed with the last of them.

    Args:
        registry: what is served at first.
        lane_of: makes a model's lane.
        folder: where models come from; None if they cannot change.
        watch: made before the folder was opened.
    """

    def __init__(
        self,
        registry: Registry,
        lane_of: Callable[[Predictor], ModelWorker],
        folder: ModelsFolder | None = None,
        watch: FolderWatcher | None = None,
    ) -> None:
        self._lane_of = lane_of
        self._folder = folder
        self._watch = watch
        self._changing = threading.Lock()
        self._now = self._served(registry, {})

    @property
    def now(self) -> ModelWorkers:
        """What is served at this moment."""
        return self._now

    @property
    def versions(self) -> frozenset[tuple[str, int]]:
        """Name and version of every model."""
        return frozenset((model.identity.name, model.identity.version) for model in self._now.lanes)

    def infos(self) -> tuple[ModelInfo, ...]:
        """Every version of every model."""
        return self._now.registry.infos()

    def load(self, reference: str) -> None:
        """Serve what the folder has under this reference and is not served yet; raises as `ModelsFolder.load`."""
        with self._changing:
            self._serve(self._source().load(self._now.registry, reference))

    def unload(self, reference: str) -> None:
        """Serve it no more; raises as `ModelsFolder.unload`."""
        with self._changing:
            self._serve(self._source().unload(self._now.registry, reference))

    def reload(self, reference: str) -> None:
        """Read it again; what cannot be served leaves the old one serving. Raises as `ModelsFolder.reload`."""
        with self._changing:
            self._serve(self._source().reload(self._now.registry, reference))

    def restore(self, served: ModelWorkers) -> None:
        """Serve what was served at an earlier moment; what the folder has had since comes with the next refresh."""
        with self._changing:
            if self._watch is not None and served.seen is not None:
                self._watch.forget_since(served.seen)
            self._serve(served.registry)

    def refresh(self) -> tuple[ArtifactError, ...]:
        """Do what has changed in the folder since the last time.

        Returns:
            What is wrong there since then.
        """
        with self._changing:
            if self._watch is None:
                raise _unchangeable()
            change = self._watch.poll(self._now.registry)
            self._serve(change.registry)
            return change.problems

    def _serve(self, registry: Registry) -> None:
        before = self._now
        self._now = self._served(registry, before.lanes)
        for model, lane in before.lanes.items():
            if model not in self._now.lanes:
                lane.close()

    def _served(self, registry: Registry, lanes: Mapping[Predictor, ModelWorker]) -> ModelWorkers:
        models = [model for line in registry.lines.values() for model in line.versions.values()]
        seen = None if self._watch is None else self._watch.seen
        return ModelWorkers(registry, {model: lanes.get(model) or self._lane_of(model) for model in models}, seen)

    def _source(self) -> ModelsFolder:
        if self._folder is None:
            raise _unchangeable()
        return self._folder


def _unchangeable() -> ConfigurationError:
    return ConfigurationError("these models were not opened from a folder of models, so they cannot change")
