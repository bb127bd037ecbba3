"""Polling of a models folder for changes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final

from predictor.errors import ArtifactError
from predictor.registry.layout import ALIASES, list_names, list_versions
from predictor.registry.registry import ModelsFolder, Registry

Signature = frozenset[tuple[str, int, int, int, int]]
"""Name, size, modification time in ns and inode of each file below a version's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolderState:
    """Snapshot of one model's folder."""

    versions: Mapping[int, Signature]
    aliases: bytes | None
    """Content of the aliases file; None if it is missing or unreadable."""
    trouble: str = ""
    """Why the folder cannot be read; empty if it can."""

    @classmethod
    def of(cls, model_folder: Path) -> Self | None:
        """Take a snapshot of a model's folder; None if the folder does not exist."""
        try:
            versions = {
                version: _compute_signature(model_folder / str(version)) for version in list_versions(model_folder)
            }
        except FileNotFoundError:
            return None
        except OSError as error:
            return cls(versions={}, aliases=None, trouble=str(error.strerror))
        return cls(versions=versions, aliases=_read_content(model_folder / ALIASES))

    def changed_since(self, before: "ModelFolderState | None") -> frozenset[int]:
        """Return versions that are new or changed."""
        known = before.versions if before else {}
        return frozenset(version for version, state in self.versions.items() if known.get(version) != state)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """Snapshot of a models folder."""

    models: Mapping[str, ModelFolderState]
    trouble: str = ""
    """Why the folder cannot be read; empty if it can."""

    @classmethod
    def of(cls, models: Path) -> Self:
        """Take a snapshot of a models folder; reads only directory entries and aliases."""
        try:
            models_by_name = {name: ModelFolderState.of(models / name) for name in sorted(list_names(models))}
        except OSError as error:
            return cls(models={}, trouble=str(error.strerror))
        return cls(models={name: state for name, state in models_by_name.items() if state is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryChange:
    """The result of one poll."""

    registry: Registry
    """The same object if nothing changed."""
    problems: tuple[ArtifactError, ...]
    """Problems that are new since the last poll."""


@final
class FolderWatcher:
    """Polls a models folder and applies its changes to the registry. Errors on disk never raise.

    Create it before you open the folder, so that the first poll sees changes made in the meantime.
    """

    def __init__(self, folder: ModelsFolder) -> None:
        """Take the first snapshot of a folder that is about to be opened."""
        self._folder = folder
        self._last_state = FolderState.of(folder.path)

    @property
    def seen(self) -> FolderState:
        """The last snapshot of the folder."""
        return self._last_state

    def rescan_since(self, snapshot: FolderState) -> None:
        """Make the next poll apply all changes since this snapshot again."""
        self._last_state = snapshot

    def poll(self, registry: Registry) -> RegistryChange:
        """Apply the changes in the folder and return the new registry.

        It loads new versions, replaces changed ones, drops missing ones and applies aliases. A version that cannot be
        served becomes a problem: its predecessor stays, and the watcher retries when the files change.
        """
        now = FolderState.of(self._folder.path)
        if now.trouble:
            # Keep the registry and report the problem once.
            trouble = now.trouble
            is_known = self._last_state.trouble == trouble
            self._last_state = replace(self._last_state, trouble=trouble)
            problem = ArtifactError(f"the folder of models cannot be read: {trouble}; what was served stays")
            return RegistryChange(registry=registry, problems=() if is_known else (problem,))
        after = registry
        for name in sorted(now.models.keys() | self._last_state.models.keys()):
            before, state = self._last_state.models.get(name), now.models.get(name)
            if state == before:
                continue
            if state is None:
                after = self._folder.drop_model(after, name)
            elif state.trouble:
                after = self._folder.mark_unreadable(after, name, state.trouble)
            else:
                there = frozenset(state.versions)
                after = self._folder.follow(after, name, there=there, changed=state.changed_since(before))
        self._last_state = now
        return RegistryChange(registry=after, problems=after.problems_since(registry))


def _compute_signature(version: Path) -> Signature:
    """Compute the signature of all files in a folder, including unexpected ones."""
    signature: set[tuple[str, int, int, int, int]] = set()
    for folder, _, names in os.walk(version):
        for path in (Path(folder, name) for name in names):
            try:
                entry = path.lstat()
            except OSError:
                continue  # deleted meanwhile; the next poll sees it
            changes = entry.st_mtime_ns, entry.st_ctime_ns  # new permissions change only the second
            signature.add((path.relative_to(version).as_posix(), entry.st_size, *changes, entry.st_ino))
    return frozenset(signature)


def _read_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None
