"""The models of a folder, found by reference: `NAME/VERSION/` artifacts and `NAME/aliases.json`.

A `Registry` is a value: it never changes. `ModelsFolder` makes new ones of it, when models are loaded, unloaded or read
again, and `Watch` when something in the folder has changed. Each version is verified when it is read; what a plain name
means is built at once, the others at their first call.
"""

from predictor.registry.contents import contents
from predictor.registry.folder import ModelsFolder
from predictor.registry.layout import ALIASES, CHAMPION, read_aliases, set_alias
from predictor.registry.lazy import LazyModel
from predictor.registry.line import ModelLine, alias_problems
from predictor.registry.loading import Runtime, built_single, load_model, load_single
from predictor.registry.lock import Lock
from predictor.registry.registry import Registry
from predictor.registry.watch import Change, FolderState, Watch

__all__ = [
    "ALIASES",
    "CHAMPION",
    "Change",
    "FolderState",
    "LazyModel",
    "Lock",
    "ModelLine",
    "ModelsFolder",
    "Registry",
    "Runtime",
    "Watch",
    "alias_problems",
    "built_single",
    "contents",
    "load_model",
    "load_single",
    "read_aliases",
    "set_alias",
]
