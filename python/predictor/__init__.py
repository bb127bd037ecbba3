"""Quantra's deployed half: what a forecaster is, and how it is asked.

`from predictor import Forecaster` loads torch when the name is first used, so that `import predictor` stays instant.
"""

from typing import TYPE_CHECKING

from predictor.bars import BarPanel
from predictor.forecast import Attribution, Forecast

if TYPE_CHECKING:
    from predictor.forecaster import Forecaster

__all__ = ["Attribution", "BarPanel", "Forecast", "Forecaster"]


def __getattr__(name: str) -> object:
    if name == "Forecaster":
        from predictor.forecaster import Forecaster

        return Forecaster
    raise AttributeError(f"module 'predictor' has no attribute {name!r}")
