"""Loaded models, which turn instances into forecasts and queries into attributions."""

from predictor.model.ensemble import Ensemble, describe_ensemble, identify_members
from predictor.model.ensemble_outputs import average_quantiles, combine_quantiles, weigh_quantiles
from predictor.model.explanations import explain_each
from predictor.model.model import Model, build_output_map, describe_model
from predictor.model.predictor import (
    UNITS,
    ModelIdentity,
    Predictor,
    PreparedBatch,
    TwoStagePredictor,
    compute_prices,
    list_default_targets,
    rank_scores,
)
from predictor.model.prepared_instance import PreparedInstance, find_bars_warnings, limit_warnings

__all__ = [
    "UNITS",
    "Ensemble",
    "Model",
    "ModelIdentity",
    "Predictor",
    "PreparedBatch",
    "PreparedInstance",
    "TwoStagePredictor",
    "average_quantiles",
    "build_output_map",
    "combine_quantiles",
    "compute_prices",
    "describe_ensemble",
    "describe_model",
    "explain_each",
    "find_bars_warnings",
    "identify_members",
    "limit_warnings",
    "list_default_targets",
    "rank_scores",
    "weigh_quantiles",
]
