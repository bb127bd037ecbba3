"""A loaded model: an immutable handle that turns instances into forecasts and queries into attributions."""

from predictor.model.answers import UNITS, Identity
from predictor.model.handle import Model, output_map
from predictor.model.prepared import Prepared

__all__ = ["UNITS", "Identity", "Model", "Prepared", "output_map"]
