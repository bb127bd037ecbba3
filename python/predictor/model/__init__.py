"""A loaded model: an immutable handle that turns instances into forecasts and queries into attributions."""

from predictor.model.answers import UNITS, Answering, Identity, ranks_of
from predictor.model.ensemble import Ensemble
from predictor.model.ensemble_outputs import joint_quantiles
from predictor.model.explaining import explain_each
from predictor.model.model import Model, output_map
from predictor.model.prepared import Prepared, bars_doubts, bounded

__all__ = [
    "UNITS",
    "Answering",
    "Ensemble",
    "Identity",
    "Model",
    "Prepared",
    "bars_doubts",
    "bounded",
    "explain_each",
    "joint_quantiles",
    "output_map",
    "ranks_of",
]
