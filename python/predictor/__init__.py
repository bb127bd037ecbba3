"""The serving half of Quantra: models, forecasts and explanations, in process or through a server.

Names are imported lazily, so that `import predictor` is instant. Only `Forecaster` loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from predictor.bars import BarPanel
    from predictor.forecast import Attribution, Forecast
    from predictor.forecaster import Forecaster

__all__ = ["Attribution", "BarPanel", "Forecast", "Forecaster"]

_HOMES: Final = {
    "Attribution": "predictor.forecast",
    "BarPanel": "predictor.bars",
    "Forecast": "predictor.forecast",
    "Forecaster": "predictor.forecaster",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'predictor' has no attribute {name!r}")
