"""The versions and aliases of one model, and their reader."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self, final

from predictor.errors import ArtifactError
from predictor.model import Predictor
from predictor.registry.layout import ALIASES, CHAMPION, claim_champion, list_versions, read_aliases
from predictor.registry.lock import VersionLock
from predictor.registry.model_loader import LazyModel, Runtime, describe_version_problem, load_model

_log = logging.getLogger(__name__)
_OLD_SERVED: Final = "what was served stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersions:
    """All served versions of one model, and its aliases."""

    versions: Mapping[int, Predictor]
    aliases: Mapping[str, int]
    """Include the champion, even if the file of aliases names none."""
    is_recorded: bool = True
    """Whether the file of aliases names the champion."""
    refused: frozenset[int] = frozenset()
    """Versions that exist but cannot be served."""
    unloaded: frozenset[int] = frozenset()
    """Versions that exist but are not loaded."""

    @classmethod
    def of(cls, model: Predictor) -> Self:
        """Return a model that is the only version and the champion."""
        return cls(versions={model.identity.version: model}, aliases={CHAMPION: model.identity.version})

    @property
    def champion(self) -> int | None:
        """The version of the plain name; None if no version can be served."""
        return self.aliases.get(CHAMPION)

    @property
    def live(self) -> Predictor | None:
        """The model of the plain name; None if the champion is not served."""
        return None if self.champion is None else self.versions.get(self.champion)

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """Return the aliases of a version, sorted."""
        return tuple(sorted(alias for alias, v in self.aliases.items() if v == version))

    def lost_aliases(self) -> dict[str, str]:
        """The problem of each alias of a version that is not served."""
        states = dict.fromkeys(self.unloaded, "is not loaded")
        states |= dict.fromkeys(self.refused, "was refused when it was loaded")
        return {
            alias: f"names version {version}, which {states.get(version, 'is missing')}"
            for alias, version in sorted(self.aliases.items())
            if version not in self.versions
        }

    def changes_since(self, before: "ModelVersions") -> Iterator[str]:
        """Describe what became live or stopped since an earlier state."""
        for version in sorted(before.versions.keys() | self.versions.keys()):
            old, new = before.versions.get(version), self.versions.get(version)
            if old is not new:
                yield f"version {version} is {'loaded' if old is None else 'unloaded' if new is None else 'replaced'}"
        for alias in sorted(before.aliases.keys() | self.aliases.keys()):
            was, now = before.aliases.get(alias), self.aliases.get(alias)
            if was != now:
                subject = "the champion" if alias == CHAMPION else f"alias {alias!r}"
                change = "removed" if now is None else f"version {now}"
                yield f"{subject} is {change}" + ("" if was is None else f" (was version {was})")

    def with_champion(self, champion: int) -> "ModelVersions":
        """Return a copy with this champion."""
        return replace(self, aliases={**self.aliases, CHAMPION: champion})

    def with_refused(self, version: int) -> "ModelVersions":
        """Return a copy with this version refused."""
        return replace(self, versions=_drop_version(self.versions, version), refused=self.refused | {version})

    def with_unloaded(self, version: int) -> "ModelVersions":
        """Return a copy with this version unloaded."""
        return replace(self, versions=_drop_version(self.versions, version), unloaded=self.unloaded | {version})


NOTHING: Final = ModelVersions(versions={}, aliases={})
"""The versions of a model that is not served."""


def _drop_version(versions: Mapping[int, Predictor], version: int) -> Mapping[int, Predictor]:
    return {v: model for v, model in versions.items() if v != version}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReload:
    """The result of reading a model's folder."""

    served: ModelVersions | None
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

    def report_absence(self, name: str) -> ModelReload:
        """Return the result for a model without a folder."""
        return ModelReload(served=None, remarks=self._report_missing(name, frozenset()))

    def keep(self, name: str, served: ModelVersions) -> ModelReload:
        """Return the result for versions that were not read again; earlier problems remain."""
        known = frozenset(served.versions) | served.refused | (self._lock.versions(name) if self._lock else frozenset())
        return ModelReload(
            served=served if served.versions else None,
            remarks=tuple(_make_lost_alias_error(name, served, alias) for alias in served.lost_aliases()),
            untried=known - served.unloaded,
        )

    def read(self, name: str) -> ModelReload:
        """Read all versions of a model that is not served yet."""
        try:
            there = list_versions(self._models / name)
        except OSError as error:
            return ModelReload(served=None, failures=(make_unreadable_error(name, str(error.strerror)),))
        return self.reread(name, NOTHING, there=there, versions=there)

    def reread(
        self,
        name: str,
        present: ModelVersions,
        *,
        there: frozenset[int],
        versions: Collection[int],
        dropped: Collection[int] = (),
    ) -> ModelReload:
        """Read some versions of a model, and its aliases.

        Other versions and unchanged ones stay the same objects. A served version is replaced only after its replacement
        is built. The champion is built too; if that fails, the previous aliases stay, or the plain name is not served.
        A model without a champion gets one, so that no later version becomes live by itself.

        Args:
            name: the model; it has a folder.
            present: the versions that are served now.
            there: versions in the folder.
            versions: versions to read.
            dropped: versions to drop.
        """
        results = {
            version: self._read_version(name, version, present.versions.get(version)) for version in sorted(versions)
        }
        merged = _merge_versions(present, results, there=there, dropped=dropped)
        served, failures = self._with_aliases(name, merged, present)
        return ModelReload(
            served=served if served.versions else None,
            failures=(*(error for error in results.values() if isinstance(error, ArtifactError)), *failures),
            remarks=(
                *(_make_lost_alias_error(name, served, alias) for alias in served.lost_aliases() if alias != CHAMPION),
                *self._report_missing(name, there),
            ),
            untried=there - frozenset(versions),
        )

    def _report_missing(self, name: str, there: frozenset[int]) -> tuple[ArtifactError, ...]:
        """Return an error for each version in the lock file that is missing from the folder."""
        problems = self._lock.missing(name, there) if self._lock is not None else []
        return tuple(describe_version_problem(name, version, ArtifactError(problem)) for version, problem in problems)

    def _read_version(self, name: str, version: int, present: Predictor | None) -> Predictor | ArtifactError:
        """Read a version; returns the same object if it is unchanged."""
        try:
            model = LazyModel.read(self._models / name / str(version), (name, version), self._runtime, self._lock)
            if present is None:
                return model
            if isinstance(present, LazyModel) and present.is_same_artifact(model):
                return present
            model.build()
        except ArtifactError as error:
            return error if present is None else _add_old_served(error)
        return model

    def _with_aliases(
        self, name: str, merged: ModelVersions, present: ModelVersions
    ) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
        """Apply the folder's aliases, or keep the previous ones and return the errors."""
        try:
            aliases = read_aliases(self._models / name)
        except ArtifactError as error:
            if present.live is None:
                return NOTHING, (add_model_name(name, error),)
            return _keep_aliases(merged, present, (add_model_name(name, _add_old_served(error)),))
        merged = replace(merged, aliases=aliases, is_recorded=True)
        if CHAMPION not in aliases and present.champion is None:
            return self._with_first_champion(name, merged)
        if CHAMPION not in aliases and merged.versions:
            merged = replace(merged.with_champion(present.aliases[CHAMPION]), is_recorded=False)
            if present.is_recorded and merged.live:  # the alias was removed, which releases no version
                return self._record_champion(name, merged, present)
        served, failures = _build_champion(merged)
        if CHAMPION not in served.lost_aliases():
            return served, failures
        failures = (*failures, _make_lost_alias_error(name, served, CHAMPION, has_old=present.live is not None))
        return _keep_aliases(served, present, failures) if present.live else (served, failures)

    def _with_first_champion(self, name: str, merged: ModelVersions) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
        """Make the newest version that can be built the champion of a model without one."""
        failures: tuple[ArtifactError, ...] = ()
        for version in sorted(merged.versions, reverse=True):
            served, errors = _build_champion(merged.with_champion(version))
            failures += errors
            if served.live:
                served, errors = self._record_champion(name, served, NOTHING)
                return served, (*failures, *errors)
            merged = merged.with_refused(version)
        return merged, failures

    def _record_champion(
        self, name: str, served: ModelVersions, present: ModelVersions
    ) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
        """Record the champion in the aliases; if another process has recorded one, use that one."""
        champion, file = served.aliases[CHAMPION], f"{name}/{ALIASES}"
        role = "the newest" if present.champion is None else "the current one"
        try:
            recorded = claim_champion(self._models / name, champion)
        except (OSError, ArtifactError) as error:
            reason = error.message if isinstance(error, ArtifactError) else error.strerror
            _log.warning(
                "%s: no version has the alias champion, and %s cannot be written (%s), so version %d, %s, is the "
                "champion of this process only; set it with quantra alias %s champion %d",
                *(name, file, reason, champion, role, name, champion),
            )
            return replace(served, is_recorded=False), ()
        if recorded != champion:
            return self._with_aliases(name, served, present)
        _log.info(
            "%s: no version had the alias champion, so version %d, %s, is recorded as champion in %s",
            *(name, champion, role, file),
        )
        return replace(served, is_recorded=True), ()


def _merge_versions(
    present: ModelVersions,
    results: Mapping[int, Predictor | ArtifactError],
    *,
    there: frozenset[int],
    dropped: Collection[int],
) -> ModelVersions:
    """Merge the versions that were read; a served version stays if its replacement fails."""
    loaded_models = {version: model for version, model in results.items() if not isinstance(model, ArtifactError)}
    versions = {v: model for v, model in present.versions.items() if v not in dropped} | loaded_models
    served = frozenset(versions)
    refused = ((present.refused | frozenset(results)) - served) & there
    return replace(present, versions=versions, refused=refused, unloaded=there - served - refused)


def _build_champion(served: ModelVersions) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
    """Build the champion, so that no caller waits for it; refuses it if that fails, and returns the error."""
    live = served.live
    if isinstance(live, LazyModel):
        try:
            live.build()
        except ArtifactError as error:
            return served.with_refused(live.identity.version), (error,)
    return served, ()


def change_champion(served: ModelVersions, version: int) -> ModelVersions:
    """Return a copy with this champion, which is built.

    Raises:
    ArtifactError: see `LazyModel.build`.
    """
    versions, failures = _build_champion(served.with_champion(version))
    for failure in failures:
        raise failure
    return versions


def _keep_aliases(
    served: ModelVersions, present: ModelVersions, failures: tuple[ArtifactError, ...]
) -> tuple[ModelVersions, tuple[ArtifactError, ...]]:
    """Keep the previous aliases and the champion that is served."""
    live = {} if present.live is None else {present.live.identity.version: present.live}
    served = replace(
        served, versions={**live, **served.versions}, aliases=present.aliases, is_recorded=present.is_recorded
    )
    served, further_failures = _build_champion(served)
    return served, (*failures, *further_failures)


def _add_old_served(error: ArtifactError) -> ArtifactError:
    return ArtifactError(f"{error.message}; {_OLD_SERVED}", metadata=error.metadata)


def _make_lost_alias_error(name: str, served: ModelVersions, alias: str, *, has_old: bool = False) -> ArtifactError:
    """Return the error of an alias whose version is not served; `has_old`: a previous champion is still served.

    Serving another version instead of the champion would be a silent fallback.
    """
    problem = f"alias {alias!r} {served.lost_aliases()[alias]}, so "
    if alias != CHAMPION:
        problem += "nothing answers to it"
    else:
        others = "other versions are served by number only" if served.versions else "no version is served"
        problem += f"{_OLD_SERVED if has_old else others}; put it back"
        if served.versions:
            problem += f", or release another version with quantra alias {name} {CHAMPION} {max(served.versions)}"
    return add_model_name(name, ArtifactError.of(f"{name}/{ALIASES}", problem))


def add_model_name(name: str, error: ArtifactError) -> ArtifactError:
    """Add the model's name to the error's `metadata`."""
    return ArtifactError(error.message, metadata={**error.metadata, "model": name})


def make_unreadable_error(name: str, reason: str) -> ArtifactError:
    """Return the error of a model's folder that cannot be read."""
    return add_model_name(name, ArtifactError(f"{name}: the folder cannot be read: {reason}"))


def check_aliases(folder: Path, runtime: Runtime) -> list[ArtifactError]:
    """Check the aliases of a model; each must name a version that loads."""
    try:
        aliases = read_aliases(folder)
    except ArtifactError as error:
        return [error]
    there = frozenset(aliases.values()) & list_versions(folder)
    models = {version: _load_or_error(folder / str(version), (folder.name, version), runtime) for version in there}
    served = _merge_versions(replace(NOTHING, aliases=aliases), models, there=there, dropped=())
    return [_make_lost_alias_error(folder.name, served, alias) for alias in served.lost_aliases()]


def _load_or_error(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Predictor | ArtifactError:
    try:
        return load_model(folder, identity, runtime)
    except ArtifactError as error:
        return error
