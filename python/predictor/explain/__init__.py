"""Explanations of forecasts: signed contributions of all inputs in the target's unit, which add up.

Networks have integrated gradients, whose gradients come from an *attribution view*, a second module tree over the
weights of the served network. Trees have their own Shapley values. Both also have those of one common method. Every
model has occlusion, which does not add up.
"""

from predictor.explain.integrated_gradients import (
    MAX_ROWS,
    Contributions,
    Explainer,
    ExplanationCost,
    build_attribution_view,
)
from predictor.explain.integration import NODE_COUNTS, FeatureForecasts, compute_gauss_legendre
from predictor.explain.occlusion import BarOcclusionExplainer, FeatureOcclusionExplainer, group_bars
from predictor.explain.path import Baseline
from predictor.explain.shapley import ShapleyExplainer, count_forecasts
from predictor.explain.tree_shap import TreeExplainer

__all__ = [
    "MAX_ROWS",
    "NODE_COUNTS",
    "BarOcclusionExplainer",
    "Baseline",
    "Contributions",
    "Explainer",
    "ExplanationCost",
    "FeatureForecasts",
    "FeatureOcclusionExplainer",
    "ShapleyExplainer",
    "TreeExplainer",
    "build_attribution_view",
    "compute_gauss_legendre",
    "count_forecasts",
    "group_bars",
]
