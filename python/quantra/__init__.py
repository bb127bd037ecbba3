"""Quantra: train stock forecasters, and forecast quantiles of future returns.

Most programs need `BarPanel`, `StockTrainer`, `Forecaster` and `QuantraClient`. Names load on first use, so the package
imports instantly and the client never imports torch.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from predictor.bars import BarPanel
    from predictor.client import AsyncQuantraClient, QuantraClient
    from predictor.errors import QuantraError
    from predictor.forecast import Attribution, Forecast
    from predictor.forecaster import Forecaster
    from predictor.ledger import Ledger
    from trainers.stock.trainer import StockTrainer

__all__ = [
    "AsyncQuantraClient",
    "Attribution",
    "BarPanel",
    "Forecast",
    "Forecaster",
    "Ledger",
    "QuantraClient",
    "QuantraError",
    "StockTrainer",
]

_MODULES: Final = {
    "AsyncQuantraClient": "predictor.client",
    "Attribution": "predictor.forecast",
    "BarPanel": "predictor.bars",
    "Forecast": "predictor.forecast",
    "Forecaster": "predictor.forecaster",
    "Ledger": "predictor.ledger",
    "QuantraClient": "predictor.client",
    "QuantraError": "predictor.errors",
    "StockTrainer": "trainers.stock.trainer",
}


def _check_not_shadowed() -> None:
    """Raise ImportError if `predictor` or `trainers` would be imported from somewhere other than this installation."""
    installation = Path(__file__).resolve().parent.parent
    for name in ("predictor", "trainers"):
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin is not None else None
        if origin is None:
            raise ImportError(f"Quantra needs its package {name!r} in {installation}; install Quantra again", name=name)
        if origin.parent != installation / name:
            shadow = origin if origin.stem == name else origin.parent
            raise ImportError(
                f"{shadow} has the name of a package that Quantra needs; rename it (to my_{name}, for example) or "
                "start Python from another folder",
                name=name,
                path=str(shadow),
            )


_check_not_shadowed()


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'quantra' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
