"""A loaded model: an immutable handle that turns instances into forecasts and queries into attributions."""

from predictor.model.answering import Answering, Outcome
from predictor.model.answers import UNITS, Identity, ranks_of
from predictor.model.combination import joint_quantiles
from predictor.model.ensemble import Ensemble
from predictor.model.handle import Model, output_map
from predictor.model.prepared import Prepared

__all__ = [
    "UNITS",
    "Answering",
    "Ensemble",
    "Identity",
    "Model",
    "Outcome",
    "Prepared",
    "joint_quantiles",
    "output_map",
    "ranks_of",
]
