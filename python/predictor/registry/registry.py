"""Every model that can answer, found by reference; another set of models is another registry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.model import Predictor
from predictor.registry.layout import CHAMPION, SHOWN, meant_by, names_in, version_number, versions_in
from predictor.registry.loading import Runtime
from predictor.registry.lock import VersionLock
from predictor.registry.versions import NOTHING, ModelReader, ModelReload, ModelVersions, unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Every model that can answer. Immutable: another set of models needs another registry."""

    lines: Mapping[str, ModelVersions]
    problems: tuple[ArtifactError, ...]
    """What was refused, each naming its folder, file and cause."""

    @classmethod
    def open(cls, models: Path, runtime: Runtime, lock: VersionLock | None = None) -> "Registry":
        """Verify every version below a folder, and build of each model what its plain name means.

        Args:
            models: NAME/VERSION artifacts.
            runtime: where networks run.
            lock: which versions may be served; None: all.

        Raises:
            ConfigurationError: the folder is missing or holds no model that can be served.
        """
        try:
            names = names_in(models)
        except FileNotFoundError as error:
            there_is_none = f"{models}: there is no such folder; train a model into {models}/NAME/1 first"
            raise ConfigurationError(there_is_none) from error
        except OSError as error:
            raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
        reader = ModelReader(models, runtime, lock)
        registry = cls(lines={}, problems=())
        for name in sorted(names | reader.locked):
            registry = registry.renewed(name, reader.opened(name) if name in names else reader.absent(name))
        if not registry.lines:
            causes = "".join(f"\n  {problem.message}" for problem in registry.problems)
            raise ConfigurationError(
                f"{models}: holds no model that can be served; expected NAME/1 folders{meant_by(models)}{causes}"
            )
        return registry

    def find(self, reference: str) -> Predictor:
        """The model that "NAME", "NAME@VERSION" or "NAME@ALIAS" means; an empty reference means the only one.

        Raises:
            ModelNotFoundError: there is no model of that name, or none is named and there are several.
            VersionNotFoundError: the model has no such version or alias, or the alias names one that is not served.
        """
        asked, at, selector = reference.partition("@")
        name = asked or self._only_name()
        line = self.lines.get(name)
        if line is None:
            raise ModelNotFoundError(f"there is no model {name[:SHOWN]!r}; there are {sorted(self.lines)}")
        version = line.default if not at else line.aliases.get(selector, version_number(selector))
        model = None if version is None else line.versions.get(version)
        if model is None:
            raise _not_found(name, line, selector)
        return model

    def info(self, model: Predictor) -> ModelInfo:
        """What a model of this registry is."""
        line, version = self.lines[model.identity.name], model.identity.version
        return model.info(line.aliases_of(version), is_default=line.default == version)

    def infos(self) -> tuple[ModelInfo, ...]:
        """Every version of every model, by name and version."""
        lines = (self.lines[name] for name in sorted(self.lines))
        return tuple(self.info(line.versions[version]) for line in lines for version in sorted(line.versions))

    def without_champion(self) -> tuple[str, ...]:
        """Models that serve their newest version for want of an alias, so that a retrained one goes live unseen."""
        return tuple(sorted(name for name, line in self.lines.items() if CHAMPION not in line.aliases))

    def renewed(self, name: str, renewal: ModelReload) -> "Registry":
        """The registry with what became of one model's line; the same object if that is what it was."""
        own = [problem for problem in self.problems if problem.metadata.get("model") == name]
        untried = {str(version) for version in renewal.untried}
        still = [problem for problem in own if problem.metadata.get("version") in untried]
        new = [*still, *renewal.failures, *renewal.remarks]
        if renewal.line == self.lines.get(name) and [p.message for p in new] == [p.message for p in own]:
            return self
        others = {other: line for other, line in self.lines.items() if other != name}
        return Registry(
            lines=others if renewal.line is None else others | {name: renewal.line},
            problems=(*(problem for problem in self.problems if problem not in own), *new),
        )

    def _only_name(self) -> str:
        if not self.lines:
            raise ModelNotFoundError("no model is served; load one first")
        if len(self.lines) > 1:
            names = sorted(self.lines)
            raise ModelNotFoundError(
                f"no model is named, and several are served: {', '.join(names)}; name one, such as {names[0]} (on the "
                f"command line --model {names[0]})"
            )
        return next(iter(self.lines))


def _not_found(name: str, line: ModelVersions, selector: str) -> VersionNotFoundError:
    lost = line.lost()
    aliases = sorted(line.aliases.keys() - lost.keys())
    what = f"alias {selector!r} {lost[selector]}" if selector in lost else f"no version or alias {selector[:SHOWN]!r}"
    return VersionNotFoundError(
        f"model {name!r} has {what}; it has versions {sorted(line.versions)} and aliases {aliases}"
    )


@final
class ModelsFolder:
    """A folder of models and how they are served. It keeps no state: each step makes a new registry of an old one.

    A reference is "NAME" or "NAME@VERSION". Both are looked up among the folder's names and never made into a path.
    Versions that a step does not change keep their very objects; where a step raises, the old registry holds.
    """

    def __init__(self, path: Path, runtime: Runtime, lock: VersionLock | None = None) -> None:
        """Receive the folder, where networks run, and which versions may be served (None: all)."""
        self.path = path
        self._runtime = runtime
        self._lock = lock
        self._reader = ModelReader(path, runtime, lock)

    def open(self) -> Registry:
        """As `Registry.open`."""
        return Registry.open(self.path, self._runtime, self._lock)

    def load(self, registry: Registry, reference: str) -> Registry:
        """Serve what is not served yet: one version, or all that the model's folder has. Aliases are read anew.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the folder has no such model or version.
            ArtifactError: a version cannot be served, the aliases cannot be read, or the champion leads nowhere.
        """
        name, version = self._known(reference)
        there = self._there(name)
        wanted = there if version is None else _one_of(name, version, there)
        return self._read(registry, name, there, wanted - registry.lines.get(name, NOTHING).versions.keys())

    def reload(self, registry: Registry, reference: str) -> Registry:
        """Read one version, or all that the model's folder has, though it is served. Aliases are read anew.

        A version that proves to be the same stays the same object. Another one takes its place once it has been built.

        Raises:
            ModelNotFoundError, VersionNotFoundError, ArtifactError: as `load`.
        """
        name, version = self._known(reference)
        there = self._there(name)
        return self._read(registry, name, there, there if version is None else _one_of(name, version, there))

    def unload(self, registry: Registry, reference: str) -> Registry:
        """Serve a version, or a whole model, no more. Nothing is read.

        Raises:
            ModelNotFoundError, VersionNotFoundError: there is no such model or version.
            ConfigurationError: the version is the one that the champion names, and others are served.
            ArtifactError: the version that the plain name would mean then cannot be built.
        """
        name, version = _parts(reference)
        line = registry.lines.get(name)
        if line is None:
            raise ModelNotFoundError(f"there is no model {name[:SHOWN]!r}; there are {sorted(registry.lines)}")
        if version is None:
            return registry.renewed(name, ModelReload(line=None))
        left = line.unloading(*_one_of(name, version, frozenset(line.versions)))
        if not left.versions:
            return registry.renewed(name, ModelReload(line=None))
        if not left.is_live:
            raise ConfigurationError(
                f"{name}@{version} is what {CHAMPION} names; point {CHAMPION} at another version first (quantra alias "
                f"{name} {CHAMPION} VERSION) and load {name}, or unload {name} as a whole"
            )
        left.build_default()
        return registry.renewed(name, self._reader.unread(name, left))

    def follow(self, registry: Registry, name: str, *, there: frozenset[int], changed: frozenset[int]) -> Registry:
        """What the folder makes of a model, of which some versions are new or changed, as far as it can be served.

        What cannot is in the new registry's problems, and what was served in its place stays. Versions that are not
        there any more are dropped, but for the champion's. Of a model that is not served, all versions are read.
        """
        present = registry.lines.get(name, NOTHING)
        wanted = changed if present.versions else there
        gone = present.versions.keys() - there
        return registry.renewed(name, self._reader.renewed(name, present, there=there, wanted=wanted, gone=gone))

    def vanished(self, registry: Registry, name: str) -> Registry:
        """The registry without a model whose folder is gone."""
        return registry.renewed(name, self._reader.absent(name))

    def doubted(self, registry: Registry, name: str, reason: str) -> Registry:
        """The registry with the problem that a model's folder cannot be read; what was served stays."""
        left = self._reader.unread(name, registry.lines.get(name, NOTHING))
        problem = unreadable(name, reason)
        return registry.renewed(name, replace(left, failures=(problem,)))

    def _read(self, registry: Registry, name: str, there: frozenset[int], wanted: frozenset[int]) -> Registry:
        """The registry after these versions were read; all or nothing."""
        present = registry.lines.get(name, NOTHING)
        renewal = self._reader.renewed(name, present, there=there, wanted=wanted)
        if renewal.failures:
            raise _refused(name, renewal.failures)
        if renewal.line is None:
            raise VersionNotFoundError(f"model {name!r} has no version in the folder of models; put NAME/1 there first")
        return registry.renewed(name, renewal)

    def _known(self, reference: str) -> tuple[str, int | None]:
        """The parts of a reference to a model that has a folder."""
        name, version = _parts(reference)
        try:
            names = names_in(self.path)
        except OSError as error:
            raise ArtifactError(f"the folder of models cannot be read: {error.strerror}") from error
        if name not in names:
            raise ModelNotFoundError(
                f"there is no model {name[:SHOWN]!r} in the folder of models; there are {sorted(names)}"
            )
        return name, version

    def _there(self, name: str) -> frozenset[int]:
        """Versions that a model of the folder has."""
        try:
            return versions_in(self.path / name)
        except OSError as error:
            raise unreadable(name, str(error.strerror)) from error


def _parts(reference: str) -> tuple[str, int | None]:
    """The name, and the version if there is one.

    Raises:
        VersionNotFoundError: what stands in its place is no version.
    """
    name, at, selector = reference.partition("@")
    version = version_number(selector)
    if at and version is None:
        raise VersionNotFoundError(
            f"{selector[:SHOWN]!r} is no version of {name[:SHOWN]!r}; give NAME or NAME@VERSION, such as NAME@1"
        )
    return name, version


def _one_of(name: str, version: int, there: frozenset[int]) -> frozenset[int]:
    if version not in there:
        raise VersionNotFoundError(f"model {name!r} has no version {version}; it has {sorted(there)}")
    return frozenset({version})


def _refused(name: str, failures: Sequence[ArtifactError]) -> ArtifactError:
    """All that kept a step from being done, as one error."""
    causes = "; ".join(failure.message for failure in failures)
    return ArtifactError(f"nothing of {name} was changed: {causes}", metadata=failures[0].metadata)
