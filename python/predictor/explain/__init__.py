"""Explanations of forecasts: signed contributions of all inputs in the target's unit, which add up.

Gradients come from an *attribution view*, a second module tree over the weights of the served network.
"""

from predictor.explain.integrated_gradients import MOST_ROWS, Contributions, Explainer, ExplanationCost
from predictor.explain.integration import NODE_COUNTS, gauss_legendre
from predictor.explain.path import Baseline
from predictor.explain.tree_shap import TRAINING_WINDOWS, TreeExplainer
from predictor.explain.view import build_attribution_view

__all__ = [
    "MOST_ROWS",
    "NODE_COUNTS",
    "TRAINING_WINDOWS",
    "Baseline",
    "Contributions",
    "Explainer",
    "ExplanationCost",
    "TreeExplainer",
    "build_attribution_view",
    "gauss_legendre",
]
