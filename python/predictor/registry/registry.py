"""The registry of served models, and the folder that it is read from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.model import ModelIdentity, Predictor
from predictor.registry.layout import (
    ALIASES,
    CHAMPION,
    MAX_SHOWN_CHARACTERS,
    list_names,
    list_versions,
    parse_version,
    suggest_models_folder,
)
from predictor.registry.lock import VersionLock
from predictor.registry.model_loader import Runtime
from predictor.registry.versions import (
    NOTHING,
    ModelReader,
    ModelReload,
    ModelVersions,
    change_champion,
    make_unreadable_error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All served models. Immutable: changes create a new registry.

    Every version is verified when it is read. The champion is built at once, others at their first call.
    """

    models: Mapping[str, ModelVersions]
    problems: tuple[ArtifactError, ...]
    """Errors of refused versions; each names its folder, file and cause."""
    _infos: dict[ModelIdentity, ModelInfo] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Descriptions so far."""

    @classmethod
    def open(
        cls, models: Path, runtime: Runtime, lock: VersionLock | None = None, *, may_be_empty: bool = False
    ) -> "Registry":
        """Verify every version in a models folder, and build the champion of each model.

        Args:
            models: the folder of NAME/VERSION artifacts.
            runtime: device and batch size of the networks.
            lock: the versions that may be served; None = all.
            may_be_empty: whether the folder may be missing or hold no model that can be served.

        Raises:
            ConfigurationError: the folder is missing or holds no model that can be served.
        """
        try:
            names = list_names(models)
        except FileNotFoundError as error:
            if may_be_empty:
                return cls(models={}, problems=())
            there_is_none = f"{models}: there is no such folder; train a model into {models}/NAME/1 first"
            raise ConfigurationError(there_is_none) from error
        except OSError as error:
            raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
        reader = ModelReader(models, runtime, lock)
        registry = cls(models={}, problems=())
        for name in sorted(names | reader.locked):
            registry = registry.replace_model(name, reader.read(name) if name in names else reader.report_absence(name))
        if not (registry.models or may_be_empty):
            causes = "".join(f"\n  {problem.message}" for problem in registry.problems)
            raise ConfigurationError(
                f"{models}: holds no model that can be served; expected NAME/1 "
                f"folders{suggest_models_folder(models)}{causes}"
            )
        return registry

    def find(self, reference: str) -> Predictor:
        """Find a model by "NAME", "NAME@VERSION" or "NAME@ALIAS"; an empty reference means the only model.

        Raises:
            ModelNotFoundError: no model has that name, its champion is not served, or the reference is empty and there
                are several models.
            VersionNotFoundError: the model has no such version or alias, or the alias's version is not served.
        """
        requested_name, at, selector = reference.partition("@")
        name = requested_name or self._find_only_name()
        served = self.models.get(name)
        if served is None:
            raise self._make_missing_model_error(name)
        version = served.champion if not at else served.aliases.get(selector, parse_version(selector))
        model = None if version is None else served.versions.get(version)
        if model is None:
            raise _make_missing_version_error(name, served, selector) if at else self._make_missing_model_error(name)
        return model

    def info(self, model: Predictor) -> ModelInfo:
        """Describe a model of this registry."""
        info = self._infos.get(model.identity)
        if info is None:
            served, version = self.models[model.identity.name], model.identity.version
            info = self._infos[model.identity] = model.info(
                served.aliases_of(version), is_default=served.champion == version
            )
        return info

    def infos(self) -> tuple[ModelInfo, ...]:
        """Describe every version of every model, sorted by name and version."""
        models = (self.models[name] for name in sorted(self.models))
        return tuple(self.info(served.versions[version]) for served in models for version in sorted(served.versions))

    def changes_since(self, before: "Registry") -> Iterator[str]:
        """Describe what became live or stopped since an earlier registry; one line per change."""
        for name in sorted(before.models.keys() | self.models.keys()):
            for change in self.models.get(name, NOTHING).changes_since(before.models.get(name, NOTHING)):
                yield f"{name}: {change}"

    def problems_since(self, before: "Registry") -> tuple[ArtifactError, ...]:
        """Return the problems that an earlier registry does not have."""
        known = {_identify_problem(problem) for problem in before.problems}
        return tuple(problem for problem in self.problems if _identify_problem(problem) not in known)

    def problems_of(self, name: str) -> list[ArtifactError]:
        """Return the errors of a model and its versions."""
        return [problem for problem in self.problems if problem.metadata.get("model") == name]

    def replace_model(self, name: str, reload: ModelReload) -> "Registry":
        """Apply a reload of one model; returns the same object if nothing changed."""
        problems = self.problems_of(name)
        untried = {str(version) for version in reload.untried}
        kept_problems = [problem for problem in problems if problem.metadata.get("version") in untried]
        new = [*kept_problems, *reload.failures, *reload.remarks]
        if reload.served == self.models.get(name) and [p.message for p in new] == [p.message for p in problems]:
            return self
        others = {other: served for other, served in self.models.items() if other != name}
        return Registry(
            models=others if reload.served is None else others | {name: reload.served},
            problems=(*(problem for problem in self.problems if problem not in problems), *new),
        )

    def _make_missing_model_error(self, name: str) -> ModelNotFoundError:
        """Return the error of a model that is not served, with its problem if it has a folder."""
        problems = self.problems_of(name)
        if not problems:
            return ModelNotFoundError(
                f"there is no model {name[:MAX_SHOWN_CHARACTERS]!r}; there are {sorted(self.models)}"
            )
        problem = next((p for p in problems if p.metadata.get("file") == f"{name}/{ALIASES}"), problems[0])
        return ModelNotFoundError(f"model {name!r} is not served: {problem.message}")

    def _find_only_name(self) -> str:
        if not self.models:
            raise ModelNotFoundError("no model is served; load one first")
        if len(self.models) > 1:
            names = sorted(self.models)
            raise ModelNotFoundError(
                f"no model is named, and several are served: {', '.join(names)}; name one, such as {names[0]} (on the "
                f"command line --model {names[0]})"
            )
        return next(iter(self.models))


def _make_missing_version_error(name: str, served: ModelVersions, selector: str) -> VersionNotFoundError:
    lost = served.lost_aliases()
    aliases = sorted(served.aliases.keys() - lost.keys())
    problem = (
        f"alias {selector!r} {lost[selector]}"
        if selector in lost
        else f"no version or alias {selector[:MAX_SHOWN_CHARACTERS]!r}"
    )
    return VersionNotFoundError(
        f"model {name!r} has {problem}; it has versions {sorted(served.versions)} and aliases {aliases}"
    )


@final
class ModelsFolder:
    """A models folder. Stateless: each method returns a new registry.

    A reference is "NAME" or "NAME@VERSION". It is matched against the folder's entries and never used as a path.
    Unchanged versions stay the same objects. If a method raises, keep the old registry.
    """

    def __init__(self, path: Path, runtime: Runtime, lock: VersionLock | None = None) -> None:
        """Store the folder, the runtime, and the lock of the versions that may be served (None = all)."""
        self.path = path
        self._runtime = runtime
        self._lock = lock
        self._reader = ModelReader(path, runtime, lock)

    def open(self, *, may_be_empty: bool = False) -> Registry:
        """See `Registry.open`."""
        return Registry.open(self.path, self._runtime, self._lock, may_be_empty=may_be_empty)

    def load(self, registry: Registry, reference: str) -> Registry:
        """Load one version, or all versions of a model, that are not served yet, and reread the aliases.

        Versions that cannot be served become problems of the registry; the others are loaded.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the folder has no such model or version.
            ArtifactError: all of these versions are damaged, or the new aliases cannot be applied.
        """
        name, version = self._parse_known_reference(reference)
        there = self._list_versions(name)
        versions = there if version is None else _check_one(name, version, there)
        return self._read(registry, name, there, versions - registry.models.get(name, NOTHING).versions.keys())

    def reload(self, registry: Registry, reference: str) -> Registry:
        """Reread one version, or all versions of a model, and the aliases.

        An unchanged version stays the same object. A changed one is replaced once its replacement is built. See `load`
        for versions that cannot be served.

        Raises:
            ModelNotFoundError, VersionNotFoundError, ArtifactError: see `load`.
        """
        name, version = self._parse_known_reference(reference)
        there = self._list_versions(name)
        return self._read(registry, name, there, there if version is None else _check_one(name, version, there))

    def unload(self, registry: Registry, reference: str) -> Registry:
        """Unload one version or a whole model; reads nothing.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the model or version does not exist.
            ConfigurationError: the version is the champion, and other versions are served.
        """
        name, version = _split_reference(reference)
        served = registry.models.get(name)
        if served is None:
            raise ModelNotFoundError(
                f"there is no model {name[:MAX_SHOWN_CHARACTERS]!r}; there are {sorted(registry.models)}"
            )
        if version is None:
            return registry.replace_model(name, ModelReload(served=None))
        remaining = served.with_unloaded(*_check_one(name, version, frozenset(served.versions)))
        if not remaining.versions:
            return registry.replace_model(name, ModelReload(served=None))
        if served.live and not remaining.live:
            raise ConfigurationError(
                f"{name}@{version} is what {CHAMPION} names; point {CHAMPION} at another version first (quantra alias "
                f"{name} {CHAMPION} VERSION) and load {name}, or unload {name} as a whole"
            )
        return registry.replace_model(name, self._reader.keep(name, remaining))

    def follow(self, registry: Registry, name: str, *, there: frozenset[int], changed: frozenset[int]) -> Registry:
        """Apply the changed versions of a model as far as possible.

        Failures go to the new registry's problems, and the previous versions stay. Missing versions are dropped, except
        the champion. All versions of a model that is not served yet are read. A model that was unloaded stays unloaded
        if only its aliases changed, because a server writes them too.
        """
        present = registry.models.get(name, NOTHING)
        if not present.versions and not changed and not registry.problems_of(name):
            return registry
        versions, dropped = changed if present.versions else there, present.versions.keys() - there
        reload = self._reader.reread(name, present, there=there, versions=versions, dropped=dropped)
        return registry.replace_model(name, reload)

    def adopt_champion(self, registry: Registry, reference: str) -> Registry:
        """Make NAME@VERSION, the champion of another process, the champion here too, if no file names one.

        Raises:
            ArtifactError: the version cannot be built.
        """
        name, version = _split_reference(reference)
        served = registry.models.get(name, NOTHING)
        if version is None or served.is_recorded or version not in served.versions:
            return registry
        return registry.replace_model(name, self._reader.keep(name, change_champion(served, version)))

    def drop_model(self, registry: Registry, name: str) -> Registry:
        """Drop a model whose folder no longer exists."""
        return registry.replace_model(name, self._reader.report_absence(name))

    def mark_unreadable(self, registry: Registry, name: str, reason: str) -> Registry:
        """Record that a model's folder cannot be read; its versions stay."""
        reload = self._reader.keep(name, registry.models.get(name, NOTHING))
        problem = make_unreadable_error(name, reason)
        return registry.replace_model(name, replace(reload, failures=(problem,)))

    def _read(self, registry: Registry, name: str, there: frozenset[int], versions: frozenset[int]) -> Registry:
        """Read these versions and apply those that can be served."""
        present = registry.models.get(name, NOTHING)
        reload = self._reader.reread(name, present, there=there, versions=versions)
        failed = {failure.metadata.get("version") for failure in reload.failures}
        keeps_aliases = present.live is not None and None in failed
        changes_nothing = reload.served is None or (bool(versions) and failed.issuperset(map(str, versions)))
        if reload.failures and (keeps_aliases or changes_nothing):
            causes = "; ".join(failure.message for failure in reload.failures)
            raise ArtifactError(f"nothing of {name} was changed: {causes}", metadata=reload.failures[0].metadata)
        if reload.served is None:
            raise VersionNotFoundError(f"model {name!r} has no version in the folder of models; put NAME/1 there first")
        return registry.replace_model(name, reload)

    def _parse_known_reference(self, reference: str) -> tuple[str, int | None]:
        """Parse a reference to a model that has a folder."""
        name, version = _split_reference(reference)
        try:
            names = list_names(self.path)
        except OSError as error:
            raise ArtifactError(f"the folder of models cannot be read: {error.strerror}") from error
        if name not in names:
            raise ModelNotFoundError(
                f"there is no model {name[:MAX_SHOWN_CHARACTERS]!r} in the folder of models; there are {sorted(names)}"
            )
        return name, version

    def _list_versions(self, name: str) -> frozenset[int]:
        """Return the versions in a model's folder."""
        try:
            return list_versions(self.path / name)
        except OSError as error:
            raise make_unreadable_error(name, str(error.strerror)) from error


def _identify_problem(problem: ArtifactError) -> tuple[str | None, str | None, str]:
    """Return the identity of a problem.

    Numbers in the message of a version do not count, because they change while a file is being copied.
    """
    version = problem.metadata.get("version")
    message = problem.message if version is None else re.sub(r"\d+", "", problem.message)
    return problem.metadata.get("model"), version, message


def _split_reference(reference: str) -> tuple[str, int | None]:
    """Split a reference into name and optional version.

    Raises:
    VersionNotFoundError: the text after `@` is not a version.
    """
    name, at, selector = reference.partition("@")
    version = parse_version(selector)
    if at and version is None:
        raise VersionNotFoundError(
            f"{selector[:MAX_SHOWN_CHARACTERS]!r} is not a version of {name[:MAX_SHOWN_CHARACTERS]!r}; "
            "give NAME or NAME@VERSION, such as NAME@1"
        )
    return name, version


def _check_one(name: str, version: int, there: frozenset[int]) -> frozenset[int]:
    if version not in there:
        raise VersionNotFoundError(f"model {name!r} has no version {version}; it has {sorted(there)}")
    return frozenset({version})
