"""Quantra's training half: how a forecaster is trained.

`from trainers import StockTrainer` loads torch when the name is first used, so that `import trainers` stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trainers.stock.trainer import StockTrainer

__all__ = ["StockTrainer"]

_HOMES: Final = {"StockTrainer": "trainers.stock.trainer"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'trainers' has no attribute {name!r}")
