"""The versions and aliases of one model, and their reader."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

from predictor.errors import ArtifactError
from predictor.model import Predictor
from predictor.registry.layout import ALIASES, CHAMPION, read_aliases, versions_in
from predictor.registry.loading import LazyModel, Runtime, load_model, of_version
from predictor.registry.lock import VersionLock


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersions:
    """All served versions of one model, and its aliases."""

    versions: Mapping[int, Predictor]
    aliases: Mapping[str, int]
    refused: frozenset[int] = frozenset()
    """Versions that exist but cannot be served."""
    unloaded: frozenset[int] = frozenset()
    """Versions that exist but are not loaded."""

    @property
    def default(self) -> int:
        """The version of the plain name: the champion, else the newest."""
        return self.aliases.get(CHAMPION, max(self.versions))

    @property
    def is_live(self) -> bool:
        """Whether the version of the plain name is served."""
        return bool(self.versions) and self.default in self.versions

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """Return the aliases of a version, sorted."""
        return tuple(sorted(alias for alias, v in self.aliases.items() if v == version))

    def lost(self) -> dict[str, str]:
        """The problem of each alias of a version that is not served."""
        return {
            alias: f"names version {version}, which {self._state_of(version)}"
            for alias, version in sorted(self.aliases.items())
            if version not in self.versions
        }

    def refusing(self, version: int) -> "ModelVersions":
        """Return a copy with this version refused."""
        return replace(self, versions=_without(self.versions, version), refused=self.refused | {version})

    def unloading(self, version: int) -> "ModelVersions":
        """Return a copy with this version unloaded."""
        return replace(self, versions=_without(self.versions, version), unloaded=self.unloaded | {version})

    def build_default(self) -> None:
        """Build the version of the plain name, so that no caller waits for it.

        Raises:
        ArtifactError: see `LazyModel.build`.
        """
        model = self.versions[self.default]
        if isinstance(model, LazyModel):
            model.build()

    def _state_of(self, version: int) -> str:
        if version in self.refused:
            return "was refused when it was loaded"
        return "is not loaded" if version in self.unloaded else "is missing"


NOTHING: Final = ModelVersions(versions={}, aliases={})
"""The versions of a model that is not served."""


def _without(versions: Mapping[int, Predictor], version: int) -> Mapping[int, Predictor]:
    return {v: model for v, model in versions.items() if v != version}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReload:
    """The result of reading a model's folder."""

    line: ModelVersions | None
    """None if no version can be served."""
    failures: tuple[ArtifactError, ...] = ()
    """Errors that prevent the versions from matching the folder."""
    remarks: tuple[ArtifactError, ...] = ()
    """Other problems: dangling aliases except the champion, and locked versions that are missing."""
    untried: frozenset[int] = frozenset()
    """Versions in the folder that were not read; their earlier problems remain."""


@final
class ModelReader:
    """Reads and verifies the models of a folder within the lock; returns errors as values."""

    def __init__(self, models: Path, runtime: Runtime, lock: VersionLock | None) -> None:
        """Store the models folder, the runtime, and the lock of the versions that may be served (None = all)."""
        self._models = models
        self._runtime = runtime
        self._lock = lock

    @property
    def locked(self) -> frozenset[str]:
        """Models with a version in the lock file."""
        return frozenset(self._lock.digests) if self._lock is not None else frozenset()

    def absent(self, name: str) -> ModelReload:
        """Return the result for a model without a folder."""
        return ModelReload(line=None, remarks=self._missing(name, frozenset()))

    def not_read_again(self, name: str, line: ModelVersions) -> ModelReload:
        """Return the result for versions that were not read again; earlier problems remain."""
        known = frozenset(line.versions) | line.refused | (self._lock.versions(name) if self._lock else frozenset())
        return ModelReload(
            line=line if line.versions else None, remarks=_lost_aliases(name, line), untried=known - line.unloaded
        )

    def opened(self, name: str) -> ModelReload:
        """Read all versions of a model that is not served yet."""
        try:
            there = versions_in(self._models / name)
        except OSError as error:
            return ModelReload(line=None, failures=(unreadable(name, str(error.strerror)),))
        return self.renewed(name, NOTHING, there=there, wanted=there)

    def renewed(
        self,
        name: str,
        present: ModelVersions,
        *,
        there: frozenset[int],
        wanted: Collection[int],
        gone: Collection[int] = (),
    ) -> ModelReload:
        """Read some versions of a model, and its aliases.

        Other versions and unchanged ones stay the same objects. A served version is replaced only after its replacement
        is built. The version of the plain name is built too; if that fails, the previous aliases stay.

        Args:
            name: the model; it has a folder.
            present: the versions that are served now.
            there: versions in the folder.
            wanted: versions to read.
            gone: versions to drop.
        """
        read = {version: self._version(name, version, present.versions.get(version)) for version in sorted(wanted)}
        drawn = _drawn(present, read, there=there, gone=gone)
        line, failures = self._with_aliases(name, drawn, present)
        return ModelReload(
            line=line if line.is_live else None,
            failures=(*(error for error in read.values() if isinstance(error, ArtifactError)), *failures),
            remarks=(*_lost_aliases(name, line), *self._missing(name, there)),
            untried=there - frozenset(wanted),
        )

    def _missing(self, name: str, there: frozenset[int]) -> tuple[ArtifactError, ...]:
        """Return an error for each version in the lock file that is missing from the folder."""
        problems = self._lock.missing(name, there) if self._lock is not None else []
        return tuple(of_version(name, version, ArtifactError(problem)) for version, problem in problems)

    def _version(self, name: str, version: int, present: Predictor | None) -> Predictor | ArtifactError:
        """Read a version; returns the same object if it is unchanged."""
        try:
            read = LazyModel.read(self._models / name / str(version), (name, version), self._runtime, self._lock)
            if present is None:
                return read
            if isinstance(present, LazyModel) and present.is_same_artifact(read):
                return present
            read.build()
        except ArtifactError as error:
            return error
        return read

    def _with_aliases(
        self, name: str, drawn: ModelVersions, present: ModelVersions
    ) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
        """Apply the folder's aliases, or keep the previous ones and return the errors."""
        try:
            aliases = read_aliases(self._models / name)
        except ArtifactError as error:
            problem = of_model(name, error)
            return _kept(drawn, present, (problem,)) if present.is_live else (NOTHING, (problem,))
        line, failures = _with_default_built(replace(drawn, aliases=aliases))
        if CHAMPION not in line.lost():
            return line, failures
        consequence = "what was served stays" if present.is_live else "no version is served"
        failures = (*failures, _lost(name, line, CHAMPION, consequence))
        return _kept(line, present, failures) if present.is_live else (line, failures)


def _drawn(
    present: ModelVersions,
    read: Mapping[int, Predictor | ArtifactError],
    *,
    there: frozenset[int],
    gone: Collection[int],
) -> ModelVersions:
    """Merge the versions that were read; a served version stays if its replacement fails."""
    fresh = {version: model for version, model in read.items() if not isinstance(model, ArtifactError)}
    versions = {v: model for v, model in present.versions.items() if v not in gone} | fresh
    served = frozenset(versions)
    refused = ((present.refused | frozenset(read)) - served) & there
    return replace(present, versions=versions, refused=refused, unloaded=there - served - refused)


def _with_default_built(line: ModelVersions) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
    """Build the version of the plain name; refuses versions that fail, and returns their errors."""
    failures: list[ArtifactError] = []
    while line.is_live:
        try:
            line.build_default()
            break
        except ArtifactError as error:
            failures.append(error)
            line = line.refusing(line.default)
    return line, tuple(failures)


def _kept(
    line: ModelVersions, present: ModelVersions, failures: tuple[ArtifactError, ...]
) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
    """Keep the previous aliases and their version of the plain name."""
    versions = {present.default: present.versions[present.default], **line.versions}
    kept, more = _with_default_built(replace(line, aliases=present.aliases, versions=versions))
    return kept, (*failures, *more)


def _lost_aliases(name: str, line: ModelVersions) -> tuple[ArtifactError, ...]:
    """Return an error for each dangling alias; the champion's says more."""
    return tuple(_lost(name, line, alias, "nothing answers to it") for alias in line.lost() if alias != CHAMPION)


def _lost(name: str, line: ModelVersions, alias: str, consequence: str) -> ArtifactError:
    """Return the error of an alias of a version that is not served.

    Serving another version instead of the champion would be a silent fallback.
    """
    problem = f"alias {alias!r} {line.lost()[alias]}, so {consequence}"
    return of_model(name, ArtifactError.of(f"{name}/{ALIASES}", problem))


def of_model(name: str, error: ArtifactError) -> ArtifactError:
    """Add the model's name to the error's `metadata`."""
    return ArtifactError(error.message, metadata={**error.metadata, "model": name})


def unreadable(name: str, reason: str) -> ArtifactError:
    """Return the error of a model's folder that cannot be read."""
    return of_model(name, ArtifactError(f"{name}: the folder cannot be read: {reason}"))


def alias_problems(folder: Path, runtime: Runtime) -> list[ArtifactError]:
    """Check the aliases of a model; each must name a version that loads."""
    try:
        aliases = read_aliases(folder)
    except ArtifactError as error:
        return [error]
    there = frozenset(aliases.values()) & versions_in(folder)
    models = {version: _loaded(folder / str(version), (folder.name, version), runtime) for version in there}
    line = _drawn(replace(NOTHING, aliases=aliases), models, there=there, gone=())
    return [_lost(folder.name, line, alias, _consequence(alias)) for alias in line.lost()]


def _loaded(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Predictor | ArtifactError:
    try:
        return load_model(folder, identity, runtime)
    except ArtifactError as error:
        return error


def _consequence(alias: str) -> str:
    return "no version is served" if alias == CHAMPION else "nothing answers to it"
