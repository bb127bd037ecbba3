"""The registry of models in a folder of `NAME/VERSION/` artifacts and `NAME/aliases.json`."""

from predictor.registry.alias_history import HISTORY, AliasMove, GateResult, MoveKind, read_moves
from predictor.registry.folder_watcher import FolderState, FolderWatcher, RegistryChange
from predictor.registry.layout import (
    ALIASES,
    CHAMPION,
    claim_champion,
    claim_first_champion,
    find_model_folder,
    find_version,
    list_models,
    promote_version,
    read_aliases,
    read_histories,
    roll_back,
    set_alias,
)
from predictor.registry.lock import VersionLock
from predictor.registry.model_loader import LazyModel, Runtime, load_model, load_single
from predictor.registry.registry import ModelsFolder, Registry
from predictor.registry.versions import ModelVersions, check_aliases

__all__ = [
    "ALIASES",
    "CHAMPION",
    "HISTORY",
    "AliasMove",
    "FolderState",
    "FolderWatcher",
    "GateResult",
    "LazyModel",
    "ModelVersions",
    "ModelsFolder",
    "MoveKind",
    "Registry",
    "RegistryChange",
    "Runtime",
    "VersionLock",
    "check_aliases",
    "claim_champion",
    "claim_first_champion",
    "find_model_folder",
    "find_version",
    "list_models",
    "load_model",
    "load_single",
    "promote_version",
    "read_aliases",
    "read_histories",
    "read_moves",
    "roll_back",
    "set_alias",
]
