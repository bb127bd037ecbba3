"""The registry of models in a folder of `NAME/VERSION/` artifacts and `NAME/aliases.json`."""

from predictor.registry.folder_watcher import FolderState, FolderWatcher, RegistryChange
from predictor.registry.layout import (
    ALIASES,
    CHAMPION,
    claim_champion,
    claim_first_champion,
    contents,
    read_aliases,
    set_alias,
)
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
    "claim_champion",
    "claim_first_champion",
    "contents",
    "load_model",
    "load_single",
    "read_aliases",
    "set_alias",
]
