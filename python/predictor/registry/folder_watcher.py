"""Following a folder of models by looking at it now and then; no threads, and nothing on disk makes it raise."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final

from predictor.errors import ArtifactError
from predictor.registry.layout import ALIASES, names_in, versions_in
from predictor.registry.registry import ModelsFolder, Registry

Signature = frozenset[tuple[str, int, int, int]]
"""Name, size, modification time in ns and inode of each file below a version's folder: cheap, and changes with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolderState:
    """What a model's folder looked like."""

    versions: Mapping[int, Signature]
    aliases: bytes | None
    """What is in its file of aliases; None if that is missing or cannot be read."""
    trouble: str = ""
    """Why the folder could not be looked into."""

    @classmethod
    def of(cls, line: Path) -> Self | None:
        """What a model's folder looks like; None if it is gone."""
        try:
            versions = {version: _signature(line / str(version)) for version in versions_in(line)}
        except FileNotFoundError:
            return None
        except OSError as error:
            return cls(versions={}, aliases=None, trouble=str(error.strerror))
        return cls(versions=versions, aliases=_content(line / ALIASES))

    def changed_since(self, before: "ModelFolderState | None") -> frozenset[int]:
        """Versions that are new or look different."""
        known = before.versions if before else {}
        return frozenset(version for version, seen in self.versions.items() if known.get(version) != seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What a folder of models looked like."""

    lines: Mapping[str, ModelFolderState]
    trouble: str = ""
    """Why the folder could not be looked into."""

    @classmethod
    def of(cls, models: Path) -> Self:
        """What a folder of models looks like; costs one look at each file's entry and reads only aliases."""
        try:
            found = {name: ModelFolderState.of(models / name) for name in sorted(names_in(models))}
        except OSError as error:
            return cls(lines={}, trouble=str(error.strerror))
        return cls(lines={name: line for name, line in found.items() if line is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryChange:
    """What became of a registry when the folder was looked at."""

    registry: Registry
    """The same object if there was nothing to do."""
    problems: tuple[ArtifactError, ...]
    """What is wrong since this look; what was wrong before and still is, is not told again."""


@final
class FolderWatcher:
    """Looks at a folder of models, and does what has changed there since it looked last.

    Make it before the folder is opened: what changes while that is done is then seen at the first poll.
    """

    def __init__(self, folder: ModelsFolder) -> None:
        """Look for the first time, at a folder that is about to be opened."""
        self._folder = folder
        self._seen = FolderState.of(folder.path)

    @property
    def seen(self) -> FolderState:
        """What the folder looked like when it was looked at last."""
        return self._seen

    def forget_since(self, seen: FolderState) -> None:
        """Do again at the next poll what has changed since the folder looked so."""
        self._seen = seen

    def poll(self, registry: Registry) -> RegistryChange:
        """The registry that the folder makes of this one.

        New versions are loaded, changed ones replaced, missing ones dropped; aliases move what is live. What cannot be
        served is a problem, what was served in its place stays, and it is tried again when its files have changed.
        """
        now = FolderState.of(self._folder.path)
        if now.trouble:
            return self._troubled(registry, now.trouble)
        after = registry
        for name in sorted(now.lines.keys() | self._seen.lines.keys()):
            before, line = self._seen.lines.get(name), now.lines.get(name)
            if line != before:
                after = self._followed(after, name, before, line)
        self._seen = now
        known = {_gist(problem) for problem in registry.problems}
        return RegistryChange(registry=after, problems=tuple(p for p in after.problems if _gist(p) not in known))

    def _troubled(self, registry: Registry, trouble: str) -> RegistryChange:
        """The registry as it is; told once."""
        is_known = self._seen.trouble == trouble
        self._seen = replace(self._seen, trouble=trouble)
        problem = ArtifactError(f"the folder of models cannot be read: {trouble}; what was served stays")
        return RegistryChange(registry=registry, problems=() if is_known else (problem,))

    def _followed(
        self, registry: Registry, name: str, before: ModelFolderState | None, now: ModelFolderState | None
    ) -> Registry:
        if now is None:
            return self._folder.vanished(registry, name)
        if now.trouble:
            return self._folder.doubted(registry, name, now.trouble)
        return self._folder.follow(registry, name, there=frozenset(now.versions), changed=now.changed_since(before))


def _signature(version: Path) -> Signature:
    """Of what lies in a folder, also of what does not belong there."""
    found: set[tuple[str, int, int, int]] = set()
    for folder, _, names in os.walk(version):
        for path in (Path(folder, name) for name in names):
            try:
                entry = path.lstat()
            except OSError:
                continue  # gone meanwhile, which the next look sees
            found.add((path.relative_to(version).as_posix(), entry.st_size, entry.st_mtime_ns, entry.st_ino))
    return frozenset(found)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _gist(problem: ArtifactError) -> tuple[str | None, str | None, str]:
    """What a problem is; of a version apart from numbers, as those of a file that is still being copied change."""
    version = problem.metadata.get("version")
    message = problem.message if version is None else re.sub(r"\d+", "", problem.message)
    return problem.metadata.get("model"), version, message
