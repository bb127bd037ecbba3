"""Explanations of forecasts: signed contributions of all inputs in the target's unit, which add up.

Gradients come from an *attribution view*, a second module tree over the weights of the served network.
"""

from predictor.explain.cost import MOST_ROWS, ExplanationCost
from predictor.explain.integrated_gradients import Contributions, Explainer
from predictor.explain.integration import NODE_COUNTS, gauss_legendre
from predictor.explain.path import Baseline
from predictor.explain.view import attribution_view, rnn_backward_mode

__all__ = [
    "MOST_ROWS",
    "NODE_COUNTS",
    "Baseline",
    "Contributions",
    "Explainer",
    "ExplanationCost",
    "attribution_view",
    "gauss_legendre",
    "rnn_backward_mode",
]
