"""Loaded models, which turn instances into forecasts and queries into attributions."""

from predictor.model.ensemble import Ensemble, ensemble_info, member_identities
from predictor.model.ensemble_outputs import joint_quantiles
from predictor.model.explanations import explain_each
from predictor.model.model import Model, model_info, output_map
from predictor.model.predictor import UNITS, ModelIdentity, Predictor, PreparedBatch, default_targets, ranks_of
from predictor.model.prepared_instance import PreparedInstance, bars_warnings, bounded

__all__ = [
    "UNITS",
    "Ensemble",
    "Model",
    "ModelIdentity",
    "Predictor",
    "PreparedBatch",
    "PreparedInstance",
    "bars_warnings",
    "bounded",
    "default_targets",
    "ensemble_info",
    "explain_each",
    "joint_quantiles",
    "member_identities",
    "model_info",
    "output_map",
    "ranks_of",
]
