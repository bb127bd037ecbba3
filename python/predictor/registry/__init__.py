"""The models of a folder, found by reference: `NAME/VERSION/` artifacts and `NAME/aliases.json`.

A `Registry` is a value: it never changes. `ModelsFolder` makes new ones of it, when models are loaded, unloaded or read
again, and `FolderWatcher` when something in the folder has changed. Each version is verified when it is read; what a
plain name means is built at once, the others at their first call.
"""

from predictor.registry.folder_watcher import FolderState, FolderWatcher, RegistryChange
from predictor.registry.layout import ALIASES, CHAMPION, contents, read_aliases, set_alias
from predictor.registry.loading import LazyModel, Runtime, built_single, load_model, load_single
from predictor.registry.lock import VersionLock
from predictor.registry.registry import ModelsFolder, Registry
from predictor.registry.versions import ModelVersions, alias_problems

__all__ = [
    "ALIASES",
    "CHAMPION",
    "FolderState",
    "FolderWatcher",
    "LazyModel",
    "ModelVersions",
    "ModelsFolder",
    "Registry",
    "RegistryChange",
    "Runtime",
    "VersionLock",
    "alias_problems",
    "built_single",
    "contents",
    "load_model",
    "load_single",
    "read_aliases",
    "set_alias",
]
